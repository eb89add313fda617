//! Every answer has every field of its shape, on real environments: what does not apply is null, never absent.

use reqwest::Method;
use serde_json::{Value, json};
use tests::api::{id, keys, sse};
use tests::process::{Options, Service, data_dir, docker};

use super::{begin, bodies, commands_of, output_of, path_of, sh};

fn words(list: &str) -> Vec<String> {
    let mut words: Vec<String> = list.split_whitespace().map(str::to_owned).collect();
    words.sort();
    words
}

const LEASE: &str = "lease_id tenant run_id epoch state holder network acquired_at expires_at ended_at labels limits tools \
                     environment position";
const LIMITS: &str = "cpu_millicores memory_bytes pids_max workspace_bytes inodes_max wall_clock_seconds";
const ENVIRONMENT: &str = "environment_id state mechanism image_digest created_at expires_at";
const COMMAND: &str = "command_id lease_id run_id epoch state argv cwd background exit_code killed_by timed_out evidence \
                       cause stragglers stdout stderr files_changed files_changed_truncated usage queued_ms duration_ms \
                       accepted_at started_at finished_at bridge position";
const VIEW: &str = "text encoding text_lossy bytes_total sha256 truncated artifact_id";
const CHANGE: &str = "path path_base64 change size_bytes sha256";
const USAGE: &str = "cpu_ms peak_memory_bytes";
const EVIDENCE: &str = "limit_ms elapsed_ms limit_bytes peak_bytes oom_kills limit peak refused_forks resource measured \
                        source produced_bytes by stopped_with expires_at deadline_ms start_error stdin_undelivered_bytes";
const EVENT: &str = "position event_id stream version type schema tenant recorded_at actor correlation_id causation_id body \
                     leaf";
const FILE: &str = "path path_base64 kind size_bytes modified_at mode provenance";
const WRITTEN: &str = "path path_base64 size_bytes sha256 created position";
const READY: &str = "url token console_url data_dir mechanism image_digest database_url";
const PROBLEM: &str = "type title status detail code retryable no_side_effect request_id";

fn assert_lease(lease: &Value, environment: Option<&str>) {
    assert_eq!(keys(lease), words(LEASE), "{lease}");
    assert_eq!(keys(&lease["limits"]), words(LIMITS), "{lease}");
    match environment {
        None => assert_eq!(lease["environment"], Value::Null),
        Some(state) => {
            assert_eq!(keys(&lease["environment"]), words(ENVIRONMENT), "{lease}");
            assert_eq!(
                (&lease["environment"]["state"], &lease["environment"]["mechanism"]),
                (&json!(state), &json!("docker"))
            );
        }
    }
}

