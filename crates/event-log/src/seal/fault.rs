//! Why nothing is signed any more. Each names what was looked at; none of them heals by itself.

use events::stored::StreamName;
use events::{LogId, Position, Version};

use crate::error::LogError;
use crate::proof::checkpoint::CheckpointError;
use crate::proof::note::KeyId;
use crate::proof::tiles::TileId;

use super::head::HeadStoreError;

/// An inconsistency. The sealer refuses to sign over it and stops until it is started anew.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SealFault {
    /// A position is missing.
    #[error("there is no event at position {position}")]
    Gap {
        /// The missing position.
        position: Position,
    },
    /// The stored leaf is not the header's hash.
    #[error("the leaf at position {position} is not the hash of the header")]
    Leaf {
        /// Where.
        position: Position,
    },
    /// An event is not the one that was sealed.
    #[error("the event at position {position} is not the one that was sealed")]
    Sealed {
        /// Where.
        position: Position,
    },
    /// The header is not what we write.
    #[error("the header at position {position} cannot be read: {reason}")]
    Header {
        /// Where.
        position: Position,
        /// Why.
        reason: String,
    },
    /// The header names another log.
    #[error("the header at position {position} names another log: {log_id}")]
    ForeignLog {
        /// Where.
        position: Position,
        /// The other log.
        log_id: LogId,
    },
    /// A column does not say what the header says.
    #[error("column {column} at position {position} differs from the header")]
    Column {
        /// Where.
        position: Position,
        /// Which.
        column: &'static str,
    },
    /// The version does not follow the stream's last, or its predecessor is not there.
    #[error("version {version} of stream {stream} at position {position} follows nothing")]
    Version {
        /// Where.
        position: Position,
        /// The stream.
        stream: StreamName,
        /// Its version there.
        version: Version,
    },
    /// The header is chained to another event than the stream's last.
    #[error("the event at position {position} is not chained to the previous one of stream {stream}")]
    Chain {
        /// Where.
        position: Position,
        /// The stream.
        stream: StreamName,
    },
    /// A stored tile is missing.
    #[error("{tile} is missing; its first leaf is at position {position}")]
    TileMissing {
        /// Which.
        tile: TileId,
        /// The first event below it.
        position: Position,
    },
    /// A stored tile is not what the events, or the tiles below it, hash to.
    #[error("{tile} is changed where it stands for position {position}")]
    TileChanged {
        /// Which.
        tile: TileId,
        /// The first event below the first changed hash.
        position: Position,
    },
    /// There is a tile that no signed head has.
    #[error("{tile} is there, beyond the last signed head of {size} events")]
    TileBeyond {
        /// Which.
        tile: TileId,
        /// Size of the last signed head.
        size: u64,
    },
    /// The tiles are whole, and their root is another than the signed one.
    #[error("the tree of the first {size} events has another root than the signed one")]
    Root {
        /// Size of the signed head.
        size: u64,
    },
    /// The last signed head of the database is not believed.
    #[error("the stored checkpoint of size {size} is refused: {reason}")]
    Checkpoint {
        /// Its size, as its row says.
        size: u64,
        /// Why.
        reason: CheckpointError,
    },
    /// The stored checkpoint says another size than its row, or is another than the one that was signed.
    #[error("the stored checkpoint of size {size} is not the one that was signed")]
    CheckpointChanged {
        /// Its size, as its row says, or the size that was signed.
        size: u64,
    },
    /// The log ends before its last signed head.
    #[error("the log ends at position {head}, and {signed} events were signed")]
    Shrunken {
        /// Size of the signed head.
        signed: u64,
        /// Where the log ends.
        head: Position,
    },
    /// Something was written in the same moment, where only this sealer writes.
    #[error("tiles or a checkpoint for {size} events are there already")]
    Occupied {
        /// Size of the head that was to be written.
        size: u64,
    },
    /// A key of ours is not among the pinned ones.
    #[error("key {key} is not pinned for this log")]
    KeyNotPinned {
        /// Which.
        key: KeyId,
    },
    /// A pinned key cannot be read, or there is no key to sign with.
    #[error("the keys of the log are of no use: {reason}")]
    Keys {
        /// Why.
        reason: String,
    },
    /// A key of ours is named for another log.
    #[error("key {key} belongs to another log than {origin}")]
    Origin {
        /// Which.
        key: KeyId,
        /// The log's own name.
        origin: String,
    },
    /// The head kept outside is ahead of the database: the database was set back, or another one.
    #[error("the head kept outside has {outside} events, the database has signed {database}")]
    HeadAhead {
        /// Size of the head outside.
        outside: u64,
        /// Size of the last signed head of the database.
        database: u64,
    },
    /// The head kept outside is of another history.
    #[error("the first {size} events are not those of the head kept outside")]
    HeadDiffers {
        /// Size of the head outside.
        size: u64,
    },
    /// The head kept outside is not believed.
    #[error("the head kept outside is refused: {reason}")]
    Head {
        /// Why.
        reason: CheckpointError,
    },
}

impl SealFault {
    /// The position that it names, where it names one.
    #[must_use]
    pub const fn position(&self) -> Option<Position> {
        match self {
            Self::Gap { position }
            | Self::Leaf { position }
            | Self::Sealed { position }
            | Self::Header { position, .. }
            | Self::ForeignLog { position, .. }
            | Self::Column { position, .. }
            | Self::Version { position, .. }
            | Self::Chain { position, .. }
            | Self::TileMissing { position, .. }
            | Self::TileChanged { position, .. } => Some(*position),
            Self::Shrunken { head, .. } => Some(*head),
            Self::TileBeyond { .. }
            | Self::Root { .. }
            | Self::Checkpoint { .. }
            | Self::CheckpointChanged { .. }
            | Self::Occupied { .. }
            | Self::KeyNotPinned { .. }
            | Self::Keys { .. }
            | Self::Origin { .. }
            | Self::HeadAhead { .. }
            | Self::HeadDiffers { .. }
            | Self::Head { .. } => None,
        }
    }
}

/// Why a round of sealing ended early.
#[derive(Debug, thiserror::Error)]
pub(super) enum Stop {
    /// Not to be signed over.
    #[error("the log is not what was sealed")]
    Fault(#[from] SealFault),
    /// The database is away, or refuses us: tried again.
    #[error("the database does not serve the sealer")]
    Database(#[from] LogError),
    /// The store of the head outside cannot be read: tried again, nothing is signed before.
    #[error("the head kept outside cannot be read")]
    Head(#[from] HeadStoreError),
}

impl From<tokio_postgres::Error> for Stop {
    fn from(error: tokio_postgres::Error) -> Self {
        Self::Database(error.into())
    }
}
