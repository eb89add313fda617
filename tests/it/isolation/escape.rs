//! Rights: none for a command, exactly four for what starts it, and no way from the one to the other.

use std::path::Path;

use events::spec::Mechanism;
use reqwest::Method;
use serde_json::{Value, json};
use tests::process::docker;

use super::{Case, REFUSED, assert_all, python};

on_every_mechanism! {
    commands_have_no_right_and_their_starters_exactly_four,
    programs_of_the_sandbox_are_not_used_by_the_host,
}

/// SETUID, SETGID, SETPCAP, KILL.
const FOUR: &str = "00000000000001e0";
const NONE: &str = "0000000000000000";

/// A filter is set by the shared kernel; a kernel of its own needs none (it is the filter).
const fn seccomp(mechanism: Mechanism) -> &'static str {
    if matches!(mechanism, Mechanism::Gvisor) { "0" } else { "2" }
}

/// What the files of the other kernel do not say is asked of it by calls.
fn said(mechanism: Mechanism) -> (&'static Value, &'static Value) {
    static SAID: std::sync::LazyLock<[Value; 3]> =
        std::sync::LazyLock::new(|| [json!(NONE), json!("1"), json!("")]);
    if mechanism == Mechanism::Gvisor { (&SAID[2], &SAID[2]) } else { (&SAID[0], &SAID[1]) }
}

fn assert_no_rights(rights: &Value, mechanism: Mechanism) {
    for set in ["CapInh", "CapPrm", "CapEff", "CapBnd"] {
        assert_eq!(rights[set], NONE, "{set}: {rights}");
    }
    assert_eq!((&rights["CapAmb"], &rights["NoNewPrivs"]), said(mechanism), "{rights}");
    assert_eq!(rights["Seccomp"], seccomp(mechanism), "{rights}");
    assert_eq!(rights["Groups"], "", "{rights}");
}

/// E1, E2: in the foreground, in the background, and after the container was stopped and started by a kill.
async fn commands_have_no_right_and_their_starters_exactly_four(mechanism: Mechanism) {
    let case = Case::start(mechanism).await;
    let sandbox = case.sandbox().await;
    let killed = json!({ "argv": ["sleep", "600"], "timeout_seconds": 0.3 });
    for round in ["at first", "after a kill"] {
        let found = case.probe(&sandbox, include_str!("probes/rights.py")).await;
        assert_no_rights(&found["self"], mechanism);
        assert_eq!((&found["no new privileges"], &found["ambient sets"]), (&json!(1), &json!([])));
        let uid = found["uid"].as_u64().expect("a uid");
        if mechanism == Mechanism::Docker {
            assert!(uid >= 65_536, "a user of its own that is nobody's on the host: {uid}");
        }
        assert_eq!(found["self"]["Uid"], format!("{uid} {uid} {uid} {uid}"));
        assert_eq!(found["self"]["Gid"], format!("{uid} {uid} {uid} {uid}"));
        let trusted = found["trusted"].as_object().expect("processes");
        let named = |role: &str| trusted.keys().filter(|line| line.contains(role)).count();
        assert_eq!(named("guest init"), 1, "{round}: {trusted:?}");
        assert!(named("guest spawn") >= 2, "spawn and the shim of this command, {round}: {trusted:?}");
        assert_eq!(named("guest init") + named("guest spawn"), trusted.len(), "{round}: {trusted:?}");
        // What starts a command, as a shim does, has given up what a program could get back.
        let bounded = |set: &str| trusted.values().filter(|rights| rights["CapBnd"] == set).count();
        assert_eq!(bounded(FOUR), 2, "init and spawn, {round}: {trusted:?}");
        assert_eq!(bounded(NONE), trusted.len() - 2, "the shims, {round}: {trusted:?}");
        for (line, rights) in trusted {
            for set in ["CapPrm", "CapEff"] {
                assert_eq!(rights[set], FOUR, "{round}: {line} {set}: {rights}");
            }
            assert!(line.contains("guest spawn") || rights["CapBnd"] == FOUR, "{round}: {line}: {rights}");
            // Engines before 20.10.14 fill the inheritable set, which gives nothing to a program without file capabilities.
            assert!([NONE, FOUR].contains(&rights["CapInh"].as_str().expect("a set")), "{line}: {rights}");
            assert_eq!((&rights["CapAmb"], &rights["NoNewPrivs"]), said(mechanism), "{line}");
            assert_eq!((&rights["Seccomp"], &rights["Uid"]), (&json!(seccomp(mechanism)), &json!("0 0 0 0")));
        }
        for (attempt, allowed) in [
            ("setuid(0)", &["EPERM"][..]),
            ("setgid(0)", &["EPERM"]),
            ("setgroups", &["EPERM"]),
            ("capset", &["EPERM"]),
            ("ambient", &["EPERM", "EINVAL"]),
            ("new privileges again", &["EINVAL"]),
            ("chown /workspace", &["EPERM"]),
            ("chown /tmp", &["EPERM"]),
            ("capability /workspace", &["EPERM", "ENOTSUP"]),
            ("capability /tmp", &["EPERM", "ENOTSUP"]),
        ] {
            let got = found[attempt].as_str().expect("an outcome");
            assert!(allowed.contains(&got), "{round}: {attempt}: {got}");
        }
        assert_eq!(found["set-id files"], json!([]), "the image has none");
        for place in ["shell /workspace", "shell /tmp"] {
            assert_eq!(found[place], json!([uid.to_string(), "CapEff:", NONE]), "{place}");
        }
        let timeout = case.run(&sandbox, &killed).await;
        assert_eq!(timeout["killed_by"], "TIMEOUT", "{timeout}");
    }

    let mut body = python(include_str!("probes/rights.py"));
    body["background"] = json!(true);
    let background = case.begin(&sandbox, &body).await;
    let background = case.ended(&background).await;
    let text = background["stdout"]["text"].as_str().expect("text");
    let found: Value = serde_json::from_str(text).unwrap_or_else(|_| panic!("{background}"));
    assert_no_rights(&found["self"], mechanism);

    if mechanism == Mechanism::Docker {
        // The same from the kernel's side: the host sees every process as what it says it is.
        let name = format!("leasehold-{}-sandbox", case.environment(&sandbox).await);
        let pids = docker(&["top", &name, "-eo", "pid"]).await;
        let pids: Vec<&str> = pids.lines().skip(1).map(str::trim).collect();
        assert!(pids.len() >= 2, "{pids:?}");
        let mut shims = 0;
        for pid in pids {
            let status = std::fs::read_to_string(format!("/proc/{pid}/status")).expect("the host sees it");
            let bounded_by = |set: &str| status.contains(&format!("CapBnd:\t{set}\n"));
            shims += usize::from(bounded_by(NONE));
            assert!(bounded_by(FOUR) || bounded_by(NONE), "{status}");
            assert!(status.contains("Seccomp:\t2"), "{status}");
        }
        assert!(shims <= 1, "one waits for the next command");
    }
    case.finish().await;
}

