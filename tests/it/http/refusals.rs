//! Everything that must be refused, with its status, its code and its place, and without a trace in the log.

use std::time::Instant;

use reqwest::Method;
use reqwest::header::{AUTHORIZATION, CONTENT_TYPE, HOST};
use serde_json::{Value, json};
use tests::api::{answer, id};
use tests::process::PATIENCE;
use uuid::Uuid;

use super::harness::Api;

/// Asserts that a problem is whole.
fn assert_problem(problem: &Value, status: u16, code: &str, what: &str) {
    assert_eq!((&problem["status"], &problem["code"]), (&json!(status), &json!(code)), "{what}: {problem}");
    assert_eq!(problem["type"], format!("/errors/{code}"), "{what}");
    assert!(problem["title"].is_string() && problem["detail"].is_string(), "{what}: {problem}");
    assert!(problem["retryable"].is_boolean() && problem["no_side_effect"].is_boolean(), "{what}: {problem}");
    assert!(
        problem["request_id"].as_str().is_some_and(|id| Uuid::parse_str(id).is_ok()),
        "{what}: {problem}"
    );
}

fn pointers(problem: &Value) -> Vec<&str> {
    let errors = problem["errors"].as_array().map(Vec::as_slice).unwrap_or_default();
    errors.iter().filter_map(|error| error["pointer"].as_str()).collect()
}

