//! The two containers of an environment, option by option. Nothing here comes from a user but numbers.

use std::path::Path;

use events::spec::{ImageDigest, Limits, Mechanism};

use super::config::{Backing, ContainerConfig};
use super::private::PrivateFiles;

/// A file may grow this far beyond what is left: the quota, not a signal, is what stops it.
pub(super) const FILE_SLACK_BYTES: u64 = 64 * 1024;
/// What gVisor itself needs of the container's processes, besides what each process in it needs.
const GVISOR_PIDS: u64 = 1024;
/// What one busy process in gVisor costs in processes and threads of the host: one for every thread of gVisor's own that has run
/// it (30 were seen with 200 busy processes on two processors). At the limit gVisor's kernel dies and the environment with it, so
/// it is far above what the command's own limit, set on the command, lets happen.
const GVISOR_PIDS_EACH: u64 = 32;
/// The most for one sandbox: half of the process numbers that a small host has.
const GVISOR_PIDS_MAX: u64 = 16_384;
/// Processes of a files container: init, the guest and its helpers.
const FILES_PIDS_MAX: u64 = 128;
/// A file in memory has at least this much of its mount's size to itself: what bounds bytes then bounds files as well, which
/// otherwise only the host's memory would.
const TMPFS_BYTES_PER_INODE: u64 = 4096;

/// The largest file a command may write.
pub(super) const fn file_size_ceiling(limits: &Limits) -> u64 {
    limits.workspace_bytes.saturating_add(FILE_SLACK_BYTES)
}

/// Beyond the limits, so that a workspace that is full is seen to be over them: pages, and inodes with those of ours.
const TMPFS_SLACK_BYTES: u64 = 1 << 20;
const TMPFS_SLACK_INODES: u64 = 16;

/// What a files container needs beside the pages of a workspace in memory, at least: some 30 MiB of contents on their way, a
/// baseline of [`BASELINE_INODES`] and two walks beside it, itself. Its baseline of many files more.
const FILES_OWN_BYTES: u64 = 96 << 20;
const BASELINE_INODES: u64 = 100_000;
const BASELINE_INODE_BYTES: u64 = 320;

/// The workspace's volume. The engine makes it for whichever of the two containers comes first, the same whichever that is.
pub(super) struct WorkspaceVolume {
    name: String,
    labels: Vec<String>,
    options: Vec<String>,
}

impl WorkspaceVolume {
    pub(super) fn new(name: &str, labels: Vec<String>, backing: Backing, limits: &Limits) -> Self {
        Self { name: name.to_owned(), labels, options: volume_options(backing, limits) }
    }

    /// One that is there already.
    pub(super) fn existing(name: &str) -> Self {
        Self { name: name.to_owned(), labels: Vec::new(), options: Vec::new() }
    }

    /// A container's mount of it: one line of comma-separated values.
    fn mount(&self) -> String {
        let mut mount = format!("type=volume,source={},target=/workspace,volume-nocopy", self.name);
        let labels = self.labels.iter().map(|label| format!(",volume-label={label}"));
        // Options have commas of their own, and neither has a quotation mark.
        let options = self.options.iter().map(|option| format!(",\"volume-opt={option}\""));
        mount.extend(labels.chain(options));
        mount
    }
}

fn volume_options(backing: Backing, limits: &Limits) -> Vec<String> {
    let Backing::Tmpfs = backing else { return Vec::new() };
    let size = limits.workspace_bytes.saturating_add(TMPFS_SLACK_BYTES);
    let inodes = limits.inodes_max.saturating_add(TMPFS_SLACK_INODES);
    let options = format!("o=size={size},nr_inodes={inodes},uid=0,gid=0,mode=1777,nosuid,nodev");
    ["type=tmpfs".to_owned(), "device=tmpfs".to_owned(), options].into()
}

/// Pages of a workspace in memory are charged to whoever wrote them, the files container for what the API writes.
pub(super) fn files_memory_bytes(config: &ContainerConfig, limits: &Limits) -> u64 {
    match config.backing {
        Backing::Volume => config.files_memory_bytes,
        Backing::Tmpfs => {
            let baseline = limits.inodes_max.saturating_sub(BASELINE_INODES) * BASELINE_INODE_BYTES;
            let needed = limits.workspace_bytes.saturating_add(FILES_OWN_BYTES).saturating_add(baseline);
            needed.max(config.files_memory_bytes)
        }
    }
}

/// The container's limit of processes under gVisor.
fn host_pids(pids_max: u64) -> u64 {
    pids_max.saturating_mul(GVISOR_PIDS_EACH).saturating_add(GVISOR_PIDS).min(GVISOR_PIDS_MAX)
}

