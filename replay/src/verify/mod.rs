//! The whole log and the projections, in one snapshot: every leaf and chain recomputed from stored bytes, every column against
//! its header, every row of every view against a fresh fold; and the tree over the leaves against what is signed ([`seal`]).

mod report;
pub(crate) mod seal;

use std::fs::File;
use std::io::{ErrorKind, IsTerminal as _, Read as _, Write as _};
use std::path::{Path, PathBuf};

use event_log::proof::note::{NOTE_BYTES_MAX, VerifierKey};
use event_log::verify::{KeptHead, Options, Progress, Trust};
use events::Position;
use projections::{Comparison, Folded, ViewsError, checkpoint, compare};
use tokio_postgres::Transaction;

use crate::error::ReplayError;
use crate::source::{Source, snapshot};
pub use report::{Projections, Report};

/// Faults that are told one by one.
const FAULTS_TOLD_MAX: usize = 100;
/// Outputs of at most this many events are in memory at once.
pub(crate) const SEAL_EVERY: u64 = 256;
/// Below this a verification is over before a progress line could be read.
const PROGRESS_EVENTS_MIN: u64 = 50_000;
/// Where a service keeps the newest head in its data directory, unless it is told otherwise.
const HEAD_FILE: &str = "signed_head";

/// Verifies the log and its projections. Signatures of `keys` are believed, without any those of the log's own; `heads` are files
/// with signed heads of the log, to which the one in the data directory comes if it is there.
///
/// # Errors
/// When the database or a head's file cannot be read. What is wrong with the contents is in the report.
pub async fn verify(
    source: &Source,
    keys: Vec<VerifierKey>,
    heads: &[PathBuf],
) -> Result<Report, ReplayError> {
    // Before the snapshot: a head is stored in the log first, so the log must have it.
    let trust = Trust { keys, heads: kept_heads(source, heads)? };
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
            let options = Options { faults_max: FAULTS_TOLD_MAX, trust, ..Options::default() };
            let on_event = |recorded: &events::stored::Recorded| {
                if recorded.position < until {
                    whole &= folded.apply(recorded).is_ok();
                    if recorded.position.get().is_multiple_of(SEAL_EVERY) {
                        whole &= folded.seal().is_ok();
                    }
                }
            };
            let mut log = event_log::verify::verify(&transaction, options, on_event, tell).await?;
            let seal = log.seal.take().unwrap_or_default();
            let projections = match target {
                Ok(_) => compare_views(&transaction, folded, until, whole).await?,
                Err(ViewsError::Stored { column, detail, .. }) => Projections::NotCompared {
                    reason: format!("the checkpoint's {column} is unreadable: {detail}"),
                },
                Err(error) => return Err(error.into()),
            };
            Ok(Report::new(&log, seal, projections))
        })
        .await
}

fn kept_heads(source: &Source, files: &[PathBuf]) -> Result<Vec<KeptHead>, ReplayError> {
    let mut heads = files.iter().map(|path| kept_head(path)).collect::<Result<Vec<_>, _>>()?;
    if let Source::DataDir(data_dir) = source {
        match kept_head(&data_dir.join(HEAD_FILE)) {
            Ok(head) if heads.contains(&head) => {}
            Ok(head) => heads.push(head),
            Err(ReplayError::File { source, .. }) if source.kind() == ErrorKind::NotFound => {}
            Err(error) => return Err(error),
        }
    }
    Ok(heads)
}

fn kept_head(path: &Path) -> Result<KeptHead, ReplayError> {
    let mut note = Vec::new();
    let bound = u64::try_from(NOTE_BYTES_MAX).unwrap_or(u64::MAX) + 1;
    let read = File::open(path).and_then(|file| file.take(bound).read_to_end(&mut note));
    read.map_err(|source| ReplayError::File { path: path.to_owned(), source })?;
    Ok(KeptHead { name: path.display().to_string(), note })
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
