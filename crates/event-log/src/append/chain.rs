//! Chains a batch: version and previous leaf of every event, from the tips as the batch itself moves them.

use std::collections::HashMap;

use events::stored::{Sealed, StreamName};

use super::prepare::Prepared;
use super::tips::TipCache;
use super::{Expected, Tip};

/// A request with all bytes fixed.
#[derive(Debug)]
pub(super) struct Chained {
    /// What its first event is chained to.
    pub(super) base: Tip,
    /// The stream's end if it is accepted.
    pub(super) tip: Tip,
    /// Header and leaf per event.
    pub(super) sealed: Vec<Sealed>,
}

/// Chains `requests` in order. An `any` request follows the tip as the requests before it would leave it (if they are not
/// accepted, the function answers stale and it comes again); the others follow what they expect.
pub(super) fn chain<'a>(requests: impl Iterator<Item = &'a Prepared>, known: &mut TipCache) -> Vec<Chained> {
    let mut moved: HashMap<&StreamName, Tip> = HashMap::new();
    requests
        .map(|request| {
            let current = moved.get(&request.stream).copied().or_else(|| known.get(&request.stream));
            let base = match request.expected {
                Expected::Exact(tip) => tip,
                Expected::None => Tip::NONE,
                Expected::Any => current.unwrap_or(Tip::NONE),
            };
            let chained = chain_one(request, base);
            // One that cannot be accepted as far as we know moves nothing.
            if current.is_none_or(|current| current == base) {
                moved.insert(&request.stream, chained.tip);
            }
            chained
        })
        .collect()
}

fn chain_one(request: &Prepared, base: Tip) -> Chained {
    let mut tip = base;
    let mut sealed = Vec::with_capacity(request.events.len());
    for event in &request.events {
        let version = tip.version.next();
        let one = event.header.fill(version, &tip.leaf);
        tip = Tip { version, leaf: one.leaf };
        sealed.push(one);
    }
    Chained { base, tip, sealed }
}
