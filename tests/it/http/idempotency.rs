//! Keys: the same request twice is one request, whenever the second comes and however the first ended for its client.

use reqwest::{Method, Response};
use serde_json::{Value, json};
use tests::api::{answer, id};
use uuid::Uuid;

use super::harness::Api;

async fn send(api: &Api, path: &str, key: &str, body: &Value) -> Response {
    let request = api.request(Method::POST, path).header("Idempotency-Key", key).json(body);
    request.send().await.expect("an answer")
}

#[tokio::test(flavor = "multi_thread")]
async fn a_repeat_answers_the_same_lease() {
    let api = Api::start().await;
    let path = format!("/v1/runs/{}/leases", Uuid::now_v7());
    let body = json!({"ttl_seconds": 60, "labels": {"a": "1", "b": "2"}});
    // The first answer is dropped unread, as when a connection breaks.
    drop(send(&api, &path, "key-1", &body).await);
    let (status, lease) = answer(send(&api, &path, "key-1", &body).await).await;
    assert_eq!(status, 201, "{lease}");
    // The same meaning in another dress: quoted key, other order of fields.
    let other_dress = r#"{ "labels": {"b":"2","a":"1"}, "ttl_seconds": 6e1 }"#;
    let request = api
        .request(Method::POST, &path)
        .header("Idempotency-Key", "\"key-1\"")
        .header("content-type", "application/json")
        .body(other_dress);
    let (status, again) = answer(request.send().await.expect("an answer")).await;
    assert_eq!((status, id(&again, "lease_id")), (201, id(&lease, "lease_id")));

    // The resource as it is now, also when it has ended.
    let lease_path = format!("/v1/leases/{}", id(&lease, "lease_id"));
    api.post_empty(&format!("{lease_path}/release")).await;
    let (status, ended) = answer(send(&api, &path, "key-1", &body).await).await;
    assert_eq!((status, &ended["state"]), (201, &json!("released")), "{ended}");
    let (_, page) = api.get("/v1/leases").await;
    assert_eq!(page["items"].as_array().expect("items").len(), 1, "{page}");
    api.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn another_request_under_the_key_is_refused() {
    let api = Api::start().await;
    let run = Uuid::now_v7();
    let path = format!("/v1/runs/{run}/leases");
    let (_, lease) = answer(send(&api, &path, "k", &json!({"ttl_seconds": 60})).await).await;
    let head = api.head().await;
    let lease_path = format!("/v1/leases/{}", id(&lease, "lease_id"));
    for (path, body) in [
        (path.clone(), json!({"ttl_seconds": 61})),
        (format!("/v1/runs/{}/leases", Uuid::now_v7()), json!({"ttl_seconds": 60})),
        (format!("{lease_path}/renew"), json!({"ttl_seconds": 60})),
        (format!("{lease_path}/commands"), json!({"argv": ["true"]})),
    ] {
        let (status, problem) = answer(send(&api, &path, "k", &body).await).await;
        assert_eq!((status, &problem["code"]), (422, &json!("idempotency_key_reused")), "{path}: {problem}");
    }
    assert_eq!(api.head().await, head, "nothing was recorded");
    api.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn requests_at_once_coalesce() {
    let api = Api::start().await;
    let path = format!("/v1/runs/{}/leases", Uuid::now_v7());
    let body = json!({"ttl_seconds": 60});
    let calls = (0..8).map(|_| async { answer(send(&api, &path, "at-once", &body).await).await });
    let answers = futures::future::join_all(calls).await;
    let lease = &answers[0].1;
    for (status, again) in &answers {
        assert_eq!((*status, &again["lease_id"]), (201, &lease["lease_id"]), "{again}");
    }

    let commands = format!("/v1/leases/{}/commands", id(lease, "lease_id"));
    let body = json!({"argv": ["sh", "-c", "sleep 0.3; echo once >> log; cat log"]});
    let calls = (0..8).map(|_| async { answer(send(&api, &commands, "command", &body).await).await });
    for (status, command) in futures::future::join_all(calls).await {
        assert_eq!((status, &command["stdout"]["text"]), (200, &json!("once\n")), "executed once: {command}");
    }
    let (_, page) = api.get("/v1/commands").await;
    assert_eq!(page["items"].as_array().expect("items").len(), 1, "{page}");
    api.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn every_post_takes_a_key() {
    let api = Api::start().await;
    let (run, lease) = api.lease().await;
    let lease_path = format!("/v1/leases/{}", id(&lease, "lease_id"));
    let twice = async |path: String, key: &str, body: Value| {
        let first = answer(send(&api, &path, key, &body).await).await;
        let head = api.head().await;
        let second = answer(send(&api, &path, key, &body).await).await;
        assert_eq!((first.0, api.head().await), (second.0, head), "{path}: the repeat recorded something");
        second.1
    };
    let renewed = twice(format!("{lease_path}/renew"), "renew", json!({"ttl_seconds": 120})).await;
    assert_eq!(renewed["state"], "live");
    api.run(&lease, &json!({"argv": ["true"]})).await;
    let running = json!({"argv": ["sleep", "600"], "wait_seconds": 0});
    let command = twice(format!("{lease_path}/commands"), "command", running).await;
    let command_path = format!("/v1/commands/{}", id(&command, "command_id"));
    answer(send(&api, &format!("{command_path}/kill"), "kill", &json!({})).await).await;
    api.wait_for(&command_path, "the end", |command| command["state"] == "finished").await;
    twice(format!("{command_path}/kill"), "kill", json!({})).await;
    answer(send(&api, &format!("{lease_path}/release"), "release", &json!({})).await).await;
    api.wait_for(&lease_path, "the teardown", |lease| lease["environment"]["state"] == "destroyed").await;
    assert_eq!(twice(format!("{lease_path}/release"), "release", json!({})).await["state"], "released");
    let closed = twice(format!("/v1/runs/{run}/close"), "close", json!({})).await;
    assert_eq!(closed["state"], "closed", "{closed}");
    api.stop().await;
}
