//! Watches what running commands use of their workspace.
//!
//! One look is the files container's walk (status calls only) and, beside it, the sandbox's search for deleted files
//! that are still open. The next look comes when the room that is left could be used up at the rate seen, or at the
//! rate of a sudden burst; a command that ends before the first look costs nothing.

use std::sync::Arc;
use std::time::{Duration, Instant};

use events::event::command::Evidence;
use guest::protocol::files::{Quota, Request, Response, Usage};

use super::environment::Environment;
use super::files::{FilesChannel, FilesFailure};
use super::profile::FILE_SLACK_BYTES;
use super::spawn::{Deleted, SpawnChannel};
use crate::quota::{Allowance, Measured, Used};

/// No look is closer to the one before than this.
const POLL_MIN: Duration = Duration::from_millis(25);
/// How the time between looks grows while nothing changes.
const BACK_OFF_MIN: Duration = Duration::from_millis(250);
const BACK_OFF_MAX: Duration = Duration::from_secs(1);
/// A look takes at most one part in three of the time: large trees are looked at less often.
const COST_FACTOR: u32 = 2;
/// What a program may suddenly do, per second, after doing nothing.
const BURST: Used = Used { bytes: 4 << 30, inodes: 400_000 };
/// How often what is too much only together is looked at again.
const ROUNDS: u32 = 6;
/// How long one look, with all its walks, may take before it counts as impossible; the guest's own bounds are shorter.
const LOOK_DEADLINE: Duration = Duration::from_secs(30);
/// Looks in a row that failed for another reason than the tree, or were not over in time, before that counts as impossible: a
/// machine with too much to do is no violation.
const FAILURES_MAX: u32 = 3;

/// The last look at everything, or as far as its time went, shared by commands that watch at the same time.
#[derive(Debug)]
pub(super) struct Look {
    began: Instant,
    found: Found,
}

/// What a look found, whether that was all there is, and whether its time was over.
#[derive(Clone, Copy, Debug)]
pub(super) struct Found {
    pub(super) measured: Measured,
    complete: bool,
    is_late: bool,
}

/// Waits until a command uses more than it may, and gives the proof. Never ends when the channels do: their owner
/// notices.
pub(super) async fn excess(
    environment: &Environment,
    files: &Arc<FilesChannel>,
    spawn: &SpawnChannel,
    allowance: &Allowance,
    background: bool,
) -> Evidence {
    let started = Instant::now();
    let mut pace = Pace::new(allowance.ceiling(), environment.used());
    let mut failures = 0;
    loop {
        tokio::time::sleep(pace.wait()).await;
        // What a foreground command runs beside is charged to the foreground, as every counter is.
        if background && environment.foreground().is_some() {
            continue;
        }
        let began = Instant::now();
        let measured = match shared_look(environment, files, spawn, allowance.ceiling(), began).await {
            Ok(found) if !found.is_unfinished(allowance.ceiling()) => found.measured,
            Err(FilesFailure::ChannelEnded) => return std::future::pending().await,
            Err(FilesFailure::WrongAnswer) => None,
            // Not over in time, or out of threads or descriptors for a moment.
            Ok(_) | Err(FilesFailure::Refused(_)) if failures < FAILURES_MAX => {
                failures += 1;
                pace.looked(began, None);
                continue;
            }
            Ok(_) | Err(FilesFailure::Refused(_)) => None,
        };
        failures = 0;
        if let Some(evidence) = allowance.excess(measured, started.elapsed()) {
            return evidence;
        }
        pace.looked(began, measured);
    }
}

impl Found {
    /// Of what has names and what has none.
    fn together((named, complete): (Usage, bool), deleted: &Deleted) -> Self {
        let named = used_by(named);
        let measured = deleted.measured.map(|deleted| Used {
            bytes: named.bytes.saturating_add(deleted.bytes),
            inodes: named.inodes.saturating_add(deleted.inodes),
        });
        Self { measured, complete: complete && deleted.complete, is_late: false }
    }

    /// A part that is too much by itself.
    fn proof(part: Used, ceiling: Used) -> Option<Self> {
        (!part.is_within(ceiling)).then_some(Self { measured: Some(part), complete: false, is_late: false })
    }

    /// It ended before everything was looked at, with nothing found that is too much.
    pub(super) fn is_unfinished(&self, ceiling: Used) -> bool {
        !self.complete && (self.is_late || self.measured.is_some_and(|used| used.is_within(ceiling)))
    }
}

