//! The profile as the engine carries it out: every option of both containers, read back from the engine.

use std::collections::BTreeSet;

use events::spec::Mechanism;
use serde_json::{Value, json};
use tests::process::docker;

use super::Case;

on_every_mechanism! { the_engine_holds_every_option_of_the_profile }

/// The limit on the container under gVisor: what its kernel needs, and host processes for each of the command's own.
const GVISOR_PIDS: u64 = 1024;
const GVISOR_PIDS_EACH: u64 = 32;

/// What both containers have in common, and whether the client that started it is its first channel.
fn assert_common(container: &Value, is_attached: bool) {
    let host = &container["HostConfig"];
    for (option, value) in [
        ("CapDrop", json!(["ALL"])),
        ("ReadonlyRootfs", json!(true)),
        ("Privileged", json!(false)),
        ("NetworkMode", json!("none")),
        ("IpcMode", json!("private")),
        ("PidMode", json!("")),
        ("UTSMode", json!("")),
        ("UsernsMode", json!("")),
        ("PublishAllPorts", json!(false)),
        ("PortBindings", json!({})),
        ("VolumesFrom", Value::Null),
        ("Links", Value::Null),
        ("Binds", Value::Null),
        ("GroupAdd", Value::Null),
        ("Devices", json!([])),
        ("DeviceRequests", Value::Null),
        ("AutoRemove", json!(false)),
        ("OomScoreAdj", json!(0)),
        ("OomKillDisable", json!(false)),
        ("ExtraHosts", Value::Null),
    ] {
        let got = &host[option];
        // Engines differ in how they say "none".
        let none = |value: &Value| {
            value.is_null() || *value == json!([]) || *value == json!({}) || *value == json!(false)
        };
        assert!(*got == value || (none(got) && none(&value)), "{option}: {got}, not {value}");
    }
    assert_eq!(host["RestartPolicy"]["Name"], "no", "{host}");
    assert_eq!(host["LogConfig"]["Type"], "none", "{host}");
    let security: Vec<&str> = strings(&host["SecurityOpt"]);
    assert_eq!(security.len(), 2, "{security:?}");
    assert!(security.iter().any(|option| option.starts_with("no-new-privileges")), "{security:?}");
    // The engine holds the profile itself, not its file's name.
    let profile = security.iter().find_map(|option| option.strip_prefix("seccomp=")).expect("a profile");
    let profile: Value = serde_json::from_str(profile).expect("JSON");
    assert_eq!(profile["defaultAction"], "SCMP_ACT_ERRNO");
    // What the engine hides of /proc and makes read-only there.
    let masked: BTreeSet<&str> = strings(&host["MaskedPaths"]).into_iter().collect();
    for path in ["/proc/kcore", "/proc/keys", "/proc/timer_list", "/proc/scsi", "/sys/firmware"] {
        assert!(masked.contains(path), "{path} is not masked: {masked:?}");
    }
    let read_only = strings(&host["ReadonlyPaths"]);
    for path in ["/proc/sys", "/proc/sysrq-trigger", "/proc/irq", "/proc/bus", "/proc/fs"] {
        assert!(read_only.contains(&path), "{path} is writable: {read_only:?}");
    }
    let mounts = container["Mounts"].as_array().expect("mounts");
    assert_eq!(mounts.len(), 1, "{mounts:?}");
    assert_eq!((&mounts[0]["Type"], &mounts[0]["Destination"]), (&json!("volume"), &json!("/workspace")));
    let config = &container["Config"];
    assert_eq!(
        (&config["User"], &config["Tty"], &config["StopTimeout"]),
        (&json!("0:0"), &json!(false), &json!(1))
    );
    // The first client's own, and closed when that is gone; or nobody's.
    assert_eq!((&config["OpenStdin"], &config["StdinOnce"]), (&json!(is_attached), &json!(is_attached)));
    assert!(config["ExposedPorts"].is_null(), "{config}");
    let labels = config["Labels"].as_object().expect("labels");
    assert!(labels.keys().all(|label| label.starts_with("leasehold.")), "nothing of a user's: {labels:?}");
}

fn strings(value: &Value) -> Vec<&str> {
    value.as_array().map(Vec::as_slice).unwrap_or_default().iter().filter_map(Value::as_str).collect()
}

/// `CAP_X` on engines that say so, `X` on others; sorted.
fn capabilities(container: &Value) -> Vec<String> {
    let mut names: Vec<String> = strings(&container["HostConfig"]["CapAdd"])
        .iter()
        .map(|name| name.trim_start_matches("CAP_").to_owned())
        .collect();
    names.sort();
    names
}

fn limits(container: &Value) -> BTreeSet<String> {
    let limits = container["HostConfig"]["Ulimits"].as_array().expect("ulimits");
    limits
        .iter()
        .map(|limit| {
            format!("{} {} {}", limit["Name"].as_str().expect("a name"), limit["Soft"], limit["Hard"])
        })
        .collect()
}