/// Bodies of a command: text, status, code, pointers.
const COMMANDS: &[(&str, u16, &str, &[&str])] = &[
    ("", 400, "malformed_request", &[]),
    ("{", 400, "malformed_request", &[]),
    ("nonsense", 400, "malformed_request", &[]),
    ("[]", 400, "malformed_request", &[""]),
    ("{}", 400, "malformed_request", &[""]),
    (r#"{"argv":["true"]} x"#, 400, "malformed_request", &[]),
    (r#"{"argv":["true"],"argv":["false"]}"#, 400, "malformed_request", &[]),
    (r#"{"argv":["true"],"env":{"A":"1","A":"2"}}"#, 400, "malformed_request", &[]),
    (r#"{"argv":["\ud800"]}"#, 400, "malformed_request", &[]),
    (r#"{"argv":["true"],"stdin":"\udc00x"}"#, 400, "malformed_request", &[]),
    (r#"{"argv":["true"],"unknown":1}"#, 400, "malformed_request", &["/unknown"]),
    (r#"{"argv":"true"}"#, 400, "malformed_request", &["/argv"]),
    (r#"{"argv":["true",1]}"#, 400, "malformed_request", &["/argv/1"]),
    (r#"{"argv":["true"],"env":{"A":1}}"#, 400, "malformed_request", &["/env/A"]),
    (r#"{"argv":["true"],"background":"yes"}"#, 400, "malformed_request", &["/background"]),
    (r#"{"argv":["true"],"output_bytes":1.0}"#, 400, "malformed_request", &["/output_bytes"]),
    (r#"{"argv":["true"],"output_bytes":-1}"#, 400, "malformed_request", &["/output_bytes"]),
    (r#"{"argv":["true"],"output_bytes":9007199254740993}"#, 400, "malformed_request", &[]),
    (r#"{"argv":["true"],"timeout_seconds":NaN}"#, 400, "malformed_request", &[]),
    (r#"{"argv":["true"],"timeout_seconds":"5"}"#, 400, "malformed_request", &["/timeout_seconds"]),
    (r#"{"argv":["true"],"timeout_seconds":1e999}"#, 400, "malformed_request", &[]),
    (r#"{"argv":[]}"#, 422, "invalid_request", &["/argv"]),
    (r#"{"argv":[""]}"#, 422, "invalid_request", &["/argv/0"]),
    (r#"{"argv":["./a.out"]}"#, 422, "invalid_request", &["/argv/0"]),
    (r#"{"argv":["echo","a\u0000b"]}"#, 422, "invalid_request", &["/argv/1"]),
    (r#"{"argv":["true"],"env":{"A;rm":"x"}}"#, 422, "invalid_request", &["/env/A;rm"]),
    (r#"{"argv":["true"],"env":{"":"x"}}"#, 422, "invalid_request", &["/env/"]),
    (r#"{"argv":["true"],"env":{"A/B~C":"x"}}"#, 422, "invalid_request", &["/env/A~1B~0C"]),
    (r#"{"argv":["true"],"env":{"A":"\u0000"}}"#, 422, "invalid_request", &["/env/A"]),
    (r#"{"argv":["true"],"env":{"AWS_SECRET_ACCESS_KEY":"x"}}"#, 422, "env_refused", &[]),
    (r#"{"argv":["true"],"env":{"PATH":"/tmp"}}"#, 422, "env_refused", &[]),
    (r#"{"argv":["true"],"cwd":"/etc"}"#, 422, "invalid_request", &["/cwd"]),
    (r#"{"argv":["true"],"cwd":"a/../.."}"#, 422, "invalid_request", &["/cwd"]),
    (r#"{"argv":["true"],"stdin":"a","stdin_base64":"YQ=="}"#, 422, "invalid_request", &["/stdin_base64"]),
    (r#"{"argv":["true"],"stdin_base64":"*"}"#, 422, "invalid_request", &["/stdin_base64"]),
    (r#"{"argv":["true"],"timeout_seconds":0}"#, 422, "invalid_request", &["/timeout_seconds"]),
    (r#"{"argv":["true"],"timeout_seconds":-5}"#, 422, "invalid_request", &["/timeout_seconds"]),
    (r#"{"argv":["true"],"timeout_seconds":1e12}"#, 422, "invalid_request", &["/timeout_seconds"]),
    (r#"{"argv":["true"],"wait_seconds":1801}"#, 422, "invalid_request", &["/wait_seconds"]),
    (r#"{"argv":["true"],"output_bytes":0}"#, 422, "invalid_request", &["/output_bytes"]),
    (
        r#"{"argv":[],"cwd":"..","timeout_seconds":0,"wait_seconds":-1}"#,
        422,
        "invalid_request",
        &["/argv", "/cwd", "/timeout_seconds", "/wait_seconds"],
    ),
];

/// Bodies of an acquire: text, status, code, pointers.
const LEASES: &[(&str, u16, &str, &[&str])] = &[
    (r#"{"ttl_seconds":"60"}"#, 400, "malformed_request", &["/ttl_seconds"]),
    (r#"{"ttl_seconds":60,"limits":{"gpu":1}}"#, 400, "malformed_request", &["/limits/gpu"]),
    (r#"{"ttl_seconds":60,"limits":{"pids_max":1.5}}"#, 400, "malformed_request", &["/limits/pids_max"]),
    (r#"{"ttl_seconds":0}"#, 422, "invalid_request", &["/ttl_seconds"]),
    (r#"{"ttl_seconds":-60}"#, 422, "invalid_request", &["/ttl_seconds"]),
    (r#"{"ttl_seconds":0.9}"#, 422, "invalid_request", &["/ttl_seconds"]),
    (r#"{"ttl_seconds":1e15}"#, 422, "invalid_request", &["/ttl_seconds"]),
    (r#"{"ttl_seconds":86400}"#, 422, "invalid_request", &["/ttl_seconds"]),
    (r#"{"ttl_seconds":60,"limits":{"memory_bytes":0}}"#, 422, "invalid_request", &["/limits/memory_bytes"]),
    (
        r#"{"ttl_seconds":60,"limits":{"cpu_millicores":0}}"#,
        422,
        "invalid_request",
        &["/limits/cpu_millicores"],
    ),
    (
        r#"{"ttl_seconds":60,"limits":{"memory_bytes":9007199254740991}}"#,
        422,
        "invalid_request",
        &["/limits/memory_bytes"],
    ),
    (r#"{"ttl_seconds":60,"limits":{"pids_max":1000000}}"#, 422, "invalid_request", &["/limits/pids_max"]),
    (
        r#"{"ttl_seconds":60,"limits":{"memory_bytes":1024}}"#,
        422,
        "invalid_request",
        &["/limits/memory_bytes"],
    ),
    (r#"{"ttl_seconds":60,"network":true}"#, 422, "invalid_request", &["/network"]),
    (r#"{"ttl_seconds":60,"tools":["search"]}"#, 422, "invalid_request", &["/tools"]),
    (r#"{"ttl_seconds":60,"tools":[""]}"#, 422, "invalid_request", &["/tools/0"]),
    (r#"{"ttl_seconds":60,"labels":{"":"x"}}"#, 422, "invalid_request", &["/labels/"]),
];

#[tokio::test(flavor = "multi_thread")]
async fn bodies_that_cannot_be_accepted_change_nothing() {
    let api = Api::start().await;
    let (_, lease) = api.lease().await;
    let commands = format!("/v1/leases/{}/commands", id(&lease, "lease_id"));
    let leases = format!("/v1/runs/{}/leases", Uuid::now_v7());
    let head = api.head().await;
    for (path, rows) in [(&commands, COMMANDS), (&leases, LEASES)] {
        for (body, status, code, places) in rows {
            let request =
                api.request(Method::POST, path).header(CONTENT_TYPE, "application/json").body(*body);
            let response = request.send().await.expect("an answer");
            assert_eq!(response.headers()[CONTENT_TYPE], "application/problem+json", "{body}");
            let (found, problem) = answer(response).await;
            assert_eq!(found, *status, "{body}: {problem}");
            assert_problem(&problem, *status, code, body);
            assert_eq!(pointers(&problem), *places, "{body}: {problem}");
        }
    }
    assert_eq!(api.head().await, head, "nothing was recorded");
    api.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn oversized_requests_change_nothing() {
    let api = Api::start().await;
    let (run, lease) = api.lease().await;
    let commands = format!("/v1/leases/{}/commands", id(&lease, "lease_id"));
    let head = api.head().await;
    // One argument of 130 KiB; many that are too much together; variables that are.
    let many: Vec<String> =
        std::iter::once("echo".to_owned()).chain((0..1_000).map(|_| "x".repeat(100))).collect();
    for body in [
        json!({"argv": ["echo", "x".repeat(130 * 1024)]}),
        json!({"argv": many}),
        json!({"argv": ["true"], "env": {"BIG": "x".repeat(200 * 1024)}}),
    ] {
        let (status, problem) = api.post(&commands, &body).await;
        assert_eq!(status, 413, "{problem}");
        assert_problem(&problem, 413, "payload_too_large", "a large command");
    }
    let (status, problem) = api.post(&commands, &json!({"argv": vec!["x"; 1_025]})).await;
    assert_eq!((status, pointers(&problem)), (422, vec!["/argv"]), "{problem}");

    // Bodies over the bound of JSON, with their length declared and without.
    let path = format!("/v1/runs/{run}/leases");
    let large = format!("{{\"ttl_seconds\":60,\"holder\":\"{}\"}}", "x".repeat(2 * 1024 * 1024));
    let pieces: Vec<Result<String, std::io::Error>> = large
        .as_bytes()
        .chunks(65_536)
        .map(|piece| Ok(String::from_utf8_lossy(piece).into_owned()))
        .collect();
    let undeclared = reqwest::Body::wrap_stream(futures::stream::iter(pieces));
    for body in [reqwest::Body::from(large), undeclared] {
        let request = api.request(Method::POST, &path).header(CONTENT_TYPE, "application/json").body(body);
        let (status, problem) = answer(request.send().await.expect("an answer")).await;
        assert_eq!(status, 413, "{problem}");
        assert_problem(&problem, 413, "payload_too_large", "a large body");
    }
    assert_eq!(api.head().await, head, "nothing was recorded");
    api.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn only_a_known_token_is_let_in() {
    let api = Api::start().await;
    let (_, lease) = api.lease().await;
    let path = format!("/v1/leases/{}", id(&lease, "lease_id"));
    let head = api.head().await;
    let token = api.token.clone();
    for value in [
        "",
        "Bearer",
        "Bearer ",
        "Bearer wrong",
        "Basic dXNlcjpwYXNz",
        &token,
        &format!("Bearer {token}x"),
        &format!("Bearer {token} x"),
    ] {
        for (method, path) in [
            (Method::GET, path.clone()),
            (Method::POST, format!("{path}/release")),
            (Method::PUT, format!("{path}/files/a")),
        ] {
            let request = api.anonymous(method, &path).header(AUTHORIZATION, value);
            let response = request.send().await.expect("an answer");
            assert!(
                response.headers()["www-authenticate"].to_str().is_ok_and(|text| text.starts_with("Bearer"))
            );
            let (status, problem) = answer(response).await;
            assert_eq!(status, 401, "{value:?}");
            assert_problem(&problem, 401, "unauthenticated", value);
        }
    }
    let twice = api.request(Method::GET, &path).header(AUTHORIZATION, "Bearer other");
    assert_eq!(twice.send().await.expect("an answer").status(), 401);
    for open in ["/healthz", "/readyz", "/openapi.json"] {
        let response = api.anonymous(Method::GET, open).send().await.expect("an answer");
        assert_eq!(response.status(), 200, "{open}");
    }
    assert_eq!(api.head().await, head, "nothing was recorded");
    api.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_not_there_is_not_there() {
    let api = Api::start().await;
    let (run, lease) = api.lease().await;
    let known = format!("/v1/leases/{}", id(&lease, "lease_id"));
    let head = api.head().await;
    let other = Uuid::now_v7();
    for (method, path, status, code) in [
        (Method::GET, "/".to_owned(), 404, "not_found"),
        (Method::GET, "/v1".to_owned(), 404, "not_found"),
        (Method::GET, "/v2/leases".to_owned(), 404, "not_found"),
        (Method::GET, format!("/v1/leases/{other}"), 404, "not_found"),
        (Method::POST, format!("/v1/leases/{other}/release"), 404, "not_found"),
        (Method::POST, format!("/v1/leases/{other}/revoke"), 404, "not_found"),
        (Method::GET, format!("/v1/leases/{other}/files"), 404, "not_found"),
        (Method::PUT, format!("/v1/leases/{other}/files/a"), 404, "not_found"),
        (Method::GET, format!("/v1/commands/{other}"), 404, "not_found"),
        (Method::GET, format!("/v1/commands/{other}/output"), 404, "not_found"),
        (Method::POST, format!("/v1/commands/{other}/kill"), 404, "not_found"),
        (Method::GET, format!("/v1/runs/{other}/events"), 404, "not_found"),
        (Method::POST, format!("/v1/runs/{other}/close"), 404, "not_found"),
        (Method::GET, "/v1/leases/not-a-uuid".to_owned(), 400, "malformed_request"),
        (Method::POST, "/v1/runs/not-a-uuid/leases".to_owned(), 400, "malformed_request"),
        (Method::GET, "/v1/commands/0".to_owned(), 400, "malformed_request"),
        (Method::PUT, "/v1/leases/0/files/a".to_owned(), 400, "malformed_request"),
        (Method::POST, "/v1/leases".to_owned(), 405, "method_not_allowed"),
        (Method::DELETE, known.clone(), 405, "method_not_allowed"),
        (Method::POST, format!("{known}/files/a"), 405, "method_not_allowed"),
        (Method::GET, format!("/v1/runs/{run}/leases"), 405, "method_not_allowed"),
        (Method::GET, "/v1/leases?limit=0".to_owned(), 422, "invalid_request"),
        (Method::GET, "/v1/leases?limit=1001".to_owned(), 422, "invalid_request"),
        (Method::GET, "/v1/leases?limit=x".to_owned(), 400, "malformed_request"),
        (Method::GET, "/v1/leases?cursor=nonsense!".to_owned(), 400, "malformed_request"),
        (Method::GET, "/v1/leases?state=dead".to_owned(), 400, "malformed_request"),
        (Method::GET, "/v1/leases?unknown=1".to_owned(), 400, "malformed_request"),
        (Method::GET, "/v1/commands?run_id=1".to_owned(), 400, "malformed_request"),
        (Method::GET, format!("/v1/runs/{run}/events?cursor=nonsense!"), 400, "malformed_request"),
    ] {
        let body = if method == Method::POST { "{}" } else { "" };
        let request = api.request(method.clone(), &path).header(CONTENT_TYPE, "application/json").body(body);
        let response = request.send().await.expect("an answer");
        assert_eq!(response.headers().contains_key("allow"), status == 405, "{method} {path}");
        let (found, problem) = answer(response).await;
        assert_eq!(found, status, "{method} {path}: {problem}");
        assert_problem(&problem, status, code, &path);
    }
    assert_eq!(api.head().await, head, "nothing was recorded");
    api.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn headers_have_their_form() {
    let api = Api::start().await;
    let (_, lease) = api.lease().await;
    let path = format!("/v1/leases/{}", id(&lease, "lease_id"));
    let head = api.head().await;
    let long = "k".repeat(256);
    for key in ["", "\"", "\"open", "two words", &long] {
        let request = api.request(Method::POST, &format!("{path}/release")).header("Idempotency-Key", key);
        let (status, problem) = answer(request.send().await.expect("an answer")).await;
        assert_eq!(status, 400, "{key:?}");
        assert_problem(&problem, 400, "malformed_request", key);
    }
    for position in ["", "x", "-1", "1.5", "9007199254740992"] {
        let request = api.request(Method::GET, &path).header("Leasehold-Min-Position", position);
        assert_eq!(request.send().await.expect("an answer").status(), 400, "{position:?}");
    }
    for media_type in ["text/plain", "application/x-www-form-urlencoded", "application/jsonx", ""] {
        let request = api
            .request(Method::POST, &format!("{path}/renew"))
            .header(CONTENT_TYPE, media_type)
            .body(r#"{"ttl_seconds":60}"#);
        let (status, problem) = answer(request.send().await.expect("an answer")).await;
        assert_eq!(status, 415, "{media_type:?}");
        assert_problem(&problem, 415, "unsupported_media_type", media_type);
    }
    for host in ["example.com", "192.0.2.1:80", "localhost.example.com"] {
        for path in [path.as_str(), "/healthz", "/unknown"] {
            let (status, problem) =
                answer(api.request(Method::GET, path).header(HOST, host).send().await.expect("an answer"))
                    .await;
            assert_eq!(status, 421, "{host}");
            assert_problem(&problem, 421, "misdirected_request", host);
        }
    }
    assert_eq!(api.head().await, head, "nothing was recorded");
    api.stop().await;
}

/// States of a lease in which a request cannot be carried out.
#[tokio::test(flavor = "multi_thread")]
async fn the_lease_decides() {
    let api = Api::start().await;
    let (_, short) = api.lease_for(3.0).await;
    let commands = |lease: &Value| format!("/v1/leases/{}/commands", id(lease, "lease_id"));
    let (status, problem) = api.post(&commands(&short), &json!({"argv": ["true"]})).await;
    assert_eq!(status, 409, "{problem}");
    assert_problem(&problem, 409, "lease_too_short", "3 s");

    let (_, lease) = api.lease().await;
    api.run(&lease, &json!({"argv": ["true"]})).await;
    let renew = format!("/v1/leases/{}/renew", id(&lease, "lease_id"));
    let (status, problem) = api.post(&renew, &json!({"ttl_seconds": 3_600})).await;
    assert_eq!(status, 409, "{problem}");
    assert_problem(&problem, 409, "environment_cap", "the hard cap");

    let environment =
        api.get(&format!("/v1/leases/{}", id(&lease, "lease_id"))).await.1["environment"].clone();
    api.lose(&id(&environment, "environment_id"));
    api.post(&commands(&lease), &json!({"argv": ["true"]})).await;
    let (status, problem) = api.post(&commands(&lease), &json!({"argv": ["true"]})).await;
    assert_eq!(status, 409, "{problem}");
    assert_problem(&problem, 409, "environment_lost", "a dead sandbox");
    api.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_line_has_an_end() {
    let api = Api::start().await;
    let (_, lease) = api.lease().await;
    let path = format!("/v1/leases/{}/commands", id(&lease, "lease_id"));
    let body = json!({"argv": ["sleep", "600"], "wait_seconds": 0});
    for n in 0..65 {
        let (status, command) = api.post(&path, &body).await;
        assert_eq!(status, 202, "{n}: {command}");
    }
    let response = api.request(Method::POST, &path).json(&body).send().await.expect("an answer");
    assert_eq!(response.headers()["retry-after"], "1");
    let (status, problem) = answer(response).await;
    assert_eq!(status, 429, "{problem}");
    assert_problem(&problem, 429, "queue_full", "the 66th");
    api.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_file_larger_than_its_workspace_is_refused() {
    let api = Api::start().await;
    let body = json!({"ttl_seconds": 60, "limits": {"workspace_bytes": 1_048_576}});
    let (status, lease) = api.post(&format!("/v1/runs/{}/leases", Uuid::now_v7()), &body).await;
    assert_eq!(status, 201, "{lease}");
    let target = format!("/v1/leases/{}/files/large", id(&lease, "lease_id"));
    let put = api.request(Method::PUT, &target).body("x".repeat(1_048_577));
    let (status, problem) = answer(put.send().await.expect("an answer")).await;
    assert_eq!(status, 413, "{problem}");
    assert_problem(&problem, 413, "file_too_large", "over the workspace");
    assert_eq!(api.get(&target).await.0, 404, "nothing of it is kept");
    api.stop().await;
}

/// A service that stops takes nothing new, and still says how things stand.
#[tokio::test(flavor = "multi_thread")]
async fn a_stopping_service_takes_nothing_new() {
    let api = Api::start().await;
    let (_, lease) = api.lease().await;
    let path = format!("/v1/leases/{}", id(&lease, "lease_id"));
    api.refuse_new_work();
    let head = api.head().await;
    for (method, path, body) in [
        (Method::POST, format!("/v1/runs/{}/leases", Uuid::now_v7()), r#"{"ttl_seconds":60}"#),
        (Method::POST, format!("{path}/commands"), r#"{"argv":["true"]}"#),
        (Method::PUT, format!("{path}/files/a"), "x"),
    ] {
        let request = api.request(method, &path).header(CONTENT_TYPE, "application/json").body(body);
        let response = request.send().await.expect("an answer");
        assert!(response.headers().contains_key("retry-after"), "{path}");
        let (status, problem) = answer(response).await;
        assert_eq!(status, 503, "{path}: {problem}");
        assert_problem(&problem, 503, "unavailable", &path);
    }
    assert_eq!(api.head().await, head, "nothing was recorded");
    assert_eq!(api.get(&path).await.0, 200);
    assert_eq!(api.get("/readyz").await.0, 503);
    api.stop().await;
}

/// The views stand still: what was written is answered from the log, never as if it had not been, and only reads wait in vain.
#[tokio::test(flavor = "multi_thread")]
async fn a_write_on_record_is_never_answered_as_if_it_were_not() {
    let api = Api::start().await;
    let (_, lease) = api.lease().await;
    api.run(&lease, &json!({"argv": ["true"]})).await;
    let path = format!("/v1/leases/{}", id(&lease, "lease_id"));
    let held = api.hold_views().await;

    let run = Uuid::now_v7();
    let (status, new) = api.post(&format!("/v1/runs/{run}/leases"), &json!({"ttl_seconds": 60})).await;
    assert_eq!((status, &new["state"], &new["epoch"]), (201, &json!("live"), &json!(1)), "{new}");
    let (status, renewed) = api.post(&format!("{path}/renew"), &json!({"ttl_seconds": 600})).await;
    assert_eq!((status, &renewed["state"]), (200, &json!("live")), "{renewed}");
    let (status, ended) = api.post(&format!("{path}/commands"), &json!({"argv": ["echo", "x"]})).await;
    assert_eq!((status, &ended["stdout"]["text"]), (200, &json!("x\n")), "{ended}");
    let unwaited = json!({"argv": ["sleep", "600"], "wait_seconds": 0});
    let (status, running) = api.post(&format!("{path}/commands"), &unwaited).await;
    assert_eq!(status, 202, "{running}");
    let (status, killed) = api.post_empty(&format!("/v1/commands/{}/kill", id(&running, "command_id"))).await;
    assert_eq!(status, 202, "{killed}");
    let put = api.request(Method::PUT, &format!("{path}/files/a")).body("x").send().await.expect("an answer");
    assert_eq!(put.status(), 201);
    let (status, released) = api.post_empty(&format!("{path}/release")).await;
    assert_eq!((status, &released["state"]), (200, &json!("released")), "{released}");

    let (status, problem) = api.get(&path).await;
    assert_eq!((status, &problem["no_side_effect"]), (503, &json!(true)), "{problem}");
    assert_problem(&problem, 503, "projection_behind", "a read");
    drop(held);
    let start = Instant::now();
    while api.get(&path).await.0 != 200 {
        assert!(start.elapsed() < PATIENCE, "the views follow again");
    }
    api.stop().await;
}
