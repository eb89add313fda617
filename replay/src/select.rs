//! Which events are meant, and places in the log as people write them.

use std::str::FromStr;

use events::stored::{Header, Recorded};
use events::{Position, RunId, TenantId, Timestamp};

use crate::error::ReplayError;

/// Whose events.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::Args)]
pub struct Owner {
    /// Only this run.
    #[arg(long, value_name = "RUN")]
    pub run: Option<RunId>,
    /// Only this tenant; a run's id is unique within its tenant only.
    #[arg(long, value_name = "TENANT")]
    pub tenant: Option<TenantId>,
}

impl Owner {
    /// Whether an event is meant.
    #[must_use]
    pub fn owns(&self, header: &Header) -> bool {
        (self.run.is_none() || header.correlation_id == self.run)
            && self.tenant.is_none_or(|tenant| header.tenant == tenant)
    }

    /// Why nothing was found in the whole log.
    #[must_use]
    pub const fn absent(&self) -> ReplayError {
        match (self.run, self.tenant) {
            (Some(run_id), _) => ReplayError::NoSuchRun { run_id },
            (None, Some(tenant)) => ReplayError::NoSuchTenant { tenant },
            (None, None) => ReplayError::Empty,
        }
    }
}

/// A place in the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// By position.
    Position(Position),
    /// By the time of recording. Order is position, never time: this place is the first event recorded at or after it.
    Time(Timestamp),
}

/// The text is no place in a log.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("neither a position nor an RFC 3339 time such as 2030-01-02T03:04:05Z")]
pub struct InvalidPlace;

impl FromStr for Place {
    type Err = InvalidPlace;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let position = position(text).map(Self::Position);
        position.or_else(|_| text.parse().map(Self::Time)).map_err(|_| InvalidPlace)
    }
}

impl Place {
    /// Whether an event is at this place or behind it.
    #[must_use]
    pub fn is_reached_by(self, recorded: &Recorded) -> bool {
        match self {
            Self::Position(position) => recorded.position >= position,
            Self::Time(time) => recorded.header.recorded_at >= time,
        }
    }
}

/// The text is no position.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not a position: a number from 0 to 2^53 - 1")]
pub struct InvalidPosition;

/// A position as people write it.
///
/// # Errors
/// When the text is none.
pub fn position(text: &str) -> Result<Position, InvalidPosition> {
    let digits = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    let number = text.parse().ok().filter(|number| digits && *number < events::bounds::POSITION_END);
    number.map(Position).ok_or(InvalidPosition)
}
