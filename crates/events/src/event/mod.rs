//! Every event that this version writes: one variant, one payload, one stored name.
//!
//! A payload is the event's body and nothing else: tenant, stream, time, actor and type live in the header. Names are never
//! changed once they have landed; [`kind::EventType`] also reserves the names of parts that come later.

pub mod command;
pub mod environment;
pub mod kind;
pub mod lease;
pub mod service;
pub mod workspace;

pub use kind::EventType;

macro_rules! events {
    ($($variant:ident($payload:path)),+ $(,)?) => {
        /// One fact, past tense. Exhaustive on purpose: a new event does not compile until every reader has met it.
        #[derive(Clone, Debug, PartialEq, Eq)]
        pub enum Event {
            $(#[doc = concat!("See [`", stringify!($payload), "`].")] $variant($payload)),+
        }

        impl Event {
            /// The types that have a payload in this version; the other registered names are reserved.
            pub const TYPES: &'static [EventType] = &[$(EventType::$variant),+];

            /// The stored name and number of this event.
            #[must_use]
            pub const fn event_type(&self) -> EventType {
                match self { $(Self::$variant(_) => EventType::$variant),+ }
            }

            /// The body as a JSON value, to be written canonically.
            pub(crate) fn body_value(&self) -> Result<serde_json::Value, serde_json::Error> {
                match self { $(Self::$variant(payload) => serde_json::to_value(payload)),+ }
            }

            /// Reads a body of the given type; `None` when this version knows the name but not yet a payload for it.
            pub fn from_body(kind: EventType, body: &[u8]) -> Option<Result<Self, serde_json::Error>> {
                match kind {
                    $(EventType::$variant => Some(serde_json::from_slice(body).map(Self::$variant)),)+
                    _ => None,
                }
            }
        }
    };
}

events! {
    LeaseAcquired(lease::LeaseAcquired),
    LeaseRenewed(lease::LeaseRenewed),
    LeaseReleased(lease::LeaseReleased),
    LeaseExpired(lease::LeaseExpired),
    LeaseRevoked(lease::LeaseRevoked),
    LeaseFenced(lease::LeaseFenced),
    RunCloseRequested(lease::RunCloseRequested),
    RunClosed(lease::RunClosed),
    EnvironmentRequested(environment::EnvironmentRequested),
    EnvironmentProvisioned(environment::EnvironmentProvisioned),
    EnvironmentProvisionFailed(environment::EnvironmentProvisionFailed),
    EnvironmentAdopted(environment::EnvironmentAdopted),
    EnvironmentTeardownRequested(environment::EnvironmentTeardownRequested),
    EnvironmentTeardownFailed(environment::EnvironmentTeardownFailed),
    EnvironmentDestroyed(environment::EnvironmentDestroyed),
    EnvironmentSuspected(environment::EnvironmentSuspected),
    CommandAccepted(command::CommandAccepted),
    CommandStarted(command::CommandStarted),
    CommandKillRequested(command::CommandKillRequested),
    KillEnforced(command::KillEnforced),
    CommandFinished(command::CommandFinished),
    CommandInterrupted(command::CommandInterrupted),
    WorkspaceFileWritten(workspace::WorkspaceFileWritten),
    WorkspaceFileRemoved(workspace::WorkspaceFileRemoved),
    ServiceStarted(service::ServiceStarted),
    OrphanDeleted(service::OrphanDeleted),
}
