//! Appending: what callers ask for, and the way of a request through this module.
//!
//! ```text
//!   prepare   in the caller's task: bounds, canonical bodies, salts, proof that each event reads back as itself
//!   appender  one task per process: takes what is queued (zero linger), one batch at a time
//!   chain     fills version and previous leaf of every header from the known tips, request by request, and hashes
//!   call      one call of the append function per batch; one answer per request
//! ```
//! A dropped caller cancels nothing: once queued, a request is answered to whoever still listens.

mod appender;
mod call;
mod chain;
mod prepare;
mod recover;
mod template;
mod tips;

use events::stored::{NewEvent, StreamName, ZERO_LEAF};
use events::{Position, TenantId, Version};

pub(crate) use appender::{Appender, AppenderHandle};
pub(crate) use prepare::prepare;

/// The end of a stream: the version of its last event and that event's leaf.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tip {
    /// Version of the last event, from 1.
    pub version: Version,
    /// Its leaf hash.
    pub leaf: [u8; 32],
}

impl Tip {
    /// What a stream without events is chained to.
    pub(crate) const NONE: Self = Self { version: Version(0), leaf: ZERO_LEAF };

    /// `None` for a stream without events.
    pub(crate) fn existing(self) -> Option<Self> {
        (self.version.get() > 0).then_some(self)
    }
}

/// What must hold of the stream for the append to happen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Expected {
    /// It ends with exactly this event.
    Exact(Tip),
    /// It does not exist.
    None,
    /// Nothing.
    Any,
}

/// An idempotency key; its scope is the tenant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RequestKey {
    /// Whose key.
    pub tenant: TenantId,
    /// The key as the client gave it, at most 255 bytes.
    pub key: String,
    /// What the request was: SHA-256 over method, path and canonical body.
    pub digest: [u8; 32],
}

/// Events for one stream, all or nothing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AppendRequest {
    /// Where they go.
    pub stream: StreamName,
    /// What must hold of that stream.
    pub expected: Expected,
    /// Other streams that must still end where the caller saw them end.
    pub guards: Vec<(StreamName, Tip)>,
    /// Makes a repeat answer what the first append did.
    pub key: Option<RequestKey>,
    /// At least one, at most [`REQUEST_EVENTS_MAX`].
    pub events: Vec<NewEvent>,
}

/// Most events in one request, and in one batch.
pub const REQUEST_EVENTS_MAX: usize = 512;
/// Most bytes (headers and bodies) in one request, and in one batch.
pub const REQUEST_BYTES_MAX: usize = 4 << 20;

/// The events are durable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Appended {
    /// Position of the request's first event.
    pub first_position: Position,
    /// Position of its last.
    pub last_position: Position,
    /// The stream's end right after it.
    pub tip: Tip,
    /// The key had been used before for the same request: the positions are those of then, and nothing was written now.
    pub duplicate: bool,
}
