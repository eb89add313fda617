//! The two containers of an environment, option by option. Nothing here comes from a user but numbers.

use std::path::Path;

use events::spec::{ImageDigest, Limits, Mechanism};

use super::config::ContainerConfig;
use super::private::PrivateFiles;

/// What of a file's size limit the command may go beyond the workspace's own limit, so that the quota, not a signal, is
/// what stops it.
const FSIZE_SLACK_BYTES: u64 = 64 * 1024;
/// What gVisor itself needs of the container's processes: at a low limit its own kernel dies. The command's limit is set on the
/// command there.
const GVISOR_PIDS: u64 = 1024;
/// Processes of a files container: init, the guest and its helpers.
const FILES_PIDS_MAX: u64 = 128;
/// A file in memory has at least this much of its mount's size to itself: what bounds bytes then bounds files as well, which
/// otherwise only the host's memory would.
const TMPFS_BYTES_PER_INODE: u64 = 4096;

/// The largest file a command may write.
pub(super) const fn file_size_max(limits: &Limits) -> u64 {
    limits.workspace_bytes.saturating_add(FSIZE_SLACK_BYTES)
}

/// What both containers have in common: no right that is not named, nothing writable that is not mounted, no network, no log
/// driver, nothing restarted behind our back.
fn common(name: &str, seccomp: &Path, volume: &str, pids_max: u64, memory_bytes: u64) -> Vec<String> {
    let mut arguments: Vec<String> =
        ["run", "--detach", "--pull", "never", "--user", "0:0"].map(Into::into).into();
    let mut add = |option: &str, value: String| arguments.extend([option.to_owned(), value]);
    add("--name", name.to_owned());
    add("--cap-drop", "ALL".to_owned());
    add("--security-opt", "no-new-privileges".to_owned());
    add("--security-opt", format!("seccomp={}", seccomp.display()));
    add("--log-driver", "none".to_owned());
    add("--network", "none".to_owned());
    add("--ipc", "private".to_owned());
    add("--restart", "no".to_owned());
    add("--stop-timeout", "1".to_owned());
    add("--pids-limit", pids_max.to_string());
    add("--memory", memory_bytes.to_string());
    add("--memory-swap", memory_bytes.to_string());
    add("--ulimit", "core=0:0".to_owned());
    add("--ulimit", "msgqueue=0:0".to_owned());
    add("--mount", format!("type=volume,source={volume},target=/workspace,volume-nocopy"));
    add("--workdir", "/".to_owned());
    arguments.push("--read-only".to_owned());
    arguments
}

/// A file system in memory with both limits.
fn tmpfs(target: &str, options: &str, size_bytes: u64) -> String {
    let inodes = (size_bytes / TMPFS_BYTES_PER_INODE).max(1);
    format!("{target}:rw,nosuid,nodev,{options},size={size_bytes},nr_inodes={inodes}")
}

/// The sandbox: four capabilities for the guest's init and spawn, which every command loses before it starts.
pub(super) fn sandbox(
    config: &ContainerConfig,
    private: &PrivateFiles,
    limits: &Limits,
    image: &ImageDigest,
    name: &str,
    volume: &str,
    labels: Vec<String>,
) -> Vec<String> {
    let is_gvisor = config.mechanism == Mechanism::Gvisor;
    let pids_max = limits.pids_max + if is_gvisor { GVISOR_PIDS } else { 0 };
    let mut arguments = common(name, &private.sandbox_seccomp(), volume, pids_max, limits.memory_bytes);
    let mut add = |option: &str, value: String| arguments.extend([option.to_owned(), value]);
    if is_gvisor {
        add("--runtime", config.gvisor_runtime.clone());
    }
    for capability in ["SETUID", "SETGID", "SETPCAP", "KILL"] {
        add("--cap-add", capability.to_owned());
    }
    add("--hostname", "sandbox".to_owned());
    // Without a network nothing answers names: resolvers fail at once, and the host's own is not shown.
    add("--dns", "127.0.0.1".to_owned());
    add("--dns-search", ".".to_owned());
    add("--dns-option", "timeout:1".to_owned());
    add("--dns-option", "attempts:1".to_owned());
    add("--tmpfs", tmpfs("/tmp", "exec,mode=1777", config.tmp_bytes));
    // In place of the engine's own, which has no limit on files.
    add("--tmpfs", tmpfs("/dev/shm", "noexec,mode=1777", config.shm_bytes));
    add("--tmpfs", tmpfs("/run", "noexec,mode=755", 1 << 20));
    // A quota, not --cpus: that one is refused when it is more than the machine has.
    add("--cpu-period", "100000".to_owned());
    add("--cpu-quota", limits.cpu_millicores.saturating_mul(100).max(1000).to_string());
    let nofile = config.open_files_max;
    add("--ulimit", format!("nofile={nofile}:{nofile}"));
    let fsize = file_size_max(limits);
    add("--ulimit", format!("fsize={fsize}:{fsize}"));
    add("--entrypoint", "/leasehold/guest".to_owned());
    arguments.extend(labels);
    arguments.extend([image.to_string(), "init".to_owned()]);
    arguments
}

/// The files container, in the engine's default runtime whatever the mechanism: three capabilities to read and hand over any file of the workspace, an image of one binary.
pub(super) fn files(
    config: &ContainerConfig,
    private: &PrivateFiles,
    image: &ImageDigest,
    name: &str,
    volume: &str,
    labels: Vec<String>,
) -> Vec<String> {
    let mut arguments =
        common(name, &private.files_seccomp(), volume, FILES_PIDS_MAX, config.files_memory_bytes);
    let mut add = |option: &str, value: String| arguments.extend([option.to_owned(), value]);
    for capability in ["DAC_OVERRIDE", "CHOWN", "FOWNER"] {
        add("--cap-add", capability.to_owned());
    }
    add("--hostname", "files".to_owned());
    add("--shm-size", "65536".to_owned());
    add("--cpu-period", "100000".to_owned());
    add("--cpu-quota", "100000".to_owned());
    add("--ulimit", "nofile=1024:1024".to_owned());
    add("--entrypoint", "/guest".to_owned());
    arguments.extend(labels);
    arguments.extend([image.to_string(), "init".to_owned()]);
    arguments
}

/// A container that empties a workspace and ends: a files container with another command, waited for.
pub(super) fn empty(
    config: &ContainerConfig,
    private: &PrivateFiles,
    image: &ImageDigest,
    name: &str,
    volume: &str,
    labels: Vec<String>,
) -> Vec<String> {
    let mut arguments = files(config, private, image, name, volume, labels);
    arguments.retain(|argument| argument != "--detach");
    arguments.insert(1, "--rm".to_owned());
    arguments.pop();
    arguments.push("empty".to_owned());
    arguments
}
