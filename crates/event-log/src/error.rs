//! What can go wrong, sorted by what the caller can do about it.

use events::stored::{DecodeError, EncodeError};
use events::{Position, Version};
use tokio_postgres::error::SqlState;

use crate::append::Tip;

/// A read failed, or the log could not be opened.
#[derive(Debug, thiserror::Error)]
pub enum LogError {
    /// The database cannot be reached or is busy; trying again later can succeed.
    #[error("the log's database is not available")]
    Unavailable(#[source] Box<dyn std::error::Error + Send + Sync>),
    /// The database refuses: wrong rights, missing schema, malformed address.
    #[error("the log's database refused")]
    Refused(#[source] Box<dyn std::error::Error + Send + Sync>),
    /// The log was written by a newer version that this one cannot read.
    #[error("the log needs a reader of version {needed}, this one is version {ours}")]
    TooOld {
        /// `log_meta.min_reader`.
        needed: i32,
        /// What this program reads.
        ours: i32,
    },
    /// A position is missing: the log is damaged, reading on would skip events.
    #[error("the log has no event at position {expected} (the next one is {found})")]
    Gap {
        /// The missing position.
        expected: Position,
        /// The next one that is there.
        found: Position,
    },
    /// A version of a stream is missing: the log is damaged.
    #[error("the stream has no version {expected} (the next one is {found})")]
    StreamGap {
        /// The missing version.
        expected: Version,
        /// The next one that is there.
        found: Version,
    },
    /// An event is not what this version can read.
    #[error("the event at position {position} cannot be read")]
    Undecodable {
        /// Where.
        position: Position,
        /// Why.
        source: DecodeError,
    },
}

impl LogError {
    /// Whether the same call may succeed later.
    #[must_use]
    pub const fn is_retryable(&self) -> bool {
        matches!(self, Self::Unavailable(_))
    }
}

impl From<tokio_postgres::Error> for LogError {
    fn from(error: tokio_postgres::Error) -> Self {
        let fault = Fault::of(&error);
        // The server's DETAIL can quote rows: only its code and message may reach a log line.
        let cause = match error.as_db_error() {
            Some(db) => format!("{}: {}", db.code().code(), db.message()).into(),
            None => error.into(),
        };
        match fault {
            Fault::Refused => Self::Refused(cause),
            Fault::Lost | Fault::Transient => Self::Unavailable(cause),
        }
    }
}

impl From<tokio::time::error::Elapsed> for LogError {
    fn from(elapsed: tokio::time::error::Elapsed) -> Self {
        Self::Unavailable(elapsed.into())
    }
}

impl From<deadpool_postgres::PoolError> for LogError {
    fn from(error: deadpool_postgres::PoolError) -> Self {
        match error {
            deadpool_postgres::PoolError::Backend(error) => error.into(),
            other => Self::Unavailable(other.into()),
        }
    }
}

/// An append did not happen, or may not have happened.
#[derive(Debug, thiserror::Error)]
pub enum AppendError {
    /// The stream, or a guarded one, is not at the expected tip. Read, decide again.
    #[error("the stream is not at the expected tip")]
    Conflict {
        /// Where the request's own stream is; `None` when it does not exist.
        tip: Option<Tip>,
    },
    /// The idempotency key was used for another request.
    #[error("the idempotency key was used for another request")]
    KeyReused,
    /// Over the log's bounds; refused before it was queued.
    #[error("the request takes {bytes} bytes or events, at most {max} fit")]
    TooLarge {
        /// Size of the event in bytes, or of the request in events or bytes.
        bytes: usize,
        /// The bound that it passed.
        max: usize,
    },
    /// An event cannot be written, or would not be read back as it is.
    #[error("an event cannot be written")]
    Encode(#[from] EncodeError),
    /// An event would not be read back as what it is: writing it would stop every consumer.
    #[error("an event would not be read back as it was written")]
    NotReadable,
    /// The database cannot take it now. Trying again can succeed.
    #[error("the log cannot take events now")]
    Unavailable {
        /// The connection was lost while the append ran and it could not be found out whether it was committed. Otherwise
        /// nothing was written.
        outcome_unknown: bool,
    },
    /// The request is malformed or the database refuses it; trying again is of no use. Nothing was written.
    #[error("the log refuses the request: {reason}")]
    Refused {
        /// For the operator's log, not for clients.
        reason: String,
    },
}

impl AppendError {
    /// Whether the same call may succeed later.
    #[must_use]
    pub const fn is_retryable(&self) -> bool {
        matches!(self, Self::Unavailable { .. })
    }
}

/// What an error of the driver means for the statement that met it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    /// The session is gone; whether the statement was committed is not known.
    Lost,
    /// Not committed; the same statement may succeed later.
    Transient,
    /// Not committed, and the same statement fails again.
    Refused,
}

impl Fault {
    pub(crate) fn of(error: &tokio_postgres::Error) -> Self {
        let Some(state) = error.code() else {
            // No answer from the server. Anything else is a value of ours that was never sent.
            let socket =
                std::error::Error::source(error).is_some_and(<dyn std::error::Error>::is::<std::io::Error>);
            return if socket || error.is_closed() { Self::Lost } else { Self::Refused };
        };
        match *state {
            // An administrator ended the session or the server stops: the commit may have gone through before.
            SqlState::ADMIN_SHUTDOWN
            | SqlState::CRASH_SHUTDOWN
            | SqlState::CANNOT_CONNECT_NOW
            | SqlState::IDLE_SESSION_TIMEOUT => Self::Lost,
            // Serialisation, deadlock, lock timeout, cancelled by the statement's time limit, a read-only standby.
            SqlState::T_R_SERIALIZATION_FAILURE
            | SqlState::T_R_DEADLOCK_DETECTED
            | SqlState::LOCK_NOT_AVAILABLE
            | SqlState::QUERY_CANCELED
            | SqlState::UNIQUE_VIOLATION
            | SqlState::READ_ONLY_SQL_TRANSACTION => Self::Transient,
            _ => match state.code().get(..2) {
                // Connection exceptions; then resources: disk full, out of memory, too many connections.
                Some("08") => Self::Lost,
                Some("53" | "57" | "58") => Self::Transient,
                _ => Self::Refused,
            },
        }
    }
}