/// E7, E9, E10, R6: what code changes, plants or exhausts in its sandbox is no part of what the host starts there.
async fn programs_of_the_sandbox_are_not_used_by_the_host(mechanism: Mechanism) {
    let case = Case::start(mechanism).await;
    let sandbox = case.sandbox().await;
    let container = format!("leasehold-{}-sandbox", case.environment(&sandbox).await);
    let runtimes =
        ["/usr/sbin/runc", "/usr/bin/runc", "/usr/local/bin/runc", "/usr/local/bin/runsc", "/usr/bin/runsc"];
    let before: Vec<_> = runtimes.map(|path| std::fs::read(Path::new(path)).ok()).into();
    assert!(before.iter().any(Option::is_some), "a runtime whose bytes can be compared");

    let found = case.probe(&sandbox, include_str!("probes/planted.py")).await;
    assert_all(&found["replaced"], REFUSED, "devices and loader files replaced");
    assert_all(&found["own program"], &["EROFS", "ETXTBSY", "EACCES"], "its own program written");

    // It waits for processes that the host starts, and would write their programs.
    let mut hunter = python(include_str!("probes/hunter.py"));
    hunter["background"] = json!(true);
    let hunter = case.begin(&sandbox, &hunter).await;
    for _ in 0..6 {
        assert!(docker(&["exec", &container, "cat", "/proc/self/status"]).await.contains("Uid:\t0\t0"));
        assert!(
            docker(&["exec", "--tty", &container, "cat", "/proc/self/status"]).await.contains("Uid:\t0\t0")
        );
    }
    // No command starts meanwhile: its process is the host's and then the command's own, and would be found as both.
    let enough = case.service.request(Method::PUT, &sandbox.files("/enough"));
    let (status, written) = case.service.send(enough).await;
    assert_eq!(status, 201, "{written}");
    let hunter = case.ended(&hunter).await;
    let text = hunter["stdout"]["text"].as_str().expect("text");
    let hunted: Value = serde_json::from_str(text).unwrap_or_else(|_| panic!("{hunter}"));
    assert!(hunted["rounds"].as_u64().is_some_and(|rounds| rounds > 10), "{hunted}");
    assert_eq!(hunted["opened"], json!([]), "programs of others, opened for writing: {hunted}");
    let after: Vec<_> = runtimes.map(|path| std::fs::read(Path::new(path)).ok()).into();
    assert!(before == after, "a runtime of the host has changed");

    // A kill stops and starts the container: the host's next process there is still its own.
    let killed = case.run(&sandbox, &json!({ "argv": ["sleep", "600"], "timeout_seconds": 0.3 })).await;
    assert_eq!(killed["killed_by"], "TIMEOUT", "{killed}");
    case.answers(&sandbox).await;

    // Terminals are one budget of the host; no process of ours needs one.
    let greedy = case.probe(&sandbox, include_str!("probes/terminals.py")).await;
    assert!(greedy["opened"].as_u64().is_some_and(|count| count > 0), "{greedy}");
    case.finish().await;
}
