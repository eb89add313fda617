//! The command line as a user has it: output as it comes, the command's own exit code, data on standard output alone.

use std::process::Output;

use serde_json::Value;
use tests::process::{Options, Service, data_dir, leasehold, left_in_engine};

fn code(output: &Output) -> i32 {
    output.status.code().unwrap_or_else(|| panic!("no exit code: {output:?}"))
}

fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).expect("UTF-8")
}

#[tokio::test(flavor = "multi_thread")]
async fn run_is_the_command_it_runs() {
    let data = data_dir();
    let service = Service::start(data.path(), &Options::docker()).await;
    let log_id = service.log_id().await;

    // What it prints, where it prints it, and its code.
    let output = service.cli(&["run", "--", "sh", "-c", "echo out; echo err >&2; exit 7"], b"").await;
    assert_eq!((code(&output), text(&output.stdout), text(&output.stderr)), (7, "out\n", "err\n"));
    let raw = service.cli(&["run", "--", "printf", r"a\377b\000"], b"").await;
    assert_eq!((code(&raw), raw.stdout.as_slice()), (0, &b"a\xffb\0"[..]), "bytes, not text");
    let line = service.cli(&["run", "--", "head", "-c", "2097152", "/dev/zero"], b"").await;
    assert_eq!((code(&line), line.stdout.len()), (0, 2 << 20));

    // Input only when it is asked for.
    let input = "日本語\n".repeat(30_000);
    let echoed = service.cli(&["run", "--stdin", "--", "cat"], input.as_bytes()).await;
    assert!(code(&echoed) == 0 && echoed.stdout == input.as_bytes(), "{} bytes", echoed.stdout.len());
    let without = service.cli(&["run", "--", "cat"], b"not asked for").await;
    assert_eq!((code(&without), without.stdout.len()), (0, 0));
    let odd = ["run", "--env", "ODD=a=b $HOME", "--", "sh", "-c", "printf %s \"$ODD\""];
    assert_eq!(text(&service.cli(&odd, b"").await.stdout), "a=b $HOME");

    // Kills and failures have codes of their own and words on standard error.
    let timed_out = service.cli(&["run", "--timeout", "1", "--", "sleep", "60"], b"").await;
    assert_eq!((code(&timed_out), timed_out.stdout.len()), (124, 0));
    assert!(text(&timed_out.stderr).contains("TIMEOUT"), "{timed_out:?}");
    let missing = service.cli(&["run", "--", "no-such-program"], b"").await;
    assert_eq!(code(&missing), 127);
    assert!(text(&missing.stderr).contains("could not be started"), "{missing:?}");
    let own = service.cli(&["run", "--", "sh", "-c", "kill -9 $$"], b"").await;
    assert_eq!((code(&own), text(&own.stderr)), (137, ""), "its own end is no kill");
    let refused = service.cli(&["run", "--", "./in-the-workspace"], b"").await;
    assert_eq!((code(&refused), refused.stdout.len()), (125, 0), "{refused:?}");

    // Every lease it took is given back.
    let leases = service.cli(&["lease", "list", "--json"], b"").await;
    let leases: Value = serde_json::from_str(text(&leases.stdout)).expect("JSON");
    let leases = leases.as_array().expect("a list");
    assert_eq!(leases.len(), 10);
    assert!(leases.iter().all(|lease| lease["state"] != "live"), "{leases:?}");
    for lease in leases {
        let path = super::path_of(lease);
        service
            .wait_for(&path, "teardown", |lease| {
                lease["environment"].is_null() || lease["environment"]["state"] == "destroyed"
            })
            .await;
    }
    assert_eq!(left_in_engine(&log_id).await, Vec::<String>::new());
    service.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn leases_and_events_by_hand() {
    let data = data_dir();
    let service = Service::start(data.path(), &Options::docker()).await;
    let json = async |arguments: &[&str]| -> Value {
        let output = service.cli(arguments, b"").await;
        assert_eq!(code(&output), 0, "{arguments:?}: {output:?}");
        serde_json::from_str(text(&output.stdout)).unwrap_or_else(|_| panic!("{arguments:?}: {output:?}"))
    };
    let lease = json(&["lease", "acquire", "--ttl", "60", "--holder", "me", "--json"]).await;
    let (lease_id, run_id) = (super::id(&lease, "lease_id"), super::id(&lease, "run_id"));
    assert_eq!(lease["holder"], "me", "{lease}");
    let renewed = json(&["lease", "renew", &lease_id, "--ttl", "600", "--json"]).await;
    assert!(renewed["expires_at"].as_str() > lease["expires_at"].as_str(), "{renewed}");

    // Two commands under one lease share its workspace, and leave it live.
    let one = service.cli(&["run", "--lease", &lease_id, "--", "sh", "-c", "echo kept > file"], b"").await;
    assert_eq!(code(&one), 0, "{one:?}");
    let two = service.cli(&["run", "--lease", &lease_id, "--", "cat", "file"], b"").await;
    assert_eq!(text(&two.stdout), "kept\n", "{two:?}");
    let held = service.cli(&["lease", "acquire", "--run", &run_id], b"").await;
    assert_eq!((code(&held), held.stdout.len()), (1, 0), "a refusal, however it is later");
    assert!(text(&held.stderr).contains("lease_held"), "{held:?}");
    let misspelt = service.cli(&["run", "--time", "2", "--", "true"], b"").await;
    assert_eq!((code(&misspelt), misspelt.stdout.len()), (2, 0), "{misspelt:?}");
    assert_eq!(json(&["lease", "show", &lease_id, "--json"]).await["state"], "live");
    let second = json(&["lease", "acquire", "--run", &run_id, "--takeover", "--json"]).await;
    assert_eq!(second["epoch"], 2, "{second}");
    let late = service.cli(&["run", "--lease", &lease_id, "--", "true"], b"").await;
    assert_eq!(code(&late), 125, "{late:?}");
    let second_id = super::id(&second, "lease_id");
    assert_eq!(
        json(&["lease", "revoke", &second_id, "--reason", "done", "--json"]).await["state"],
        "revoked"
    );

    let events = service.cli(&["events", "--run", &run_id, "--json"], b"").await;
    let events: Vec<Value> = text(&events.stdout)
        .lines()
        .map(|line| serde_json::from_str(line).expect("an event per line"))
        .collect();
    let kinds: Vec<&str> = events.iter().filter_map(|event| event["type"].as_str()).collect();
    for kind in ["LeaseAcquired", "LeaseRenewed", "CommandFinished", "LeaseFenced", "LeaseRevoked"] {
        assert!(kinds.contains(&kind), "{kind}: {kinds:?}");
    }
    let lines = service.cli(&["events", "--run", &run_id], b"").await;
    assert_eq!(text(&lines.stdout).lines().count(), events.len(), "{lines:?}");

    // Wrong usage, a wrong token and a service that is not there are told apart.
    assert_eq!(code(&service.cli(&["run", "--env", "no-value", "--", "true"], b"").await), 2);
    assert_eq!(code(&service.cli(&["lease", "--token", "lh_wrong", "show", &lease_id], b"").await), 1);
    let nowhere = ["lease", "--url", "http://127.0.0.1:9", "show", &lease_id];
    assert_eq!(code(&service.cli(&nowhere, b"").await), 69);
    service.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn doctor_says_what_is_there_and_what_is_missing() {
    let checks = async |variables: &[(&str, &str)]| {
        let output = leasehold(&["doctor", "--json"], variables).await;
        let report: Value =
            serde_json::from_str(text(&output.stdout)).unwrap_or_else(|_| panic!("{output:?}"));
        let checks = report["checks"].as_array().expect("checks").clone();
        assert_eq!(report["ok"], checks.iter().all(|check| check["ok"] == true), "{report}");
        assert_eq!(code(&output), i32::from(report["ok"] != true), "{report}");
        checks
    };
    let whole = checks(&[]).await;
    assert!(whole.len() >= 4 && whole.iter().all(|check| check["ok"] == true), "{whole:?}");
    let nowhere = checks(&[("LEASEHOLD_ENGINE_HOST", "unix:///nowhere/engine.sock")]).await;
    let failed: Vec<&Value> = nowhere.iter().filter(|check| check["ok"] == false).collect();
    assert_eq!(
        (failed.len(), &failed[0]["name"]),
        (1, &serde_json::json!("container engine")),
        "{nowhere:?}"
    );
    let unloaded = checks(&[("LEASEHOLD_IMAGE", "leasehold/no-such-image:dev")]).await;
    let failed: Vec<&Value> = unloaded.iter().filter(|check| check["ok"] == false).collect();
    assert_eq!(
        (failed.len(), &failed[0]["name"]),
        (1, &serde_json::json!("execution image")),
        "{unloaded:?}"
    );
    // A runtime that nobody registered is missed only by the mechanism that needs it.
    let unregistered = ("LEASEHOLD_GVISOR_RUNTIME", "no-such-runtime");
    let without = checks(&[unregistered]).await;
    assert!(without.iter().all(|check| check["ok"] == true), "{without:?}");
    let needed = checks(&[unregistered, ("LEASEHOLD_MECHANISM", "gvisor")]).await;
    let failed: Vec<&Value> = needed.iter().filter(|check| check["ok"] == false).collect();
    assert_eq!((failed.len(), &failed[0]["name"]), (1, &serde_json::json!("gVisor")), "{needed:?}");
    assert!(failed[0]["detail"].as_str().is_some_and(|detail| detail.contains("gvisor_not_registered")));
    let wrong = leasehold(&["doctor"], &[("LEASEHOLD_COLOUR", "red")]).await;
    assert_eq!(code(&wrong), 2, "{wrong:?}");
}

mod gvisor {
    use super::*;

    #[tokio::test(flavor = "multi_thread")]
    async fn doctor_proves_it_by_a_container() {
        let output = leasehold(&["doctor", "--json"], &[("LEASEHOLD_MECHANISM", "gvisor")]).await;
        let report: Value = serde_json::from_str(text(&output.stdout)).expect("json");
        let checks = report["checks"].as_array().expect("checks");
        let gvisor = checks.iter().find(|check| check["name"] == "gVisor").expect("a check of gVisor");
        assert_eq!(gvisor["ok"], true, "{gvisor}");
        assert!(gvisor["detail"].as_str().is_some_and(|detail| detail.contains("runsc")), "{gvisor}");
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn a_service_whose_runtime_is_not_there_does_not_start() {
        let data = data_dir();
        let data = data.path().to_str().expect("a path");
        let arguments =
            ["serve", "--dev", "--listen", "127.0.0.1:0", "--mechanism", "gvisor", "--data", data];
        let refused = leasehold(&arguments, &[("LEASEHOLD_GVISOR_RUNTIME", "no-such-runtime")]).await;
        assert_eq!(code(&refused), 1, "{refused:?}");
        assert!(text(&refused.stderr).contains("gvisor_not_registered"), "{refused:?}");
    }
}
