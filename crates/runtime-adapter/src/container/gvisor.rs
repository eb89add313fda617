//! Before gVisor is relied on: what the engine would start for it, argument by argument, and one container that shows it.
//!
//! Nothing that is said inside a sandbox proves where it runs. The proof is the engine's: its registration of the runtime, with
//! arguments that leave the isolation whole, and its record of a container that it started by that name. The kernel's release
//! as seen inside is a cross-check: where it is the host's own, nothing stands between.

use std::collections::HashMap;
use std::time::Duration;

use events::spec::ImageDigest;
use serde::Deserialize;
use uuid::Uuid;

use super::cli::words;
use super::cli_error::CliError;
use super::engine::Engine;
use crate::naming;
use crate::ports::PortError;

/// How long the probe's container may take from its start to its output.
const PROBE_DEADLINE: Duration = Duration::from_secs(30);

/// What a probe of the runtime found, for people.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GvisorFacts {
    /// The runtime's program, as registered with the engine.
    pub path: String,
    /// Its arguments, as registered.
    pub arguments: Vec<String>,
    /// The kernel's release as a program inside sees it (gVisor's own words).
    pub kernel_release: String,
}

impl GvisorFacts {
    /// The sandbox's network is the container's own on the host kernel instead of gVisor's.
    #[must_use]
    pub fn has_host_network(&self) -> bool {
        flags(&self.arguments).any(|flag| flag == ("network", "host"))
    }
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Info {
    runtimes: HashMap<String, RegisteredRuntime>,
    default_runtime: String,
    kernel_version: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct RegisteredRuntime {
    #[serde(default)]
    path: String,
    #[serde(default)]
    runtime_args: Option<Vec<String>>,
}

/// Verifies the registration and starts one container with it.
///
/// # Errors
/// `Rejected`: `gvisor_not_registered`, `gvisor_is_default_runtime` (the files container must not run in it),
/// `gvisor_host_network`, `gvisor_unsafe_arguments`, `gvisor_not_in_use` (the engine or the kernel inside says otherwise).
/// `Unavailable`: `gvisor_starts_nothing`, and the codes of every other call.
pub(super) async fn verify(
    engine: &Engine,
    runtime: &str,
    allow_host_network: bool,
    image: &ImageDigest,
    labels: Vec<String>,
) -> Result<GvisorFacts, PortError> {
    let rejected = |code| PortError::Rejected { code };
    let text = engine.cli.text(words(["info", "--format", "{{json .}}"])).await.map_err(CliError::to_port)?;
    let unreadable = PortError::Unavailable { code: "engine_error", effect_possible: false };
    let info: Info = serde_json::from_str(&text).map_err(|_| unreadable)?;
    let registered = info.runtimes.get(runtime).ok_or(rejected("gvisor_not_registered"))?;
    // Another name for the same program is the same runtime.
    let default = info.runtimes.get(&info.default_runtime);
    if info.default_runtime == runtime
        || default.is_some_and(|default| !default.path.is_empty() && default.path == registered.path)
    {
        return Err(rejected("gvisor_is_default_runtime"));
    }
    // One that is no path is a shim whose settings are in a file of its own, which the engine does not tell.
    if registered.path.is_empty() {
        return Err(rejected("gvisor_unsafe_arguments"));
    }
    let arguments = registered.runtime_args.clone().unwrap_or_default();
    check_arguments(&arguments, allow_host_network).map_err(rejected)?;

    let name = format!("{}probe-{}", naming::PREFIX, Uuid::now_v7());
    let kernel_release = run_probe(engine, runtime, image, &name, labels).await;
    let removed = engine.remove_container(&name).await;
    let kernel_release = kernel_release?;
    removed.map_err(CliError::to_port)?;
    if kernel_release.is_empty() || kernel_release == info.kernel_version {
        return Err(rejected("gvisor_not_in_use"));
    }
    Ok(GvisorFacts { path: registered.path.clone(), arguments, kernel_release })
}

/// Runs the container and gives the kernel's release as seen in it.
async fn run_probe(
    engine: &Engine,
    runtime: &str,
    image: &ImageDigest,
    name: &str,
    labels: Vec<String>,
) -> Result<String, PortError> {
    let options = "--pull never --network none --read-only --cap-drop ALL --security-opt no-new-privileges --log-driver none \
                   --restart no --memory 256m --memory-swap 256m --user 65534:65534 --entrypoint /bin/cat";
    let mut run = words(["run", "--name", name, "--runtime", runtime]);
    run.extend(options.split_ascii_whitespace().map(str::to_owned));
    run.extend(labels);
    run.extend(words([image.as_str(), "/proc/version"]));
    let starts_nothing = PortError::Unavailable { code: "gvisor_starts_nothing", effect_possible: true };
    let run = tokio::time::timeout(PROBE_DEADLINE, engine.cli.text(run)).await;
    let version = match run.unwrap_or(Err(CliError::Timeout)) {
        Ok(version) => version,
        Err(CliError::Other | CliError::Timeout | CliError::Gone) => return Err(starts_nothing),
        Err(error) => return Err(error.to_port()),
    };
    let used = ["container", "inspect", "--format", "{{.HostConfig.Runtime}}", name];
    let used = engine.cli.text(words(used)).await.map_err(CliError::to_port)?;
    // "Linux version 4.4.0 #1 …"
    let release = version.split_ascii_whitespace().nth(2).unwrap_or_default().to_owned();
    if used == runtime { Ok(release) } else { Err(PortError::Rejected { code: "gvisor_not_in_use" }) }
}

/// Arguments by name and value, `--name=value` each; a flag alone is `true`. A word that is no flag has no name: whether it
/// is the value of the one before depends on the release.
fn flags(arguments: &[String]) -> impl Iterator<Item = (&str, &str)> {
    arguments.iter().map(|argument| {
        let flag = argument.strip_prefix("--").or_else(|| argument.strip_prefix('-'));
        flag.map_or(("", argument.as_str()), |flag| flag.split_once('=').unwrap_or((flag, "true")))
    })
}

/// Known arguments that leave the isolation whole are let through; what is not known is refused, because a new release may
/// bring anything.
fn check_arguments(arguments: &[String], allow_host_network: bool) -> Result<(), &'static str> {
    for (name, value) in flags(arguments) {
        let is_off = matches!(value, "false" | "0" | "none");
        let is_fine = match name {
            "network" if value == "host" && !allow_host_network => return Err("gvisor_host_network"),
            "network" => matches!(value, "host" | "none" | "sandbox"),
            "platform" => matches!(value, "systrap" | "ptrace" | "kvm"),
            // The sandbox's root is read-only. An overlay over everything would hide the workspace, without any bound.
            "overlay2" => value == "none" || value.starts_with("root:"),
            // Other programs write the workspace too.
            "file-access-mounts" => value == "shared",
            // These relax what is shut by default, or write what programs do to places of the host.
            "debug"
            | "strace"
            | "host-uds"
            | "fsgofer-host-uds"
            | "host-fifo"
            | "allow-flag-override"
            | "overlay"
            | "allow-packet-socket-write"
            | "net-raw"
            | "allow-suid"
            | "iouring"
            | "log-packets"
            | "profile"
            | "ignore-cgroups"
            | "rootless" => is_off,
            "directfs"
            | "oci-seccomp"
            | "systemd-cgroup"
            | "file-access"
            | "platform_device_path"
            | "cpu-num-from-quota"
            | "gso"
            | "software-gso"
            | "rx-checksum-offload"
            | "tx-checksum-offload"
            | "qdisc"
            | "num-network-channels"
            | "fdlimit"
            | "dcache"
            | "log"
            | "log-format"
            | "root"
            | "watchdog-action"
            | "systrap-disable-syscall-patching" => true,
            _ => false,
        };
        if !is_fine {
            return Err("gvisor_unsafe_arguments");
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn arguments(text: &str) -> Vec<String> {
        text.split_whitespace().map(str::to_owned).collect()
    }

    #[test]
    fn what_opens_the_sandbox_is_refused() {
        for open in [
            "--debug",
            "-debug=true",
            "--debug none",
            "--strace",
            "--host-uds=open",
            "--host-uds all",
            "--host-fifo=open",
            "--allow-flag-override",
            "--allow-flag-override=true",
            "--overlay2=all:memory",
            "--overlay2=all:self",
            "--overlay",
            "--file-access-mounts=exclusive",
            "--platform=ptrace --debug",
            "--net-raw",
            "--TESTONLY-unsafe-nonroot",
            "--ignore-cgroups",
            "--some-flag-of-tomorrow",
            "stray",
            "--network host",
        ] {
            assert_eq!(check_arguments(&arguments(open), true), Err("gvisor_unsafe_arguments"), "{open}");
        }
    }

    #[test]
    fn the_host_network_is_refused_unless_allowed_by_name() {
        for host in ["--network=host", "-network=host --platform=ptrace"] {
            assert_eq!(check_arguments(&arguments(host), false), Err("gvisor_host_network"), "{host}");
            assert_eq!(check_arguments(&arguments(host), true), Ok(()), "{host}");
        }
    }

    #[test]
    fn harmless_arguments_pass() {
        for fine in [
            "",
            "--platform=systrap",
            "--platform=kvm --network=sandbox",
            "--debug=false --strace=false",
            "--host-uds=none",
            "--overlay2=none",
            "--overlay2=root:self",
            "--directfs=false --oci-seccomp",
            "--allow-flag-override=false",
        ] {
            assert_eq!(check_arguments(&arguments(fine), false), Ok(()), "{fine}");
        }
    }

    #[test]
    fn the_host_network_is_told() {
        let facts = |text| GvisorFacts {
            path: "/usr/bin/runsc".to_owned(),
            arguments: arguments(text),
            kernel_release: "4.4.0".to_owned(),
        };
        assert!(facts("--platform=ptrace --network=host").has_host_network());
        assert!(!facts("--network=sandbox").has_host_network());
    }
}
