//! The registry of stored event names. Numbers index the log (`events.type_id`), names are hashed (header `type`); neither
//! is ever changed or used again. Names of parts that come later are reserved here, so that no one takes them.

use std::fmt;

macro_rules! registry {
    ($($name:ident = $id:literal),+ $(,)?) => {
        /// Name and number of an event type.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[expect(missing_docs, reason = "each name is documented at its payload")]
        pub enum EventType { $($name),+ }

        impl EventType {
            /// Every registered type, in order of its number.
            pub const ALL: &'static [Self] = &[$(Self::$name),+];

            /// The number in `events.type_id`.
            #[must_use]
            pub const fn id(self) -> i16 {
                match self { $(Self::$name => $id),+ }
            }

            /// The name in the header.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self { $(Self::$name => stringify!($name)),+ }
            }

            /// The type of that name, if it is registered.
            #[must_use]
            pub fn from_name(name: &str) -> Option<Self> {
                match name { $(stringify!($name) => Some(Self::$name),)+ _ => None }
            }

            /// The type of that number, if it is registered.
            #[must_use]
            pub const fn from_id(id: i16) -> Option<Self> {
                match id { $($id => Some(Self::$name),)+ _ => None }
            }

            /// The schema that this version writes. A new one is written only after every reader knows it.
            #[must_use]
            pub const fn schema(self) -> u32 {
                1
            }
        }
    };
}

registry! {
    LeaseAcquired = 1,
    LeaseRenewed = 2,
    LeaseReleased = 3,
    LeaseExpired = 4,
    LeaseRevoked = 5,
    LeaseFenced = 6,
    RunCloseRequested = 7,
    RunClosed = 8,
    EnvironmentRequested = 20,
    EnvironmentProvisioned = 21,
    EnvironmentProvisionFailed = 22,
    EnvironmentAdopted = 23,
    EnvironmentTeardownRequested = 24,
    EnvironmentTeardownFailed = 25,
    EnvironmentDestroyed = 26,
    EnvironmentSuspected = 27,
    EnvironmentPooled = 28,
    CommandAccepted = 40,
    CommandStarted = 41,
    CommandKillRequested = 42,
    KillEnforced = 43,
    CommandFinished = 44,
    CommandInterrupted = 45,
    WorkspaceFileWritten = 60,
    WorkspaceFileRemoved = 61,
    BridgeSessionOpened = 70,
    BridgeCallReceived = 71,
    BridgeCallDenied = 72,
    BridgeCallHeld = 73,
    BridgeCallApproved = 74,
    BridgeCallRefused = 75,
    BridgeCallHoldTimedOut = 76,
    BridgeCallCompleted = 77,
    BridgeSessionClosed = 78,
    ArtifactCommitted = 90,
    ArtifactDeleted = 91,
    ArtifactIntegrityFailed = 92,
    RunExported = 93,
    EgressDecided = 100,
    EgressClosed = 101,
    EgressDecisionsCoalesced = 102,
    ServiceStarted = 120,
    OrphanDeleted = 121,
    ProjectionRebuilt = 122,
    ErasurePerformed = 123,
    RetentionApplied = 124,
    LogRestored = 125,
    SigningKeyRotated = 126,
    TokenIssued = 127,
    TokenRevoked = 128,
    AccessDenied = 129,
}

impl fmt::Display for EventType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
