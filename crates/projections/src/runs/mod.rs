//! The view of runs: which runs there are and which of them are to be closed.

pub(crate) mod fold;
pub(crate) mod queries;
pub(crate) mod table;

use events::run::RunPhase;
use events::{Epoch, Position, RunId, TenantId};

use crate::rows::Row;

/// A run as the log tells it. A run id is the client's choice: only tenant and id together name a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RunRow {
    /// Whose it is.
    pub tenant: TenantId,
    /// The run.
    pub run_id: RunId,
    /// Open, closing or closed.
    pub phase: RunPhase,
    /// The last epoch given out; 0 before the first lease.
    pub last_epoch: Epoch,
    /// Position of the last event that changed the row.
    pub position: Position,
}

impl Row for RunRow {
    type Key = (TenantId, RunId);

    fn key(&self) -> Self::Key {
        (self.tenant, self.run_id)
    }

    fn key_name(key: Self::Key) -> String {
        format!("{} of tenant {}", key.1, key.0)
    }
}
