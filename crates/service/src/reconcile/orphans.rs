//! Objects in the runtime that nobody owns. One is removed only when it is still unowned after everything that the log held at
//! the time of the listing is folded, when it is older than the grace, and when a last look at the log finds no owner either.

use std::time::Instant;

use event_log::{AppendRequest, Expected};
use events::event::service::{OrphanDeleted, OrphanKind};
use events::ids::derived_uuid;
use events::stored::{NewEvent, StreamName};
use events::{Event, EventId, TenantId};
use runtime_adapter::ports::ObservedObject;

use super::Reconciler;
use crate::api::ServiceError;

impl Reconciler {
    /// Removes what has no owner.
    ///
    /// # Errors
    /// When the runtime, the log or the views do not answer; the next sweep begins anew.
    pub async fn sweep_orphans(&self) -> Result<(), ServiceError> {
        if !self.owns() {
            return Err(ServiceError::Unavailable { reason_code: "node_not_owned" });
        }
        let _sweeping = self.sweeping.lock().await;
        self.record_removed().await?;
        let listed = self.parts.environments.ports().inventory.list().await?;
        // The head is read after the listing: whatever was listed had its intent on record before that.
        self.parts.reads.see_all().await?;
        let names: Vec<&str> = listed.iter().map(|object| object.name.as_str()).collect();
        self.memory().strays.retain(|name, _| names.contains(&name.as_str()));
        for object in &listed {
            if self.is_owned(object).await? || !self.is_old(object) {
                continue;
            }
            self.parts.reads.see_all().await?;
            if self.is_owned(object).await? {
                continue;
            }
            match self.parts.environments.ports().inventory.remove(object).await {
                Ok(()) => {
                    self.memory().unrecorded.push(object.clone());
                    self.record_removed().await?;
                }
                Err(error) => {
                    tracing::warn!(name = object.name, error = %error, "an orphan could not be removed");
                }
            }
        }
        Ok(())
    }

    /// An environment that is not destroyed owns its objects, also while it is torn down: its own removal takes them.
    async fn is_owned(&self, object: &ObservedObject) -> Result<bool, ServiceError> {
        let Some(environment_id) = object.environment_id else { return Ok(false) };
        if self.parts.environments.is_in_flight(environment_id) {
            return Ok(true);
        }
        let owner = self.parts.reads.views().environment(None, environment_id).await?;
        Ok(owner.is_some_and(|row| row.state.is_open()))
    }

    /// Older than the grace by its label; without one, by how long it has been seen here.
    fn is_old(&self, object: &ObservedObject) -> bool {
        let grace = self.config.orphan_grace;
        if let Some(created_at) = object.created_at {
            let age_ms = self.parts.log.clock().now().ms_since(created_at);
            return u128::from(age_ms) >= grace.as_millis();
        }
        let now = Instant::now();
        let seen_at = *self.memory().strays.entry(object.name.clone()).or_insert(now);
        now.duration_since(seen_at) >= grace
    }

    /// Records removals, each once; one that the log does not take now is tried again by the next sweep.
    async fn record_removed(&self) -> Result<(), ServiceError> {
        loop {
            let Some(object) = self.memory().unrecorded.first().cloned() else { return Ok(()) };
            self.record_orphan(&object).await?;
            self.memory().unrecorded.remove(0);
        }
    }

    async fn record_orphan(&self, object: &ObservedObject) -> Result<(), ServiceError> {
        tracing::info!(name = object.name, "an orphan was removed");
        let instance_id = self.parts.environments.identity().instance_id;
        let kind = match object.kind {
            OrphanKind::Container => "container",
            OrphanKind::Volume => "volume",
            OrphanKind::Network => "network",
            OrphanKind::Object => "object",
        };
        let event = Event::OrphanDeleted(OrphanDeleted {
            kind: object.kind,
            name: object.name.clone(),
            environment_id: object.environment_id,
        });
        let request = AppendRequest {
            stream: StreamName::service(instance_id),
            expected: Expected::Any,
            guards: Vec::new(),
            key: None,
            events: vec![NewEvent {
                event_id: EventId(derived_uuid(&[b"orphan", kind.as_bytes(), object.name.as_bytes()])),
                tenant: TenantId::SYSTEM,
                recorded_at: self.parts.log.clock().now(),
                actor: self.parts.runs.service_actor(),
                correlation_id: None,
                causation_id: None,
                event,
            }],
        };
        self.parts.log.append(request).await.map(drop).map_err(|error| {
            tracing::error!(name = object.name, error = %error, "the removal of an orphan is not recorded");
            ServiceError::Unavailable { reason_code: "log_unavailable" }
        })
    }
}
