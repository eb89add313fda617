//! Identifiers as newtypes, so that a lease id can never be passed where a command id is meant.
//!
//! Ids that we make are UUIDv7 (time ordered); ids made under an idempotency key are UUIDv8 derived from
//! (tenant, key, kind), so that a retry names the same object.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use uuid::Uuid;

macro_rules! uuid_id {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[serde(transparent)]
        pub struct $name(pub Uuid);

        impl $name {
            /// The underlying UUID.
            #[must_use]
            pub const fn as_uuid(self) -> Uuid {
                self.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(f)
            }
        }

        impl FromStr for $name {
            type Err = uuid::Error;

            fn from_str(text: &str) -> Result<Self, Self::Err> {
                Uuid::parse_str(text).map(Self)
            }
        }

        impl From<Uuid> for $name {
            fn from(value: Uuid) -> Self {
                Self(value)
            }
        }
    };
}

uuid_id!(
    /// Who pays and owns. Every object belongs to exactly one tenant.
    TenantId
);
uuid_id!(
    /// A run, chosen by the client; the unit of history and of proof.
    RunId
);
uuid_id!(
    /// A lease on a run; holds an epoch.
    LeaseId
);
uuid_id!(
    /// Sandbox, workspace and network of one lease.
    EnvironmentId
);
uuid_id!(
    /// One command executed in an environment.
    CommandId
);
uuid_id!(
    /// One event in the log.
    EventId
);
uuid_id!(
    /// The process that owns a container runtime.
    NodeId
);
uuid_id!(
    /// One life of a service process, from start to exit.
    InstanceId
);
uuid_id!(
    /// One log; never shared by two databases.
    LogId
);

impl TenantId {
    /// The tenant of events that belong to the service itself (stream category `service`).
    pub const SYSTEM: Self = Self(Uuid::nil());
}

/// A UUIDv8 (RFC 9562) from the first 16 bytes of SHA-256 over the length-prefixed parts: the same parts always name the
/// same object, and shifting a boundary between parts changes the name.
#[must_use]
pub fn derived_uuid(parts: &[&[u8]]) -> Uuid {
    let mut hasher = Sha256::new();
    for part in parts {
        hasher.update((part.len() as u64).to_be_bytes());
        hasher.update(part);
    }
    let digest = hasher.finalize();
    let mut bytes = [0_u8; 16];
    bytes.copy_from_slice(&digest[..16]);
    Uuid::new_v8(bytes)
}

macro_rules! counter {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(
            Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
        )]
        #[serde(transparent)]
        pub struct $name(pub u64);

        impl $name {
            /// The number itself.
            #[must_use]
            pub const fn get(self) -> u64 {
                self.0
            }

            /// The number that follows.
            #[must_use]
            pub const fn next(self) -> Self {
                Self(self.0.saturating_add(1))
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(f)
            }
        }
    };
}

counter!(
    /// Index of an event in the whole log; starts at 0, stays below 2^53, has no gap.
    Position
);
counter!(
    /// Index of an event in its stream; starts at 1. 0 stands for "no event yet".
    Version
);
counter!(
    /// Generation of a run's lease; starts at 1 and only grows. A lower epoch than the live one is dead.
    Epoch
);
