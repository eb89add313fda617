//! The chain of each stream: versions without a gap, every header chained to the one before.

use std::collections::HashMap;

use events::Version;
use events::stored::{Header, StreamName, ZERO_LEAF};

use super::report::Fault;

/// Where each stream ends, from the headers alone.
#[derive(Debug, Default)]
pub(super) struct Chains {
    ends: HashMap<StreamName, (Version, [u8; 32])>,
}

impl Chains {
    /// The next event of its stream; answers what is wrong with its place.
    pub(super) fn follow(&mut self, header: &Header, leaf: [u8; 32]) -> Vec<Fault> {
        let stream = &header.stream;
        let (version, previous) = self.ends.get(stream).copied().unwrap_or((Version(0), ZERO_LEAF));
        let expected = version.next();
        let mut faults = Vec::new();
        if header.version != expected {
            faults.push(Fault::Version { stream: stream.clone(), expected, found: header.version });
        }
        if header.prev_leaf != hex::encode(previous) {
            faults.push(Fault::Chain { stream: stream.clone() });
        }
        // Go on from what is there: one damaged event is one fault, not one per event behind it.
        match self.ends.get_mut(stream) {
            Some(end) => *end = (header.version, leaf),
            None => {
                self.ends.insert(stream.clone(), (header.version, leaf));
            }
        }
        faults
    }

    /// Whether a stream ends with this version and leaf.
    pub(super) fn ends_with(&self, stream: &StreamName, version: Version, leaf: &[u8]) -> bool {
        self.ends.get(stream).is_some_and(|end| end.0 == version && end.1 == leaf)
    }

    /// The streams that were met.
    pub(super) fn streams(&self) -> impl Iterator<Item = &StreamName> {
        self.ends.keys()
    }

    /// How many streams were met.
    pub(super) fn len(&self) -> u64 {
        u64::try_from(self.ends.len()).unwrap_or(u64::MAX)
    }
}
