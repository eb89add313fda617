//! The fold: one recorded event changes the state, nothing else does.
//!
//! Total on purpose. History is never refused: an event about an object that the state does not know changes nothing, and an
//! event that the rules would not produce today is applied as far as it makes sense.

use std::collections::BTreeMap;

use super::state::{
    CommandOutcome, CommandPhase, CommandState, EnvironmentPhase, EnvironmentState, LeasePhase, LeaseState,
    RunPhase, RunState,
};
use crate::event::Event;
use crate::event::command::{CommandAccepted, CommandStarted};
use crate::event::environment::EnvironmentRequested;
use crate::event::lease::LeaseAcquired;
use crate::ids::{CommandId, EnvironmentId, LeaseId};
use crate::time::Timestamp;

impl RunState {
    /// Applies one recorded event. Total: never panics, never refuses.
    pub fn apply(&mut self, event: &Event, recorded_at: Timestamp) {
        match event {
            Event::LeaseAcquired(acquired) => self.lease_acquired(acquired, recorded_at),
            Event::LeaseRenewed(renewed) => {
                if let Some(lease) = self.leases.get_mut(&renewed.lease_id) {
                    lease.expires_at = renewed.expires_at;
                }
            }
            Event::LeaseReleased(end) => self.lease_ended(end.lease_id, LeasePhase::Released, recorded_at),
            Event::LeaseExpired(end) => self.lease_ended(end.lease_id, LeasePhase::Expired, recorded_at),
            Event::LeaseRevoked(end) => self.lease_ended(end.lease_id, LeasePhase::Revoked, recorded_at),
            Event::LeaseFenced(end) => self.lease_ended(end.lease_id, LeasePhase::Fenced, recorded_at),
            Event::RunCloseRequested(_) => {
                if self.phase == RunPhase::Open {
                    self.phase = RunPhase::Closing;
                }
            }
            Event::RunClosed(_) => self.phase = RunPhase::Closed,
            Event::EnvironmentRequested(requested) => self.environment_requested(requested, recorded_at),
            Event::EnvironmentProvisioned(ready) => {
                self.with_environment(ready.environment_id, |environment| {
                    environment.provisioned = true;
                    if environment.phase == EnvironmentPhase::Requested {
                        environment.phase = EnvironmentPhase::Ready;
                    }
                });
            }
            Event::EnvironmentProvisionFailed(failed) => {
                self.with_environment(failed.environment_id, |environment| {
                    environment.provision_failed = true;
                    environment.phase = EnvironmentPhase::Failed;
                });
            }
            Event::EnvironmentAdopted(adopted) => {
                self.with_environment(adopted.environment_id, |environment| {
                    environment.adopted_by = Some(adopted.instance_id);
                });
            }
            Event::EnvironmentTeardownRequested(asked) => {
                self.with_environment(asked.environment_id, |environment| {
                    environment.teardown_cause.get_or_insert(asked.cause);
                    if environment.is_usable() {
                        environment.phase = EnvironmentPhase::TearingDown;
                    }
                });
            }
            Event::EnvironmentTeardownFailed(failed) => {
                self.with_environment(failed.environment_id, |environment| {
                    environment.teardown_attempts = environment.teardown_attempts.max(failed.attempt);
                });
            }
            Event::EnvironmentDestroyed(gone) => {
                self.with_environment(gone.environment_id, |environment| {
                    environment.phase = EnvironmentPhase::Destroyed;
                });
            }
            Event::EnvironmentSuspected(suspected) => {
                self.with_environment(suspected.environment_id, |environment| environment.suspected = true);
            }
            Event::CommandAccepted(accepted) => self.command_accepted(accepted, recorded_at),
            Event::CommandStarted(started) => self.command_started(started, recorded_at),
            Event::CommandKillRequested(kill) => {
                if let Some(command) = self.commands.get_mut(&kill.command_id) {
                    command.kill_requested.get_or_insert(kill.reason);
                }
            }
            Event::CommandFinished(end) => self.command_ended(end.command_id, CommandOutcome::Finished),
            Event::CommandInterrupted(end) => {
                self.command_ended(end.command_id, CommandOutcome::Interrupted(end.cause));
            }
            // Evidence of an outcome that comes with it, files, and facts of other streams: no rule depends on them.
            Event::KillEnforced(_)
            | Event::WorkspaceFileWritten(_)
            | Event::WorkspaceFileRemoved(_)
            | Event::ServiceStarted(_)
            | Event::OrphanDeleted(_) => {}
        }
    }

    fn lease_acquired(&mut self, acquired: &LeaseAcquired, recorded_at: Timestamp) {
        self.last_epoch = self.last_epoch.max(acquired.epoch);
        self.leases.insert(
            acquired.lease_id,
            LeaseState {
                acquired: acquired.clone(),
                acquired_at: recorded_at,
                expires_at: acquired.expires_at,
                phase: LeasePhase::Live,
                ended_at: None,
            },
        );
    }

    /// The first recorded end counts.
    fn lease_ended(&mut self, lease_id: LeaseId, phase: LeasePhase, recorded_at: Timestamp) {
        if let Some(lease) = self.leases.get_mut(&lease_id)
            && lease.phase == LeasePhase::Live
        {
            lease.phase = phase;
            lease.ended_at = Some(recorded_at);
        }
    }

    fn environment_requested(&mut self, requested: &EnvironmentRequested, recorded_at: Timestamp) {
        self.environments.insert(
            requested.environment_id,
            EnvironmentState {
                requested: requested.clone(),
                requested_at: recorded_at,
                phase: EnvironmentPhase::Requested,
                provisioned: false,
                provision_failed: false,
                suspected: false,
                teardown_cause: None,
                teardown_attempts: 0,
                adopted_by: None,
            },
        );
    }

    fn with_environment(&mut self, id: EnvironmentId, change: impl FnOnce(&mut EnvironmentState)) {
        if let Some(environment) = self.environments.get_mut(&id) {
            change(environment);
        }
    }

    fn command_accepted(&mut self, accepted: &CommandAccepted, recorded_at: Timestamp) {
        self.commands.insert(
            accepted.command_id,
            CommandState {
                accepted: accepted.clone(),
                accepted_at: recorded_at,
                phase: CommandPhase::Accepted,
                started_by: None,
                started_at: None,
                kill_requested: None,
            },
        );
    }

    fn command_started(&mut self, started: &CommandStarted, recorded_at: Timestamp) {
        if let Some(command) = self.commands.get_mut(&started.command_id)
            && command.phase == CommandPhase::Accepted
        {
            command.phase = CommandPhase::Running;
            command.started_by = Some(started.instance_id);
            command.started_at = Some(recorded_at);
        }
    }

    /// The first outcome counts. What only a start needs is dropped, so that a long run stays small in memory.
    fn command_ended(&mut self, command_id: CommandId, outcome: CommandOutcome) {
        if let Some(command) = self.commands.get_mut(&command_id)
            && command.is_open()
        {
            command.phase = CommandPhase::Ended(outcome);
            let accepted = &mut command.accepted;
            (accepted.argv, accepted.env, accepted.stdin) = (Vec::new(), BTreeMap::new(), None);
            accepted.cwd = String::new();
        }
    }
}
