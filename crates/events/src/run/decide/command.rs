//! Commands: accept, start, kill, outcome.

use super::fact::{bounded_count, bounded_evidence, bounded_finished};
use super::request::check_request;
use super::{Decision, find_command, find_environment, live_lease};
use crate::bounds::LEASE_REMAINDER_MS_MIN;
use crate::event::Event;
use crate::event::command::{
    CommandAccepted, CommandFinished, CommandInterrupted, CommandKillRequested, CommandStarted,
    InterruptCause, KillEnforced, KillReason,
};
use crate::ids::{CommandId, InstanceId};
use crate::run::command::AcceptCommand;
use crate::run::rejection::Rejection;
use crate::run::state::{CommandPhase, EnvironmentPhase, EnvironmentState, LeaseState, RunState};
use crate::time::Timestamp;

pub(super) fn accept(
    state: &RunState,
    request: &AcceptCommand,
    now: Timestamp,
) -> Result<Decision, Rejection> {
    if state.commands.contains_key(&request.command_id) {
        return Ok(Decision::AlreadyDone);
    }
    let lease = live_lease(state, request.lease_id, now)?;
    check_request(request)?;
    let environment = ready_environment(state, request)?;
    let (timeout_ms, timeout_reason) = effective_timeout(request.timeout_ms, lease, now)?;
    let mut events = vec![Event::CommandAccepted(CommandAccepted {
        command_id: request.command_id,
        lease_id: request.lease_id,
        epoch: lease.acquired.epoch,
        environment_id: environment.requested.environment_id,
        argv: request.argv.clone(),
        cwd: request.cwd.clone(),
        env: request.env.clone(),
        stdin: request.stdin.clone(),
        timeout_ms,
        timeout_reason,
        output_bytes_max: bounded_count(request.output_bytes_max),
        background: request.background,
    })];
    if let Some(instance_id) = request.start_now {
        events.push(started(request.command_id, instance_id, 0));
    }
    Ok(Decision::Append(events))
}

fn ready_environment<'a>(
    state: &'a RunState,
    request: &AcceptCommand,
) -> Result<&'a EnvironmentState, Rejection> {
    let current = state.environment_of(request.lease_id).ok_or(Rejection::EnvironmentNotReady)?;
    match current.phase {
        EnvironmentPhase::Ready => Ok(current),
        EnvironmentPhase::Requested => Err(Rejection::EnvironmentNotReady),
        EnvironmentPhase::TearingDown | EnvironmentPhase::Failed | EnvironmentPhase::Destroyed => {
            Err(if current.may_be_replaced() {
                Rejection::EnvironmentNotReady
            } else {
                Rejection::EnvironmentLost
            })
        }
    }
}

/// The smallest of request, wall clock limit and remaining lease (design: limits). Only a lease that ends before the others
/// would gives the kill its own name.
fn effective_timeout(
    requested_ms: u64,
    lease: &LeaseState,
    now: Timestamp,
) -> Result<(u64, KillReason), Rejection> {
    let remaining_ms = lease.expires_at.ms_since(now);
    if remaining_ms < LEASE_REMAINDER_MS_MIN {
        return Err(Rejection::LeaseTooShort);
    }
    let own_ms = requested_ms.min(lease.acquired.limits.wall_clock_seconds.saturating_mul(1000));
    Ok(if remaining_ms < own_ms {
        (remaining_ms, KillReason::Expired)
    } else {
        (own_ms, KillReason::Timeout)
    })
}

pub(super) fn start(
    state: &RunState,
    command_id: CommandId,
    instance_id: InstanceId,
    queued_ms: u64,
    now: Timestamp,
) -> Result<Decision, Rejection> {
    let command = find_command(state, command_id)?;
    match command.phase {
        CommandPhase::Accepted => {}
        CommandPhase::Running if command.started_by == Some(instance_id) => return Ok(Decision::AlreadyDone),
        CommandPhase::Running | CommandPhase::Ended(_) => {
            return Err(Rejection::Invalid { field: "command_id", detail: "started before" });
        }
    }
    live_lease(state, command.accepted.lease_id, now)?;
    if find_environment(state, command.accepted.environment_id)?.phase != EnvironmentPhase::Ready {
        return Err(Rejection::EnvironmentLost);
    }
    Ok(Decision::Append(vec![started(command_id, instance_id, queued_ms)]))
}

fn started(command_id: CommandId, instance_id: InstanceId, queued_ms: u64) -> Event {
    Event::CommandStarted(CommandStarted { command_id, instance_id, queued_ms: bounded_count(queued_ms) })
}

/// Also under a dead epoch: it only ever ends something. The first reason stays.
pub(super) fn request_kill(
    state: &RunState,
    command_id: CommandId,
    reason: KillReason,
) -> Result<Decision, Rejection> {
    let command = find_command(state, command_id)?;
    if !command.is_open() || command.kill_requested.is_some() {
        return Ok(Decision::AlreadyDone);
    }
    Ok(Decision::Append(vec![Event::CommandKillRequested(CommandKillRequested { command_id, reason })]))
}

/// The outcome, bounded and made consistent: an exit code exactly when nobody killed it. A report with neither proves no end
/// of the program, so it is recorded as an interruption.
pub(super) fn finished(state: &RunState, reported: &CommandFinished) -> Result<Decision, Rejection> {
    let command_id = reported.command_id;
    let command = find_command(state, command_id)?;
    match command.phase {
        CommandPhase::Ended(_) => return Ok(Decision::AlreadyDone),
        // Killed while it waited: it has an outcome, without ever having run.
        CommandPhase::Accepted if command.kill_requested.is_some() && reported.killed_by.is_some() => {}
        CommandPhase::Accepted => return Err(Rejection::NotStarted),
        CommandPhase::Running => {}
    }
    if reported.killed_by.is_none() && reported.exit_code.is_none() {
        return Ok(Decision::Append(vec![Event::CommandInterrupted(CommandInterrupted {
            command_id,
            cause: InterruptCause::SupervisorLost,
            may_have_run: true,
        })]));
    }
    let mut events = Vec::new();
    if let Some(reason) = reported.killed_by {
        let evidence = reported.evidence.as_ref().map(bounded_evidence).unwrap_or_default();
        events.push(Event::KillEnforced(KillEnforced { command_id, reason, evidence }));
    }
    events.push(Event::CommandFinished(bounded_finished(reported)));
    Ok(Decision::Append(events))
}

pub(super) fn interrupted(state: &RunState, reported: &CommandInterrupted) -> Result<Decision, Rejection> {
    let command = find_command(state, reported.command_id)?;
    if !command.is_open() {
        return Ok(Decision::AlreadyDone);
    }
    Ok(Decision::Append(vec![Event::CommandInterrupted(CommandInterrupted {
        command_id: reported.command_id,
        cause: reported.cause,
        may_have_run: reported.may_have_run && command.phase == CommandPhase::Running,
    })]))
}
