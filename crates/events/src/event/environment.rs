//! The life of an environment: intent, provision, adoption, teardown.

use serde::{Deserialize, Serialize};

use super::lease::ChildStream;
use crate::ids::{EnvironmentId, Epoch, InstanceId, LeaseId, NodeId};
use crate::spec::{ImageDigest, Limits, Mechanism};
use crate::time::Timestamp;

/// Intent, recorded before the first container exists: whatever happens next has an owner.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct EnvironmentRequested {
    /// The environment.
    pub environment_id: EnvironmentId,
    /// Its lease.
    pub lease_id: LeaseId,
    /// The lease's generation.
    pub epoch: Epoch,
    /// Where it will run.
    pub node_id: NodeId,
    /// How it is isolated.
    pub mechanism: Mechanism,
    /// The image, by engine id.
    pub image_digest: ImageDigest,
    /// What it may use.
    pub limits: Limits,
    /// Digest of the egress policy; `None` means no network.
    pub policy_digest: Option<String>,
    /// The pooled environment it was claimed from.
    pub from_pool: Option<EnvironmentId>,
    /// The hard cap: it is destroyed then, whoever still uses it.
    pub expires_at: Timestamp,
}

/// Ready for commands.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct EnvironmentProvisioned {
    /// The environment.
    pub environment_id: EnvironmentId,
    /// Time from intent to ready in ms.
    pub duration_ms: u64,
}

/// It could not be made; the next call of the lease asks for a new one.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct EnvironmentProvisionFailed {
    /// The environment.
    pub environment_id: EnvironmentId,
    /// Stable code of the failure; never the runtime's own text.
    pub reason_code: String,
}

/// After a restart: the sandbox was stopped and started, its workspace survived.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct EnvironmentAdopted {
    /// The environment.
    pub environment_id: EnvironmentId,
    /// The service instance that took it over.
    pub instance_id: InstanceId,
}

/// Why an environment is torn down.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TeardownCause {
    /// The lease was released.
    Released,
    /// The lease, or the environment's hard cap, expired.
    Expired,
    /// The lease was revoked.
    Revoked,
    /// A later epoch took over.
    Fenced,
    /// The run was closed.
    Closed,
    /// An invariant of its isolation broke.
    Suspected,
    /// Provisioning failed; whatever was made must go.
    ProvisionFailed,
    /// Its containers were found dead or gone.
    Lost,
    /// The service stopped and releases what it owns.
    ServiceShutdown,
}

/// Nothing may start in it any more; the reconciler removes it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct EnvironmentTeardownRequested {
    /// The environment.
    pub environment_id: EnvironmentId,
    /// Why.
    pub cause: TeardownCause,
}

/// One attempt to remove it failed; the next pass tries again.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct EnvironmentTeardownFailed {
    /// The environment.
    pub environment_id: EnvironmentId,
    /// Which attempt it was, from 1.
    pub attempt: u32,
    /// Stable code of the failure.
    pub reason_code: String,
}

/// Containers, volume and network are gone.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct EnvironmentDestroyed {
    /// The environment.
    pub environment_id: EnvironmentId,
    /// The end of its egress stream, when it had one.
    pub egress: Option<ChildStream>,
}

/// An invariant of its isolation broke (for example a malformed frame from inside); it is torn down.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct EnvironmentSuspected {
    /// The environment.
    pub environment_id: EnvironmentId,
    /// Stable code of what broke.
    pub reason_code: String,
}
