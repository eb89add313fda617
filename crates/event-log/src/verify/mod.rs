//! Verification: every leaf and every chain anew from stored bytes, and every column compared with the header it indexes.
//!
//! Nothing is trusted but bytes; nothing is written. The caller opens the transaction (the audit role, REPEATABLE READ, READ
//! ONLY) so that log and projections can be compared in one snapshot. What this cannot show: that a log was replaced as a whole by
//! another consistent one; that takes a signed head kept elsewhere.
//!
//! ```text
//!   one query ── rows ──> ranges of positions ──> threads: each event by itself (`event`)
//!                                                 └─ in order again ──> gaps, chains, tips (`check`, `chains`), caller
//! ```

mod chains;
mod check;
mod event;
mod read;
mod report;

use std::sync::Arc;

use events::Position;
use events::stored::Recorded;
use futures::TryStreamExt as _;
use tokio_postgres::{GenericClient, Row};

pub use check::HistoryCheck;
pub use event::StoredBytes;
pub use read::{EventRow, Meta, StreamTip, events, meta, run_streams, stored_bytes, stream_rows};
pub use report::{Fault, Finding, Report};

use crate::error::LogError;
use check::Checker;
use event::{Checked, Context};

/// Events of one range. An event has at most half a MiB: a range of the largest ones still fits into memory.
const RANGE_EVENTS: usize = 128;
/// More ranges at a time than this only wait for the one thread that puts them in order.
const RANGES_MAX: usize = 8;

/// How to verify.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// How many faults are described; the rest is counted.
    pub faults_max: usize,
    /// How many events lie between two calls of `progress`, at least.
    pub progress_every: u64,
    /// How many ranges are checked at a time, each on a thread of its own.
    pub ranges: usize,
}

impl Default for Options {
    fn default() -> Self {
        let processors = std::thread::available_parallelism().map_or(1, usize::from);
        Self { faults_max: 20, progress_every: 10_000, ranges: processors.min(RANGES_MAX) }
    }
}

/// How far a verification is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Progress {
    /// Events checked.
    pub events: u64,
    /// Events in the log, as its head says.
    pub events_total: u64,
}

/// Checks the whole log inside the caller's transaction. `on_event` gets every event that can be read, in order.
///
/// # Errors
/// When the database does not answer. A fault of the log is not an error: it is in the report.
pub async fn verify(
    transaction: &impl GenericClient,
    options: Options,
    mut on_event: impl FnMut(&Recorded),
    mut progress: impl FnMut(Progress),
) -> Result<Report, LogError> {
    let meta = meta(transaction).await?;
    let bodies = read::bodies(transaction).await?;
    let (streams, misnamed) = read::streams(transaction).await?;
    let mut checker = Checker::new(meta.log_id, meta.head, options.faults_max);
    for name in misnamed {
        checker.note(None, Fault::StreamName { name });
    }
    let names = streams.iter().map(|stream| (stream.id, stream.name.clone())).collect();
    let context = Arc::new(Context { log_id: meta.log_id, names });
    let ranges = read::rows(transaction, Position(0))
        .await?
        .try_chunks(RANGE_EVENTS)
        .map_err(|failed| LogError::from(failed.1))
        .map_ok(|rows| check_range(Arc::clone(&context), rows))
        .try_buffered(options.ranges.max(1));
    let mut ranges = std::pin::pin!(ranges);
    let mut told = 0;
    while let Some(range) = ranges.try_next().await? {
        for checked in range {
            if let Some(recorded) = checker.follow(checked) {
                on_event(&recorded);
            }
        }
        if checker.events() >= told + options.progress_every {
            told = checker.events();
            progress(Progress { events: told, events_total: meta.head.get() });
        }
    }
    progress(Progress { events: checker.events(), events_total: meta.head.get() });
    Ok(checker.finish(streams, bodies))
}

/// Checks each event of a range by itself, on a thread for work.
async fn check_range(context: Arc<Context>, rows: Vec<Row>) -> Result<Vec<Checked>, LogError> {
    let check = move || {
        let checked = rows.iter().map(|row| Ok(Checked::row(&context, &read::stored_event(row)?)));
        checked.collect::<Result<Vec<_>, LogError>>()
    };
    match tokio::task::spawn_blocking(check).await {
        Ok(checked) => checked,
        Err(failed) => match failed.try_into_panic() {
            Ok(panic) => std::panic::resume_unwind(panic),
            Err(cancelled) => Err(LogError::Unavailable(cancelled.into())),
        },
    }
}
