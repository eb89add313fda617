//! What each event does to the rows of runs.

use events::run::RunPhase;
use events::stored::Recorded;
use events::{Epoch, Event, RunId};

use super::RunRow;
use crate::rows::Rows;

/// Whether an event is about the run itself.
pub(crate) fn concerns(event: &Event) -> bool {
    matches!(event, Event::LeaseAcquired(_) | Event::RunCloseRequested(_) | Event::RunClosed(_))
}

/// Applies one event of a run. A run comes into being with its first event of these.
pub(crate) fn fold(rows: &mut Rows<RunRow>, run_id: RunId, recorded: &Recorded, event: &Event) {
    let tenant = recorded.header.tenant;
    let known = rows.get((tenant, run_id)).cloned();
    let mut row = known.unwrap_or(RunRow {
        tenant,
        run_id,
        phase: RunPhase::Open,
        last_epoch: Epoch::default(),
        position: recorded.position,
    });
    match event {
        Event::LeaseAcquired(body) => row.last_epoch = row.last_epoch.max(body.epoch),
        Event::RunCloseRequested(_) if row.phase == RunPhase::Open => row.phase = RunPhase::Closing,
        Event::RunClosed(_) => row.phase = RunPhase::Closed,
        _ => return,
    }
    row.position = recorded.position;
    rows.put(row);
}
