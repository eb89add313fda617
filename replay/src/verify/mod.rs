//! The whole log and the projections, in one snapshot: every leaf and chain recomputed from stored bytes, every column against
//! its header, every row of every view against a fresh fold.

mod report;

use std::io::{IsTerminal as _, Write as _};

use event_log::verify::{Options, Progress};
use events::Position;
use projections::{Comparison, Folded, ViewsError, checkpoint, compare};
use tokio_postgres::Transaction;

use crate::error::ReplayError;
use crate::source::{Source, snapshot};
pub use report::{Projections, Report, Verdict};

/// Faults that are told one by one.
const FAULTS_TOLD_MAX: usize = 100;
/// Outputs of at most this many events are in memory at once.
pub(crate) const SEAL_EVERY: u64 = 256;
/// Below this a verification is over before a progress line could be read.
const PROGRESS_EVENTS_MIN: u64 = 50_000;

/// Verifies the log and its projections.
///
/// # Errors
/// When the database cannot be read. What is wrong with its contents is in the report.
pub async fn verify(source: &Source) -> Result<Report, ReplayError> {
    source
        .with(async |client| {
            let transaction = snapshot(client).await?;
            let target = checkpoint(&transaction).await;
            let until = match &target {
                Ok(Some(checkpoint)) => checkpoint.position,
                Ok(None) | Err(_) => Position(0),
            };
            let mut folded = Folded::default();
            let mut whole = true;
            let options = Options { faults_max: FAULTS_TOLD_MAX, ..Options::default() };
            let on_event = |recorded: &events::stored::Recorded| {
                if recorded.position < until {
                    whole &= folded.apply(recorded).is_ok();
                    if recorded.position.get().is_multiple_of(SEAL_EVERY) {
                        whole &= folded.seal().is_ok();
                    }
                }
            };
            let log = event_log::verify::verify(&transaction, options, on_event, tell).await?;
            let projections = match target {
                Ok(_) => compare_views(&transaction, folded, until, whole).await?,
                Err(ViewsError::Stored { column, detail, .. }) => Projections::NotCompared {
                    reason: format!("the checkpoint's {column} is unreadable: {detail}"),
                },
                Err(error) => return Err(error.into()),
            };
            Ok(Report::new(&log, projections))
        })
        .await
}

async fn compare_views(
    transaction: &Transaction<'_>,
    folded: Folded,
    until: Position,
    whole: bool,
) -> Result<Projections, ReplayError> {
    if !whole || folded.next != until {
        let reason = format!(
            "the projections are at position {until}, the log can be folded up to position {} only",
            folded.next
        );
        return Ok(Projections::NotCompared { reason });
    }
    let comparison: Comparison = compare(transaction, folded).await?;
    Ok(Projections::Compared { position: until, comparison })
}

/// Progress for people who watch; nothing for pipes and logs.
fn tell(progress: Progress) {
    let mut stderr = std::io::stderr();
    if progress.events_total < PROGRESS_EVENTS_MIN || !stderr.is_terminal() {
        return;
    }
    let end = if progress.events >= progress.events_total { "\n" } else { "" };
    // A terminal that is gone changes nothing about the verification.
    let _ = write!(stderr, "\rchecked {} of {} events{end}", progress.events, progress.events_total);
}
