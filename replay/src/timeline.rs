//! What happened, one line per event.

use std::io::Write;

use event_log::verify::events;
use events::{Position, RunId};
use futures::TryStreamExt as _;
use projections::timeline::Timeline;

use crate::error::ReplayError;
use crate::shape::EventJson;
use crate::source::{Source, snapshot};

/// Writes every event (of one run, or of the whole log) in order: aligned words for people, or JSON lines in the shape of the
/// interface. The whole log is read, not an index of it: no event of the run can be missing because a projection lacks it.
///
/// # Errors
/// When the log cannot be read to its end, or has no event of the run. What was read before is written.
pub async fn write(
    source: &Source,
    run_id: Option<RunId>,
    json: bool,
    out: &mut impl Write,
) -> Result<(), ReplayError> {
    source
        .with(async |client| {
            let transaction = snapshot(client).await?;
            let mut events = std::pin::pin!(events(&transaction, Position(0)).await?);
            let mut timeline = Timeline::default();
            let mut written = 0_u64;
            while let Some(recorded) = events.try_next().await? {
                if run_id.is_some() && recorded.header.correlation_id != run_id {
                    continue;
                }
                if json {
                    serde_json::to_writer(&mut *out, &EventJson::try_new(&recorded)?)?;
                    writeln!(out)?;
                } else {
                    if written == 0 {
                        writeln!(out, "position  time since {}", recorded.header.recorded_at)?;
                    }
                    writeln!(out, "{}", timeline.line(&recorded))?;
                }
                written += 1;
            }
            match (written, run_id) {
                (0, Some(run_id)) => Err(ReplayError::NoSuchRun { run_id }),
                (0, None) => Err(ReplayError::Empty),
                _ => Ok(()),
            }
        })
        .await
}
