//! The kernel's dangerous doors: namespaces, its own files, devices, calls that programs of this kind do not need.

use events::spec::Mechanism;
use serde_json::{Value, json};

use super::{Case, REFUSED, assert_all};

on_every_mechanism! { doors_of_the_kernel_are_shut }

/// Values of the host that no sandbox may change.
const HOST_VALUES: [&str; 6] = [
    "/proc/sys/kernel/core_pattern",
    "/proc/sys/kernel/hostname",
    "/proc/sys/kernel/modprobe",
    "/proc/sys/vm/overcommit_memory",
    "/proc/sys/net/ipv4/ip_forward",
    "/proc/sys/kernel/randomize_va_space",
];

fn host_values() -> Vec<Option<String>> {
    HOST_VALUES.iter().map(|path| std::fs::read_to_string(path).ok()).collect()
}

/// E3, E5, E6, E11, E13, E14, E15.
async fn doors_of_the_kernel_are_shut(mechanism: Mechanism) {
    let case = Case::start(mechanism).await;
    let sandbox = case.sandbox().await;
    let before = host_values();

    let found = case.probe(&sandbox, include_str!("probes/namespaces.py")).await;
    namespaces(&found, mechanism);

    // Names that belong to the neighbour, which nothing readable may hold.
    let theirs = case.environment(&case.neighbour).await;
    let their_container = case.inspect(&case.neighbour, "sandbox").await;
    let needles = [theirs.as_str(), their_container["Id"].as_str().expect("an id")].join(" ");
    let variables = json!({ "PROBE_NEEDLES": needles });
    let found = case.probe_with(&sandbox, include_str!("probes/kernel_files.py"), &variables).await;
    assert_all(&found["written"], &[REFUSED, &["EINVAL"]].concat(), "written");
    assert_all(&found["read"], &[REFUSED, &["empty", "zeroed", "EIO"], shown(mechanism)].concat(), "read");
    assert_eq!(found["needles"], json!([]), "another tenant's name");
    assert!(found["files"].as_u64().is_some_and(|count| count > 50), "{}", found["files"]);
    assert!(host_values() == before, "a value of the host changed: {before:?}");

    let found = case.probe(&sandbox, include_str!("probes/devices.py")).await;
    // FUSE without a mount is nothing: the other kernel has its own of it, in whatever name. It has no terminal where there is none.
    let opened: &[&str] = if mechanism == Mechanism::Gvisor { &["EIO"] } else { &[] };
    let mut found = found;
    if mechanism == Mechanism::Gvisor {
        leave_out(&mut found["opened"], &["/dev/fuse"]);
        leave_out(&mut found["made"], &["/tmp 10:229", "/dev/shm 10:229"]);
    }
    assert_all(&found["opened"], &[REFUSED, opened].concat(), "devices opened");
    // The other kernel lets names of devices be made; nothing is behind them.
    let made: &[&str] =
        if mechanism == Mechanism::Gvisor { &["made, ENXIO", "made, EACCES", "made, EPERM"] } else { &[] };
    assert_all(&found["made"], &[&["EPERM", "EACCES"], made].concat(), "devices made");
    assert_eq!(found["dev"], devices(mechanism), "what is in /dev");

    let found = case.probe(&sandbox, include_str!("probes/calls.py")).await;
    let mut found = found;
    if mechanism == Mechanism::Gvisor {
        // Its own keys and its own log.
        leave_out(&mut found["calls"], &["keyctl", "syslog"]);
    }
    assert_all(&found["calls"], calls(mechanism), "calls");
    // AF_UNIX, AF_INET, AF_INET6, AF_NETLINK.
    assert_eq!(found["families"], json!([1, 2, 10, 16]), "socket families that open");
    assert_all(
        &found["raw"],
        &["EPERM", "EACCES", "EPROTONOSUPPORT", "ESOCKTNOSUPPORT", "EAFNOSUPPORT"],
        "raw sockets",
    );

    // No socket of an engine, nor of anything else; who looks for the runtime changes nothing.
    let found = case.probe(&sandbox, include_str!("probes/sockets.py")).await;
    assert_eq!(found["sockets"], json!([]), "{found}");
    assert_eq!(found["unix"], json!([]), "{found}");
    assert_eq!(found["run"], json!([]), "{found}");
    assert_all(&found["engines"], &["ENOENT"], "sockets of engines");

    case.answers(&sandbox).await;
    case.finish().await;
}

fn leave_out(found: &mut Value, names: &[&str]) {
    found.as_object_mut().expect("outcomes").retain(|name, _| !names.contains(&name.as_str()));
}

/// A kernel of its own has a log of its own, and shows where its processes lie: neither is the host's.
const fn shown(mechanism: Mechanism) -> &'static [&'static str] {
    if matches!(mechanism, Mechanism::Gvisor) { &["own"] } else { &[] }
}

/// A filter refuses them all. A kernel of its own may give one: then it leads nowhere.
fn namespaces(found: &Value, mechanism: Mechanism) {
    if mechanism == Mechanism::Docker {
        assert_all(&found["unshare"], &["EPERM"], "unshare");
        assert_all(&found["clone"], &["EPERM"], "clone");
        assert_all(&found["clone3"], &["ENOSYS"], "clone3");
        assert_all(&found["setns"], &["EPERM", "EACCES"], "setns");
    }
    assert_all(&found["mount"], &["EPERM", "EACCES", "ENOSYS"], "mounts, without a new namespace");
    let inside = found["inside"].as_object().expect("an object");
    for (what, got) in inside {
        let right = match what.as_str() {
            "interfaces" => *got == json!("lo") || *got == json!(""),
            "root" | "other" | "signal" => *got != json!("ok"),
            _ => false,
        };
        assert!(right, "inside a namespace of its own: {what}: {got}");
    }
}

fn devices(mechanism: Mechanism) -> Value {
    match mechanism {
        Mechanism::Docker => json!([
            "fd", "full", "mqueue", "null", "ptmx", "pts", "random", "shm", "stderr", "stdin", "stdout",
            "tty", "urandom", "zero"
        ]),
        _ => json!([
            "fd", "full", "fuse", "null", "ptmx", "pts", "random", "shm", "stderr", "stdin", "stdout", "tty",
            "urandom", "zero"
        ]),
    }
}

const fn calls(mechanism: Mechanism) -> &'static [&'static str] {
    match mechanism {
        Mechanism::Docker => &["EPERM"],
        // The table of its own kernel: absent, or checked by it.
        _ => &["EPERM", "ENOSYS", "EACCES", "ENODEV", "ENOTSUP", "EINVAL", "ESRCH", "EBADF", "EFAULT"],
    }
}
