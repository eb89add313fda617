//! A second reading of a run's events, by an outsider: it shares nothing with the state, and checks every promise that one
//! more event could break.

use std::collections::{BTreeMap, BTreeSet};

use events::ids::{CommandId, EnvironmentId, Epoch, LeaseId};
use events::{Event, Timestamp};
use proptest::prelude::*;

use crate::story::brief;

/// What the events alone say, as an outsider would read them.
#[derive(Default)]
pub(crate) struct Reading {
    pub(crate) epochs: Vec<Epoch>,
    lease_ends: BTreeMap<LeaseId, Timestamp>,
    ended_leases: BTreeSet<LeaseId>,
    environment_lease: BTreeMap<EnvironmentId, LeaseId>,
    was_ready: BTreeSet<EnvironmentId>,
    going: BTreeSet<EnvironmentId>,
    destroyed: BTreeSet<EnvironmentId>,
    pub(crate) command_environment: BTreeMap<CommandId, EnvironmentId>,
    started: BTreeSet<CommandId>,
    pub(crate) outcomes: BTreeMap<CommandId, u32>,
    pub(crate) closed: bool,
}

impl Reading {
    /// Nothing may start under this lease any more.
    pub(crate) fn is_dead(&self, lease_id: LeaseId, now: Timestamp) -> bool {
        self.ended_leases.contains(&lease_id) || self.lease_ends.get(&lease_id).is_none_or(|end| now >= *end)
    }

    fn lease_of(&self, environment_id: EnvironmentId) -> LeaseId {
        self.environment_lease[&environment_id]
    }