/// `ended`: it has a result.
fn assert_command(command: &Value, ended: bool) {
    assert_eq!(keys(command), words(COMMAND), "{command}");
    for stream in ["stdout", "stderr"] {
        if ended {
            assert_eq!(keys(&command[stream]), words(VIEW), "{command}");
        } else {
            assert_eq!(command[stream], Value::Null, "{command}");
        }
    }
    if ended {
        assert_eq!(keys(&command["usage"]), words(USAGE), "{command}");
        for change in command["files_changed"].as_array().expect("a list") {
            assert_eq!(keys(change), words(CHANGE), "{change}");
        }
    }
    if command["evidence"] != Value::Null {
        assert_eq!(keys(&command["evidence"]), words(EVIDENCE), "{command}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn every_answer_has_every_field() {
    let data = data_dir();
    let service = Service::start(data.path(), &Options::docker()).await;
    assert_eq!(keys(&service.ready), words(READY), "{}", service.ready);
    let log_id = service.log_id().await;
    let (run, lease) = service.lease_for(600.0).await;
    assert_lease(&lease, None);
    let put = service.request(Method::PUT, &format!("{}/files/%FF", path_of(&lease))).body("x");
    let (status, written) = service.send(put).await;
    assert_eq!((status, keys(&written)), (201, words(WRITTEN)), "{written}");
    assert_eq!(written["path_base64"], "/w==", "{written}");

    let finished = service.run(&lease, &sh("echo x > made; ln -s made link; rm -- *")).await;
    assert_command(&finished, true);
    assert_eq!((&finished["evidence"], &finished["cause"]), (&Value::Null, &Value::Null), "{finished}");
    let made = service.run(&lease, &sh("echo x > made; printf '\\377'")).await;
    assert_command(&made, true);
    let mut limited = sh("sleep 60");
    limited["timeout_seconds"] = json!(0.3);
    let killed = service.run(&lease, &limited).await;
    assert_command(&killed, true);
    assert_eq!((&killed["timed_out"], &killed["bridge"]), (&json!(true), &Value::Null), "{killed}");
    let unstartable = service.run(&lease, &json!({ "argv": ["no-such-program"] })).await;
    assert_command(&unstartable, true);
    assert_eq!(unstartable["evidence"]["limit_ms"], Value::Null, "{unstartable}");

    // Running, then without a result: its sandbox is removed behind the service's back.
    let interrupted = begin(&service, &lease, sh("echo up; sleep 600")).await;
    assert_command(&interrupted, false);
    let waiting = begin(&service, &lease, sh("true")).await;
    assert_command(&waiting, false);
    let (_, busy) = service.get(&path_of(&lease)).await;
    assert_lease(&busy, Some("ready"));
    let image = busy["environment"]["image_digest"].clone();
    let list =
        docker(&["ps", "--filter", &format!("label=leasehold.log={log_id}"), "--format", "{{.Names}}"]).await;
    let sandbox = list.lines().find(|name| name.ends_with("-sandbox")).expect("a sandbox").to_owned();
    let path = format!("/v1/commands/{}", id(&interrupted, "command_id"));
    service.wait_for(&path, "the start", |command| command["state"] == "running").await;
    docker(&["rm", "--force", &sandbox]).await;
    let lost = service.wait_for(&path, "the loss", |command| command["state"] == "interrupted").await;
    assert_command(&lost, false);
    assert_eq!((&lost["cause"], &lost["exit_code"]), (&json!("sandbox_lost"), &Value::Null), "{lost}");
    let exit = output_of(&service, &lost).await.pop().expect("an end");
    assert_eq!((exit.name.as_str(), &exit.data), ("exit", &lost), "a stream ends with the command");

    // Pages, events, files, problems.
    let (status, problem) = service.post(&commands_of(&lease), &sh("true")).await;
    assert_eq!((status, keys(&problem)), (409, words(PROBLEM)), "{problem}");
    let (status, problem) = service.post(&commands_of(&lease), &json!({ "argv": [] })).await;
    assert_eq!((status, keys(&problem)), (422, words(&format!("{PROBLEM} errors"))), "{problem}");
    assert_eq!(keys(&problem["errors"][0]), words("pointer detail"), "{problem}");
    let (_, next) = service
        .post(&format!("/v1/runs/{run}/leases"), &json!({ "ttl_seconds": 600, "takeover": true }))
        .await;
    assert_lease(&next, None);
    service.run(&next, &sh("mkdir d; echo x > d/f; ln -s d l; mkfifo p")).await;
    for (path, shape) in [
        (format!("{}/files?recursive=true", path_of(&next)), FILE),
        ("/v1/leases".to_owned(), LEASE),
        (format!("/v1/commands?run_id={run}"), COMMAND),
        (format!("/v1/runs/{run}/events?limit=1000"), EVENT),
    ] {
        let (status, page) = service.get(&path).await;
        assert_eq!((status, keys(&page)), (200, words("items next_cursor")), "{page}");
        let items = page["items"].as_array().expect("items");
        assert!(!items.is_empty());
        for item in items {
            assert_eq!(keys(item), words(shape), "{item}");
        }
    }
    let (status, closed) = service.post(&format!("/v1/runs/{run}/close"), &json!({})).await;
    assert_eq!((status, keys(&closed)), (200, words("run_id state position")), "{closed}");
    let (_, gone) = service.get(&path_of(&next)).await;
    assert_lease(&gone, Some("destroyed"));
    let tail =
        service.request(Method::GET, &format!("/v1/runs/{run}/events")).header("Accept", "text/event-stream");
    let mut tail = tail.send().await.expect("a stream");
    let mut text = String::new();
    while !text.contains("RunClosed") || !text.ends_with("\n\n") {
        let piece = tail.chunk().await.expect("it goes on").expect("more");
        text.push_str(std::str::from_utf8(&piece).expect("UTF-8"));
    }
    assert!(sse(&text).iter().all(|event| keys(&event.data) == words(EVENT)));

    // The image is an id, resolved once, on record from the start, and the one that runs.
    let timeline = service.replay(&["--json", "timeline"]).await;
    let timeline = String::from_utf8(timeline.stdout).expect("UTF-8");
    let history: Vec<Value> =
        timeline.lines().map(|line| serde_json::from_str(line).expect("an event per line")).collect();
    let resolved = docker(&["image", "inspect", "--format", "{{.Id}}", "leasehold/execution:dev"]).await;
    let started = bodies(&history, "ServiceStarted");
    assert_eq!((started.len(), &started[0]["image_digest"]), (1, &json!(resolved.trim())), "{started:?}");
    assert_eq!((&image, &image), (&started[0]["image_digest"], &service.ready["image_digest"]));
    assert!(bodies(&history, "EnvironmentRequested").iter().all(|body| body["image_digest"] == image));
    service.assert_verified().await;
    service.stop().await;
}