/// One look: what is held under a name, and what without one. They are made one after the other, and one that began after `due`
/// does for everybody.
pub(super) async fn shared_look(
    environment: &Environment,
    files: &Arc<FilesChannel>,
    spawn: &SpawnChannel,
    ceiling: Used,
    due: Instant,
) -> Result<Found, FilesFailure> {
    let mut last = environment.last_look.lock().await;
    if let Some(look) = last.as_ref().filter(|look| look.began >= due) {
        return Ok(look.found);
    }
    let began = Instant::now();
    let looked = tokio::time::timeout(LOOK_DEADLINE, look(environment, files, spawn, ceiling)).await;
    let found = looked.unwrap_or(Ok(Found { measured: None, complete: false, is_late: true }))?;
    // What one command may not use another may.
    if found.complete || found.is_unfinished(ceiling) {
        *last = Some(Look { began, found });
    }
    Ok(found)
}

async fn look(
    environment: &Environment,
    files: &Arc<FilesChannel>,
    spawn: &SpawnChannel,
    ceiling: Used,
) -> Result<Found, FilesFailure> {
    let mut walking = std::pin::pin!(walk(files, ceiling));
    let mut searching = std::pin::pin!(spawn.deleted(environment.uid, environment.uid, ceiling));
    // What either finds to be too much needs no other proof: it is written at full speed while the other one looks.
    let (walked, deleted) = tokio::select! {
        walked = &mut walking => {
            let walked = walked?;
            if let Some(proof) = Found::proof(used_by(walked.0), ceiling) {
                return Ok(proof);
            }
            (walked, searching.await)
        }
        deleted = &mut searching => {
            if let Some(proof) = deleted.as_ref().and_then(|deleted| Found::proof(deleted.measured?, ceiling)) {
                return Ok(proof);
            }
            (walking.await?, deleted)
        }
    };
    let Some(deleted) = deleted else { return Err(FilesFailure::ChannelEnded) };
    let found = Found::together(walked, &deleted);
    if found.measured.is_none_or(|used| used.is_within(ceiling)) {
        return Ok(found);
    }
    // Too much only together: what the walk met may have been deleted when the search came to it, or got its name after the
    // search. What two searches find, and a walk between them meets, was there at the same time; but where no birth of a file is told
    // (gVisor) its number may be the next one's by then. So it must be too much every time.
    let mut last = found;
    for _ in 0..ROUNDS {
        let walked = walk(files, ceiling).await?;
        if let Some(proof) = Found::proof(used_by(walked.0), ceiling) {
            return Ok(proof);
        }
        let again = spawn.deleted(environment.uid, environment.uid, ceiling).await;
        let again = again.ok_or(FilesFailure::ChannelEnded)?;
        if let Some(proof) = again.measured.and_then(|used| Found::proof(used, ceiling)) {
            return Ok(proof);
        }
        last = Found::together(walked, &Deleted { measured: again.measured.map(|_| again.kept), ..again });
        if last.measured.is_none_or(|used| used.is_within(ceiling)) {
            break;
        }
    }
    Ok(last)
}

fn used_by(usage: Usage) -> Used {
    Used { bytes: usage.used_bytes(), inodes: usage.inodes }
}

async fn walk(files: &Arc<FilesChannel>, ceiling: Used) -> Result<(Usage, bool), FilesFailure> {
    let stop = Quota { bytes_max: ceiling.bytes, inodes_max: ceiling.inodes };
    let mut exchange = files.send(|id| Request::Measure { id, stop });
    match exchange.next().await? {
        Response::Measured { usage, complete, .. } => Ok((usage, complete)),
        _ => Err(FilesFailure::WrongAnswer),
    }
}

/// When to look next.
struct Pace {
    ceiling: Used,
    last: (Instant, Used),
    rate: Used,
    back_off: Duration,
    cost: Duration,
}

impl Pace {
    fn new(ceiling: Used, before: Measured) -> Self {
        let last = (Instant::now(), before.unwrap_or(ceiling));
        Self { ceiling, last, rate: Used::default(), back_off: BACK_OFF_MIN, cost: Duration::ZERO }
    }

    fn wait(&self) -> Duration {
        let left = |ceiling: u64, used: u64, rate: u64, burst: u64| {
            #[expect(clippy::cast_precision_loss, reason = "a wait is no exact thing")]
            let seconds = ceiling.saturating_sub(used) as f64 / rate.max(burst) as f64;
            Duration::try_from_secs_f64(seconds).unwrap_or(BACK_OFF_MAX)
        };
        let used = self.last.1;
        let bytes = left(self.ceiling.bytes, used.bytes, self.rate.bytes, BURST.bytes);
        let inodes = left(self.ceiling.inodes, used.inodes, self.rate.inodes, BURST.inodes);
        self.back_off.min(bytes).min(inodes).max(self.cost * COST_FACTOR).max(POLL_MIN)
    }

