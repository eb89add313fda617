//! From acceptance to outcome: the turn, the start on record, the runtime, the outcome on record.

use std::collections::BTreeMap;
use std::io::Cursor;
use std::sync::Arc;
use std::time::Instant;

use bytes::Bytes;
use events::event::command::{CommandAccepted, Evidence, InterruptCause, KillReason};
use events::run::{CommandPhase, LeasePhase, Rejection, RunCommand};
use events::{CommandId, Position, Timestamp};
use policy::{WorkspaceCwd, build_environment};
use runtime_adapter::ports::{CancelRequest, ExecutionCommand, OutputSink, StdinSource};

use super::active::Entry;
use super::queue::{Place, Turn};
use super::{Execution, accept, cancelled_by, outcome};
use crate::api::ServiceError;
use crate::environments::Environment;
use crate::output::Live;
use crate::runs::{RunRef, SubmitError};

/// A command on record that is this process's to see through.
pub(super) struct Running<'a> {
    entry: Entry<'a>,
    environment: Arc<Environment>,
    place: Option<Place>,
    started: bool,
    live: Arc<Live>,
    accepted: CommandAccepted,
    since: Instant,
}

impl<'a> Running<'a> {
    pub(super) fn new(
        entry: Entry<'a>,
        environment: Arc<Environment>,
        place: Option<Place>,
        started: bool,
        live: Arc<Live>,
        accepted: CommandAccepted,
    ) -> Self {
        Self { entry, environment, place, started, live, accepted, since: Instant::now() }
    }
}

/// How the wait for a start ended.
enum Start {
    Started(Option<Turn>),
    Killed(Box<CancelRequest>),
}

impl Execution {
    /// Sees an accepted command through to its outcome.
    pub(super) async fn see_through(
        &self,
        mut running: Running<'_>,
        env: BTreeMap<String, String>,
        stdin: Option<Bytes>,
    ) {
        let command_id = running.accepted.command_id;
        let run = running.environment.run;
        // Held until the outcome is on record: the next command's start comes after it.
        let (_turn, position) = match self.start(&mut running).await {
            Ok(Start::Started(turn)) => {
                let position = self.execute(&running, env, stdin).await;
                (turn, position)
            }
            Ok(Start::Killed(kill)) => {
                self.record(run, &RunCommand::RequestKill { command_id, reason: kill.reason }).await;
                (None, self.record(run, &outcome::never_ran(command_id, *kill)).await)
            }
            Err(error) => {
                tracing::error!(%command_id, error = %error, "a command could not be started");
                let lost = outcome::interrupted(command_id, InterruptCause::ServiceLost, false);
                (None, self.record(run, &lost).await)
            }
        };
        if let Some(position) = position {
            running.entry.recorded_at(position);
        }
        self.shared.output.close(command_id, Instant::now());
    }

    /// Waits for the turn and makes the start durable.
    async fn start(&self, running: &mut Running<'_>) -> Result<Start, SubmitError> {
        let turn = match running.place.take() {
            None => None,
            Some(Place::First(turn)) => Some(turn),
            Some(Place::Waiting(called)) => tokio::select! {
                biased;
                kill = running.entry.cancel.requested() => return Ok(Start::Killed(Box::new(kill))),
                turn = called => turn.ok(),
            },
        };
        if !running.started {
            let queued_ms = u64::try_from(running.since.elapsed().as_millis()).unwrap_or(u64::MAX);
            let command = RunCommand::StartCommand {
                command_id: running.accepted.command_id,
                instance_id: self.shared.environments.identity().instance_id,
                queued_ms,
            };
            match self.shared.runs.record(running.environment.run, &command).await {
                Ok(started) => running.entry.recorded_at(started.position()),
                // Its lease or its environment ended while it waited.
                Err(SubmitError::Rejected(ended @ (Rejection::LeaseLost | Rejection::EnvironmentLost))) => {
                    let kill = match running.entry.cancel.get() {
                        Some(kill) => kill,
                        None if ended == Rejection::EnvironmentLost => cancelled_by("environment_lost"),
                        None => self.end_of_lease(running).await,
                    };
                    return Ok(Start::Killed(Box::new(kill)));
                }
                Err(error) => return Err(error),
            }
        }
        running.entry.running();
        Ok(Start::Started(turn))
    }

    /// What the end of its lease is called for a command that still waited.
    async fn end_of_lease(&self, running: &Running<'_>) -> CancelRequest {
        let lease_id = running.accepted.lease_id;
        let expired = self
            .shared
            .runs
            .look(running.environment.run, |state, now| {
                let lease = state.leases.get(&lease_id)?;
                let by_clock = matches!(lease.phase, LeasePhase::Live | LeasePhase::Expired);
                (by_clock && now >= lease.expires_at).then_some(lease.expires_at)
            })
            .await;
        match expired {
            Ok(Some(expires_at)) => CancelRequest {
                reason: KillReason::Expired,
                evidence: Evidence { expires_at: Some(expires_at), ..Evidence::default() },
            },
            Ok(None) | Err(_) => cancelled_by("lease_ended"),
        }
    }

