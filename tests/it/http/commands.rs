//! Commands: run, wait, not wait, kill, list.

use std::collections::BTreeSet;

use reqwest::Method;
use serde_json::{Value, json};
use tests::api::{id, keys};

use super::harness::Api;

#[tokio::test(flavor = "multi_thread")]
async fn a_finished_command_is_told_whole() {
    let api = Api::start().await;
    let (run, lease) = api.lease().await;
    let path = format!("/v1/leases/{}/commands", id(&lease, "lease_id"));
    let body = json!({"argv": ["sh", "-c", "echo out; echo err >&2; echo x > made"], "timeout_seconds": 20});
    let response = api.request(Method::POST, &path).json(&body).send().await.expect("an answer");
    assert_eq!(response.status(), 200);
    assert!(response.headers().contains_key("leasehold-position"));
    let command: Value = response.json().await.expect("JSON");
    assert_eq!(
        keys(&command),
        [
            "accepted_at",
            "argv",
            "background",
            "bridge",
            "cause",
            "command_id",
            "cwd",
            "duration_ms",
            "epoch",
            "evidence",
            "exit_code",
            "files_changed",
            "files_changed_truncated",
            "finished_at",
            "killed_by",
            "lease_id",
            "position",
            "queued_ms",
            "run_id",
            "started_at",
            "state",
            "stderr",
            "stdout",
            "stragglers",
            "timed_out",
            "usage"
        ]
    );
    assert_eq!(
        (&command["state"], &command["exit_code"], &command["killed_by"]),
        (&json!("finished"), &json!(0), &Value::Null)
    );
    assert_eq!(
        (&command["run_id"], &command["cwd"], &command["background"]),
        (&json!(run), &json!("."), &json!(false))
    );
    assert_eq!(
        keys(&command["stdout"]),
        ["artifact_id", "bytes_total", "encoding", "sha256", "text", "text_lossy", "truncated"]
    );
    assert_eq!(
        (&command["stdout"]["text"], &command["stdout"]["encoding"]),
        (&json!("out\n"), &json!("utf-8"))
    );
    assert_eq!((&command["stderr"]["text"], &command["stderr"]["bytes_total"]), (&json!("err\n"), &json!(4)));
    assert_eq!(keys(&command["usage"]), ["cpu_ms", "peak_memory_bytes"]);
    let changes = command["files_changed"].as_array().expect("a list");
    assert_eq!(changes.len(), 1, "{changes:?}");
    assert_eq!(keys(&changes[0]), ["change", "path", "path_base64", "sha256", "size_bytes"]);
    assert_eq!(
        (&changes[0]["path"], &changes[0]["change"], &changes[0]["size_bytes"]),
        (&json!("made"), &json!("CREATED"), &json!(2))
    );

    let (status, seen) = api.get(&format!("/v1/commands/{}", id(&command, "command_id"))).await;
    assert_eq!((status, seen), (200, command));
    api.stop().await;
}

