//! What each event does to the rows of leases.

use events::run::LeasePhase;
use events::stored::Recorded;
use events::{Event, LeaseId, RunId};

use super::LeaseRow;
use crate::rows::Rows;

/// The lease that an event is about.
pub(crate) fn key(event: &Event) -> Option<LeaseId> {
    match event {
        Event::LeaseAcquired(body) => Some(body.lease_id),
        Event::LeaseRenewed(body) => Some(body.lease_id),
        Event::LeaseReleased(body) => Some(body.lease_id),
        Event::LeaseExpired(body) => Some(body.lease_id),
        Event::LeaseRevoked(body) => Some(body.lease_id),
        Event::LeaseFenced(body) => Some(body.lease_id),
        _ => None,
    }
}

/// Applies one event of a run.
pub(crate) fn fold(rows: &mut Rows<LeaseRow>, run_id: RunId, recorded: &Recorded, event: &Event) {
    match event {
        Event::LeaseAcquired(body) => rows.put(LeaseRow {
            lease_id: body.lease_id,
            tenant: recorded.header.tenant,
            run_id,
            epoch: body.epoch,
            state: LeasePhase::Live,
            holder: body.holder.clone(),
            network: body.network,
            limits: body.limits,
            tools: body.tools.clone(),
            labels: body.labels.clone(),
            environment_cap_ms: body.environment_cap_ms,
            acquired_at: recorded.header.recorded_at,
            expires_at: body.expires_at,
            ended_at: None,
            created_position: recorded.position,
            position: recorded.position,
        }),
        Event::LeaseRenewed(body) => rows.change(body.lease_id, |row| {
            row.expires_at = body.expires_at;
            row.position = recorded.position;
        }),
        Event::LeaseReleased(body) => end(rows, body.lease_id, LeasePhase::Released, recorded),
        Event::LeaseExpired(body) => end(rows, body.lease_id, LeasePhase::Expired, recorded),
        Event::LeaseRevoked(body) => end(rows, body.lease_id, LeasePhase::Revoked, recorded),
        Event::LeaseFenced(body) => end(rows, body.lease_id, LeasePhase::Fenced, recorded),
        _ => {}
    }
}

/// The first recorded end counts.
fn end(rows: &mut Rows<LeaseRow>, lease_id: LeaseId, state: LeasePhase, recorded: &Recorded) {
    if rows.get(lease_id).is_some_and(|row| row.state == LeasePhase::Live) {
        rows.change(lease_id, |row| {
            row.state = state;
            row.ended_at = Some(recorded.header.recorded_at);
            row.position = recorded.position;
        });
    }
}
