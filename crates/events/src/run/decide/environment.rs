//! Environments: intent, provision, adoption, suspicion, teardown.

use super::fact::{bounded_count, bounded_text};
use super::{Decision, find_environment, live_lease};
use crate::event::Event;
use crate::event::command::{CommandInterrupted, InterruptCause};
use crate::event::environment::{
    EnvironmentAdopted, EnvironmentDestroyed, EnvironmentProvisionFailed, EnvironmentProvisioned,
    EnvironmentRequested, EnvironmentSuspected, EnvironmentTeardownFailed, EnvironmentTeardownRequested,
    TeardownCause,
};
use crate::ids::{EnvironmentId, InstanceId};
use crate::run::command::RequestEnvironment;
use crate::run::rejection::Rejection;
use crate::run::state::{CommandPhase, EnvironmentPhase, RunState};
use crate::time::Timestamp;

pub(super) fn request(
    state: &RunState,
    request: &RequestEnvironment,
    now: Timestamp,
) -> Result<Decision, Rejection> {
    let lease = live_lease(state, request.lease_id, now)?;
    if let Some(current) = state.environment_of(request.lease_id) {
        if current.is_usable() {
            return if current.requested.environment_id == request.environment_id {
                Ok(Decision::AlreadyDone)
            } else {
                Err(Rejection::EnvironmentExists)
            };
        }
        if !current.may_be_replaced() {
            return Err(Rejection::EnvironmentLost);
        }
    }
    if state.environments.contains_key(&request.environment_id) {
        return Err(Rejection::Invalid { field: "environment_id", detail: "used before" });
    }
    Ok(Decision::Append(vec![Event::EnvironmentRequested(EnvironmentRequested {
        environment_id: request.environment_id,
        lease_id: request.lease_id,
        epoch: lease.acquired.epoch,
        node_id: request.node_id,
        mechanism: request.mechanism,
        image_digest: request.image_digest.clone(),
        limits: lease.acquired.limits,
        policy_digest: None,
        from_pool: None,
        // A lease is never longer than the cap, so this can only lie at or past the lease's end.
        expires_at: now.plus_ms(lease.acquired.environment_cap_ms).max(lease.expires_at),
    })]))
}

pub(super) fn provisioned(
    state: &RunState,
    environment_id: EnvironmentId,
    duration_ms: u64,
) -> Result<Decision, Rejection> {
    match find_environment(state, environment_id)?.phase {
        EnvironmentPhase::Requested => {
            Ok(Decision::Append(vec![Event::EnvironmentProvisioned(EnvironmentProvisioned {
                environment_id,
                duration_ms: bounded_count(duration_ms),
            })]))
        }
        // Landed after its end was asked for: the reconciler removes it.
        EnvironmentPhase::Ready
        | EnvironmentPhase::TearingDown
        | EnvironmentPhase::Failed
        | EnvironmentPhase::Destroyed => Ok(Decision::AlreadyDone),
    }
}

pub(super) fn provision_failed(
    state: &RunState,
    environment_id: EnvironmentId,
    reason_code: &str,
) -> Result<Decision, Rejection> {
    match find_environment(state, environment_id)?.phase {
        EnvironmentPhase::Requested => Ok(Decision::Append(vec![
            Event::EnvironmentProvisionFailed(EnvironmentProvisionFailed {
                environment_id,
                reason_code: bounded_text(reason_code),
            }),
            teardown(environment_id, TeardownCause::ProvisionFailed),
        ])),
        EnvironmentPhase::Ready => {
            Err(Rejection::Invalid { field: "environment_id", detail: "was provisioned" })
        }
        EnvironmentPhase::TearingDown | EnvironmentPhase::Failed | EnvironmentPhase::Destroyed => {
            Ok(Decision::AlreadyDone)
        }
    }
}

pub(super) fn adopted(
    state: &RunState,
    environment_id: EnvironmentId,
    instance_id: InstanceId,
    now: Timestamp,
) -> Result<Decision, Rejection> {
    let environment = find_environment(state, environment_id)?;
    live_lease(state, environment.requested.lease_id, now)?;
    match environment.phase {
        EnvironmentPhase::Requested => Err(Rejection::EnvironmentNotReady),
        EnvironmentPhase::Ready if environment.adopted_by == Some(instance_id) => Ok(Decision::AlreadyDone),
        EnvironmentPhase::Ready => {
            Ok(Decision::Append(vec![Event::EnvironmentAdopted(EnvironmentAdopted {
                environment_id,
                instance_id,
            })]))
        }
        EnvironmentPhase::TearingDown | EnvironmentPhase::Failed | EnvironmentPhase::Destroyed => {
            Err(Rejection::EnvironmentLost)
        }
    }
}

pub(super) fn request_teardown(
    state: &RunState,
    environment_id: EnvironmentId,
    cause: TeardownCause,
) -> Result<Decision, Rejection> {
    let environment = find_environment(state, environment_id)?;
    if environment.teardown_cause.is_some() || !environment.phase.is_open() {
        return Ok(Decision::AlreadyDone);
    }
    Ok(Decision::Append(vec![teardown(environment_id, cause)]))
}

pub(super) fn suspected(
    state: &RunState,
    environment_id: EnvironmentId,
    reason_code: &str,
) -> Result<Decision, Rejection> {
    let environment = find_environment(state, environment_id)?;
    if environment.suspected || !environment.phase.is_open() {
        return Ok(Decision::AlreadyDone);
    }
    let mut events = vec![Event::EnvironmentSuspected(EnvironmentSuspected {
        environment_id,
        reason_code: bounded_text(reason_code),
    })];
    if environment.teardown_cause.is_none() {
        events.push(teardown(environment_id, TeardownCause::Suspected));
    }
    Ok(Decision::Append(events))
}

pub(super) fn teardown_failed(
    state: &RunState,
    environment_id: EnvironmentId,
    reason_code: &str,
) -> Result<Decision, Rejection> {
    let environment = find_environment(state, environment_id)?;
    if !environment.phase.is_open() {
        return Ok(Decision::AlreadyDone);
    }
    Ok(Decision::Append(vec![Event::EnvironmentTeardownFailed(EnvironmentTeardownFailed {
        environment_id,
        attempt: environment.teardown_attempts.saturating_add(1),
        reason_code: bounded_text(reason_code),
    })]))
}

/// Nothing is left of it, so nothing can still run in it: commands without an outcome get theirs in the same append.
pub(super) fn destroyed(state: &RunState, environment_id: EnvironmentId) -> Result<Decision, Rejection> {
    let environment = find_environment(state, environment_id)?;
    if !environment.phase.is_open() {
        return Ok(Decision::AlreadyDone);
    }
    let mut events = Vec::new();
    if environment.teardown_cause.is_none() {
        events.push(teardown(environment_id, TeardownCause::Lost));
    }
    for command in state.open_commands().filter(|open| open.accepted.environment_id == environment_id) {
        events.push(Event::CommandInterrupted(CommandInterrupted {
            command_id: command.accepted.command_id,
            cause: InterruptCause::SandboxLost,
            may_have_run: command.phase == CommandPhase::Running,
        }));
    }
    events.push(Event::EnvironmentDestroyed(EnvironmentDestroyed { environment_id, egress: None }));
    Ok(Decision::Append(events))
}

fn teardown(environment_id: EnvironmentId, cause: TeardownCause) -> Event {
    Event::EnvironmentTeardownRequested(EnvironmentTeardownRequested { environment_id, cause })
}