/// The client that starts a container keeps its standard streams: they are its first channel. The engine closes the container's
/// input when that client is gone.
const ATTACHED: &[&str] = &["--interactive", "--sig-proxy=false"];

/// A client that ends when the container runs: its first channel is an exec, as every later one.
const DETACHED: &[&str] = &["--detach"];

/// Whether a sandbox's own streams carry its first channel. Not under gVisor: control of a sandbox there needs descriptors that
/// code can use up. An exec gives its own back when the channel closes, so a kill finds some; a container's own streams stay
/// open as long as it runs (decision 0012).
pub(super) fn sandbox_is_attached(mechanism: Mechanism) -> bool {
    mechanism != Mechanism::Gvisor
}

/// The guest's command as PID 1, which says what the first channel leads to.
const INIT_SANDBOX: [&str; 2] = ["init", "sandbox"];
const INIT_FILES: [&str; 2] = ["init", "files"];

/// What both containers have in common: no right that is not named, nothing writable that is not mounted, no network, no log
/// driver, nothing restarted behind our back.
fn common(
    client: &[&str],
    name: &str,
    seccomp: &Path,
    volume: &WorkspaceVolume,
    pids_max: u64,
    memory_bytes: u64,
) -> Vec<String> {
    let words = ["run"].iter().chain(client).chain(&["--pull", "never", "--user", "0:0"]);
    let mut arguments: Vec<String> = words.map(|word| (*word).to_owned()).collect();
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
    add("--mount", volume.mount());
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
    volume: &WorkspaceVolume,
    labels: Vec<String>,
) -> Vec<String> {
    let is_gvisor = config.mechanism == Mechanism::Gvisor;
    let pids_max = if is_gvisor { host_pids(limits.pids_max) } else { limits.pids_max };
    let client = if sandbox_is_attached(config.mechanism) { ATTACHED } else { DETACHED };
    let (seccomp, memory_bytes) = (private.sandbox_seccomp(), limits.memory_bytes);
    let mut arguments = common(client, name, &seccomp, volume, pids_max, memory_bytes);
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
    let fsize = file_size_ceiling(limits);
    add("--ulimit", format!("fsize={fsize}:{fsize}"));
    add("--entrypoint", "/leasehold/guest".to_owned());
    arguments.extend(super::labels::arguments(labels));
    arguments.push(image.to_string());
    arguments.extend(INIT_SANDBOX.map(Into::into));
    arguments
}

/// A container that empties a workspace and ends: a files container with another command, waited for.
pub(super) fn emptying(mut files: Vec<String>) -> Vec<String> {
    files.retain(|argument| !ATTACHED.contains(&argument.as_str()));
    files.insert(1, "--rm".to_owned());
    files.truncate(files.len() - INIT_FILES.len());
    files.push("empty".to_owned());
    files
}

/// The files container, in the engine's default runtime whatever the mechanism: three capabilities to read and hand over any
/// file of the workspace, an image of one binary.
pub(super) fn files(
    private: &PrivateFiles,
    memory_bytes: u64,
    image: &ImageDigest,
    name: &str,
    volume: &WorkspaceVolume,
    labels: Vec<String>,
) -> Vec<String> {
    let seccomp = private.files_seccomp();
    let mut arguments = common(ATTACHED, name, &seccomp, volume, FILES_PIDS_MAX, memory_bytes);
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
    arguments.extend(super::labels::arguments(labels));
    arguments.push(image.to_string());
    arguments.extend(INIT_FILES.map(Into::into));
    arguments
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: Limits = Limits {
        cpu_millicores: 1000,
        memory_bytes: 1 << 30,
        pids_max: 64,
        workspace_bytes: 1 << 20,
        inodes_max: 100,
        wall_clock_seconds: 60,
    };

    #[test]
    fn the_mount_says_what_the_volume_is_like() {
        let labels = vec!["leasehold.role=workspace".to_owned(), "leasehold.log=x".to_owned()];
        let volume = WorkspaceVolume::new("v", labels.clone(), Backing::Tmpfs, &LIMITS);
        let options = "o=size=2097152,nr_inodes=116,uid=0,gid=0,mode=1777,nosuid,nodev";
        assert_eq!(
            volume.mount(),
            format!(
                "type=volume,source=v,target=/workspace,volume-nocopy,volume-label=leasehold.role=workspace,\
                 volume-label=leasehold.log=x,\"volume-opt=type=tmpfs\",\"volume-opt=device=tmpfs\",\
                 \"volume-opt={options}\""
            )
        );
        let plain = WorkspaceVolume::new("v", labels, Backing::Volume, &LIMITS);
        assert!(!plain.mount().contains("volume-opt"));
        let existing = WorkspaceVolume::existing("v").mount();
        assert_eq!(existing, "type=volume,source=v,target=/workspace,volume-nocopy");
    }
}
