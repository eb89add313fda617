//! Inputs that break services of this kind, on real containers over HTTP, as clients and operators meet them.
//!
//! Each file starts few services and puts many inputs through each. What must be refused without a trace is tried in
//! [`super::http`]; here is what must be carried out, and how it must end.

mod command_line;
mod commands;
mod database;
mod ends;
mod files;
mod kills;
mod races;
mod shapes;

use reqwest::Method;
use serde_json::{Value, json};
use tests::api::{SseEvent, id, sse};
use tests::process::Service;

/// The body of a command that is a shell script.
fn sh(script: &str) -> Value {
    json!({ "argv": ["sh", "-c", script] })
}

/// Where commands of a lease are sent.
fn commands_of(lease: &Value) -> String {
    format!("/v1/leases/{}/commands", id(lease, "lease_id"))
}

/// Where a lease is.
fn path_of(lease: &Value) -> String {
    format!("/v1/leases/{}", id(lease, "lease_id"))
}

/// A command that is not waited for; a short one may be over none the less.
async fn begin(service: &Service, lease: &Value, mut body: Value) -> Value {
    body["wait_seconds"] = json!(0);
    let (status, command) = service.post(&commands_of(lease), &body).await;
    assert!(status == 202 || (status == 200 && command["state"] == "finished"), "{status} {command}");
    command
}

/// The whole output of a command as it was streamed.
async fn output_of(service: &Service, command: &Value) -> Vec<SseEvent> {
    let path = format!("/v1/commands/{}/output", id(command, "command_id"));
    let response = service.request(Method::GET, &path).send().await.expect("a stream");
    assert_eq!(response.status(), 200);
    sse(&response.text().await.expect("it ends"))
}

/// The bodies of a run's events of one type.
fn bodies<'a>(events: &'a [Value], kind: &str) -> Vec<&'a Value> {
    events.iter().filter(|event| event["type"] == kind).map(|event| &event["body"]).collect()
}
