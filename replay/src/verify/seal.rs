//! What the signed heads prove about the log, for people and as JSON.

use std::fmt::{self, Write as _};

use event_log::proof::note::KeyId;
use event_log::verify::{Origin, Seal};
use projections::timeline::Escaped;
use serde_json::{Value, json};

use crate::shape::base64;

/// How many events no signed head covers.
pub(super) fn unanchored(seal: &Seal, events: u64) -> u64 {
    events.saturating_sub(anchored(seal))
}

/// How many events the largest signed head covers that the events agree with.
pub(super) fn anchored(seal: &Seal) -> u64 {
    seal.anchor.as_ref().map_or(0, |anchor| anchor.size)
}

/// The fields of the report that are about the seal.
pub(super) fn to_json(seal: &Seal, events: u64) -> Value {
    let checkpoint = seal.anchor.as_ref().map(|anchor| {
        json!({
            "size": anchor.size,
            "root": base64(&anchor.root),
            "signed_by": names(&anchor.signers),
            "head": match &anchor.origin { Origin::Log => None, Origin::Kept(name) => Some(name) },
        })
    });
    let keys_from = match (seal.keys.is_empty(), seal.keys_given) {
        (true, _) => None,
        (false, true) => Some("given"),
        (false, false) => Some("log"),
    };
    json!({
        "proof": if seal.anchor.is_some() { "checkpoint" } else { "chain" },
        "origin": seal.origin,
        "keys": names(&seal.keys),
        "keys_from": keys_from,
        "checkpoint": checkpoint,
        "anchored_events": anchored(seal),
        "unanchored_events": unanchored(seal, events),
        "checkpoints_stored": seal.stored,
        "checkpoints_checked": seal.compared,
        "checkpoints_of_unknown_keys": seal.strange,
        "tiles_checked": seal.tiles,
        "heads": seal.heads,
    })
}

fn names(keys: &[KeyId]) -> Vec<String> {
    keys.iter().map(KeyId::to_string).collect()
}

/// Ids of keys, one after the other.
pub(crate) fn listed(keys: &[KeyId]) -> String {
    names(keys).join(", ")
}

/// What was compared, who is believed, and how far the signed part reaches.
pub(super) fn describe(f: &mut fmt::Formatter<'_>, seal: &Seal, events: u64) -> fmt::Result {
    if seal.is_absent() {
        return writeln!(f, "chain only: nothing is sealed, so nothing outside this database vouches for it");
    }
    let mut heads = String::new();
    for name in &seal.heads {
        write!(heads, ", the head in {}", Escaped(name))?;
    }
    writeln!(
        f,
        "compared {} of {} checkpoints, {} tiles{heads} with the tree over these leaves",
        seal.compared, seal.stored, seal.tiles
    )?;
    if seal.strange > 0 {
        writeln!(f, "{} checkpoints are signed by none of the keys that are believed", seal.strange)?;
    }
    let keys = listed(&seal.keys);
    match (seal.keys.is_empty(), seal.keys_given) {
        (true, _) => {
            writeln!(f, "no key is pinned in the log and none was given: no signature can be believed")?;
        }
        (false, true) => writeln!(f, "believed key: {}", Escaped(&keys))?,
        (false, false) => writeln!(
            f,
            "believed key: {}, taken from the log itself: whoever can rewrite the database can exchange the key as well, so this \
             does not prove that nobody sealed another log in its place; --key takes yours",
            Escaped(&keys)
        )?,
    }
    if let Some(anchor) = &seal.anchor {
        write!(
            f,
            "anchored: {} events by checkpoint {}, root {}, signed by {}",
            anchor.size,
            anchor.size,
            base64(&anchor.root),
            Escaped(&listed(&anchor.signers))
        )?;
        match &anchor.origin {
            Origin::Log => writeln!(f)?,
            Origin::Kept(name) => writeln!(f, ", kept in {}", Escaped(name))?,
        }
    }
    match unanchored(seal, events) {
        0 => Ok(()),
        tail => {
            let from = anchored(seal);
            writeln!(f, "unanchored: {tail} events from position {from} on, which no signed head covers")
        }
    }
}
