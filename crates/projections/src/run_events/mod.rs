//! The view of a run's events: which positions of the log belong to a run, in whatever stream they are. The events themselves
//! are read from the log.

pub(crate) mod fold;
pub(crate) mod queries;
pub(crate) mod table;

use events::event::EventType;
use events::{Position, RunId, TenantId};

use crate::rows::Row;

/// One event of a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RunEventRow {
    /// Where it is in the log.
    pub position: Position,
    /// Whose run it is.
    pub tenant: TenantId,
    /// Which run.
    pub run_id: RunId,
    /// What it is.
    pub kind: EventType,
}

/// Which events of a run to read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RunEventFilter {
    /// Only of this type.
    pub kind: Option<EventType>,
    /// Only after this position; `None` starts at the run's first event.
    pub after: Option<Position>,
}

impl Row for RunEventRow {
    type Key = Position;

    fn key(&self) -> Position {
        self.position
    }

    fn key_name(key: Self::Key) -> String {
        key.to_string()
    }
}
