//! What is signed about the log: the checkpoints that it stores, and heads that were kept elsewhere. Each is believed only by its
//! signature, and then compared with the tree ([`super::tree`]).

use crate::proof::Hash;
use crate::proof::checkpoint::{Checkpoint, CheckpointError};
use crate::proof::note::{NoteError, VerifierKey};
use crate::seal::{Pinned, StoredCheckpoint};

use super::report::Fault;
use super::witness::Origin;

/// Who is believed, and what was kept elsewhere.
#[derive(Clone, Debug, Default)]
pub struct Trust {
    /// The verifier's own keys, all of one name: the origin of the log that they sign. Without any, those are used that the log
    /// itself names; whoever can rewrite the log can exchange these.
    pub keys: Vec<VerifierKey>,
    /// Heads that were kept outside of the database. They were read before the snapshot was taken: a log is stored first.
    pub heads: Vec<KeptHead>,
}

/// A head that was kept outside of the database.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeptHead {
    /// Where, for people.
    pub name: String,
    /// The signed note.
    pub note: Vec<u8>,
}

/// The root that a believed note claims for the first `size` events.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Claim {
    pub(super) size: u64,
    pub(super) root: Hash,
    pub(super) origin: Origin,
}

/// Takes what is signed, one note after the other.
#[derive(Debug)]
pub(super) struct Claims {
    pub(super) origin: String,
    pub(super) keys: Vec<VerifierKey>,
    pub(super) keys_given: bool,
    /// Size of the last stored checkpoint, believed or not.
    pub(super) sealed: u64,
    /// How many checkpoints are stored.
    pub(super) stored: u64,
    believed: Vec<Claim>,
    /// Sizes of those that no known key has signed.
    strange: Vec<u64>,
    faults: Vec<Fault>,
}

impl Claims {
    pub(super) fn new(pinned: Pinned, trust: &Trust) -> Self {
        let mut faults = Vec::new();
        let mut keys = trust.keys.clone();
        let keys_given = !keys.is_empty();
        let mut origin = pinned.origin;
        if let Some(key) = keys.first() {
            let expected = &key.id().name;
            if *expected != origin {
                faults.push(Fault::OtherOrigin { expected: expected.clone(), found: origin });
            }
            origin = expected.clone();
        } else {
            for text in &pinned.verifier_keys {
                match text.parse() {
                    Ok(key) => keys.push(key),
                    Err(reason) => faults.push(Fault::PinnedKey { reason }),
                }
            }
        }
        let (believed, strange) = (Vec::new(), Vec::new());
        Self { origin, keys, keys_given, sealed: 0, stored: 0, believed, strange, faults }
    }

    /// The next stored checkpoint, by size.
    pub(super) fn stored(&mut self, stored: &StoredCheckpoint) {
        let size = stored.size;
        self.sealed = size;
        self.stored += 1;
        match Checkpoint::open(stored.note.as_bytes(), &self.origin, &self.keys) {
            Ok(checkpoint) if checkpoint.size == size => {
                self.believed.push(Claim { size, root: checkpoint.root, origin: Origin::Log });
            }
            Ok(checkpoint) => self.faults.push(Fault::CheckpointSize { size, found: checkpoint.size }),
            Err(CheckpointError::Note(NoteError::NoKnownKey)) => self.strange.push(size),
            Err(reason) => self.faults.push(Fault::Checkpoint { size, reason }),
        }
    }

    /// A head that was kept elsewhere.
    pub(super) fn kept(&mut self, head: &KeptHead) {
        match Checkpoint::open(&head.note, &self.origin, &self.keys) {
            Ok(Checkpoint { size, root, .. }) => {
                self.believed.push(Claim { size, root, origin: Origin::Kept(head.name.clone()) });
            }
            Err(reason) => self.faults.push(Fault::KeptHead { name: head.name.clone(), reason }),
        }
    }

    /// What is believed, by size, a stored checkpoint before a kept head of its size; and what is wrong with the rest.
    ///
    /// A verifier may have only the newer of the log's keys: older checkpoints that none of its keys has signed are no fault as long as
    /// one that covers them is believed. The log itself names all of them.
    pub(super) fn finish(&mut self) -> (Vec<Claim>, Vec<Fault>) {
        let mut claims = std::mem::take(&mut self.believed);
        claims.sort_by_key(|claim| (claim.size, claim.origin != Origin::Log));
        let stored = claims.iter().filter(|claim| claim.origin == Origin::Log);
        let covered = if self.keys_given { stored.map(|claim| claim.size).max().unwrap_or(0) } else { 0 };
        let mut uncovered = self.strange.iter().filter(|size| **size > covered);
        let mut faults = std::mem::take(&mut self.faults);
        if let Some(size) = uncovered.next() {
            let others = u64::try_from(uncovered.count()).unwrap_or(u64::MAX);
            faults.push(Fault::NoKnownKey { size: *size, others });
        }
        (claims, faults)
    }

    /// How many checkpoints no known key has signed.
    pub(super) fn strange(&self) -> u64 {
        u64::try_from(self.strange.len()).unwrap_or(u64::MAX)
    }
}
