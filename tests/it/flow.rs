//! The main job over HTTP on real containers: lease, command, events, files, kill, release; one test per arrow of the house.

use std::time::{Duration, Instant};

use reqwest::Method;
use serde_json::{Value, json};
use tests::api::id;
use tests::process::{Options, Service, data_dir, left_in_engine};
use uuid::Uuid;

/// What the types of a run's events are, in order.
fn types(events: &[Value]) -> Vec<&str> {
    events.iter().filter_map(|event| event["type"].as_str()).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn lease_command_events_release() {
    main_job(Options::docker()).await;
}

mod gvisor {
    use super::*;

    #[tokio::test(flavor = "multi_thread")]
    async fn lease_command_events_release() {
        main_job(Options::gvisor()).await;
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn memory_and_forks_are_limited_with_their_evidence() {
        let data = data_dir();
        let service = Service::start(data.path(), &Options::gvisor()).await;
        let body = json!({ "ttl_seconds": 300, "limits": { "memory_bytes": 128 << 20, "pids_max": 64 } });
        let (status, lease) = service.post(&format!("/v1/runs/{}/leases", Uuid::now_v7()), &body).await;
        assert_eq!(status, 201, "{lease}");
        for (program, reason, source) in [
            ("import time; x = bytearray(1 << 30); time.sleep(60)", "MEMORY", "engine_event"),
            (
                "import os, time\nwhile True:\n    try:\n        if os.fork() == 0: time.sleep(100)\n    except OSError: time.sleep(0.01)",
                "PIDS",
                "process_count",
            ),
        ] {
            let killed = service.run(&lease, &json!({ "argv": ["python3", "-c", program] })).await;
            assert_eq!(
                (&killed["killed_by"], &killed["exit_code"], &killed["evidence"]["source"]),
                (&json!(reason), &Value::Null, &json!(source)),
                "{killed}"
            );
            let next = service.run(&lease, &json!({ "argv": ["echo", "on"] })).await;
            assert_eq!(next["stdout"]["text"], "on\n", "{next}");
        }
        service.assert_verified().await;
        service.stop().await;
    }
}

/// One lease from its acquisition to its proof.
async fn main_job(options: Options) {
    let data = data_dir();
    let service = Service::start(data.path(), &options).await;
    assert_eq!(service.ready["mechanism"], options.mechanism);
    let log_id = service.log_id().await;
    let (run, lease) = service.lease_for(300.0).await;
    assert_eq!(
        (&lease["epoch"], &lease["state"], &lease["environment"]),
        (&json!(1), &json!("live"), &Value::Null)
    );

    let files = format!("/v1/leases/{}/files/in.csv", id(&lease, "lease_id"));
    let put = service.request(Method::PUT, &files).body("a,b\n1,2\n");
    let (status, written) = service.send(put).await;
    assert_eq!(
        (status, &written["created"], &written["size_bytes"]),
        (201, &json!(true), &json!(8)),
        "{written}"
    );

    let body =
        json!({ "argv": ["sh", "-c", "wc -c < in.csv; echo note >&2; echo out > out.txt; rm in.csv"] });
    let command = service.run(&lease, &body).await;
    assert_eq!(command["exit_code"], 0, "{command}");
    assert_eq!(command["stdout"]["text"], "8\n");
    let (_, shown) = service.get(&format!("/v1/leases/{}", id(&lease, "lease_id"))).await;
    assert_eq!(shown["environment"]["mechanism"], options.mechanism);
    assert_eq!(command["stderr"]["text"], "note\n");
    let changes: Vec<(&str, &str)> = command["files_changed"]
        .as_array()
        .expect("a list")
        .iter()
        .map(|change| (change["path"].as_str().expect("path"), change["change"].as_str().expect("change")))
        .collect();
    assert_eq!(changes, [("in.csv", "DELETED"), ("out.txt", "CREATED")]);

    let release = format!("/v1/leases/{}/release", id(&lease, "lease_id"));
    let (status, released) = service.post(&release, &json!({})).await;
    assert_eq!((status, &released["state"]), (200, &json!("released")), "{released}");
    let lease_path = format!("/v1/leases/{}", id(&lease, "lease_id"));
    service.wait_for(&lease_path, "teardown", |lease| lease["environment"]["state"] == "destroyed").await;
    assert_eq!(left_in_engine(&log_id).await, Vec::<String>::new());

    let events = service.events(run).await;
    assert_eq!(
        types(&events),
        [
            "LeaseAcquired",
            "EnvironmentRequested",
            "EnvironmentProvisioned",
            "WorkspaceFileWritten",
            "CommandAccepted",
            "CommandStarted",
            "CommandFinished",
            "LeaseReleased",
            "EnvironmentTeardownRequested",
            "EnvironmentDestroyed",
        ]
    );
    let versions: Vec<u64> = events.iter().filter_map(|event| event["version"].as_u64()).collect();
    assert_eq!(versions, (1..=10).collect::<Vec<u64>>());

    // Nothing happens under a dead epoch.
    let (status, refused) =
        service.post(&format!("{lease_path}/commands"), &json!({ "argv": ["true"] })).await;
    assert_eq!((status, &refused["code"]), (409, &json!("lease_lost")), "{refused}");
    assert_eq!(service.events(run).await.len(), 10);
    service.assert_verified().await;
    service.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_runaway_is_killed_with_its_reason_and_the_environment_goes_on() {
    let data = data_dir();
    let service = Service::start(data.path(), &Options::docker()).await;
    let (run, lease) = service.lease_for(300.0).await;
    service.run(&lease, &json!({ "argv": ["sh", "-c", "echo before > kept"] })).await;

    let start = Instant::now();
    let body = json!({
        "argv": ["sh", "-c", "trap '' TERM; echo partial; setsid sh -c 'while true; do echo x >> late; done' & while true; do :; done"],
        "timeout_seconds": 1.5,
    });
    let command = service.run(&lease, &body).await;
    assert!(start.elapsed() < Duration::from_secs(15), "bounded");
    assert_eq!(
        (&command["killed_by"], &command["timed_out"], &command["exit_code"]),
        (&json!("TIMEOUT"), &json!(true), &Value::Null),
        "{command}"
    );
    assert_eq!(command["evidence"]["limit_ms"], 1500, "{command}");
    assert!(command["evidence"]["elapsed_ms"].as_u64().expect("elapsed") >= 1500, "{command}");
    assert_eq!(command["stdout"]["text"], "partial\n");

    // No process survived to write on, and the next command sees the same workspace.
    let probe = json!({ "argv": ["sh", "-c", "wc -c < late; sleep 0.3; wc -c < late; cat kept"] });
    let after = service.run(&lease, &probe).await;
    let text = after["stdout"]["text"].as_str().expect("text");
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!((lines[0], lines[2]), (lines[1], "before"), "{after}");
    assert_eq!(after["files_changed"], json!([]), "{after}");

    let events = service.events(run).await;
    assert_eq!(types(&events).iter().filter(|kind| **kind == "KillEnforced").count(), 1);
    service.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_program_s_own_end_is_never_called_a_kill() {
    let data = data_dir();
    let service = Service::start(data.path(), &Options::docker()).await;
    let (_, lease) = service.lease_for(300.0).await;
    for (program, code) in [("exit 137", 137), ("kill -9 $$", 137), ("kill -SEGV $$", 139), ("exit 3", 3)] {
        let command = service.run(&lease, &json!({ "argv": ["sh", "-c", program] })).await;
        assert_eq!(
            (&command["exit_code"], &command["killed_by"]),
            (&json!(code), &Value::Null),
            "{program}: {command}"
        );
    }
    let missing = service.run(&lease, &json!({ "argv": ["no-such-program"] })).await;
    assert_eq!(missing["exit_code"], 127, "{missing}");
    assert!(missing["evidence"]["start_error"].is_string(), "{missing}");
    assert_eq!(missing["stdout"]["bytes_total"], 0, "{missing}");
    service.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn output_is_streamed_once_and_resumes_at_a_cursor() {
    let data = data_dir();
    let service = Service::start(data.path(), &Options::docker()).await;
    let (_, lease) = service.lease_for(300.0).await;
    let body = json!({ "argv": ["sh", "-c", "for i in 1 2 3; do echo line $i; done; echo end >&2"] });
    let command = service.run(&lease, &body).await;
    let path = format!("/v1/commands/{}/output", id(&command, "command_id"));

    let whole =
        service.request(Method::GET, &path).send().await.expect("a stream").text().await.expect("it ends");
    let stdout = sse_data(&whole, "stdout");
    assert_eq!(stdout, "line 1\nline 2\nline 3\n", "{whole}");
    assert_eq!(sse_data(&whole, "stderr"), "end\n", "{whole}");
    assert_eq!(whole.matches("event: exit").count() + whole.matches("event:exit").count(), 1, "{whole}");

    let rest =
        service.request(Method::GET, &path).header("Last-Event-ID", "7.0").send().await.expect("a stream");
    let rest = rest.text().await.expect("it ends");
    assert_eq!(sse_data(&rest, "stdout"), "line 2\nline 3\n", "{rest}");
    service.stop().await;
}

/// The text of all events of one name.
fn sse_data(stream: &str, name: &str) -> String {
    let mut text = String::new();
    for event in stream.split("\n\n") {
        let named =
            event.lines().any(|line| line.strip_prefix("event:").is_some_and(|value| value.trim() == name));
        if named {
            let data: String = event.lines().filter_map(|line| line.strip_prefix("data:")).collect();
            let value: Value = serde_json::from_str(data.trim()).expect("data is JSON");
            text.push_str(value["text"].as_str().expect("text"));
        }
    }
    text
}

#[tokio::test(flavor = "multi_thread")]
async fn ten_commands_at_once_take_turns_without_mixing() {
    let data = data_dir();
    let service = Service::start(data.path(), &Options::docker()).await;
    let (_, lease) = service.lease_for(300.0).await;
    service.run(&lease, &json!({ "argv": ["true"] })).await;
    let runs = (0..10).map(|n| {
        let body = json!({
            "argv": ["sh", "-c", format!("echo $WHO; mkdir -p d{n}; cd d{n}; sleep 0.1; echo {n} > f; cat f; pwd")],
            "env": { "WHO": format!("me-{n}") },
            "timeout_seconds": 5,
        });
        let (service, lease) = (&service, &lease);
        async move { (n, service.run(lease, &body).await) }
    });
    for (n, command) in futures::future::join_all(runs).await {
        assert_eq!(command["stdout"]["text"], format!("me-{n}\n{n}\n/workspace/d{n}\n"), "{command}");
        assert_eq!(
            command["killed_by"],
            Value::Null,
            "waiting never counts against the time limit: {command}"
        );
        let changed: Vec<&Value> =
            command["files_changed"].as_array().expect("list").iter().map(|c| &c["path"]).collect();
        assert_eq!(changed, [&json!(format!("d{n}/f"))], "{command}");
    }
    service.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_killed_command_says_who_asked() {
    let data = data_dir();
    let service = Service::start(data.path(), &Options::docker()).await;
    let (_, lease) = service.lease_for(300.0).await;
    let path = format!("/v1/leases/{}/commands", id(&lease, "lease_id"));
    let (status, command) =
        service.post(&path, &json!({ "argv": ["sh", "-c", "echo up; sleep 600"], "wait_seconds": 0 })).await;
    assert_eq!(status, 202, "{command}");
    let command_path = format!("/v1/commands/{}", id(&command, "command_id"));
    service.wait_for(&command_path, "the start", |command| command["state"] == "running").await;
    let (status, _) = service.post(&format!("{command_path}/kill"), &json!({})).await;
    assert_eq!(status, 202);
    let killed = service.wait_for(&command_path, "the end", |command| command["state"] == "finished").await;
    assert_eq!((&killed["killed_by"], &killed["exit_code"]), (&json!("CANCELLED"), &Value::Null), "{killed}");
    assert!(killed["evidence"]["by"].is_string(), "{killed}");
    let (status, _) = service.post(&format!("{command_path}/kill"), &json!({})).await;
    assert_eq!(status, 202, "killing twice is quiet");
    assert_eq!(service.run(&lease, &json!({ "argv": ["echo", "alive"] })).await["stdout"]["text"], "alive\n");
    service.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_takeover_fences_and_gets_a_workspace_of_its_own() {
    let data = data_dir();
    let service = Service::start(data.path(), &Options::docker()).await;
    let (run, first) = service.lease_for(300.0).await;
    service.run(&first, &json!({ "argv": ["sh", "-c", "echo secret > file"] })).await;
    let leases = format!("/v1/runs/{run}/leases");
    let (status, held) = service.post(&leases, &json!({ "ttl_seconds": 60 })).await;
    assert_eq!((status, &held["code"]), (409, &json!("lease_held")), "{held}");
    let (status, second) = service.post(&leases, &json!({ "ttl_seconds": 60, "takeover": true })).await;
    assert_eq!((status, &second["epoch"]), (201, &json!(2)), "{second}");
    let (status, lost) = service
        .post(&format!("/v1/leases/{}/renew", id(&first, "lease_id")), &json!({ "ttl_seconds": 60 }))
        .await;
    assert_eq!((status, &lost["code"]), (409, &json!("lease_lost")), "{lost}");
    let listing = service.run(&second, &json!({ "argv": ["ls", "-A"] })).await;
    assert_eq!(
        listing["stdout"]["text"].as_str().map(|text| text.contains("file")),
        Some(false),
        "{listing}"
    );
    let first_path = format!("/v1/leases/{}", id(&first, "lease_id"));
    service
        .wait_for(&first_path, "fenced and destroyed", |lease| {
            lease["state"] == "fenced" && lease["environment"]["state"] == "destroyed"
        })
        .await;
    service.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn closing_a_run_completes_its_history() {
    let data = data_dir();
    let service = Service::start(data.path(), &Options::docker()).await;
    let (run, lease) = service.lease_for(300.0).await;
    service.run(&lease, &json!({ "argv": ["true"] })).await;
    let (status, closed) = service.post(&format!("/v1/runs/{run}/close"), &json!({})).await;
    assert_eq!((status, &closed["state"]), (200, &json!("closed")), "{closed}");
    assert_eq!(types(&service.events(run).await).last(), Some(&"RunClosed"));
    let (status, refused) =
        service.post(&format!("/v1/runs/{run}/leases"), &json!({ "ttl_seconds": 60 })).await;
    assert_eq!((status, &refused["code"]), (409, &json!("run_closed")), "{refused}");
    service.stop().await;
}
