//! One pass over leases, environments, commands and closing runs.

use std::time::{Duration, Instant};

use events::event::command::InterruptCause;
use events::run::{EnvironmentPhase, LeaseEnd, LeaseEndCause, RunCommand};
use events::{EnvironmentId, Timestamp};
use projections::OpenEnvironment;

use super::Reconciler;
use super::plan::{self, Local, Step};
use crate::api::ServiceError;
use crate::environments::make::reason_code;
use crate::execution::{cancelled_by, outcome};
use crate::runs::{RunRef, SubmitError, Submitted};

/// Longest pause between two attempts to remove one environment.
const REMOVAL_PAUSE_MAX: Duration = Duration::from_secs(60);
/// Attempts after which a removal that fails is an alarm.
const REMOVAL_ATTEMPTS_ALARM: u32 = 3;

impl Reconciler {
    /// Does one step about everything that is not where it should be.
    ///
    /// # Errors
    /// When the log or the views do not answer; the next pass begins anew.
    pub(super) async fn try_pass(&self) -> Result<(), ServiceError> {
        if !self.owns() {
            return Err(ServiceError::Unavailable { reason_code: "node_not_owned" });
        }
        self.parts.reads.see_all().await?;
        let now = self.parts.log.clock().now();
        let mut faults = FirstFault::default();
        faults.note(self.expire(now).await);
        self.parts.reads.see_all().await?;
        let node_id = self.parts.environments.identity().node_id;
        let open = self.parts.reads.views().open_environments(Some(node_id)).await?;
        self.remember(&open);
        for environment in &open {
            faults.note(self.environment(environment, now).await);
        }
        faults.note(self.commands(&open).await);
        faults.note(self.close().await);
        faults.into_result()
    }

    /// Records the end of leases that the log clock has passed.
    async fn expire(&self, now: Timestamp) -> Result<(), ServiceError> {
        let mut faults = FirstFault::default();
        for lease in self.parts.reads.views().overdue_leases(now).await? {
            let run = RunRef { tenant: lease.tenant, run_id: lease.run_id };
            let end = LeaseEnd { lease_id: lease.lease_id, cause: LeaseEndCause::Expired };
            faults.note(self.submit(run, &RunCommand::EndLease(end)).await);
        }
        faults.into_result()
    }

    async fn environment(&self, open: &OpenEnvironment, now: Timestamp) -> Result<(), ServiceError> {
        let environment = &open.environment;
        let environment_id = environment.environment_id;
        let run = RunRef { tenant: environment.tenant, run_id: environment.run_id };
        let local = self.local(open);
        match plan::step(open, local, now, self.config.release_drain) {
            Step::Rest => Ok(()),
            Step::FailProvision => {
                let reason_code = "service_lost".to_owned();
                self.submit(run, &RunCommand::RecordProvisionFailed { environment_id, reason_code }).await
            }
            Step::Teardown(cause) => {
                self.submit(run, &RunCommand::RequestTeardown { environment_id, cause }).await?;
                self.parts.wake.now();
                Ok(())
            }
            Step::Adopt => {
                let (this, lease_id) = (self.clone(), environment.lease_id);
                self.parts.supervisor.start("take over environment", async move {
                    match this.parts.environments.ensure(run, lease_id).await {
                        Ok(_) => this.parts.wake.now(),
                        Err(error) => tracing::warn!(%environment_id, error = %error, "not taken over"),
                    }
                });
                Ok(())
            }
            Step::End { waiting, running } => {
                for command in self.parts.execution.active() {
                    if command.environment_id == environment_id {
                        let request = if command.running { running.clone() } else { Some(waiting.clone()) };
                        if let Some(request) = request {
                            self.parts.execution.cancel(command.command_id, *request);
                        }
                    }
                }
                Ok(())
            }
            Step::Destroy => {
                self.destroy(run, environment_id, environment.teardown_attempts);
                Ok(())
            }
        }
    }

    fn local(&self, open: &OpenEnvironment) -> Local {
        let environment_id = open.environment.environment_id;
        let held = self.parts.environments.get(environment_id);
        let (mut waiting, mut running) = (0, 0);
        for command in self.parts.execution.active() {
            if command.environment_id == environment_id {
                *(if command.running { &mut running } else { &mut waiting }) += 1;
            }
        }
        let now = Instant::now();
        let mut memory = self.memory();
        let unwanted =
            matches!(open.environment.state, EnvironmentPhase::TearingDown | EnvironmentPhase::Failed);
        let unwanted_for = if unwanted {
            now.duration_since(*memory.unwanted_since.entry(environment_id).or_insert(now))
        } else {
            Duration::ZERO
        };
        Local {
            streams: held.as_ref().map_or(0, |environment| environment.streams()),
            held: held.is_some(),
            in_flight: self.parts.environments.is_in_flight(environment_id),
            waiting,
            running,
            destroying: memory.destroying.contains(&environment_id),
            unwanted_for,
            pausing: memory.paused_until.get(&environment_id).is_some_and(|until| now < *until),
        }
    }

