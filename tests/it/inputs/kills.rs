//! Commands that must be ended, commands that end just in time, and commands for which there is no process left.

use std::time::{Duration, Instant};

use futures::StreamExt as _;
use reqwest::Method;
use serde_json::{Value, json};
use tests::api::id;
use tests::process::{Options, Service, data_dir};

use super::{begin, bodies, path_of, sh};

fn limited(script: &str, timeout_seconds: f64) -> Value {
    let mut body = sh(script);
    body["timeout_seconds"] = json!(timeout_seconds);
    body
}

/// How many processes of the sandbox have `pattern` in their command line.
async fn alive(service: &Service, lease: &Value, pattern: &str) -> String {
    let script = format!("cat /proc/[0-9]*/cmdline | tr '\\0' ' ' | grep -c '{pattern}'");
    service.run(lease, &sh(&script)).await["stdout"]["text"].as_str().expect("text").trim().to_owned()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_time_limit_ends_the_whole_tree_whatever_it_does() {
    let data = data_dir();
    let service = Service::start(data.path(), &Options::docker()).await;
    let (run, lease) = service.lease_for(600.0).await;
    service.run(&lease, &sh("echo kept > kept")).await;

    // Each would write `late` three seconds after its start.
    let rows = [
        ("(sleep 3; echo > late) & wait", 0.05),
        ("setsid sh -c '(sleep 3; echo > late) & exit' & sleep 60", 0.6),
        ("nohup setsid sh -c 'sleep 3; echo > late' >/dev/null 2>&1 & sleep 60", 0.6),
        ("trap '' TERM INT HUP QUIT; sleep 3; echo > late; while :; do sleep 1; done", 0.7),
        ("kill -STOP 0; echo > late", 0.7),
    ];
    for (script, timeout_seconds) in rows {
        let command = service.run(&lease, &limited(script, timeout_seconds)).await;
        assert_eq!(
            (&command["killed_by"], &command["timed_out"], &command["exit_code"]),
            (&json!("TIMEOUT"), &json!(true), &Value::Null),
            "{script}: {command}"
        );
        let limit_ms = command["evidence"]["limit_ms"].as_f64().expect("a limit");
        assert!((limit_ms - timeout_seconds * 1000.0).abs() < 1.0, "{script}: {command}");
        assert_eq!(command["evidence"]["oom_kills"], Value::Null, "{script}: {command}");
        assert_eq!(command["files_changed"], json!([]), "a kill deletes and creates nothing: {command}");
    }
    assert_eq!(alive(&service, &lease, "[l]ate").await, "0", "what would write later is dead");
    let after = service.run(&lease, &sh("ls; cat kept")).await;
    assert_eq!(after["stdout"]["text"], "kept\nkept\n", "nothing wrote after its end: {after}");
    let events = service.events(run).await;
    let kills = bodies(&events, "KillEnforced");
    assert_eq!(kills.len(), rows.len());
    assert!(kills.iter().all(|kill| kill["reason"] == "TIMEOUT"), "{kills:?}");
    service.assert_verified().await;
    service.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn waiting_never_counts_and_a_death_just_in_time_is_no_timeout() {
    let data = data_dir();
    let service = Service::start(data.path(), &Options::docker()).await;
    let (_, lease) = service.lease_for(600.0).await;
    service.run(&lease, &sh("true")).await;

    // Six at once, one at a time: the last waits longer than any of them may run.
    let start = Instant::now();
    let body = limited("sleep 0.8; kill -9 $$", 2.5);
    let runs = (0..6).map(|_| service.run(&lease, &body));
    let ended = futures::future::join_all(runs).await;
    assert!(start.elapsed() > Duration::from_millis(4_800), "one at a time");
    let mut longest_wait_ms = 0;
    for command in ended {
        assert_eq!(
            (&command["exit_code"], &command["killed_by"], &command["timed_out"]),
            (&json!(137), &Value::Null, &json!(false)),
            "{command}"
        );
        longest_wait_ms = longest_wait_ms.max(command["queued_ms"].as_u64().expect("waited"));
    }
    assert!(longest_wait_ms > 2_500, "{longest_wait_ms} ms");

    // Twenty beside each other: half are killed by their limit, half by a signal of their own before it.
    let mut commands = Vec::new();
    for number in 0..20 {
        let mut body =
            if number % 2 == 0 { limited("sleep 60", 0.5) } else { limited("sleep 0.4; kill -9 $$", 20.0) };
        body["background"] = json!(true);
        commands.push(begin(&service, &lease, body).await);
    }
    for (number, command) in commands.iter().enumerate() {
        let path = format!("/v1/commands/{}", id(command, "command_id"));
        let ended = service.wait_for(&path, "the end", |command| command["state"] == "finished").await;
        let expected =
            if number % 2 == 0 { (Value::Null, json!("TIMEOUT")) } else { (json!(137), Value::Null) };
        assert_eq!(
            (&ended["exit_code"], &ended["killed_by"]),
            (&expected.0, &expected.1),
            "{number}: {ended}"
        );
    }
    assert_eq!(service.run(&lease, &sh("echo on")).await["stdout"]["text"], "on\n");
    service.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_kill_on_request_takes_the_process_and_leaves_the_environment() {
    let data = data_dir();
    let service = Service::start(data.path(), &Options::docker()).await;
    let (_, lease) = service.lease_for(600.0).await;
    let command = begin(&service, &lease, sh("setsid sleep 4321 & echo up; sleep 4321")).await;
    let path = format!("/v1/commands/{}", id(&command, "command_id"));
    let output = service.request(Method::GET, &format!("{path}/output")).send().await.expect("a stream");
    let mut output = output.bytes_stream();
    let mut seen = Vec::new();
    while !seen.windows(4).any(|window| window == b"up\\n") {
        seen.extend(output.next().await.expect("it goes on").expect("bytes"));
    }
    let (status, _) = service.post(&format!("{path}/kill"), &json!({})).await;
    assert_eq!(status, 202);
    let killed = service.wait_for(&path, "the end", |command| command["state"] == "finished").await;
    assert_eq!(
        (&killed["killed_by"], &killed["exit_code"], &killed["stdout"]["text"]),
        (&json!("CANCELLED"), &Value::Null, &json!("up\n")),
        "partial output is kept: {killed}"
    );
    assert_eq!(alive(&service, &lease, "sleep [4]321").await, "0");
    service.stop().await;
}

/// When the sandbox has no process left, a command that cannot start says so as a result of its own kind, and nothing breaks.
#[tokio::test(flavor = "multi_thread")]
async fn without_a_process_left_a_command_fails_to_start_and_says_so() {
    let data = data_dir();
    let service = Service::start(data.path(), &Options::docker()).await;
    let run = uuid::Uuid::now_v7();
    let body = json!({ "ttl_seconds": 600, "limits": { "pids_max": 24 } });
    let (status, lease) = service.post(&format!("/v1/runs/{run}/leases"), &body).await;
    assert_eq!(status, 201, "{lease}");
    // Takes every process there is and holds on, without asking for more.
    let hog = "import os, time\n\
               try:\n    while True:\n        if os.fork() == 0: time.sleep(600)\n\
               except OSError: open('full', 'w').close()\n\
               time.sleep(600)";
    let hog = begin(&service, &lease, json!({ "argv": ["python3", "-c", hog], "background": true })).await;
    let full = format!("{}/files/full", path_of(&lease));
    let start = Instant::now();
    while service.request(Method::GET, &full).send().await.expect("an answer").status() != 200 {
        assert!(start.elapsed() < tests::process::PATIENCE, "the sandbox never filled up");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }

    // One refused fork is evidence at most; the samples that would make it a flood are apart.
    let apart = Duration::from_secs(1);
    tokio::time::sleep(apart).await;
    // Takes the place of the processes that wait for a command, if they were made before the last one was taken.
    let first = begin(&service, &lease, json!({ "argv": ["sleep", "600"], "background": true })).await;
    let first = format!("/v1/commands/{}", id(&first, "command_id"));
    let first = service.wait_for(&first, "its start", |command| command["state"] != "accepted").await;
    tokio::time::sleep(apart).await;
    let refused = service.run(&lease, &sh("echo never")).await;
    assert_eq!(
        (&refused["state"], &refused["exit_code"], &refused["killed_by"]),
        (&json!("finished"), &json!(126), &Value::Null),
        "{refused}"
    );
    assert!(
        refused["evidence"]["start_error"].as_str().is_some_and(|error| error.contains("process")),
        "{refused}"
    );
    assert_eq!(refused["stdout"]["bytes_total"], 0, "{refused}");
    let (status, still) = service.get(&format!("/v1/commands/{}", id(&hog, "command_id"))).await;
    assert_eq!((status, &still["state"]), (200, &json!("running")), "{still}");

    let (status, _) =
        service.post(&format!("/v1/commands/{}/kill", id(&hog, "command_id")), &json!({})).await;
    assert_eq!(status, 202);
    let hog = format!("/v1/commands/{}", id(&hog, "command_id"));
    let killed = service.wait_for(&hog, "the end", |command| command["state"] == "finished").await;
    assert_eq!(killed["killed_by"], "CANCELLED", "{killed}");
    assert_eq!(service.run(&lease, &sh("echo on")).await["stdout"]["text"], "on\n");

    // Typed in the record, and read by every reader of it.
    let events = service.events(run).await;
    let failed: Vec<_> = bodies(&events, "CommandFinished")
        .into_iter()
        .filter(|body| body["evidence"]["start_error"].is_string())
        .collect();
    let first = service.get(&format!("/v1/commands/{}", id(&first, "command_id"))).await.1;
    let failed_first = first["evidence"]["start_error"].is_string();
    assert_eq!(failed.len(), 1 + usize::from(failed_first), "{failed:?}");
    let (status, page) = service.get(&format!("/v1/commands?run_id={run}")).await;
    assert_eq!(status, 200);
    assert!(page["items"].as_array().is_some_and(|items| items.contains(&refused)), "{page}");
    service.assert_verified().await;
    service.stop().await;
}
