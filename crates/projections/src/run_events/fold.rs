//! Which events belong to a run: those whose header names it.

use events::event::EventType;
use events::stored::Recorded;

use super::RunEventRow;
use crate::rows::Rows;

/// Applies one event. The body is not needed: an erased event stays in its run's history.
pub(crate) fn fold(rows: &mut Rows<RunEventRow>, recorded: &Recorded) {
    let header = &recorded.header;
    if let (Some(run_id), Some(kind)) = (header.correlation_id, EventType::from_name(&header.kind)) {
        rows.put(RunEventRow { position: recorded.position, tenant: header.tenant, run_id, kind });
    }
}
