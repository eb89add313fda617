//! Leases over their life, and how they are listed.

use reqwest::Method;
use runtime_adapter::ports::PortError;
use serde_json::{Value, json};
use tests::api::{id, keys};
use uuid::Uuid;

use super::harness::Api;

const LEASE_KEYS: [&str; 15] = [
    "acquired_at",
    "ended_at",
    "environment",
    "epoch",
    "expires_at",
    "holder",
    "labels",
    "lease_id",
    "limits",
    "network",
    "position",
    "run_id",
    "state",
    "tenant",
    "tools",
];

#[tokio::test(flavor = "multi_thread")]
async fn a_lease_is_acquired_renewed_and_released() {
    let api = Api::start().await;
    let run = Uuid::now_v7();
    let body = json!({
        "ttl_seconds": 60, "holder": "me", "labels": {"a": "b"},
        "limits": {"memory_bytes": 67_108_864, "pids_max": 16},
    });
    let response = api
        .request(Method::POST, &format!("/v1/runs/{run}/leases"))
        .json(&body)
        .send()
        .await
        .expect("an answer");
    assert_eq!(response.status(), 201);
    let position = response.headers()["leasehold-position"].to_str().expect("ASCII").to_owned();
    let location = response.headers()["location"].to_str().expect("ASCII").to_owned();
    assert!(response.headers()["x-request-id"].to_str().is_ok_and(|id| Uuid::parse_str(id).is_ok()));
    let lease: Value = response.json().await.expect("JSON");
    assert_eq!(keys(&lease), LEASE_KEYS);
    assert_eq!(position, lease["position"].to_string());
    assert_eq!(location, format!("/v1/leases/{}", id(&lease, "lease_id")));
    assert_eq!(
        (&lease["state"], &lease["epoch"], &lease["holder"]),
        (&json!("live"), &json!(1), &json!("me"))
    );
    assert_eq!((&lease["labels"], &lease["tools"]), (&json!({"a": "b"}), &json!([])));
    assert_eq!(
        (&lease["environment"], &lease["ended_at"], &lease["network"]),
        (&Value::Null, &Value::Null, &json!(false))
    );
    assert_eq!(
        keys(&lease["limits"]),
        ["cpu_millicores", "inodes_max", "memory_bytes", "pids_max", "wall_clock_seconds", "workspace_bytes"]
    );
    assert_eq!(
        (&lease["limits"]["memory_bytes"], &lease["limits"]["pids_max"]),
        (&json!(67_108_864), &json!(16))
    );
    let acquired_at = lease["acquired_at"].as_str().expect("a time");
    assert!(acquired_at.len() == 27 && acquired_at.ends_with('Z'), "microseconds, UTC: {acquired_at}");

    let (status, seen) = api.get(&location).await;
    assert_eq!((status, &seen), (200, &lease));
    let (status, renewed) = api.post(&format!("{location}/renew"), &json!({"ttl_seconds": 600.5})).await;
    assert_eq!(status, 200, "{renewed}");
    assert!(renewed["expires_at"].as_str() > lease["expires_at"].as_str(), "{renewed}");
    assert!(renewed["position"].as_u64() > lease["position"].as_u64(), "{renewed}");

    for body in [json!({}), Value::Null] {
        let (status, released) = api.post(&format!("{location}/release"), &body).await;
        assert_eq!((status, &released["state"]), (200, &json!("released")), "{released}");
        assert!(released["ended_at"].is_string(), "{released}");
    }
    let (status, lost) = api.post(&format!("{location}/renew"), &json!({"ttl_seconds": 60})).await;
    assert_eq!((status, &lost["code"]), (409, &json!("lease_lost")));
    api.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_operator_revokes_with_a_reason() {
    let api = Api::start().await;
    let (run, lease) = api.lease().await;
    let path = format!("/v1/leases/{}/revoke", id(&lease, "lease_id"));
    let (status, revoked) = api.post(&path, &json!({"reason": "runaway"})).await;
    assert_eq!((status, &revoked["state"]), (200, &json!("revoked")), "{revoked}");
    let events = api.events(run).await;
    let event = events.iter().find(|event| event["type"] == "LeaseRevoked").expect("recorded");
    assert_eq!(event["body"]["reason"], "runaway", "{event}");
    api.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_held_run_needs_a_takeover_and_the_old_epoch_is_dead() {
    let api = Api::start().await;
    let (run, first) = api.lease().await;
    let path = format!("/v1/runs/{run}/leases");
    let (status, held) = api.post(&path, &json!({"ttl_seconds": 60})).await;
    assert_eq!((status, &held["code"], &held["retryable"]), (409, &json!("lease_held"), &json!(true)));
    let (status, second) = api.post(&path, &json!({"ttl_seconds": 60, "takeover": true})).await;
    assert_eq!((status, &second["epoch"]), (201, &json!(2)), "{second}");

    let old = format!("/v1/leases/{}", id(&first, "lease_id"));
    for (call, body) in [("commands", json!({"argv": ["true"]})), ("renew", json!({"ttl_seconds": 60}))] {
        let (status, lost) = api.post(&format!("{old}/{call}"), &body).await;
        assert_eq!((status, &lost["code"]), (409, &json!("lease_lost")), "{call}");
    }
    let put = api.request(Method::PUT, &format!("{old}/files/a")).body("x").send().await.expect("an answer");
    assert_eq!(put.status(), 409);
    assert_eq!(api.get(&old).await.1["state"], "fenced");
    api.stop().await;
}

/// Given back and taken again at once: a clean generation, whatever the old one still does.
#[tokio::test(flavor = "multi_thread")]
async fn a_run_is_taken_again_right_after_its_release() {
    let api = Api::start().await;
    let (run, first) = api.lease().await;
    api.run(&first, &json!({"argv": ["sh", "-c", "echo old > file"]})).await;
    api.post_empty(&format!("/v1/leases/{}/release", id(&first, "lease_id"))).await;
    let (status, second) = api.post(&format!("/v1/runs/{run}/leases"), &json!({"ttl_seconds": 60})).await;
    assert_eq!((status, &second["epoch"]), (201, &json!(2)), "{second}");
    let (status, missing) = api.get(&format!("/v1/leases/{}/files/file", id(&second, "lease_id"))).await;
    assert_eq!((status, &missing["code"]), (404, &json!("file_not_found")), "a workspace of its own");
    api.stop().await;
}

/// Released while its environment is being made: accepted, and the environment goes.
#[tokio::test(flavor = "multi_thread")]
async fn a_lease_is_released_while_its_environment_starts() {
    let api = Api::start().await;
    let (_, lease) = api.lease().await;
    let path = format!("/v1/leases/{}", id(&lease, "lease_id"));
    api.fake.faults().hold_provision(true);
    let call = async { api.post(&format!("{path}/commands"), &json!({"argv": ["true"]})).await };
    let release = async {
        api.wait_for(&path, "the start", |lease| lease["environment"]["state"] == "requested").await;
        for _ in 0..2 {
            let (status, released) = api.post_empty(&format!("{path}/release")).await;
            assert_eq!((status, &released["state"]), (200, &json!("released")), "{released}");
        }
        api.fake.faults().hold_provision(false);
    };
    let ((status, refused), ()) = tokio::join!(call, release);
    assert_eq!((status, &refused["code"]), (409, &json!("lease_lost")), "{refused}");
    api.wait_for(&path, "the teardown", |lease| lease["environment"]["state"] == "destroyed").await;
    api.stop().await;
}

/// The runtime fails to remove: the release stands, the failure is on record, the next pass removes.
#[tokio::test(flavor = "multi_thread")]
async fn a_removal_that_fails_is_tried_again() {
    let api = Api::start().await;
    let (run, lease) = api.lease().await;
    api.run(&lease, &json!({"argv": ["true"]})).await;
    let path = format!("/v1/leases/{}", id(&lease, "lease_id"));
    api.fake.faults().fail_destroy(PortError::Unavailable { code: "timeout", effect_possible: true });
    let (status, released) = api.post_empty(&format!("{path}/release")).await;
    assert_eq!((status, &released["state"]), (200, &json!("released")), "{released}");
    api.wait_for(&path, "the teardown", |lease| lease["environment"]["state"] == "destroyed").await;
    let events = api.events(run).await;
    let count = |kind: &str| events.iter().filter(|event| event["type"] == kind).count();
    assert_eq!((count("EnvironmentTeardownFailed"), count("EnvironmentDestroyed")), (1, 1), "{events:?}");
    api.stop().await;
}

/// Past its end a lease is dead, whoever asks first.
#[tokio::test(flavor = "multi_thread")]
async fn a_lease_that_ran_out_is_lost() {
    let api = Api::start().await;
    let (run, lease) = api.lease_for(1.0).await;
    let path = format!("/v1/leases/{}", id(&lease, "lease_id"));
    api.wait_for(&path, "the end", |lease| lease["state"] == "expired").await;
    for (call, body) in [("renew", json!({"ttl_seconds": 60})), ("commands", json!({"argv": ["true"]}))] {
        let (status, lost) = api.post(&format!("{path}/{call}"), &body).await;
        assert_eq!((status, &lost["code"]), (409, &json!("lease_lost")), "{call}");
    }
    let (status, next) = api.post(&format!("/v1/runs/{run}/leases"), &json!({"ttl_seconds": 60})).await;
    assert_eq!((status, &next["epoch"]), (201, &json!(2)), "no takeover is needed: {next}");
    api.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn lists_page_and_filter() {
    let api = Api::start().await;
    let mut all = Vec::new();
    for _ in 0..5 {
        let (run, lease) = api.lease().await;
        all.push((run, id(&lease, "lease_id")));
    }
    let ended = &all[1];
    api.post_empty(&format!("/v1/leases/{}/release", ended.1)).await;

    let mut seen = Vec::new();
    let mut path = "/v1/leases?limit=2".to_owned();
    let mut pages = 0;
    loop {
        let (status, page) = api.get(&path).await;
        assert_eq!((status, keys(&page)), (200, vec!["items".to_owned(), "next_cursor".to_owned()]));
        let items = page["items"].as_array().expect("items");
        assert!(items.len() <= 2);
        seen.extend(items.iter().map(|lease| id(lease, "lease_id")));
        pages += 1;
        match page["next_cursor"].as_str() {
            Some(cursor) => path = format!("/v1/leases?limit=2&cursor={cursor}"),
            None => break,
        }
    }
    let newest_first: Vec<String> = all.iter().rev().map(|(_, lease)| lease.clone()).collect();
    assert_eq!((seen, pages), (newest_first, 3));

    let items = async |query: &str| {
        let (status, page) = api.get(&format!("/v1/leases?{query}")).await;
        assert_eq!(status, 200, "{query}: {page}");
        page["items"].as_array().expect("items").iter().map(|lease| id(lease, "lease_id")).collect::<Vec<_>>()
    };
    assert_eq!(items(&format!("run_id={}", all[3].0)).await, std::slice::from_ref(&all[3].1));
    assert_eq!(items("state=released").await, std::slice::from_ref(&ended.1));
    assert_eq!(items("state=live").await.len(), 4);
    assert_eq!(items(&format!("state=live&run_id={}", ended.0)).await, Vec::<String>::new());
    assert_eq!(items(&format!("run_id={}", Uuid::now_v7())).await, Vec::<String>::new());
    api.stop().await;
}

/// Write, then read elsewhere: the position makes the write visible, or says that it is not yet.
#[tokio::test(flavor = "multi_thread")]
async fn reads_wait_for_the_position_they_name() {
    let api = Api::start().await;
    for _ in 0..20 {
        let (_, lease) = api.lease().await;
        let get = api
            .request(Method::GET, &format!("/v1/leases/{}", id(&lease, "lease_id")))
            .header("Leasehold-Min-Position", lease["position"].to_string());
        assert_eq!(get.send().await.expect("an answer").status(), 200);
    }
    let (_, lease) = api.lease().await;
    let ahead = lease["position"].as_u64().expect("a position") + 1_000;
    let get = api
        .request(Method::GET, &format!("/v1/leases/{}", id(&lease, "lease_id")))
        .header("Leasehold-Min-Position", ahead.to_string());
    let response = get.send().await.expect("an answer");
    assert_eq!(
        (response.status().as_u16(), &response.headers()["retry-after"]),
        (503, &"1".parse().expect("a value"))
    );
    let problem: Value = response.json().await.expect("JSON");
    assert_eq!(problem["code"], "projection_behind");
    api.stop().await;
}
