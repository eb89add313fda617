//! What each event does to the rows of environments.

use events::run::EnvironmentPhase;
use events::stored::Recorded;
use events::{EnvironmentId, Event, RunId};

use super::EnvironmentRow;
use crate::rows::Rows;

/// The environment whose life an event is about.
pub(crate) fn key(event: &Event) -> Option<EnvironmentId> {
    match event {
        Event::EnvironmentRequested(body) => Some(body.environment_id),
        Event::EnvironmentProvisioned(body) => Some(body.environment_id),
        Event::EnvironmentProvisionFailed(body) => Some(body.environment_id),
        Event::EnvironmentAdopted(body) => Some(body.environment_id),
        Event::EnvironmentTeardownRequested(body) => Some(body.environment_id),
        Event::EnvironmentTeardownFailed(body) => Some(body.environment_id),
        Event::EnvironmentDestroyed(body) => Some(body.environment_id),
        Event::EnvironmentSuspected(body) => Some(body.environment_id),
        _ => None,
    }
}

/// Applies one event of a run.
pub(crate) fn fold(rows: &mut Rows<EnvironmentRow>, run_id: RunId, recorded: &Recorded, event: &Event) {
    let at = recorded.header.recorded_at;
    if let Event::EnvironmentRequested(body) = event {
        rows.put(EnvironmentRow {
            environment_id: body.environment_id,
            tenant: recorded.header.tenant,
            run_id,
            lease_id: body.lease_id,
            epoch: body.epoch,
            node_id: body.node_id,
            mechanism: body.mechanism,
            image_digest: body.image_digest.clone(),
            limits: body.limits,
            policy_digest: body.policy_digest.clone(),
            state: EnvironmentPhase::Requested,
            teardown_cause: None,
            teardown_attempts: 0,
            reason_code: None,
            adopted_by: None,
            created_at: at,
            expires_at: body.expires_at,
            ready_at: None,
            destroyed_at: None,
            created_position: recorded.position,
            position: recorded.position,
        });
        return;
    }
    let Some(environment_id) = key(event) else { return };
    rows.change(environment_id, |row| {
        row.position = recorded.position;
        match event {
            Event::EnvironmentProvisioned(_) => {
                row.ready_at = Some(at);
                if row.state == EnvironmentPhase::Requested {
                    row.state = EnvironmentPhase::Ready;
                }
            }
            Event::EnvironmentProvisionFailed(body) => {
                row.state = EnvironmentPhase::Failed;
                row.reason_code = Some(body.reason_code.clone());
            }
            Event::EnvironmentAdopted(body) => row.adopted_by = Some(body.instance_id),
            Event::EnvironmentTeardownRequested(body) => {
                row.teardown_cause.get_or_insert(body.cause);
                if matches!(row.state, EnvironmentPhase::Requested | EnvironmentPhase::Ready) {
                    row.state = EnvironmentPhase::TearingDown;
                }
            }
            Event::EnvironmentTeardownFailed(body) => {
                row.teardown_attempts = row.teardown_attempts.max(body.attempt);
                row.reason_code = Some(body.reason_code.clone());
            }
            Event::EnvironmentDestroyed(_) => {
                row.state = EnvironmentPhase::Destroyed;
                row.destroyed_at = Some(at);
            }
            Event::EnvironmentSuspected(body) => row.reason_code = Some(body.reason_code.clone()),
            _ => {}
        }
    });
}
