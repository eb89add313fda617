//! What the figures were taken on.

use serde_json::{Value, json};

use crate::Failure;
use crate::programs::text;

/// Processor, memory, kernel, engine and the file system that takes the durable writes.
pub(crate) fn facts() -> Result<Value, Failure> {
    let cpu = std::fs::read_to_string("/proc/cpuinfo")?;
    let memory = std::fs::read_to_string("/proc/meminfo")?;
    let value = |text: &str, key: &str| {
        let line = text.lines().find(|line| line.starts_with(key))?;
        Some(line.split_once(':')?.1.trim().to_owned())
    };
    let temporary = std::env::temp_dir().display().to_string();
    Ok(json!({
        "cpu": value(&cpu, "model name"),
        "cpus": std::thread::available_parallelism()?.get(),
        "memory": value(&memory, "MemTotal"),
        "kernel": std::fs::read_to_string("/proc/sys/kernel/osrelease")?.trim(),
        "engine": text("docker", &["version", "--format", "{{.Server.Version}}"])?,
        "engine_client": text("docker", &["version", "--format", "{{.Client.Version}}"])?,
        "file_system": text("stat", &["--file-system", "--format", "%T", &temporary])?,
    }))
}

/// Load averages of one, five and fifteen minutes, as the kernel says them.
pub(crate) fn load() -> Option<String> {
    let text = std::fs::read_to_string("/proc/loadavg").ok()?;
    Some(text.split(' ').take(3).collect::<Vec<_>>().join(" "))
}
