//! The view of environments: what should exist in a runtime. The reconciler reads its desired state here.

pub(crate) mod fold;
pub(crate) mod queries;
pub(crate) mod table;

use events::event::environment::TeardownCause;
use events::run::{EnvironmentPhase, LeasePhase};
use events::spec::{ImageDigest, Limits, Mechanism};
use events::{EnvironmentId, Epoch, InstanceId, LeaseId, NodeId, Position, RunId, TenantId, Timestamp};

use crate::rows::Row;

/// An environment as the log tells it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EnvironmentRow {
    /// The environment.
    pub environment_id: EnvironmentId,
    /// Whose it is.
    pub tenant: TenantId,
    /// Of which run.
    pub run_id: RunId,
    /// Of which lease.
    pub lease_id: LeaseId,
    /// The lease's generation.
    pub epoch: Epoch,
    /// Where it runs.
    pub node_id: NodeId,
    /// How it is isolated.
    pub mechanism: Mechanism,
    /// The image, by engine id.
    pub image_digest: ImageDigest,
    /// What it may use.
    pub limits: Limits,
    /// Digest of its egress policy; `None` means no network.
    pub policy_digest: Option<String>,
    /// Where it stands.
    pub state: EnvironmentPhase,
    /// Why it is torn down, once that was asked for.
    pub teardown_cause: Option<TeardownCause>,
    /// Failed attempts at removal.
    pub teardown_attempts: u32,
    /// Stable code of the last failure (provisioning, teardown or suspicion).
    pub reason_code: Option<String>,
    /// The instance that adopted it last.
    pub adopted_by: Option<InstanceId>,
    /// When it was requested.
    pub created_at: Timestamp,
    /// The hard cap.
    pub expires_at: Timestamp,
    /// When it became ready.
    pub ready_at: Option<Timestamp>,
    /// When nothing of it was left.
    pub destroyed_at: Option<Timestamp>,
    /// Position of `EnvironmentRequested`: the order of lists.
    pub created_position: Position,
    /// Position of the last event that changed the row.
    pub position: Position,
}

/// An environment of which something may exist in the runtime, with what decides whether it may stay.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OpenEnvironment {
    /// The environment.
    pub environment: EnvironmentRow,
    /// Recorded state of its lease.
    pub lease_state: LeasePhase,
    /// When its lease is dead unless renewed.
    pub lease_expires_at: Timestamp,
}

impl OpenEnvironment {
    /// Its lease lives, its own cap has not passed and nobody asked for its teardown.
    #[must_use]
    pub fn is_wanted(&self, now: Timestamp) -> bool {
        self.lease_state == LeasePhase::Live
            && now < self.lease_expires_at
            && now < self.environment.expires_at
            && matches!(self.environment.state, EnvironmentPhase::Requested | EnvironmentPhase::Ready)
    }
}

impl Row for EnvironmentRow {
    type Key = EnvironmentId;

    fn key(&self) -> EnvironmentId {
        self.environment_id
    }

    fn key_name(key: Self::Key) -> String {
        key.to_string()
    }
}
