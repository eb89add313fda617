//! What a verification found.

use std::fmt;

use events::stored::{HeaderError, StreamName};
use events::{LogId, Position, Version};

use super::witness::Seal;
use crate::proof::checkpoint::CheckpointError;
use crate::proof::note::KeyError;
use crate::proof::tiles::TileId;

/// The result of a verification.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Report {
    /// The log that was checked.
    pub log_id: LogId,
    /// How many events were checked: zero proves nothing.
    pub events: u64,
    /// How many streams they belong to.
    pub streams: u64,
    /// Bytes of headers and bodies that were hashed.
    pub bytes: u64,
    /// First position after the log, as the head row says.
    pub head: Position,
    /// How many faults were found in all.
    pub faults_found: u64,
    /// The first of them.
    pub faults: Vec<Finding>,
    /// What is signed about the log; `None` where only a part of it was looked at.
    pub seal: Option<Seal>,
}

impl Report {
    /// At least one event was checked and no fault was found.
    #[must_use]
    pub const fn is_sound(&self) -> bool {
        self.events > 0 && self.faults_found == 0
    }

    /// Whatever was found are whole bytes of which this version does not know what they say: nothing was changed. True when
    /// nothing was found.
    #[must_use]
    pub fn is_unchanged(&self) -> bool {
        self.faults_found == self.faults.len() as u64
            && self.faults.iter().all(|fault| matches!(fault.what, Fault::Body { .. }))
    }
}

/// One fault.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// The event concerned; `None` for a fault of the log as a whole.
    pub position: Option<Position>,
    /// What is wrong.
    pub what: Fault,
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.position {
            Some(position) => write!(f, "position {position}: {}", self.what),
            None => self.what.fmt(f),
        }
    }
}

