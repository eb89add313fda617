//! `leasehold lease`: acquire, show, renew, release, revoke, list.

use std::io::Write as _;

use projections::timeline::Escaped;
use serde_json::{Value, json};
use uuid::Uuid;

use super::args::{Lease, LeaseAction};
use super::client::Client;
use super::exit::{self, Failure};

pub(super) async fn lease(args: Lease) -> Result<u8, Failure> {
    let client = Client::new(&args.server)?;
    let of = |lease: Uuid, action: &str| format!("/v1/leases/{lease}/{action}");
    let answer = match args.action {
        LeaseAction::Acquire { run, ttl, holder, takeover } => {
            let run_id = run.unwrap_or_else(Uuid::now_v7);
            let body = json!({ "ttl_seconds": ttl, "holder": holder, "takeover": takeover });
            client.post(&format!("/v1/runs/{run_id}/leases"), &body).await?
        }
        LeaseAction::Show { lease } => client.get(&format!("/v1/leases/{lease}")).await?,
        LeaseAction::Renew { lease, ttl } => {
            client.post(&of(lease, "renew"), &json!({ "ttl_seconds": ttl })).await?
        }
        LeaseAction::Release { lease } => client.post(&of(lease, "release"), &json!({})).await?,
        LeaseAction::Revoke { lease, reason } => {
            client.post(&of(lease, "revoke"), &json!({ "reason": reason })).await?
        }
        LeaseAction::List { run, state } => json!(list(&client, run, state.as_deref()).await?),
    };
    print(&answer, args.json)?;
    Ok(0)
}

/// Every page.
async fn list(client: &Client, run: Option<Uuid>, state: Option<&str>) -> Result<Vec<Value>, Failure> {
    let mut filter = String::from("limit=1000");
    if let Some(run) = run {
        filter.push_str(&format!("&run_id={run}"));
    }
    if let Some(state) = state {
        filter.push_str(&format!("&state={state}"));
    }
    let mut leases = Vec::new();
    let mut cursor = String::new();
    loop {
        let page = client.get(&format!("/v1/leases?{filter}{cursor}")).await?;
        leases.extend(page["items"].as_array().into_iter().flatten().cloned());
        match page["next_cursor"].as_str() {
            Some(next) => cursor = format!("&cursor={next}"),
            None => return Ok(leases),
        }
    }
}

fn print(answer: &Value, json: bool) -> Result<(), Failure> {
    let mut out = std::io::stdout().lock();
    let written = if json {
        writeln!(out, "{answer}")
    } else {
        let leases: Vec<&Value> =
            answer.as_array().map_or_else(|| vec![answer], |list| list.iter().collect());
        leases.iter().try_for_each(|lease| writeln!(out, "{}", line(lease)))
    };
    written.map_err(|error| exit::unwritten(&error, 0))
}

fn line(lease: &Value) -> String {
    let text = |key: &str| lease[key].as_str().unwrap_or("-");
    let environment = lease["environment"]["state"].as_str().unwrap_or("none");
    format!(
        "{}  run {}  epoch {}  {}  until {}  environment {}  {}",
        text("lease_id"),
        text("run_id"),
        lease["epoch"],
        text("state"),
        text("expires_at"),
        environment,
        Escaped(text("holder")),
    )
}
