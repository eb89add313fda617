//! `leasehold events`: the history of a run.

use std::io::Write as _;

use ::events::Event;
use ::events::event::EventType;
use projections::timeline::{Escaped, describe};
use serde_json::Value;

use super::args::Events;
use super::client::Client;
use super::exit::{self, Failure};

pub(super) async fn events(args: Events) -> Result<u8, Failure> {
    let client = Client::new(&args.server)?;
    let mut path = format!("/v1/runs/{}/events?limit=1000", args.run);
    let mut out = std::io::stdout().lock();
    loop {
        let page = client.get(&path).await?;
        for event in page["items"].as_array().into_iter().flatten() {
            let written = if args.json { writeln!(out, "{event}") } else { writeln!(out, "{}", line(event)) };
            written.map_err(|error| exit::unwritten(&error, 0))?;
        }
        match page["next_cursor"].as_str() {
            Some(cursor) => path = format!("/v1/runs/{}/events?limit=1000&cursor={cursor}", args.run),
            None => return Ok(0),
        }
    }
}

fn line(event: &Value) -> String {
    let text = |key: &str| event[key].as_str().unwrap_or("-");
    format!(
        "{:>8}  {}  {:<28}  {}",
        event["position"].as_u64().unwrap_or_default(),
        text("recorded_at"),
        text("type"),
        facts(text("type"), &event["body"]),
    )
}

/// In words; as it came where this version does not know the event.
fn facts(kind: &str, body: &Value) -> String {
    if body.is_null() {
        return describe(None);
    }
    let body = body.to_string();
    let event = EventType::from_name(kind).and_then(|kind| Event::from_body(kind, body.as_bytes()));
    match event {
        Some(Ok(event)) => describe(Some(&event)),
        _ => Escaped(&body).to_string(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn known_events_are_told_in_words_and_others_shown_as_they_came() {
        let lease_id = "01a22876-5089-73f3-964c-12639f8f1b9e";
        let released = json!({ "lease_id": lease_id, "epoch": 1 });
        assert_eq!(facts("LeaseReleased", &released), "lease …9f8f1b9e given back");
        assert_eq!(facts("LeaseReleased", &Value::Null), "its body was erased");
        assert_eq!(facts("FromTheFuture", &json!({ "a": "b\u{1b}[31m" })), r#"{"a":"b\\u001b[31m"}"#);
    }
}
