//! Making an environment, or taking one over: intent first, then the runtime, then what came of it.

use std::sync::Arc;
use std::time::{Duration, Instant};

use events::event::environment::{EnvironmentRequested, TeardownCause};
use events::run::{EnvironmentPhase, RequestEnvironment, RunCommand};
use events::{EnvironmentId, Event, LeaseId};
use runtime_adapter::ports::{EnvironmentSpec, PortError};
use uuid::Uuid;

use super::{Environment, Environments, Made};
use crate::api::ServiceError;
use crate::runs::{RunRef, Submitted};

/// How much longer than its budget a provision is waited for.
const PROVISION_SLACK: Duration = Duration::from_secs(5);
/// Longest time to take over an environment.
const ADOPTION_MAX: Duration = Duration::from_secs(60);

impl Environments {
    /// Provisions a new environment for a lease.
    pub(super) async fn provision(&self, run: RunRef, lease_id: LeaseId) -> Made {
        let started = Instant::now();
        let environment_id = EnvironmentId(Uuid::now_v7());
        let flight = InFlight::new(self, environment_id);
        let requested = self.request(run, lease_id, environment_id).await?;
        self.shared.crash.reach("after_intent");

        let spec = self.spec(run, &requested);
        let provision = self.shared.ports.execution.provision(spec);
        // The adapter keeps the budget and cleans up by itself; this ends the wait for one that does not.
        let limit = self.shared.identity.provision_budget + PROVISION_SLACK;
        let provisioned = tokio::time::timeout(limit, provision)
            .await
            .unwrap_or(Err(PortError::Unavailable { code: "provision_timeout", effect_possible: true }));
        let handle = match provisioned {
            Ok(handle) => handle,
            Err(error) => {
                tracing::warn!(%environment_id, error = %error, "an environment could not be made");
                let reason_code = reason_code(&error).to_owned();
                let failed =
                    RunCommand::RecordProvisionFailed { environment_id, reason_code: reason_code.clone() };
                self.shared.runs.record(run, &failed).await?;
                drop(flight);
                self.shared.wake.now();
                return Err(ServiceError::EnvironmentUnavailable { reason_code });
            }
        };
        let duration_ms = u64::try_from(started.elapsed().as_millis()).unwrap_or(u64::MAX);
        self.shared.runs.record(run, &RunCommand::RecordProvisioned { environment_id, duration_ms }).await?;
        let environment = self.insert(handle, run, lease_id);
        drop(flight);
        self.usable(environment).await
    }

    async fn request(
        &self,
        run: RunRef,
        lease_id: LeaseId,
        environment_id: EnvironmentId,
    ) -> Result<EnvironmentRequested, ServiceError> {
        let identity = &self.shared.identity;
        let command = RunCommand::RequestEnvironment(RequestEnvironment {
            environment_id,
            lease_id,
            node_id: identity.node_id,
            mechanism: identity.mechanism,
            image_digest: identity.image_digest.clone(),
        });
        let actor = self.shared.runs.service_actor();
        let Submitted::Appended { events, .. } = self.shared.runs.submit(run, &actor, None, &command).await?
        else {
            return Err(ServiceError::Conflict);
        };
        events
            .into_iter()
            .find_map(|event| match event {
                Event::EnvironmentRequested(requested) => Some(requested),
                _ => None,
            })
            .ok_or(ServiceError::Internal)
    }

