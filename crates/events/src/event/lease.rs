//! Leases and the closing of a run.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::ids::{Epoch, LeaseId, Version};
use crate::spec::Limits;
use crate::time::Timestamp;

/// A run got a live lease of a new epoch.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LeaseAcquired {
    /// The new lease.
    pub lease_id: LeaseId,
    /// Its generation: one more than the run's last.
    pub epoch: Epoch,
    /// Free text that names the holder, bounded.
    pub holder: Option<String>,
    /// Requested life in ms.
    pub ttl_ms: u64,
    /// When the lease is dead unless renewed.
    pub expires_at: Timestamp,
    /// Longest life of the lease's environment in ms (the hard cap).
    pub environment_cap_ms: u64,
    /// What its environment and commands may use.
    pub limits: Limits,
    /// Whether egress was granted.
    pub network: bool,
    /// Names of the tools that code under the lease may call.
    pub tools: Vec<String>,
    /// The client's own labels.
    pub labels: BTreeMap<String, String>,
}

/// A live lease lives longer (or shorter) than before.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LeaseRenewed {
    /// The lease.
    pub lease_id: LeaseId,
    /// Its generation.
    pub epoch: Epoch,
    /// Requested life from now in ms.
    pub ttl_ms: u64,
    /// The new end.
    pub expires_at: Timestamp,
}

/// The holder gave the lease back.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LeaseReleased {
    /// The lease.
    pub lease_id: LeaseId,
    /// Its generation.
    pub epoch: Epoch,
}

/// The log clock passed the lease's end; recorded by the reconciler, true since `expires_at`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LeaseExpired {
    /// The lease.
    pub lease_id: LeaseId,
    /// Its generation.
    pub epoch: Epoch,
    /// The end that was passed.
    pub expires_at: Timestamp,
}

/// An operator ended the lease.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LeaseRevoked {
    /// The lease.
    pub lease_id: LeaseId,
    /// Its generation.
    pub epoch: Epoch,
    /// Why, in the operator's words, bounded.
    pub reason: Option<String>,
}

/// A takeover ended the lease in the append that created its successor.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LeaseFenced {
    /// The lease that ended.
    pub lease_id: LeaseId,
    /// Its generation.
    pub epoch: Epoch,
    /// The generation that took over.
    pub by_epoch: Epoch,
}

/// No lease may follow; the live one ends now.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RunCloseRequested {}

/// Every command has an outcome and every environment is destroyed: the run's history is complete.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RunClosed {
    /// The last generation of the run.
    pub last_epoch: Epoch,
    /// How many commands the run had.
    pub commands: u64,
    /// How many environments the run had.
    pub environments: u64,
    /// Final version and leaf of every stream that belongs to the run.
    pub children: Vec<ChildStream>,
}

/// The end of a stream that belongs to a run, so that a bundle can prove it complete.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ChildStream {
    /// `category/key`.
    pub stream: String,
    /// Its last version.
    pub version: Version,
    /// Its last leaf, lower-case hex.
    pub leaf: String,
}
