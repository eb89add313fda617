//! Leases: acquire, renew, end.

use super::{Decision, find_lease, live_lease, request};
use crate::bounds::LEASE_TTL_MS_MIN;
use crate::event::Event;
use crate::event::environment::{EnvironmentTeardownRequested, TeardownCause};
use crate::event::lease::{
    LeaseAcquired, LeaseExpired, LeaseFenced, LeaseReleased, LeaseRenewed, LeaseRevoked,
};
use crate::ids::LeaseId;
use crate::run::command::{AcquireLease, LeaseEnd, LeaseEndCause};
use crate::run::rejection::Rejection;
use crate::run::state::{LeasePhase, LeaseState, RunPhase, RunState};
use crate::time::Timestamp;

pub(super) fn acquire(
    state: &RunState,
    request: &AcquireLease,
    now: Timestamp,
) -> Result<Decision, Rejection> {
    if state.leases.contains_key(&request.lease_id) {
        return Ok(Decision::AlreadyDone);
    }
    if state.phase != RunPhase::Open {
        return Err(Rejection::RunClosed);
    }
    request::check_lease(request)?;
    let epoch = state.last_epoch.next();
    let mut events = Vec::new();
    if let Some(previous) = state.recorded_live_lease() {
        if !previous.is_live(now) {
            events.extend(expire(state, previous, TeardownCause::Expired));
        } else if request.takeover {
            events.push(Event::LeaseFenced(LeaseFenced {
                lease_id: previous.acquired.lease_id,
                epoch: previous.acquired.epoch,
                by_epoch: epoch,
            }));
            events.extend(teardowns(state, previous.acquired.lease_id, TeardownCause::Fenced));
        } else {
            return Err(Rejection::LeaseHeld { expires_at: previous.expires_at });
        }
    }
    events.push(Event::LeaseAcquired(LeaseAcquired {
        lease_id: request.lease_id,
        epoch,
        holder: request.holder.clone(),
        ttl_ms: request.ttl_ms,
        expires_at: now.plus_ms(request.ttl_ms),
        environment_cap_ms: request.environment_cap_ms,
        limits: request.limits,
        network: request.network,
        tools: request.tools.clone(),
        labels: request.labels.clone(),
    }));
    Ok(Decision::Append(events))
}

pub(super) fn renew(
    state: &RunState,
    lease_id: LeaseId,
    ttl_ms: u64,
    now: Timestamp,
) -> Result<Decision, Rejection> {
    let lease = live_lease(state, lease_id, now)?;
    if ttl_ms < LEASE_TTL_MS_MIN {
        return Err(Rejection::Invalid { field: "/ttl_seconds", detail: "shorter than 1 s" });
    }
    let expires_at = now.plus_ms(ttl_ms);
    match state.environment_of(lease_id).filter(|environment| !environment.may_be_replaced()) {
        Some(environment) if expires_at > environment.requested.expires_at => {
            return Err(Rejection::EnvironmentCap { expires_at: environment.requested.expires_at });
        }
        None if ttl_ms > lease.acquired.environment_cap_ms => {
            return Err(Rejection::Invalid {
                field: "/ttl_seconds",
                detail: "longer than an environment may live",
            });
        }
        Some(_) | None => {}
    }
    if expires_at == lease.expires_at {
        return Ok(Decision::AlreadyDone);
    }
    Ok(Decision::Append(vec![Event::LeaseRenewed(LeaseRenewed {
        lease_id,
        epoch: lease.acquired.epoch,
        ttl_ms,
        expires_at,
    })]))
}

pub(super) fn end(state: &RunState, end: &LeaseEnd, now: Timestamp) -> Result<Decision, Rejection> {
    if let LeaseEndCause::Revoked { reason: Some(reason) } = &end.cause {
        request::check_short("/reason", reason)?;
    }
    let lease = find_lease(state, end.lease_id)?;
    if lease.phase != LeasePhase::Live {
        return match (&end.cause, lease.phase) {
            (LeaseEndCause::Released, LeasePhase::Released)
            | (LeaseEndCause::Expired | LeaseEndCause::Revoked { .. }, _) => Ok(Decision::AlreadyDone),
            (LeaseEndCause::Released, _) => Err(Rejection::LeaseLost),
        };
    }
    let (lease_id, epoch) = (lease.acquired.lease_id, lease.acquired.epoch);
    let (ended, cause) = match (&end.cause, lease.is_live(now)) {
        (LeaseEndCause::Released, true) => {
            (Event::LeaseReleased(LeaseReleased { lease_id, epoch }), TeardownCause::Released)
        }
        (LeaseEndCause::Revoked { reason }, true) => (
            Event::LeaseRevoked(LeaseRevoked { lease_id, epoch, reason: reason.clone() }),
            TeardownCause::Revoked,
        ),
        (LeaseEndCause::Expired, true) => return Err(Rejection::NotExpired { expires_at: lease.expires_at }),
        (LeaseEndCause::Released, false) => return Err(Rejection::LeaseLost),
        // The clock came first: what is recorded is the truth, and the operator gets the end that was asked for.
        (LeaseEndCause::Expired | LeaseEndCause::Revoked { .. }, false) => {
            return Ok(Decision::Append(expire(state, lease, TeardownCause::Expired)));
        }
    };
    let mut events = vec![ended];
    events.extend(teardowns(state, lease_id, cause));
    Ok(Decision::Append(events))
}

/// The end of a lease that is past its end by the clock, and the teardown of what it leaves.
pub(super) fn expire(state: &RunState, lease: &LeaseState, cause: TeardownCause) -> Vec<Event> {
    let mut events = vec![Event::LeaseExpired(LeaseExpired {
        lease_id: lease.acquired.lease_id,
        epoch: lease.acquired.epoch,
        expires_at: lease.expires_at,
    })];
    events.extend(teardowns(state, lease.acquired.lease_id, cause));
    events
}

/// Asks for the teardown of every environment of the lease that is not being torn down yet.
pub(super) fn teardowns(
    state: &RunState,
    lease_id: LeaseId,
    cause: TeardownCause,
) -> impl Iterator<Item = Event> {
    state
        .open_environments()
        .filter(move |environment| {
            environment.requested.lease_id == lease_id && environment.teardown_cause.is_none()
        })
        .map(move |environment| {
            Event::EnvironmentTeardownRequested(EnvironmentTeardownRequested {
                environment_id: environment.requested.environment_id,
                cause,
            })
        })
}
