//! One stream of the engine's events for all environments of this node.
//!
//! `die` ends every wait on that container, also where its client process would hang; `oom` is evidence. After a loss of the
//! stream every environment is looked at again, because what happened meanwhile was not told.

use std::collections::HashSet;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use events::ids::EnvironmentId;
use serde::Deserialize;
use tokio::io::{AsyncBufReadExt, BufReader};

use super::cli::words;
use super::environment::Environment;
use super::{Inner, labels};

/// Wait before the stream is opened again, at first and at most.
const RETRY_FIRST: Duration = Duration::from_millis(100);
const RETRY_MAX: Duration = Duration::from_secs(2);

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Event {
    action: String,
    actor: Actor,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Actor {
    #[serde(default)]
    attributes: std::collections::HashMap<String, String>,
}

/// Listens for as long as the adapter lives.
pub(super) async fn run(adapter: Weak<Inner>) {
    let mut retry = RETRY_FIRST;
    while let Some(inner) = adapter.upgrade() {
        let node = format!("label={}={}", labels::NODE, inner.config.node_id);
        let filters = ["type=container", "event=die", "event=oom", &node];
        let mut arguments = words(["events", "--format", "{{json .}}"]);
        arguments.extend(filters.iter().flat_map(|filter| words(["--filter", filter])));
        if let Ok((piped, _life)) = inner.engine.cli.open_mortal(arguments).await {
            let _child = piped.child;
            if inspect_all(&inner).await {
                retry = RETRY_FIRST;
            }
            drop(inner);
            let mut lines = BufReader::new(piped.stdout).lines();
            while let Ok(Some(line)) = lines.next_line().await {
                let Some(inner) = adapter.upgrade() else { return };
                told(&inner, &line);
            }
        }
        tokio::time::sleep(retry).await;
        retry = (retry * 2).min(RETRY_MAX);
    }
}

fn told(inner: &Inner, line: &str) {
    let Ok(event) = serde_json::from_str::<Event>(line) else { return };
    let attribute = |name: &str| event.actor.attributes.get(name).map(String::as_str);
    let id = attribute(labels::ENVIRONMENT).and_then(|id| id.parse::<EnvironmentId>().ok());
    let environment = id.and_then(|id| inner.environments().get(&id).map(Arc::clone));
    let Some(environment) = environment else { return };
    match (event.action.as_str(), attribute(labels::ROLE)) {
        ("oom", Some("sandbox")) => environment.oom_events.send_modify(|told| {
            told.kills += 1;
            told.last_at = Some(Instant::now());
        }),
        ("die", Some("sandbox")) if !environment.stopped_by_us.load(Ordering::SeqCst) => {
            crate::supervise::detached("dead sandbox", async move { sandbox_died(&environment).await });
        }
        ("die", Some("files")) => {
            crate::supervise::detached("dead files container", async move {
                files_died(&environment).await;
            });
        }
        _ => {}
    }
}

/// The event may be old news of a container that runs again: the engine is asked.
async fn sandbox_died(environment: &Environment) {
    let slot = environment.sandbox.lock().await;
    let Some(channel) = slot.as_ref().map(Arc::clone) else { return };
    let state = environment.engine.container(&environment.sandbox_name).await;
    if !state.is_ok_and(|state| state.is_some_and(|state| state.running)) {
        channel.close();
    }
}

async fn files_died(environment: &Environment) {
    let slot = environment.files.lock().await;
    let Some(channel) = slot.as_ref().map(Arc::clone) else { return };
    let state = environment.engine.container(&environment.files_name).await;
    if !state.is_ok_and(|state| state.is_some_and(|state| state.running)) {
        channel.close();
    }
}

/// Looks at every environment after a time without events; false when the engine does not answer.
async fn inspect_all(inner: &Inner) -> bool {
    let known: Vec<_> = inner.environments().values().map(Arc::clone).collect();
    if known.is_empty() {
        return inner.engine.ping().await.is_ok();
    }
    let Ok(observed) = inner.observed(None).await else { return false };
    let running: HashSet<_> =
        observed.into_iter().filter(|object| object.running).map(|object| object.name).collect();
    for environment in known {
        if !running.contains(&environment.sandbox_name) {
            sandbox_died(&environment).await;
        }
        if !running.contains(&environment.files_name) {
            files_died(&environment).await;
        }
    }
    true
}
