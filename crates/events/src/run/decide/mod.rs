//! One command against one state: events, "already done", or a refusal.
//!
//! One file per object of the run. Three rules hold everywhere:
//! - nothing starts under a dead epoch (ended by record, or past its end by the log clock);
//! - a fact from the runtime about something open is always recorded, bounded to what the log takes;
//! - a repeat of a command is [`Decision::AlreadyDone`], never a second event.

mod close;
mod command;
mod environment;
mod fact;
mod lease;
mod request;
mod workspace;

pub use request::check_request;

use super::command::RunCommand;
use super::rejection::Rejection;
use super::state::{CommandState, EnvironmentState, LeaseState, RunPhase, RunState};
use crate::event::Event;
use crate::ids::{CommandId, EnvironmentId, LeaseId};
use crate::time::Timestamp;

/// What a command leads to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Decision {
    /// Append these events, together or not at all.
    Append(Vec<Event>),
    /// The command had its effect before; nothing to append.
    AlreadyDone,
}

/// Decides `command` at log time `now`. Pure: equal arguments give equal decisions.
///
/// # Errors
/// A [`Rejection`] when the rules refuse; nothing has changed.
pub fn decide(state: &RunState, command: &RunCommand, now: Timestamp) -> Result<Decision, Rejection> {
    if state.phase == RunPhase::Closed {
        return match command {
            RunCommand::RequestClose | RunCommand::RecordClosed => Ok(Decision::AlreadyDone),
            _ => Err(Rejection::RunClosed),
        };
    }
    match command {
        RunCommand::AcquireLease(request) => lease::acquire(state, request, now),
        RunCommand::RenewLease { lease_id, ttl_ms } => lease::renew(state, *lease_id, *ttl_ms, now),
        RunCommand::EndLease(end) => lease::end(state, end, now),
        RunCommand::RequestClose => close::request(state, now),
        RunCommand::RecordClosed => close::record(state),
        RunCommand::RequestEnvironment(request) => environment::request(state, request, now),
        RunCommand::RecordProvisioned { environment_id, duration_ms } => {
            environment::provisioned(state, *environment_id, *duration_ms)
        }
        RunCommand::RecordProvisionFailed { environment_id, reason_code } => {
            environment::provision_failed(state, *environment_id, reason_code)
        }
        RunCommand::RecordAdopted { environment_id, instance_id } => {
            environment::adopted(state, *environment_id, *instance_id, now)
        }
        RunCommand::RequestTeardown { environment_id, cause } => {
            environment::request_teardown(state, *environment_id, *cause)
        }
        RunCommand::RecordSuspected { environment_id, reason_code } => {
            environment::suspected(state, *environment_id, reason_code)
        }
        RunCommand::RecordTeardownFailed { environment_id, reason_code } => {
            environment::teardown_failed(state, *environment_id, reason_code)
        }
        RunCommand::RecordDestroyed { environment_id } => environment::destroyed(state, *environment_id),
        RunCommand::AcceptCommand(request) => command::accept(state, request, now),
        RunCommand::StartCommand { command_id, instance_id, queued_ms } => {
            command::start(state, *command_id, *instance_id, *queued_ms, now)
        }
        RunCommand::RequestKill { command_id, reason } => command::request_kill(state, *command_id, *reason),
        RunCommand::RecordFinished(finished) => command::finished(state, finished),
        RunCommand::RecordInterrupted(interrupted) => command::interrupted(state, interrupted),
        RunCommand::RecordFileWritten(written) => workspace::written(state, written),
        RunCommand::RecordFileRemoved(removed) => workspace::removed(state, removed),
    }
}

fn find_lease(state: &RunState, id: LeaseId) -> Result<&LeaseState, Rejection> {
    state.leases.get(&id).ok_or(Rejection::NotFound { what: "lease" })
}

/// The lease, when something may start under it.
fn live_lease(state: &RunState, id: LeaseId, now: Timestamp) -> Result<&LeaseState, Rejection> {
    let lease = find_lease(state, id)?;
    if lease.is_live(now) { Ok(lease) } else { Err(Rejection::LeaseLost) }
}

fn find_environment(state: &RunState, id: EnvironmentId) -> Result<&EnvironmentState, Rejection> {
    state.environments.get(&id).ok_or(Rejection::NotFound { what: "environment" })
}

fn find_command(state: &RunState, id: CommandId) -> Result<&CommandState, Rejection> {
    state.commands.get(&id).ok_or(Rejection::NotFound { what: "command" })
}