    /// Removes an environment in a task of its own: one that hangs holds up no other.
    fn destroy(&self, run: RunRef, environment_id: EnvironmentId, attempts: u32) {
        let destroying = Destroying::new(self, environment_id);
        let this = self.clone();
        self.parts.supervisor.start("remove environment", async move {
            let removed = this.parts.environments.ports().execution.destroy(environment_id).await;
            let fact = match &removed {
                Ok(()) => RunCommand::RecordDestroyed { environment_id },
                Err(error) => {
                    let reason_code = reason_code(error).to_owned();
                    if attempts + 1 >= REMOVAL_ATTEMPTS_ALARM {
                        tracing::error!(%environment_id, attempts, code = reason_code, "teardown_failed");
                    }
                    RunCommand::RecordTeardownFailed { environment_id, reason_code }
                }
            };
            if let Err(error) = this.parts.runs.record(run, &fact).await {
                tracing::error!(%environment_id, error = %error, "a removal was not recorded");
            }
            match removed {
                Ok(()) => this.parts.environments.forget(environment_id),
                Err(_) => {
                    let pause = Duration::from_millis(500) * 2_u32.saturating_pow(attempts.min(7));
                    let until = Instant::now() + pause.min(REMOVAL_PAUSE_MAX);
                    this.memory().paused_until.insert(environment_id, until);
                }
            }
            drop(destroying);
            this.parts.wake.now();
        });
    }

    /// Commands on record that nobody in this process sees through, and kills that were asked for elsewhere.
    async fn commands(&self, open: &[OpenEnvironment]) -> Result<(), ServiceError> {
        let mut faults = FirstFault::default();
        for command in self.parts.reads.views().open_commands().await? {
            let ours = open.iter().find(|known| known.environment.environment_id == command.environment_id);
            let Some(open) = ours else { continue };
            let command_id = command.command_id;
            if self.parts.execution.is_active(command_id) {
                if command.kill_requested {
                    self.parts.execution.cancel(command_id, cancelled_by("client"));
                }
                continue;
            }
            let run = RunRef { tenant: command.tenant, run_id: command.run_id };
            match (command.started, open.environment.state) {
                // Nobody sees it through: an outcome comes on record before its task ends, so there is none.
                (true, _) => {
                    let lost = outcome::interrupted(command_id, InterruptCause::ServiceLost, true);
                    faults.note(self.submit(run, &lost).await);
                }
                (false, EnvironmentPhase::Ready) => {
                    if let Some(environment) = self.parts.environments.get(command.environment_id) {
                        faults.note(self.parts.execution.resume(environment, command_id).await);
                    }
                }
                // It can never start; its outcome comes before its environment goes.
                (false, EnvironmentPhase::TearingDown | EnvironmentPhase::Failed) => {
                    let lost = outcome::interrupted(command_id, InterruptCause::ServiceLost, false);
                    faults.note(self.submit(run, &lost).await);
                }
                _ => {}
            }
        }
        faults.into_result()
    }

    /// Completes runs of which nothing is open any more.
    async fn close(&self) -> Result<(), ServiceError> {
        let mut faults = FirstFault::default();
        for row in self.parts.reads.views().closing_runs().await? {
            let run = RunRef { tenant: row.tenant, run_id: row.run_id };
            faults.note(self.submit(run, &RunCommand::RecordClosed).await);
        }
        faults.into_result()
    }

    /// Submits what the views made look right; the rules have the last word, and their no is no fault.
    async fn submit(&self, run: RunRef, command: &RunCommand) -> Result<(), ServiceError> {
        let actor = self.parts.runs.service_actor();
        match self.parts.runs.submit(run, &actor, None, command).await {
            Ok(Submitted::Appended { .. }) => {
                self.parts.wake.now();
                Ok(())
            }
            Ok(_) | Err(SubmitError::Rejected(_)) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    fn remember(&self, open: &[OpenEnvironment]) {
        let known = |environment_id: &EnvironmentId| {
            open.iter().any(|open| open.environment.environment_id == *environment_id)
        };
        let failing =
            open.iter().filter(|open| open.environment.teardown_attempts >= REMOVAL_ATTEMPTS_ALARM).count();
        let mut memory = self.memory();
        memory.unwanted_since.retain(|environment_id, _| known(environment_id));
        memory.paused_until.retain(|environment_id, _| known(environment_id));
        memory.teardown_failing = failing;
    }
}

/// Goes on after a fault: one thing that is stuck must not keep the others from moving.
#[derive(Debug, Default)]
struct FirstFault(Option<ServiceError>);

impl FirstFault {
    fn note(&mut self, result: Result<(), ServiceError>) {
        if let Err(error) = result {
            tracing::debug!(error = %error, "one step of a pass did not get through");
            self.0.get_or_insert(error);
        }
    }

    fn into_result(self) -> Result<(), ServiceError> {
        self.0.map_or(Ok(()), Err)
    }
}

/// Marks an environment as being removed, until the task ends, however it ends.
struct Destroying {
    reconciler: Reconciler,
    environment_id: EnvironmentId,
}

impl Destroying {
    fn new(reconciler: &Reconciler, environment_id: EnvironmentId) -> Self {
        reconciler.memory().destroying.insert(environment_id);
        Self { reconciler: reconciler.clone(), environment_id }
    }
}

impl Drop for Destroying {
    fn drop(&mut self) {
        self.reconciler.memory().destroying.remove(&self.environment_id);
    }
}