/// One byte that is not UTF-8: the command succeeds, the bytes are exact, the text view says what it is.
#[tokio::test(flavor = "multi_thread")]
async fn output_that_is_not_utf8_is_exact() {
    let api = Api::start().await;
    let (_, lease) = api.lease().await;
    let command = api.run(&lease, &json!({"argv": ["cat"], "stdin_base64": "YWL/Y2Q="})).await;
    let stdout = &command["stdout"];
    assert_eq!((&stdout["text"], &stdout["encoding"]), (&json!("YWL/Y2Q="), &json!("base64")), "{stdout}");
    assert_eq!(
        (&stdout["text_lossy"], &stdout["bytes_total"]),
        (&json!("ab\u{fffd}cd"), &json!(5)),
        "{stdout}"
    );
    let text = "漢字😀".repeat(30_000);
    let command = api.run(&lease, &json!({"argv": ["cat"], "stdin": text})).await;
    assert_eq!(
        (&command["stdout"]["bytes_total"], &command["stdout"]["encoding"]),
        (&json!(text.len()), &json!("utf-8"))
    );
    api.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn arguments_and_variables_arrive_byte_for_byte() {
    let api = Api::start().await;
    let (_, lease) = api.lease().await;
    let value = "  a=b\n$HOME `x` \"q\" \u{1b}[0m ";
    let body = json!({"argv": ["sh", "-c", "printf %s \"$ODD\""], "env": {"ODD": value}});
    let command = api.run(&lease, &body).await;
    assert_eq!(command["stdout"]["text"], value, "{command}");
    let command = api.run(&lease, &json!({"argv": ["echo", "two\nlines"]})).await;
    assert_eq!(
        (&command["stdout"]["text"], &command["argv"][1]),
        (&json!("two\nlines\n"), &json!("two\nlines"))
    );
    api.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn without_input_a_reader_sees_the_end_at_once() {
    let api = Api::start().await;
    let (_, lease) = api.lease().await;
    for body in [json!({"argv": ["cat"]}), json!({"argv": ["cat"], "stdin": ""})] {
        let command = api.run(&lease, &body).await;
        assert_eq!(
            (&command["exit_code"], &command["stdout"]["bytes_total"]),
            (&json!(0), &json!(0)),
            "{command}"
        );
    }
    api.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn nobody_has_to_wait() {
    let api = Api::start().await;
    let (_, lease) = api.lease().await;
    let path = format!("/v1/leases/{}/commands", id(&lease, "lease_id"));
    let sleeper = json!({"argv": ["sleep", "600"]});

    let mut unwaited = sleeper.clone();
    unwaited["wait_seconds"] = json!(0.05);
    let (status, command) = api.post(&path, &unwaited).await;
    assert_eq!(status, 202, "{command}");
    assert!(["accepted", "running"].contains(&command["state"].as_str().expect("a state")), "{command}");
    assert_eq!(
        (&command["stdout"], &command["files_changed"], &command["usage"]),
        (&Value::Null, &Value::Null, &Value::Null)
    );

    let mut background = sleeper.clone();
    background["background"] = json!(true);
    let (status, second) = api.post(&path, &background).await;
    assert_eq!((status, &second["background"]), (202, &json!(true)), "{second}");

    let response = api
        .request(Method::POST, &path)
        .header("Prefer", "respond-async")
        .json(&sleeper)
        .send()
        .await
        .expect("an answer");
    assert_eq!(response.status(), 202);
    assert_eq!(response.headers()["preference-applied"], "respond-async");
    let third: Value = response.json().await.expect("JSON");

    for command in [&command, &second, &third] {
        let path = format!("/v1/commands/{}", id(command, "command_id"));
        for _ in 0..2 {
            let (status, killed) = api.post_empty(&format!("{path}/kill")).await;
            assert_eq!(status, 202, "{killed}");
        }
        let ended = api.wait_for(&path, "the end", |command| command["state"] == "finished").await;
        assert_eq!(
            (&ended["killed_by"], &ended["exit_code"]),
            (&json!("CANCELLED"), &Value::Null),
            "{ended}"
        );
        let (status, killed) = api.post_empty(&format!("{path}/kill")).await;
        assert_eq!((status, &killed["state"]), (202, &json!("finished")), "killing the dead is quiet");
    }
    api.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_timeout_is_named_and_proven() {
    let api = Api::start().await;
    let (_, lease) = api.lease().await;
    let command = api.run(&lease, &json!({"argv": ["sleep", "600"], "timeout_seconds": 0.2})).await;
    assert_eq!(
        (&command["killed_by"], &command["timed_out"], &command["exit_code"]),
        (&json!("TIMEOUT"), &json!(true), &Value::Null),
        "{command}"
    );
    assert_eq!(command["evidence"]["limit_ms"], 200, "{command}");
    assert_eq!(command["evidence"]["oom_kills"], Value::Null, "keys that do not apply are null");
    api.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn commands_are_listed_by_run_lease_and_state() {
    let api = Api::start().await;
    let (run, lease) = api.lease().await;
    let (_, other) = api.lease().await;
    let mut ids = BTreeSet::new();
    for _ in 0..3 {
        ids.insert(id(&api.run(&lease, &json!({"argv": ["true"]})).await, "command_id"));
    }
    api.run(&other, &json!({"argv": ["true"]})).await;
    let items = async |query: String| {
        let (status, page) = api.get(&format!("/v1/commands?{query}")).await;
        assert_eq!(status, 200, "{query}: {page}");
        let items = page["items"].as_array().expect("items");
        items.iter().map(|command| id(command, "command_id")).collect::<BTreeSet<_>>()
    };
    assert_eq!(items(format!("run_id={run}")).await, ids);
    assert_eq!(items(format!("lease_id={}&state=finished", id(&lease, "lease_id"))).await, ids);
    assert_eq!(items(format!("lease_id={}", id(&other, "lease_id"))).await.len(), 1);
    assert!(items("state=running".to_owned()).await.is_empty());
    assert_eq!(items("limit=1000".to_owned()).await.len(), 4);
    api.stop().await;
}

/// The client is gone before the answer; the command is not.
#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_goes_away_aborts_nothing() {
    let api = Api::start().await;
    let (run, lease) = api.lease().await;
    let path = format!("/v1/leases/{}/commands", id(&lease, "lease_id"));
    let request =
        api.request(Method::POST, &path).json(&json!({"argv": ["sh", "-c", "sleep 1; echo done > proof"]}));
    let list = format!("/v1/commands?run_id={run}");
    tokio::select! {
        answer = request.send() => panic!("answered before its end: {answer:?}"),
        _ = api.wait_for(&list, "the start", |page| page["items"][0]["state"] == "running") => {}
    }
    let page = api.wait_for(&list, "the end", |page| page["items"][0]["state"] == "finished").await;
    assert_eq!(page["items"][0]["exit_code"], 0, "{page}");
    assert_eq!(page["items"][0]["files_changed"][0]["path"], "proof", "{page}");
    api.stop().await;
}

/// Below the disk's reserve nothing new begins; what is there can be read, ended and taken down.
#[tokio::test(flavor = "multi_thread")]
async fn a_full_disk_refuses_commands_and_writes_and_nothing_else() {
    let api = Api::start().await;
    let (run, lease) = api.lease().await;
    api.run(&lease, &json!({"argv": ["true"]})).await;
    let before = api.events(run).await.len();
    let path = format!("/v1/leases/{}", id(&lease, "lease_id"));
    api.fake.faults().set_disk_full(true);
    let command = api.request(Method::POST, &format!("{path}/commands")).json(&json!({"argv": ["true"]}));
    let file = api.request(Method::PUT, &format!("{path}/files/new")).body("x");
    for request in [command, file] {
        let response = request.send().await.expect("an answer");
        assert_eq!(response.status(), 503);
        let problem: Value = response.json().await.expect("JSON");
        assert_eq!(problem["code"], "environment_unavailable", "{problem}");
        assert!(problem["detail"].as_str().is_some_and(|text| text.contains("disk_reserve")), "{problem}");
    }
    assert_eq!(api.events(run).await.len(), before, "the refused calls left nothing");
    let (status, listed) = api.get(&format!("{path}/files")).await;
    assert_eq!(status, 200, "{listed}");
    let released = api.request(Method::POST, &format!("{path}/release")).send().await.expect("an answer");
    assert_eq!(released.status(), 200);
    api.stop().await;
}

/// The engine is down, then back: nothing is accepted meanwhile, and the next call works.
#[tokio::test(flavor = "multi_thread")]
async fn an_outage_of_the_runtime_is_said_and_survived() {
    let api = Api::start().await;
    let (run, lease) = api.lease().await;
    let path = format!("/v1/leases/{}/commands", id(&lease, "lease_id"));
    api.fake.faults().set_outage(true);
    let response =
        api.request(Method::POST, &path).json(&json!({"argv": ["true"]})).send().await.expect("an answer");
    assert_eq!(response.status(), 503);
    assert!(response.headers().contains_key("retry-after"));
    let problem: Value = response.json().await.expect("JSON");
    assert_eq!(
        (&problem["code"], &problem["retryable"]),
        (&json!("environment_unavailable"), &json!(true)),
        "{problem}"
    );
    let (status, ready) = api.get("/readyz").await;
    assert_eq!((status, &ready["ready"]), (503, &json!(false)), "{ready}");
    api.fake.faults().set_outage(false);
    let command = api.run(&lease, &json!({"argv": ["true"]})).await;
    assert_eq!(command["exit_code"], 0, "{command}");
    let events = api.events(run).await;
    let accepted = events.iter().filter(|event| event["type"] == "CommandAccepted").count();
    assert_eq!(accepted, 1, "the refused call left no command");
    api.stop().await;
}
