//! A run's history: pages, a tail, and the end of it.

use std::time::Duration;

use futures::StreamExt as _;
use reqwest::Method;
use serde_json::{Value, json};
use tests::api::{answer, id, keys, sse};
use uuid::Uuid;

use super::harness::Api;

#[tokio::test(flavor = "multi_thread")]
async fn pages_ascend_and_filter() {
    let api = Api::start().await;
    let (run, lease) = api.lease().await;
    api.lease().await;
    for _ in 0..3 {
        api.run(&lease, &json!({"argv": ["echo", "x"]})).await;
    }
    let path = format!("/v1/runs/{run}/events");
    let mut events: Vec<Value> = Vec::new();
    let mut target = format!("{path}?limit=2");
    loop {
        let (status, page) = api.get(&target).await;
        assert_eq!(
            (status, keys(&page)),
            (200, vec!["items".to_owned(), "next_cursor".to_owned()]),
            "{page}"
        );
        events.extend(page["items"].as_array().expect("items").iter().cloned());
        match page["next_cursor"].as_str() {
            Some(cursor) => target = format!("{path}?limit=2&cursor={cursor}"),
            None => break,
        }
    }
    assert_eq!(events.len(), 12, "{events:?}");
    for (index, event) in events.iter().enumerate() {
        assert_eq!(
            keys(event),
            [
                "actor",
                "body",
                "causation_id",
                "correlation_id",
                "event_id",
                "leaf",
                "position",
                "recorded_at",
                "schema",
                "stream",
                "tenant",
                "type",
                "version"
            ]
        );
        assert_eq!((&event["version"], &event["correlation_id"]), (&json!(index + 1), &json!(run)));
        assert!(event["stream"].as_str().expect("text").starts_with("run/"), "{event}");
    }
    let positions: Vec<u64> = events.iter().filter_map(|event| event["position"].as_u64()).collect();
    assert!(positions.is_sorted() && positions.len() == events.len());
    let (_, page) = api.get(&format!("{path}?type=CommandFinished")).await;
    let kinds: Vec<&Value> =
        page["items"].as_array().expect("items").iter().map(|event| &event["type"]).collect();
    assert_eq!(kinds, ["CommandFinished"; 3]);
    let (status, problem) = api.get(&format!("{path}?type=Nothing")).await;
    assert_eq!((status, &problem["code"]), (400, &json!("malformed_request")));
    let (status, problem) = api.get(&format!("/v1/runs/{}/events", Uuid::now_v7())).await;
    assert_eq!((status, &problem["code"]), (404, &json!("not_found")), "{problem}");
    api.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_tail_shows_what_happens_and_resumes() {
    let api = Api::start().await;
    let (run, lease) = api.lease().await;
    let path = format!("/v1/runs/{run}/events");
    let tail = api.request(Method::GET, &path).header("Accept", "text/event-stream");
    let response = tail.send().await.expect("an answer");
    assert_eq!(response.headers()["content-type"], "text/event-stream");
    let mut stream = response.bytes_stream();
    api.run(&lease, &json!({"argv": ["true"]})).await;
    let mut text = String::new();
    while !text.contains("CommandFinished") || !text.ends_with("\n\n") {
        let piece =
            tokio::time::timeout(Duration::from_secs(20), stream.next()).await.expect("events arrive");
        text.push_str(std::str::from_utf8(&piece.expect("it goes on").expect("bytes")).expect("UTF-8"));
    }
    let events = sse(&text);
    let kinds: Vec<&str> = events.iter().filter_map(|event| event.data["type"].as_str()).collect();
    assert_eq!(
        kinds,
        [
            "LeaseAcquired",
            "EnvironmentRequested",
            "EnvironmentProvisioned",
            "CommandAccepted",
            "CommandStarted",
            "CommandFinished"
        ]
    );
    assert!(
        events.iter().all(|event| event.id.parse().ok() == event.data["position"].as_u64()),
        "{events:?}"
    );

    let resumed = api
        .request(Method::GET, &path)
        .header("Accept", "text/event-stream")
        .header("Last-Event-ID", &events[4].id)
        .send()
        .await
        .expect("an answer");
    let piece =
        tokio::time::timeout(Duration::from_secs(20), resumed.bytes_stream().next()).await.expect("at once");
    let piece = piece.expect("it goes on").expect("bytes");
    let first = sse(std::str::from_utf8(&piece).expect("UTF-8"));
    assert_eq!(first[0].data["type"], "CommandFinished", "right after the named one: {first:?}");
    api.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_closed_run_takes_nothing_more() {
    let api = Api::start().await;
    let (run, lease) = api.lease().await;
    api.run(&lease, &json!({"argv": ["true"]})).await;
    let close = format!("/v1/runs/{run}/close");
    for _ in 0..2 {
        let (status, closed) = api.post_empty(&close).await;
        assert_eq!(
            (status, keys(&closed)),
            (200, vec!["position".to_owned(), "run_id".to_owned(), "state".to_owned()])
        );
        assert_eq!((&closed["state"], &closed["run_id"]), (&json!("closed"), &json!(run)), "{closed}");
    }
    let (status, refused) = api.post(&format!("/v1/runs/{run}/leases"), &json!({"ttl_seconds": 60})).await;
    assert_eq!((status, &refused["code"]), (409, &json!("run_closed")), "{refused}");
    assert_eq!(api.get(&format!("/v1/leases/{}", id(&lease, "lease_id"))).await.1["state"], "released");
    let events = api.events(run).await;
    assert_eq!(events.last().expect("events")["type"], "RunClosed");
    api.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn closing_need_not_be_waited_for() {
    let api = Api::start().await;
    let (run, lease) = api.lease().await;
    api.run(&lease, &json!({"argv": ["true"]})).await;
    api.fake.faults().hold_destroy(true);
    let request =
        api.request(Method::POST, &format!("/v1/runs/{run}/close")).header("Prefer", "respond-async");
    let (status, closing) = answer(request.send().await.expect("an answer")).await;
    assert_eq!((status, &closing["state"]), (202, &json!("closing")), "{closing}");
    api.fake.faults().hold_destroy(false);
    let (status, closed) = api.post_empty(&format!("/v1/runs/{run}/close")).await;
    assert_eq!((status, &closed["state"]), (200, &json!("closed")), "{closed}");
    api.stop().await;
}
