//! Verification: every leaf and every chain anew from stored bytes, and every column compared with the header it indexes.
//!
//! Nothing is trusted but bytes; nothing is written. The caller opens the transaction (the audit role, REPEATABLE READ, READ
//! ONLY) so that log and projections can be compared in one snapshot. In the same pass the Merkle tree grows over the recomputed
//! leaves, and is compared with every signed head and stored tile. What this cannot show: that who holds a signing key replaced the
//! log as a whole; that takes a head of before, kept elsewhere.
//!
//! ```text
//!   one query ── rows ──> ranges of positions ──> threads: each event by itself (`event`)
//!                                                 └─ in order again ──> gaps, chains, tips (`check`, `chains`), caller
//!                                                                      └─ roots and tiles (`claims`, `tree`, `sealed`)
//! ```

mod chains;
mod check;
mod claims;
mod event;
mod read;
mod report;
mod sealed;
mod tree;
mod witness;

use std::sync::Arc;

use events::Position;
use events::stored::Recorded;
use futures::TryStreamExt as _;
use tokio_postgres::{GenericClient, Row};

pub use check::HistoryCheck;
pub use claims::{KeptHead, Trust};
pub use event::StoredBytes;
pub use read::{
    EventRow, Meta, StreamTip, events, meta, run_streams, stored_bytes, stored_version, stream_rows,
};
pub use report::{Fault, Finding, Report};
pub use witness::{Anchor, Origin, Seal, Tail};

use crate::error::LogError;
use check::Checker;
use event::{Checked, Context};

/// Events of one range. An event has at most half a MiB: a range of the largest ones still fits into memory.
const RANGE_EVENTS: usize = 128;
/// More ranges at a time than this only wait for the one thread that puts them in order.
const RANGES_MAX: usize = 8;

/// How to verify.
#[derive(Clone, Debug)]
pub struct Options {
    /// How many faults are described; the rest is counted.
    pub faults_max: usize,
    /// How many events lie between two calls of `progress`, at least.
    pub progress_every: u64,
    /// How many ranges are checked at a time, each on a thread of its own.
    pub ranges: usize,
    /// Who is believed, and what was kept outside of the database.
    pub trust: Trust,
}

impl Default for Options {
    fn default() -> Self {
        let processors = std::thread::available_parallelism().map_or(1, usize::from);
        Self {
            faults_max: 20,
            progress_every: 10_000,
            ranges: processors.min(RANGES_MAX),
            trust: Trust::default(),
        }
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
    let (claims, mut tree, faults) = sealed::open(transaction, &options.trust).await?;
    for fault in faults {
        checker.note(None, fault);
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
            tree.follow(
                checked.position,
                checked.leaf,
                checked.read.header().map(|header| header.recorded_at),
            );
            if let Some(recorded) = checker.follow(checked) {
                on_event(&recorded);
            }
            for (position, fault) in tree.take_found() {
                checker.note(position, fault);
            }
        }
        if checker.events() >= told + options.progress_every {
            told = checker.events();
            progress(Progress { events: told, events_total: meta.head.get() });
        }
    }
    progress(Progress { events: checker.events(), events_total: meta.head.get() });
    for tile in tree.finish(checker.next()) {
        let (position, fault) = sealed::locate(transaction, &tile).await?;
        checker.note(Some(position), fault);
    }
    for (position, fault) in tree.take_found() {
        checker.note(position, fault);
    }
    let seal = sealed::seal(transaction, claims, tree, &options.trust).await?;
    Ok(Report { seal: Some(seal), ..checker.finish(streams, bodies) })
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
