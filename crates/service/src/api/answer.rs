//! What a caller gets.

use std::pin::Pin;

use bytes::Bytes;
use events::Position;
use events::event::workspace::PathText;
use events::stored::Recorded;
use futures::Stream;
use projections::CommandRow;
use runtime_adapter::ports::OutputStream;

use super::error::ServiceError;

/// A part of a list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Page<T> {
    /// The entries.
    pub items: Vec<T>,
    /// Where the next page starts; `None` on the last one.
    pub next_cursor: Option<String>,
}

/// A part of a run's history, ascending by position.
pub type EventPage = Page<Recorded>;

/// A run's history as it grows; ends when the service stops.
pub type TailItems = Pin<Box<dyn Stream<Item = Result<Recorded, ServiceError>> + Send>>;

/// A file was written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileWrite {
    /// Which file.
    pub path: PathText,
    /// Its size.
    pub size_bytes: u64,
    /// SHA-256 of its bytes, lower-case hex.
    pub sha256: String,
    /// It did not exist before.
    pub created: bool,
    /// Of the recorded event.
    pub position: Position,
}

/// Proves that an event is the one at a position of the log (RFC 6962, 2.1.1).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InclusionAnswer {
    /// The position.
    pub position: Position,
    /// Size of the tree that it is proven in.
    pub size: u64,
    /// The event's own leaf hash.
    pub leaf: [u8; 32],
    /// Sibling hashes, from the leaf upwards.
    pub hashes: Vec<[u8; 32]>,
    /// The signed head of that tree, when there is one of exactly this size.
    pub checkpoint: Option<String>,
}

/// Proves that a tree of the log extends an older one (RFC 6962, 2.1.2).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConsistencyAnswer {
    /// Size of the older tree.
    pub from: u64,
    /// Size of the newer tree.
    pub to: u64,
    /// The hashes.
    pub hashes: Vec<[u8; 32]>,
    /// The signed head of the newer tree, when there is one of exactly this size.
    pub checkpoint: Option<String>,
}

/// How far a closing run is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClosedState {
    /// Commands or environments are still open.
    Closing,
    /// Complete.
    Closed,
}

/// Answer to a close.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CloseAnswer {
    /// How far it is.
    pub state: ClosedState,
    /// Of the run's last event.
    pub position: Position,
}

/// One step of a command's output.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OutputItem {
    /// Bytes that the reader does not have yet, in order, each once.
    Chunk {
        /// Which stream.
        stream: OutputStream,
        /// Offset of the first byte in the stream.
        offset: u64,
        /// At most 64 KiB.
        bytes: Bytes,
    },
    /// Bytes `from..to` of the stream are not held any more.
    Gap {
        /// Which stream.
        stream: OutputStream,
        /// First missing byte.
        from: u64,
        /// First byte after the gap.
        to: u64,
    },
    /// Nothing happened for a while.
    KeepAlive,
    /// The command has its outcome; the last item.
    Exit(Box<CommandRow>),
}

/// A command's output from a cursor to its end.
pub type OutputItems = Pin<Box<dyn Stream<Item = Result<OutputItem, ServiceError>> + Send>>;

/// One thing that must work for the service to be of use.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReadinessCheck {
    /// `log`, `sealing`, `projections`, `runtime`, `reconciler`, `teardown`, `accepting`.
    pub name: &'static str,
    /// It works.
    pub ok: bool,
    /// What is wrong, in our own words.
    pub detail: Option<String>,
}

/// Whether the service can do its work now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Readiness {
    /// All checks are good.
    pub ready: bool,
    /// Each check.
    pub checks: Vec<ReadinessCheck>,
}