    async fn execute(
        &self,
        running: &Running<'_>,
        env: BTreeMap<String, String>,
        stdin: Option<Bytes>,
    ) -> Option<Position> {
        let accepted = &running.accepted;
        let environment = &running.environment;
        let command = ExecutionCommand {
            command_id: accepted.command_id,
            argv: accepted.argv.clone(),
            cwd: accepted.cwd.clone(),
            env,
            timeout_ms: accepted.timeout_ms,
            timeout_reason: accepted.timeout_reason,
            lease_expires_at: self.lease_end(running).await,
            output_bytes_max: accepted.output_bytes_max,
            background: accepted.background,
        };
        let stdin = match stdin {
            None => StdinSource::Empty,
            Some(bytes) => StdinSource::Stream(Box::pin(Cursor::new(bytes))),
        };
        let sink: Arc<dyn OutputSink> = Arc::clone(&running.live) as Arc<dyn OutputSink>;
        let cancel = running.entry.cancel.clone();
        let port = &self.shared.environments.ports().execution;
        let answer = port.execute(&environment.handle, command, stdin, sink, cancel).await;
        self.shared.crash.reach("after_result");

        let outcome = outcome::of(accepted.command_id, answer);
        let position = self.record(environment.run, &outcome.command).await;
        self.shared.crash.reach("after_outcome_append");
        if let Some(error) = outcome.lost {
            let environment_id = environment.handle.environment_id;
            if let Err(error) = self.shared.environments.lost(environment.run, environment_id, &error).await {
                tracing::error!(%environment_id, error = %error, "the loss of an environment is not recorded");
            }
        }
        position
    }

    /// The end of the lease as known now, for the evidence of an expiry.
    async fn lease_end(&self, running: &Running<'_>) -> Timestamp {
        let lease_id = running.accepted.lease_id;
        let known = self
            .shared
            .runs
            .look(running.environment.run, |state, _| {
                state.leases.get(&lease_id).map(|lease| lease.expires_at)
            })
            .await;
        known.ok().flatten().unwrap_or(running.environment.handle.expires_at)
    }

    async fn record(&self, run: RunRef, command: &RunCommand) -> Option<Position> {
        match self.shared.runs.record(run, command).await {
            Ok(recorded) => Some(recorded.position()),
            Err(error) => {
                tracing::error!(run_id = %run.run_id, error = %error, "an outcome was refused");
                None
            }
        }
    }

    /// Runs a command that an earlier process accepted and never started, in an environment that was taken over.
    ///
    /// # Errors
    /// When the log does not answer, or the environment's queue is full.
    pub async fn resume(
        &self,
        environment: Arc<Environment>,
        command_id: CommandId,
    ) -> Result<(), ServiceError> {
        let run = environment.run;
        let accepted = self
            .shared
            .runs
            .look_fresh(run, |state, _| {
                let command = state.commands.get(&command_id)?;
                (command.phase == CommandPhase::Accepted).then(|| command.accepted.clone())
            })
            .await?;
        let Some(accepted) = accepted else { return Ok(()) };
        let Ok(stdin) = accept::recorded_stdin(&accepted) else {
            let lost = outcome::interrupted(command_id, InterruptCause::InputLost, false);
            self.shared.runs.record(run, &lost).await?;
            return Ok(());
        };
        let cwd = WorkspaceCwd::try_new(&accepted.cwd).unwrap_or_default();
        let Ok(env) = build_environment(&self.shared.config.tier1, &accepted.env, &cwd) else {
            // What the operator passes on has changed since: it cannot be run as it was asked for.
            let lost = outcome::interrupted(command_id, InterruptCause::InputLost, false);
            self.shared.runs.record(run, &lost).await?;
            return Ok(());
        };
        let this = self.clone();
        self.shared.supervisor.start("resumed command", async move {
            let environment_id = environment.handle.environment_id;
            let Ok(entry) = this.shared.actives.enter(command_id, environment_id, None) else { return };
            let place = if accepted.background { Ok(None) } else { environment.queue.enter().map(Some) };
            // A full queue: the next pass of the reconciler tries again.
            let Ok(place) = place else { return };
            let live = this.shared.output.open(command_id);
            let running = Running::new(entry, environment, place, false, live, accepted);
            this.see_through(running, env, stdin).await;
        });
        Ok(())
    }
}
