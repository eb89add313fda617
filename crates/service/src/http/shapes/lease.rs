//! Lease, its environment, and the closing of a run.

use std::collections::BTreeMap;

use events::Timestamp;
use events::spec::Limits;
use projections::EnvironmentRow;
use serde::Serialize;
use utoipa::ToSchema;
use uuid::Uuid;

use super::words;
use crate::api::{CloseAnswer, ClosedState};

words! {
    /// Recorded state of a lease. A live lease whose `expires_at` has passed is dead before that is recorded.
    LeaseState from events::run::LeasePhase {
        /// Commands may run under it.
        Live = "live",
        /// Given back by its holder, or ended by closing the run.
        Released = "released",
        /// Its end passed.
        Expired = "expired",
        /// Ended by an operator.
        Revoked = "revoked",
        /// Ended by a takeover.
        Fenced = "fenced",
    }
}

words! {
    /// Where an environment stands.
    EnvironmentState from events::run::EnvironmentPhase {
        /// Being made.
        Requested = "requested",
        /// Takes commands.
        Ready = "ready",
        /// Nothing starts in it any more.
        TearingDown = "tearing_down",
        /// Nothing of it is left.
        Destroyed = "destroyed",
        /// Could not be made; what was made is removed.
        Failed = "failed",
    }
}

/// A lease on a run.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub(in crate::http) struct Lease {
    /// The lease.
    pub lease_id: Uuid,
    /// Whose it is.
    pub tenant: Uuid,
    /// Its run.
    pub run_id: Uuid,
    /// Its generation; grows with every lease of the run.
    pub epoch: u64,
    /// Live, or how it ended.
    pub state: LeaseState,
    /// Who holds it, in the client's words.
    #[schema(required)]
    pub holder: Option<String>,
    /// Egress was granted.
    pub network: bool,
    /// When it was acquired.
    #[schema(value_type = String, format = DateTime)]
    pub acquired_at: Timestamp,
    /// When it is dead unless renewed.
    #[schema(value_type = String, format = DateTime)]
    pub expires_at: Timestamp,
    /// When its end was recorded.
    #[schema(value_type = Option<String>, format = DateTime, required)]
    pub ended_at: Option<Timestamp>,
    /// The client's own labels.
    pub labels: BTreeMap<String, String>,
    /// What its environment and commands may use.
    pub limits: LeaseLimits,
    /// Names of the tools that code under it may call.
    pub tools: Vec<String>,
    /// Its newest environment; null until the first command or file call.
    #[schema(required)]
    pub environment: Option<Environment>,
    /// Of the last event that changed any of this.
    pub position: u64,
}

/// The six limits of an environment.
#[derive(Clone, Copy, Debug, Serialize, ToSchema)]
pub(in crate::http) struct LeaseLimits {
    /// CPU time per second of wall clock, in thousandths of a core.
    pub cpu_millicores: u64,
    /// Memory, swap included.
    pub memory_bytes: u64,
    /// Processes and threads.
    pub pids_max: u64,
    /// Bytes in the workspace.
    pub workspace_bytes: u64,
    /// Files, directories and links in the workspace.
    pub inodes_max: u64,
    /// Longest time of one command.
    pub wall_clock_seconds: u64,
}

/// Sandbox and workspace of a lease.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub(in crate::http) struct Environment {
    /// The environment.
    pub environment_id: Uuid,
    /// Where it stands.
    pub state: EnvironmentState,
    /// How it is isolated: `docker`, `gvisor` or `fake`.
    pub mechanism: &'static str,
    /// The image it was made of: `sha256:` and 64 hex digits.
    pub image_digest: String,
    /// When it was requested.
    #[schema(value_type = String, format = DateTime)]
    pub created_at: Timestamp,
    /// When it is destroyed, whoever still uses it.
    #[schema(value_type = String, format = DateTime)]
    pub expires_at: Timestamp,
}

impl From<projections::Lease> for Lease {
    fn from(value: projections::Lease) -> Self {
        let position = value.position().get();
        let lease = value.lease;
        Self {
            lease_id: lease.lease_id.as_uuid(),
            tenant: lease.tenant.as_uuid(),
            run_id: lease.run_id.as_uuid(),
            epoch: lease.epoch.get(),
            state: lease.state.into(),
            holder: lease.holder,
            network: lease.network,
            acquired_at: lease.acquired_at,
            expires_at: lease.expires_at,
            ended_at: lease.ended_at,
            labels: lease.labels,
            limits: lease.limits.into(),
            tools: lease.tools,
            environment: value.environment.map(Environment::from),
            position,
        }
    }
}

impl From<Limits> for LeaseLimits {
    fn from(limits: Limits) -> Self {
        Self {
            cpu_millicores: limits.cpu_millicores,
            memory_bytes: limits.memory_bytes,
            pids_max: limits.pids_max,
            workspace_bytes: limits.workspace_bytes,
            inodes_max: limits.inodes_max,
            wall_clock_seconds: limits.wall_clock_seconds,
        }
    }
}

impl From<EnvironmentRow> for Environment {
    fn from(row: EnvironmentRow) -> Self {
        Self {
            environment_id: row.environment_id.as_uuid(),
            state: row.state.into(),
            mechanism: row.mechanism.as_str(),
            image_digest: row.image_digest.into(),
            created_at: row.created_at,
            expires_at: row.expires_at,
        }
    }
}

words! {
    /// How far the closing of a run is.
    RunCloseState from ClosedState {
        /// Commands or environments are still open.
        Closing = "closing",
        /// Complete: nothing follows.
        Closed = "closed",
    }
}

/// Answer to a close.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub(in crate::http) struct RunClosing {
    /// The run.
    pub run_id: Uuid,
    /// How far it is.
    pub state: RunCloseState,
    /// Of the run's last event.
    pub position: u64,
}

impl RunClosing {
    /// The answer about `run_id`.
    #[must_use]
    pub(in crate::http) fn new(run_id: events::RunId, answer: CloseAnswer) -> Self {
        Self { run_id: run_id.as_uuid(), state: answer.state.into(), position: answer.position.get() }
    }
}
