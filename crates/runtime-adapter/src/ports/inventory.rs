//! What exists in the runtime, whoever made it.

use async_trait::async_trait;
use events::event::service::OrphanKind;
use events::ids::EnvironmentId;
use events::time::Timestamp;

use super::error::PortError;

/// One object with our labels and our log id.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ObservedObject {
    /// What it is.
    pub kind: OrphanKind,
    /// Our own name of it (`leasehold-…`).
    pub name: String,
    /// The environment that its labels name.
    pub environment_id: Option<EnvironmentId>,
    /// When it was made, from its label; `None` when it carries none (it is still reaped).
    pub created_at: Option<Timestamp>,
    /// When it must be gone, from its label.
    pub hard_deadline: Option<Timestamp>,
    /// A container that is running now.
    pub running: bool,
}

/// The runtime's objects of this log. Objects of another log belong to nobody and are not listed.
#[async_trait]
pub trait Inventory: Send + Sync {
    /// Everything that exists now.
    async fn list(&self) -> Result<Vec<ObservedObject>, PortError>;

    /// Removes one object; gone is success.
    async fn remove(&self, object: &ObservedObject) -> Result<(), PortError>;
}