/// Kinds of fault. The header's bytes are the truth; everything else is compared with them.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Fault {
    /// Positions are missing.
    #[error("no event from here up to position {found}")]
    Missing {
        /// The next position that is there.
        found: Position,
    },
    /// The head row says something else than the events.
    #[error("the head says {head}, the events end before {end}")]
    Head {
        /// `log_head.next_position`.
        head: Position,
        /// One more than the last position that is there.
        end: Position,
    },
    /// The header is not what we write.
    #[error("the header cannot be read: {reason}")]
    Header {
        /// Why.
        reason: String,
    },
    /// The stored leaf is not the header's hash.
    #[error("the stored leaf is not the hash of the header")]
    Leaf,
    /// The header names another log.
    #[error("the header names another log: {log_id}")]
    ForeignLog {
        /// The other log.
        log_id: LogId,
    },
    /// A column does not say what the header says.
    #[error("column {column} differs from the header")]
    Column {
        /// Which.
        column: &'static str,
    },
    /// The version does not follow the stream's last.
    #[error("version {found} of stream {stream} where {expected} follows")]
    Version {
        /// The stream.
        stream: StreamName,
        /// One more than the last.
        expected: Version,
        /// In the header.
        found: Version,
    },
    /// The header is chained to another event than the stream's last.
    #[error("not chained to the previous event of stream {stream}")]
    Chain {
        /// The stream.
        stream: StreamName,
    },
    /// An event stands behind one of a later position.
    #[error("it stands behind position {last}")]
    Order {
        /// The position before it.
        last: Position,
    },
    /// An event belongs to another stream than those whose history this is.
    #[error("there are events of stream {stream}, whose history this is not")]
    ForeignStream {
        /// The other stream.
        stream: StreamName,
    },
    /// There is no body.
    #[error("the body is missing")]
    BodyMissing,
    /// The body is not the committed one.
    #[error("the body is not what the header commits to")]
    BodyCommitment,
    /// The body cannot be read by this version.
    #[error("the event cannot be read: {reason}")]
    Body {
        /// Why.
        reason: String,
    },
    /// A stream's row does not say what its events say.
    #[error("the tip of stream {stream} is not its last event")]
    Tip {
        /// The stream.
        stream: StreamName,
    },
    /// A stream's row has a name that we do not make.
    #[error("a stream is named {name:?}")]
    StreamName {
        /// As stored.
        name: String,
    },
    /// A pinned key cannot be read.
    #[error("a key that the log names for itself is refused: {reason}")]
    PinnedKey {
        /// Why.
        reason: KeyError,
    },
    /// The verifier's keys are for another log.
    #[error("the log calls itself {found:?}, the keys are for {expected:?}")]
    OtherOrigin {
        /// By the keys.
        expected: String,
        /// By the log.
        found: String,
    },
    /// A stored checkpoint is not to be believed.
    #[error("checkpoint {size} is refused: {reason}")]
    Checkpoint {
        /// By its row.
        size: u64,
        /// Why.
        reason: CheckpointError,
    },
    /// Stored checkpoints that nobody who is believed has signed.
    #[error("checkpoint {size} is signed by none of the keys that are believed{}", and_more(*.others))]
    NoKnownKey {
        /// Of the first.
        size: u64,
        /// How many others there are.
        others: u64,
    },
    /// A stored checkpoint's note is about another size than its row.
    #[error("the note of checkpoint {size} is about {found} events")]
    CheckpointSize {
        /// By its row.
        size: u64,
        /// By its note.
        found: u64,
    },
    /// The events do not have the root that is signed; up to this position they do.
    #[error("from here on the events are not those that checkpoint {size} signs{}", and_more(*.others))]
    CheckpointRoot {
        /// Of the first checkpoint that is not theirs.
        size: u64,
        /// How many of the following are not either.
        others: u64,
    },
    /// A checkpoint is about events that are not there.
    #[error("checkpoint {size} signs more events than there are: they end before {end}{}", and_more(*.others))]
    CheckpointAhead {
        /// Of the first.
        size: u64,
        /// How many others there are.
        others: u64,
        /// First position after the events.
        end: Position,
    },
    /// A kept head is not to be believed.
    #[error("the head in {name} is refused: {reason}")]
    KeptHead {
        /// Where it was kept.
        name: String,
        /// Why.
        reason: CheckpointError,
    },
    /// The events do not have the root of a kept head.
    #[error("the first {size} events are not those that the head in {name} signs")]
    HeadRoot {
        /// Where it was kept.
        name: String,
        /// Its size.
        size: u64,
    },
    /// A kept head is about events that are not there.
    #[error("the head in {name} signs {size} events, they end before {end}: the log was cut or set back")]
    HeadAhead {
        /// Where it was kept.
        name: String,
        /// Its size.
        size: u64,
        /// First position after the events.
        end: Position,
    },
    /// A kept head is newer than every stored checkpoint, although a head is stored before it is handed out.
    #[error(
        "the head in {name} signs {size} events, the last stored checkpoint {sealed}: checkpoints were removed"
    )]
    HeadNotStored {
        /// Where it was kept.
        name: String,
        /// Its size.
        size: u64,
        /// Size of the last stored one.
        sealed: u64,
    },
    /// A stored tile does not hold the hashes of the events.
    #[error("{tile} is not what the events give{}", .entry.map(|entry| format!(", from hash {entry} on")).unwrap_or_default())]
    Tile {
        /// Which.
        tile: TileId,
        /// The first hash that differs; `None` when there were too many tiles to look.
        entry: Option<u16>,
    },
    /// A full tile is not stored, although the events are sealed.
    #[error("{tile} is missing")]
    TileMissing {
        /// Which.
        tile: TileId,
    },
    /// Tiles are stored of events that no stored checkpoint covers, although both are stored at once.
    #[error("{tile} is of more than the {sealed} events that are sealed: checkpoints were removed{}", and_more(*.others))]
    TileBeyond {
        /// The first.
        tile: TileId,
        /// Size of the last stored checkpoint.
        sealed: u64,
        /// How many others there are.
        others: u64,
    },
    /// A row of the table of tiles is none.
    #[error("there is no tile of level {level}, index {index} and width {width}")]
    TileName {
        /// As stored.
        level: i16,
        /// As stored.
        index: i64,
        /// As stored.
        width: i16,
    },
    /// There are bodies without events.
    #[error("{count} bodies have no event")]
    OrphanBodies {
        /// How many.
        count: u64,
    },
}

/// That there are more of the kind.
fn and_more(count: u64) -> String {
    if count > 0 { format!(", and {count} more") } else { String::new() }
}

impl From<HeaderError> for Fault {
    fn from(error: HeaderError) -> Self {
        Self::Header { reason: error.to_string() }
    }
}
