//! What a verification has to say about the seal: by whom, how far, and what follows unsigned.

use events::Timestamp;

use crate::proof::Hash;
use crate::proof::note::KeyId;

/// Events that were recorded this long before the newest one must be sealed.
const BEHIND_MICROS_MAX: i64 = 10_000_000;

/// What is signed about a log.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Seal {
    /// The log's name in checkpoints.
    pub origin: String,
    /// The keys that were believed.
    pub keys: Vec<KeyId>,
    /// They are the verifier's own; else they stand in the log itself.
    pub keys_given: bool,
    /// How many checkpoints are stored.
    pub stored: u64,
    /// How many of them were believed and compared with the root of the events.
    pub compared: u64,
    /// How many of them none of the keys has signed.
    pub strange: u64,
    /// How many stored tiles were compared.
    pub tiles: u64,
    /// The heads from elsewhere.
    pub heads: Vec<String>,
    /// The largest signed head whose root the events have.
    pub anchor: Option<Anchor>,
    /// The events behind it.
    pub tail: Tail,
}

impl Seal {
    /// Nobody has ever sealed the log, and nobody was expected to.
    #[must_use]
    pub const fn is_absent(&self) -> bool {
        self.keys.is_empty() && self.stored == 0 && self.heads.is_empty()
    }

    /// A signed head covers all but events of the last 10 s.
    #[must_use]
    pub fn is_current(&self) -> bool {
        self.anchor.is_some() && self.tail.is_short()
    }
}

/// A signed head that the events agree with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Anchor {
    /// How many events it signs.
    pub size: u64,
    /// Their root.
    pub root: Hash,
    /// Where it was.
    pub origin: Origin,
    /// The believed keys that have signed it.
    pub signers: Vec<KeyId>,
}

/// Where a signed head was.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Origin {
    /// In the log's own table of checkpoints.
    Log,
    /// Elsewhere, by that name.
    Kept(String),
}

/// The times of the events that no signed head covers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tail {
    /// Recorded first; `None` when all are covered.
    pub oldest: Option<Timestamp>,
    /// Recorded last in the whole log.
    pub newest: Option<Timestamp>,
}

impl Tail {
    /// The next event.
    pub(super) fn add(&mut self, recorded_at: Option<Timestamp>) {
        let Some(time) = recorded_at else { return };
        self.oldest = Some(self.oldest.map_or(time, |oldest| oldest.min(time)));
        self.newest = self.newest.max(Some(time));
    }

    /// Everything up to here is covered.
    pub(super) const fn restart(&mut self) {
        self.oldest = None;
    }

    fn is_short(&self) -> bool {
        let behind =
            self.oldest.zip(self.newest).map(|(oldest, newest)| newest.unix_micros() - oldest.unix_micros());
        behind.is_none_or(|micros| micros <= BEHIND_MICROS_MAX)
    }
}
