//! Facts about the service itself (stream `service/{instance}`, tenant [`crate::TenantId::SYSTEM`]).

use serde::{Deserialize, Serialize};

use crate::ids::{EnvironmentId, InstanceId, NodeId};
use crate::spec::{ImageDigest, Mechanism};

/// Composition is complete: what this instance is and what it runs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ServiceStarted {
    /// This life of the service.
    pub instance_id: InstanceId,
    /// The node whose runtime it uses.
    pub node_id: NodeId,
    /// Version of the program.
    pub version: String,
    /// How environments are isolated.
    pub mechanism: Mechanism,
    /// The execution image the configured reference was resolved to; `None` with the fake.
    pub image_digest: Option<ImageDigest>,
}

/// Kinds of object that can be left behind.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[expect(missing_docs, reason = "the names say it")]
pub enum OrphanKind {
    Container,
    Volume,
    Network,
    Object,
}

/// Something without an owner was removed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct OrphanDeleted {
    /// What it was.
    pub kind: OrphanKind,
    /// Our own name of it (`leasehold-…`).
    pub name: String,
    /// The environment its labels named, if they named one.
    pub environment_id: Option<EnvironmentId>,
}
