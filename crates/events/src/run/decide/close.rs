//! Closing a run: no lease may follow, then everything left gets its end, then the history is complete.

use super::{Decision, lease};
use crate::event::Event;
use crate::event::environment::TeardownCause;
use crate::event::lease::{LeaseReleased, RunCloseRequested, RunClosed};
use crate::run::rejection::Rejection;
use crate::run::state::{RunPhase, RunState};
use crate::time::Timestamp;

pub(super) fn request(state: &RunState, now: Timestamp) -> Result<Decision, Rejection> {
    if state.phase != RunPhase::Open {
        return Ok(Decision::AlreadyDone);
    }
    let mut events = Vec::new();
    if let Some(live) = state.recorded_live_lease() {
        if live.is_live(now) {
            let (lease_id, epoch) = (live.acquired.lease_id, live.acquired.epoch);
            events.push(Event::LeaseReleased(LeaseReleased { lease_id, epoch }));
            events.extend(lease::teardowns(state, lease_id, TeardownCause::Closed));
        } else {
            events.extend(lease::expire(state, live, TeardownCause::Closed));
        }
    }
    events.push(Event::RunCloseRequested(RunCloseRequested {}));
    Ok(Decision::Append(events))
}

pub(super) fn record(state: &RunState) -> Result<Decision, Rejection> {
    if state.phase != RunPhase::Closing {
        return Err(Rejection::Invalid { field: "run", detail: "closing was not requested" });
    }
    let (commands, environments) = (state.open_commands().count(), state.open_environments().count());
    if commands + environments > 0 {
        return Err(Rejection::StillOpen { commands, environments });
    }
    Ok(Decision::Append(vec![Event::RunClosed(RunClosed {
        last_epoch: state.last_epoch,
        commands: state.commands.len() as u64,
        environments: state.environments.len() as u64,
        children: Vec::new(),
    })]))
}
