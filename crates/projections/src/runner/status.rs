//! What a runner tells about itself.

use std::fmt;

use events::Position;

/// Where a runner stands. Positions are the next one to be applied.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RunnerStatus {
    /// Not connected yet.
    Starting,
    /// It owns the views and has not reached the head it knows of. Checkpoints on the way change nothing about that.
    CatchingUp {
        /// Applied up to here.
        position: Position,
        /// The log's next position, as known.
        head: Position,
    },
    /// It owns the views, and they show all it knows of.
    Live {
        /// Applied up to here.
        position: Position,
    },
    /// Another runner owns the views; this one reports how far they are and takes over when the other is gone.
    Following {
        /// Applied up to here by the other.
        position: Position,
    },
    /// The database is away; it tries again.
    Unavailable {
        /// What was met, without values.
        detail: String,
    },
    /// It stopped for good: going on would make the views wrong.
    Stopped {
        /// Applied up to here.
        position: Position,
        /// Why.
        reason: StopReason,
    },
}

/// Why a runner stops for good; a person has to look.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StopReason {
    /// An event that this version cannot read.
    Undecodable {
        /// Where it is.
        position: Position,
        /// What is wrong with it.
        detail: String,
    },
    /// A position is missing: the log is corrupt.
    Gap {
        /// The position that should follow.
        expected: Position,
    },
    /// The last applied event is another one than the log holds now, or the log ends before it: the database was restored or
    /// rolled back.
    OtherHistory {
        /// The last applied event.
        position: Position,
    },
    /// The views were made from another epoch of the log: it was restored since.
    OtherEpoch {
        /// Of the views.
        views: i32,
        /// Of the log.
        log: i32,
    },
    /// A row of the views cannot be read or written.
    Row {
        /// What is wrong with it.
        detail: String,
    },
}

impl RunnerStatus {
    /// The views are served and move on.
    #[must_use]
    pub const fn is_serving(&self) -> bool {
        matches!(self, Self::Live { .. } | Self::Following { .. } | Self::CatchingUp { .. })
    }
}

impl fmt::Display for RunnerStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Starting => f.write_str("starting"),
            Self::CatchingUp { position, head } => write!(f, "catching up at position {position} of {head}"),
            Self::Live { position } => write!(f, "live at position {position}"),
            Self::Following { position } => {
                write!(f, "another instance keeps the views, at position {position}")
            }
            Self::Unavailable { detail } => write!(f, "the database is away: {detail}"),
            Self::Stopped { position, reason } => write!(f, "stopped at position {position}: {reason}"),
        }
    }
}

impl fmt::Display for StopReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Undecodable { position, detail } => {
                write!(f, "the event at position {position} cannot be read: {detail}")
            }
            Self::Gap { expected } => write!(f, "the log has no event at position {expected}"),
            Self::OtherHistory { position } => write!(
                f,
                "the log does not hold the event that was applied at position {position}; the database was restored or \
                 rolled back"
            ),
            Self::OtherEpoch { views, log } => {
                write!(f, "the views were made in epoch {views}, the log is in epoch {log}")
            }
            Self::Row { detail } => write!(f, "a row is not as it must be: {detail}"),
        }
    }
}

/// How far the views are behind the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lag {
    /// Events that are known and not applied.
    pub events: u64,
    /// Age of the last applied event in ms while something is missing, else 0.
    pub ms: u64,
}