    /// Takes over an environment of an earlier process.
    pub(super) async fn adopt(&self, run: RunRef, lease_id: LeaseId, environment_id: EnvironmentId) -> Made {
        let flight = InFlight::new(self, environment_id);
        // Whoever waited for an earlier adoption may come here with what it knew before.
        if let Some(environment) = self.get(environment_id) {
            return Ok(environment);
        }
        let requested = self
            .shared
            .runs
            .look(run, |state, _| {
                state.environments.get(&environment_id).map(|known| known.requested.clone())
            })
            .await?
            .ok_or(ServiceError::Internal)?;
        let spec = self.spec(run, &requested);
        // Without an end of its own it could hold up the environment's teardown.
        let adopted = tokio::time::timeout(ADOPTION_MAX, self.shared.ports.execution.adopt(spec))
            .await
            .unwrap_or(Err(PortError::Unavailable { code: "adoption_timeout", effect_possible: true }));
        match adopted {
            Ok(handle) => {
                let instance_id = self.shared.identity.instance_id;
                let adopted = RunCommand::RecordAdopted { environment_id, instance_id };
                let recorded = self.shared.runs.record(run, &adopted).await;
                // Also when its lease ended meanwhile: whoever destroys it must know that it is here.
                let environment = self.insert(handle, run, lease_id);
                drop(flight);
                recorded?;
                self.usable(environment).await
            }
            Err(error @ PortError::Unavailable { .. }) => {
                let reason_code = reason_code(&error).to_owned();
                Err(ServiceError::EnvironmentUnavailable { reason_code })
            }
            Err(error) => {
                tracing::warn!(%environment_id, error = %error, "an environment could not be taken over");
                drop(flight);
                self.lost(run, environment_id, &error).await?;
                Err(ServiceError::EnvironmentLost)
            }
        }
    }

    /// Records that an environment cannot be used any more; the reconciler removes what is left of it.
    pub(crate) async fn lost(
        &self,
        run: RunRef,
        environment_id: EnvironmentId,
        error: &PortError,
    ) -> Result<(), ServiceError> {
        let command = match error {
            PortError::EscapeSuspected { code } => {
                tracing::error!(%environment_id, code, "the isolation of an environment is in doubt");
                RunCommand::RecordSuspected { environment_id, reason_code: (*code).to_owned() }
            }
            PortError::Lost { .. } | PortError::Rejected { .. } | PortError::Unavailable { .. } => {
                RunCommand::RequestTeardown { environment_id, cause: TeardownCause::Lost }
            }
        };
        self.shared.runs.record(run, &command).await?;
        self.shared.wake.now();
        Ok(())
    }

    /// The environment may have lost its lease while it was made; then the reconciler takes it from here.
    async fn usable(&self, environment: Arc<Environment>) -> Made {
        let (environment_id, lease_id) = (environment.handle.environment_id, environment.lease_id);
        let usable = self
            .shared
            .runs
            .look(environment.run, |state, now| {
                state.leases.get(&lease_id).is_some_and(|lease| lease.is_live(now))
                    && state
                        .environments
                        .get(&environment_id)
                        .is_some_and(|known| known.phase == EnvironmentPhase::Ready)
            })
            .await?;
        if usable {
            Ok(environment)
        } else {
            self.shared.wake.now();
            Err(ServiceError::LeaseLost)
        }
    }

    fn spec(&self, run: RunRef, requested: &EnvironmentRequested) -> EnvironmentSpec {
        EnvironmentSpec {
            environment_id: requested.environment_id,
            tenant: run.tenant,
            run_id: run.run_id,
            epoch: requested.epoch,
            image_digest: requested.image_digest.clone(),
            limits: requested.limits,
            expires_at: requested.expires_at,
            files_changed_max: self.shared.identity.files_changed_max,
        }
    }
}

/// The stable code of a failure.
pub(crate) fn reason_code(error: &PortError) -> &'static str {
    match error {
        PortError::Unavailable { code, .. }
        | PortError::Rejected { code }
        | PortError::EscapeSuspected { code } => code,
        PortError::Lost { cause } => cause.as_str(),
    }
}

/// Marks an environment as being made.
struct InFlight {
    environments: Environments,
    environment_id: EnvironmentId,
}

impl InFlight {
    fn new(environments: &Environments, environment_id: EnvironmentId) -> Self {
        environments.lock().in_flight.insert(environment_id);
        Self { environments: environments.clone(), environment_id }
    }
}

impl Drop for InFlight {
    fn drop(&mut self) {
        self.environments.lock().in_flight.remove(&self.environment_id);
    }
}