    /// Takes one more event and checks every promise that it could break.
    pub(crate) fn read(&mut self, event: &Event, now: Timestamp) -> Result<(), TestCaseError> {
        let line = brief(event);
        prop_assert!(!self.closed, "after RunClosed: {line}");
        match event {
            Event::LeaseAcquired(acquired) => {
                let live: Vec<_> =
                    self.lease_ends.keys().filter(|id| !self.ended_leases.contains(id)).collect();
                prop_assert!(live.is_empty(), "{line} while {live:?} is recorded as live");
                prop_assert_eq!(acquired.epoch.0, self.epochs.len() as u64 + 1, "{}", line);
                self.epochs.push(acquired.epoch);
                self.lease_ends.insert(acquired.lease_id, acquired.expires_at);
            }
            Event::LeaseRenewed(renewed) => {
                prop_assert!(!self.is_dead(renewed.lease_id, now), "{line} under a dead epoch");
                self.lease_ends.insert(renewed.lease_id, renewed.expires_at);
            }
            Event::LeaseReleased(end) => self.end(end.lease_id, &line)?,
            Event::LeaseRevoked(end) => self.end(end.lease_id, &line)?,
            Event::LeaseFenced(end) => self.end(end.lease_id, &line)?,
            Event::LeaseExpired(end) => {
                prop_assert!(now >= self.lease_ends[&end.lease_id], "{line} too early");
                self.end(end.lease_id, &line)?;
            }
            Event::EnvironmentRequested(requested) => {
                prop_assert!(!self.is_dead(requested.lease_id, now), "{line} under a dead epoch");
                for (other, lease) in &self.environment_lease {
                    let same = *lease == requested.lease_id;
                    prop_assert!(!same || self.going.contains(other), "{line} beside {other}");
                    prop_assert!(!same || !self.was_ready.contains(other), "{line} replaces {other}");
                }
                prop_assert!(requested.expires_at >= self.lease_ends[&requested.lease_id]);
                let first = self.environment_lease.insert(requested.environment_id, requested.lease_id);
                prop_assert!(first.is_none(), "{line} under a used id");
            }
            Event::EnvironmentProvisioned(ready) => {
                prop_assert!(!self.going.contains(&ready.environment_id), "{line} while it goes");
                self.was_ready.insert(ready.environment_id);
            }
            Event::EnvironmentAdopted(adopted) => {
                let lease_id = self.lease_of(adopted.environment_id);
                prop_assert!(!self.is_dead(lease_id, now), "{line} under a dead epoch");
                prop_assert!(!self.going.contains(&adopted.environment_id), "{line} while it goes");
            }
            Event::EnvironmentTeardownRequested(asked) => {
                prop_assert!(self.going.insert(asked.environment_id), "{line} twice");
            }
            Event::EnvironmentDestroyed(gone) => {
                prop_assert!(self.going.contains(&gone.environment_id), "{line} without a reason");
                prop_assert!(self.destroyed.insert(gone.environment_id), "{line} twice");
                for (command, environment) in &self.command_environment {
                    prop_assert!(
                        *environment != gone.environment_id || self.outcomes.contains_key(command),
                        "{line} leaves {command} without outcome"
                    );
                }
            }
            Event::CommandAccepted(accepted) => {
                prop_assert!(!self.is_dead(accepted.lease_id, now), "{line} under a dead epoch");
                prop_assert!(self.was_ready.contains(&accepted.environment_id), "{line} before it is ready");
                prop_assert!(!self.going.contains(&accepted.environment_id), "{line} while it goes");
                let left_ms = self.lease_ends[&accepted.lease_id].ms_since(now);
                prop_assert!(left_ms >= 5000 && (1..=left_ms).contains(&accepted.timeout_ms), "{line}");
                let first = self.command_environment.insert(accepted.command_id, accepted.environment_id);
                prop_assert!(first.is_none(), "{line} twice");
            }
            Event::CommandStarted(started) => {
                let environment = self.command_environment[&started.command_id];
                prop_assert!(!self.is_dead(self.lease_of(environment), now), "{line} under a dead epoch");
                prop_assert!(!self.going.contains(&environment), "{line} while its environment goes");
                prop_assert!(self.started.insert(started.command_id), "{line} twice");
                prop_assert!(!self.outcomes.contains_key(&started.command_id), "{line} after its outcome");
            }
            Event::CommandFinished(end) => {
                prop_assert_eq!(end.exit_code.is_none(), end.killed_by.is_some(), "{}", line);
                self.outcome(end.command_id, &line)?;
            }
            Event::CommandInterrupted(end) => {
                prop_assert!(!end.may_have_run || self.started.contains(&end.command_id), "{line}");
                self.outcome(end.command_id, &line)?;
            }
            Event::WorkspaceFileWritten(file) => {
                prop_assert!(!self.destroyed.contains(&file.environment_id), "{line} where nothing is");
            }
            Event::WorkspaceFileRemoved(file) => {
                prop_assert!(!self.destroyed.contains(&file.environment_id), "{line} where nothing is");
            }
            Event::RunClosed(closed) => {
                self.closed = true;
                prop_assert_eq!(closed.commands as usize, self.outcomes.len(), "{}", line);
                prop_assert_eq!(closed.environments as usize, self.destroyed.len(), "{}", line);
            }
            Event::RunCloseRequested(_)
            | Event::EnvironmentProvisionFailed(_)
            | Event::EnvironmentTeardownFailed(_)
            | Event::EnvironmentSuspected(_)
            | Event::CommandKillRequested(_)
            | Event::KillEnforced(_) => {}
            Event::ServiceStarted(_) | Event::OrphanDeleted(_) => {
                prop_assert!(false, "{line} in a run's stream");
            }
        }
        Ok(())
    }

    fn end(&mut self, lease_id: LeaseId, line: &str) -> Result<(), TestCaseError> {
        prop_assert!(self.ended_leases.insert(lease_id), "{line} ends it twice");
        Ok(())
    }

    fn outcome(&mut self, command_id: CommandId, line: &str) -> Result<(), TestCaseError> {
        prop_assert!(self.command_environment.contains_key(&command_id), "{line} of an unknown command");
        let outcomes = self.outcomes.entry(command_id).or_default();
        *outcomes += 1;
        prop_assert_eq!(*outcomes, 1, "{}: a second outcome", line);
        Ok(())
    }

    /// An ended lease leaves no environment that is not on its way out.
    pub(crate) fn check_settled(&self) -> Result<(), TestCaseError> {
        for (environment, lease) in &self.environment_lease {
            let forgotten = self.ended_leases.contains(lease) && !self.going.contains(environment);
            prop_assert!(!forgotten, "{environment} outlives its lease");
        }
        Ok(())
    }
}
