//! `leasehold log key`: the keys whose signatures count.

use std::io::Write as _;

use event_log::seal::{Pinned, Proofs};
use serde_json::json;

use super::args::{KeyAction, Log, LogPart};
use super::exit::{self, Failure, with_causes};

pub(super) async fn log(args: Log) -> Result<u8, Failure> {
    let LogPart::Key { action: KeyAction::Show { database_url, json } } = args.part;
    let proofs = Proofs::open(&database_url, 1).map_err(|error| Failure::usage(with_causes(&error)))?;
    let pinned = proofs.pinned().await.map_err(|error| Failure::unavailable(with_causes(&error)))?;
    let Pinned { origin, verifier_keys: keys, .. } = pinned;
    let mut out = std::io::stdout().lock();
    let written = if json {
        writeln!(out, "{}", json!({ "origin": origin, "verifier_keys": keys }))
    } else {
        keys.iter().try_for_each(|key| writeln!(out, "{key}"))
    };
    written.map_err(|error| exit::unwritten(&error, 0))?;
    Ok(0)
}