async fn the_engine_holds_every_option_of_the_profile(mechanism: Mechanism) {
    let case = Case::start(mechanism).await;
    let asked = json!({ "cpu_millicores": 700, "memory_bytes": 300 << 20, "pids_max": 99, "workspace_bytes": 64 << 20 });
    let sandbox = case.sandbox_with(&asked).await;
    let is_gvisor = mechanism == Mechanism::Gvisor;

    let container = case.inspect(&sandbox, "sandbox").await;
    assert_common(&container, !is_gvisor);
    assert_eq!(capabilities(&container), ["KILL", "SETGID", "SETPCAP", "SETUID"]);
    let host = &container["HostConfig"];
    let runtime = host["Runtime"].as_str().expect("a runtime");
    assert_eq!(runtime == "runsc", is_gvisor, "{runtime}");
    assert_eq!((&host["Memory"], &host["MemorySwap"]), (&json!(300 << 20), &json!(300 << 20)));
    assert_eq!((&host["CpuPeriod"], &host["CpuQuota"]), (&json!(100_000), &json!(70_000)));
    assert_eq!(host["PidsLimit"], if is_gvisor { GVISOR_PIDS + GVISOR_PIDS_EACH * 99 } else { 99 });
    let fsize = (64 << 20) + (64 << 10);
    let expected = ["core 0 0", "msgqueue 0 0", "nofile 8192 8192", &format!("fsize {fsize} {fsize}")];
    assert_eq!(limits(&container), expected.map(str::to_owned).into());
    let tmpfs = host["Tmpfs"].as_object().expect("file systems in memory");
    assert_eq!(tmpfs.keys().collect::<Vec<_>>(), ["/dev/shm", "/run", "/tmp"]);
    for (path, options) in tmpfs {
        let options: Vec<&str> = options.as_str().expect("options").split(',').collect();
        for option in ["nosuid", "nodev"] {
            assert!(options.contains(&option), "{path}: {options:?}");
        }
        for limit in ["size=", "nr_inodes="] {
            assert!(options.iter().any(|option| option.starts_with(limit)), "{path}: {options:?}");
        }
        assert_eq!(options.contains(&"noexec"), path != "/tmp", "{path}: {options:?}");
    }
    assert_eq!((&host["Dns"], &host["DnsSearch"]), (&json!(["127.0.0.1"]), &json!(["."])));
    assert_eq!(container["Config"]["Hostname"], "sandbox");
    assert_eq!(
        (&container["Config"]["Entrypoint"], &container["Config"]["Cmd"]),
        (&json!(["/leasehold/guest"]), &json!(["init", "sandbox"]))
    );

    let container = case.inspect(&sandbox, "files").await;
    assert_common(&container, true);
    assert_eq!(capabilities(&container), ["CHOWN", "DAC_OVERRIDE", "FOWNER"]);
    let host = &container["HostConfig"];
    assert_ne!(host["Runtime"], "runsc", "on the engine's own runtime, whatever the mechanism");
    for bounded in ["Memory", "MemorySwap", "PidsLimit", "CpuQuota"] {
        assert!(host[bounded].as_u64().is_some_and(|limit| limit > 0), "{bounded}: {host}");
    }
    assert_eq!(
        limits(&container),
        ["core 0 0", "msgqueue 0 0", "nofile 1024 1024"].map(str::to_owned).into()
    );
    assert_eq!(
        (&container["Config"]["Entrypoint"], &container["Config"]["Cmd"]),
        (&json!(["/guest"]), &json!(["init", "files"]))
    );
    files_container_holds_nothing_else(&case, &sandbox).await;
    own_users(&case).await;
    case.finish().await;
}

/// From scratch with the one binary: what the engine puts beside it is all there is. Its processes have their three rights.
async fn files_container_holds_nothing_else(case: &Case, sandbox: &super::Sandbox) {
    let name = format!("leasehold-{}-files", case.environment(sandbox).await);
    let changed = docker(&["diff", &name]).await;
    assert!(
        changed.lines().all(|line| line.starts_with("C /")
            || line.starts_with("A /dev")
            || line.starts_with("A /workspace")),
        "{changed}"
    );
    let pids = docker(&["top", &name, "-eo", "pid"]).await;
    let pids: Vec<&str> = pids.lines().skip(1).map(str::trim).collect();
    assert!(pids.len() >= 2, "init and files: {pids:?}");
    for pid in pids {
        let status = std::fs::read_to_string(format!("/proc/{pid}/status")).expect("the host sees it");
        let field = |name: &str| {
            let line = status.lines().find(|line| line.starts_with(name)).unwrap_or_else(|| panic!("{name}"));
            line.split_once('\t').expect("a value").1.trim().to_owned()
        };
        // CHOWN, DAC_OVERRIDE, FOWNER; never DAC_READ_SEARCH.
        assert_eq!(
            (field("CapPrm").as_str(), field("CapBnd").as_str()),
            ("000000000000000b", "000000000000000b")
        );
        assert_eq!((field("NoNewPrivs").as_str(), field("Seccomp").as_str()), ("1", "2"));
        assert_eq!(field("Uid"), "0\t0\t0\t0");
    }
}

/// Each environment its own user, none of them one of the host's accounts; on a kernel of its own the user is nobody's anyway.
async fn own_users(case: &Case) {
    let mut seen = BTreeSet::new();
    for _ in 0..3 {
        let sandbox = case.sandbox().await;
        let uid: u32 = case.sh(&sandbox, "id -u").await.trim().parse().expect("a number");
        if case.mechanism == Mechanism::Docker {
            assert!((1_000_000_000..2_000_000_000).contains(&uid), "{uid}");
            assert!(seen.insert(uid), "{uid} twice");
            let accounts = std::fs::read_to_string("/etc/passwd").expect("accounts");
            assert!(!accounts.lines().any(|line| line.split(':').nth(2) == Some(&uid.to_string())));
        } else {
            assert!(uid >= 1000, "{uid}");
        }
        let owner = case.sh(&sandbox, "touch made; stat -c %u made .").await;
        assert_eq!(owner, format!("{uid}\n0\n"), "its files are its own, the workspace is not");
    }
}
