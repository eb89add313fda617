//! Output as server-sent events: each byte once, from any id on, to the end.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use reqwest::Method;
use serde_json::{Value, json};
use tests::api::{SseEvent, id, sse};

use super::harness::Api;

async fn output(api: &Api, command: &Value, last_event_id: Option<&str>) -> Vec<SseEvent> {
    let path = format!("/v1/commands/{}/output", id(command, "command_id"));
    let mut request = api.request(Method::GET, &path);
    if let Some(id) = last_event_id {
        request = request.header("Last-Event-ID", id);
    }
    let response = request.send().await.expect("an answer");
    assert_eq!(response.status(), 200);
    assert_eq!(response.headers()["content-type"], "text/event-stream");
    assert_eq!(response.headers()["cache-control"], "no-store");
    sse(&response.text().await.expect("it ends"))
}

/// The bytes of one stream; asserts that offsets are contiguous from `from` on.
fn bytes(events: &[SseEvent], name: &str, from: u64) -> Vec<u8> {
    let mut bytes = Vec::new();
    for event in events.iter().filter(|event| event.name == name) {
        assert_eq!(event.data["offset"], json!(from + bytes.len() as u64), "each byte once: {event:?}");
        match (event.data["text"].as_str(), event.data["base64"].as_str()) {
            (Some(text), None) => bytes.extend_from_slice(text.as_bytes()),
            (None, Some(text)) => bytes.extend(STANDARD.decode(text).expect("base64")),
            _ => panic!("text or base64: {event:?}"),
        }
    }
    bytes
}

#[tokio::test(flavor = "multi_thread")]
async fn a_finished_command_streams_from_its_record() {
    let api = Api::start().await;
    let (_, lease) = api.lease().await;
    let command = api.run(&lease, &json!({"argv": ["sh", "-c", "echo one; echo two >&2; echo three"]})).await;
    let events = output(&api, &command, None).await;
    assert_eq!(bytes(&events, "stdout", 0), b"one\nthree\n");
    assert_eq!(bytes(&events, "stderr", 0), b"two\n");
    let exit = events.last().expect("events");
    assert_eq!((exit.name.as_str(), exit.id.as_str(), &exit.data), ("exit", "10.4", &command));

    let rest = output(&api, &command, Some("4.4")).await;
    assert_eq!((bytes(&rest, "stdout", 4), bytes(&rest, "stderr", 4)), (b"three\n".to_vec(), Vec::new()));
    let end = output(&api, &command, Some("10.4")).await;
    assert_eq!(end.iter().map(|event| event.name.as_str()).collect::<Vec<_>>(), ["exit"]);
    api.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn every_id_resumes_exactly_there() {
    let api = Api::start().await;
    let (_, lease) = api.lease().await;
    let text = "a漢😀\n".repeat(2_000);
    let command = api.run(&lease, &json!({"argv": ["cat"], "stdin": text})).await;
    let events = output(&api, &command, None).await;
    assert_eq!(String::from_utf8(bytes(&events, "stdout", 0)).expect("UTF-8"), text);
    let chunks: Vec<&SseEvent> = events.iter().filter(|event| event.name == "stdout").collect();
    assert!(chunks.iter().all(|event| event.data["text"].is_string()), "no code point is cut");
    for event in &events {
        let offset: u64 = event.id.split('.').next().and_then(|n| n.parse().ok()).expect("an offset");
        let rest = output(&api, &command, Some(&event.id)).await;
        let start = usize::try_from(offset).expect("small");
        assert_eq!(bytes(&rest, "stdout", offset), &text.as_bytes()[start..], "from {}", event.id);
    }
    api.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_running_command_is_followed_to_its_end() {
    let api = Api::start().await;
    let (_, lease) = api.lease().await;
    let path = format!("/v1/leases/{}/commands", id(&lease, "lease_id"));
    let body = json!({"argv": ["sh", "-c", "echo first; sleep 1; echo second"], "wait_seconds": 0});
    let (status, command) = api.post(&path, &body).await;
    assert_eq!(status, 202, "{command}");
    let events = output(&api, &command, None).await;
    assert_eq!(bytes(&events, "stdout", 0), b"first\nsecond\n");
    let exit = events.last().expect("events");
    assert_eq!((exit.name.as_str(), &exit.data["exit_code"]), ("exit", &json!(0)));
    api.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn other_bytes_stream_as_base64() {
    let api = Api::start().await;
    let (_, lease) = api.lease().await;
    let raw: Vec<u8> = (0..=255).cycle().take(10_000).collect();
    let body = json!({"argv": ["cat"], "stdin_base64": STANDARD.encode(&raw)});
    let command = api.run(&lease, &body).await;
    assert_eq!(bytes(&output(&api, &command, None).await, "stdout", 0), raw);
    api.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cursor_that_cannot_be_is_refused() {
    let api = Api::start().await;
    let (_, lease) = api.lease().await;
    let command = api.run(&lease, &json!({"argv": ["echo", "x"]})).await;
    let path = format!("/v1/commands/{}/output", id(&command, "command_id"));
    for cursor in ["x", "1", "1.2.3", "-1.0", "1.99999999999999999999"] {
        let (status, problem) = api.get(&format!("{path}?cursor={cursor}")).await;
        assert_eq!((status, &problem["code"]), (400, &json!("malformed_request")), "{cursor}");
    }
    let (status, problem) = api.get(&format!("{path}?cursor=3.0")).await;
    assert_eq!((status, &problem["code"]), (410, &json!("cursor_gone")), "{problem}");
    // The header wins: a browser reconnects to the address it was given.
    let request = api.request(Method::GET, &format!("{path}?cursor=0.0")).header("Last-Event-ID", "2.0");
    let events = sse(&request.send().await.expect("an answer").text().await.expect("it ends"));
    assert_eq!(events.len(), 1, "{events:?}");
    api.stop().await;
}