    /// A look that began then found this.
    fn looked(&mut self, began: Instant, measured: Measured) {
        self.cost = began.elapsed();
        let Some(used) = measured else { return };
        let (before, last) = self.last;
        let per_second = |now: u64, then: u64| {
            let millis = began.saturating_duration_since(before).as_millis().max(1);
            u64::try_from(u128::from(now.saturating_sub(then)) * 1000 / millis).unwrap_or(u64::MAX)
        };
        self.rate =
            Used { bytes: per_second(used.bytes, last.bytes), inodes: per_second(used.inodes, last.inodes) };
        self.back_off = if used == last { (self.back_off * 2).min(BACK_OFF_MAX) } else { BACK_OFF_MIN };
        self.last = (began, used);
    }
}

/// The largest file that a command may make: it may grow any file that is there by what is left, not more. Beyond it
/// programs get EFBIG or SIGXFSZ; the limit on the whole workspace is the watching above.
pub(super) fn file_size_max(workspace_bytes: u64, before: Option<&Usage>) -> u64 {
    let Some(usage) = before else { return FILE_SLACK_BYTES };
    let left = workspace_bytes.saturating_sub(usage.used_bytes());
    left.saturating_add(usage.largest_bytes).min(workspace_bytes).saturating_add(FILE_SLACK_BYTES)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    fn used(bytes: u64) -> Used {
        Used { bytes, inodes: 1 }
    }

    fn pace(ceiling: u64, before: u64) -> Pace {
        Pace::new(Used { bytes: ceiling, inodes: 1_000_000 }, Some(used(before)))
    }

    #[test]
    fn far_from_the_limit_it_looks_less_and_less_often() {
        let mut pace = pace(1 << 40, 0);
        assert_eq!(pace.wait(), BACK_OFF_MIN);
        for expected in [500, 1000, 1000] {
            let at = Instant::now();
            pace.looked(at, Some(used(0)));
            pace.cost = Duration::ZERO;
            assert_eq!(pace.wait(), Duration::from_millis(expected));
        }
        pace.looked(Instant::now(), Some(used(5)));
        pace.cost = Duration::ZERO;
        assert_eq!(pace.wait(), BACK_OFF_MIN, "something happens again");
    }

    #[test]
    fn near_the_limit_it_looks_as_often_as_the_tree_allows() {
        let mut pace = pace(64 * MIB, 63 * MIB);
        assert_eq!(pace.wait(), POLL_MIN);
        pace.cost = Duration::from_millis(30);
        assert_eq!(pace.wait(), Duration::from_millis(60));
        pace.cost = Duration::ZERO;
        pace.last = (Instant::now(), used(0));
        pace.rate = used(640 * MIB);
        assert!(pace.wait() < Duration::from_millis(100), "the burst is faster than the rate");
        pace.ceiling.bytes = 1 << 40;
        pace.rate = Used { bytes: 1 << 43, inodes: 0 };
        assert_eq!(pace.wait(), Duration::from_millis(125));
    }

    #[test]
    fn a_look_that_ended_early_is_unfinished_unless_it_found_too_much() {
        let found = |bytes, complete| Found { measured: Some(used(bytes)), complete, is_late: false };
        let ceiling = Used { bytes: 10, inodes: 1 };
        assert!(found(10, false).is_unfinished(ceiling));
        assert!(!found(11, false).is_unfinished(ceiling), "that is proof enough");
        assert!(!found(10, true).is_unfinished(ceiling));
        assert!(Found::proof(used(10), ceiling).is_none());
        assert!(Found::proof(used(11), ceiling).is_some_and(|proof| !proof.is_unfinished(ceiling)));
        let none = |is_late| Found { measured: None, complete: false, is_late };
        assert!(!none(false).is_unfinished(ceiling), "hidden is not late");
        assert!(none(true).is_unfinished(ceiling));
    }

    #[test]
    fn what_is_there_may_be_rewritten_and_what_is_left_added() {
        let usage =
            |allocated_bytes, largest_bytes| Usage { allocated_bytes, largest_bytes, ..Usage::default() };
        let max = |used, largest| file_size_max(100 * MIB, Some(&usage(used, largest))) - FILE_SLACK_BYTES;
        assert_eq!(max(0, 0), 100 * MIB);
        assert_eq!(max(60 * MIB, 10 * MIB), 50 * MIB);
        assert_eq!(max(90 * MIB, 90 * MIB), 100 * MIB);
        assert_eq!(max(200 * MIB, 30 * MIB), 30 * MIB);
        assert_eq!(file_size_max(100 * MIB, None), FILE_SLACK_BYTES);
    }
}
