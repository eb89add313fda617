//! The view of leases: one row per lease, live or ended.
//!
//! `state` is what is recorded. A live lease whose `expires_at` has passed is dead already, before the reconciler records it:
//! whoever decides asks the run, not this view.

pub(crate) mod fold;
pub(crate) mod queries;
pub(crate) mod table;

use std::collections::BTreeMap;

use events::run::LeasePhase;
use events::spec::Limits;
use events::{Epoch, LeaseId, Position, RunId, TenantId, Timestamp};

use crate::environments::EnvironmentRow;
use crate::rows::Row;

/// A lease as the log tells it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeaseRow {
    /// The lease.
    pub lease_id: LeaseId,
    /// Whose it is.
    pub tenant: TenantId,
    /// Of which run.
    pub run_id: RunId,
    /// Its generation.
    pub epoch: Epoch,
    /// Live, or how it ended.
    pub state: LeasePhase,
    /// Who holds it, free text of the client: escape before showing.
    pub holder: Option<String>,
    /// Egress was granted.
    pub network: bool,
    /// What its environment and commands may use.
    pub limits: Limits,
    /// Names of the tools granted.
    pub tools: Vec<String>,
    /// The client's labels: escape before showing.
    pub labels: BTreeMap<String, String>,
    /// Longest life of its environment in ms.
    pub environment_cap_ms: u64,
    /// When it was acquired.
    pub acquired_at: Timestamp,
    /// When it is dead unless renewed.
    pub expires_at: Timestamp,
    /// When its end was recorded.
    pub ended_at: Option<Timestamp>,
    /// Position of `LeaseAcquired`: the order of lists.
    pub created_position: Position,
    /// Position of the last event that changed the row.
    pub position: Position,
}

/// A lease with its newest environment: what the interface shows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lease {
    /// The lease.
    pub lease: LeaseRow,
    /// The environment requested last under it.
    pub environment: Option<EnvironmentRow>,
}

impl Lease {
    /// Position of the last event that changed what is shown: of the lease or of its environment.
    #[must_use]
    pub fn position(&self) -> Position {
        self.environment
            .as_ref()
            .map_or(self.lease.position, |environment| self.lease.position.max(environment.position))
    }
}

/// Which leases to list; `None` means any.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LeaseFilter {
    /// Of one run.
    pub run_id: Option<RunId>,
    /// In one recorded state.
    pub state: Option<LeasePhase>,
}

impl Row for LeaseRow {
    type Key = LeaseId;

    fn key(&self) -> LeaseId {
        self.lease_id
    }

    fn key_name(key: Self::Key) -> String {
        key.to_string()
    }
}
