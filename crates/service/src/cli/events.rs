//! `leasehold events`: the history of a run.

use std::io::Write as _;

use projections::timeline::Escaped;
use serde_json::Value;

use super::args::Events;
use super::client::Client;
use super::exit::Failure;

pub(super) async fn events(args: Events) -> Result<u8, Failure> {
    let client = Client::new(&args.server)?;
    let mut path = format!("/v1/runs/{}/events?limit=1000", args.run);
    let mut out = std::io::stdout().lock();
    loop {
        let page = client.get(&path).await?;
        for event in page["items"].as_array().into_iter().flatten() {
            let written = if args.json { writeln!(out, "{event}") } else { writeln!(out, "{}", line(event)) };
            written.map_err(|error| Failure::failed(format!("output cannot be written: {error}")))?;
        }
        match page["next_cursor"].as_str() {
            Some(cursor) => path = format!("/v1/runs/{}/events?limit=1000&cursor={cursor}", args.run),
            None => return Ok(0),
        }
    }
}

fn line(event: &Value) -> String {
    let text = |key: &str| event[key].as_str().unwrap_or("-");
    let body = event["body"].to_string();
    format!(
        "{:>8}  {}  {:<28}  {}",
        event["position"].as_u64().unwrap_or_default(),
        text("recorded_at"),
        text("type"),
        Escaped(&body),
    )
}
