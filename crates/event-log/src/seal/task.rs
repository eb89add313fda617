//! The sealer's task: one at a time by a session lock, woken by the log, never faster than it has to be.

use std::sync::Arc;
use std::time::Duration;

use events::Position;
use tokio::sync::watch;
use tokio::time::Instant;
use tokio_postgres::Config;
use tokio_postgres::error::SqlState;
use tokio_util::sync::CancellationToken;

use super::fault::{SealFault, Stop};
use super::ledger::Ledger;
use super::outside::{Outside, Wrote};
use super::recheck::PAGE;
use super::{SealConfig, SealState, SealStatus};
use crate::error::LogError;
use crate::proof::checkpoint::Checkpoint;
use crate::session::Session;

/// Shortest time between two heads, unless a page of events waits: half of what an event may wait to be sealed.
const INTERVAL: Duration = Duration::from_millis(500);
/// Pause before the database or the store of the head outside is tried again.
const RETRY_PAUSE: Duration = Duration::from_millis(500);
/// A round, or a wait for the lock, that takes longer has lost its server: statements are bounded there.
const ROUND_LIMIT: Duration = Duration::from_secs(60);
/// The same for what is compared when sealing begins.
const OPEN_LIMIT: Duration = Duration::from_secs(600);
/// The lock of the one sealer; the number is this module's own.
const LOCK: i64 = 7_311_202_402;

/// Everything that the task needs.
#[derive(Debug)]
pub(super) struct Task {
    pub(super) config: SealConfig,
    pub(super) database: Config,
    pub(super) positions: watch::Receiver<Position>,
    pub(super) report: watch::Sender<SealStatus>,
    pub(super) stop: CancellationToken,
    /// The last head that this process has signed or found in order: the database must go on from it.
    pub(super) remembered: Option<Checkpoint>,
}

impl Task {
    pub(super) async fn run(mut self) {
        let stop = self.stop.clone();
        loop {
            let ended = tokio::select! {
                () = stop.cancelled() => return,
                ended = self.term() => ended,
            };
            match ended {
                // The log was closed.
                Ok(()) => return,
                Err(Stop::Fault(fault)) => {
                    tracing::error!(error = &fault as &dyn std::error::Error, "sealing has stopped");
                    self.state(SealState::Faulted(fault));
                    return;
                }
                Err(stop) => {
                    let error = &stop as &dyn std::error::Error;
                    tracing::warn!(error, "sealing is interrupted");
                    self.state(SealState::Unavailable { reason: reason(error) });
                }
            }
            tokio::select! {
                () = stop.cancelled() => return,
                () = tokio::time::sleep(RETRY_PAUSE) => {}
            }
        }
    }

    /// From the lock to its loss.
    async fn term(&mut self) -> Result<(), Stop> {
        let session = Session::connect(&self.database).await?;
        self.lock(&session).await?;
        let mut ledger = bounded(OPEN_LIMIT, Ledger::open(session, &self.config)).await?;
        if let Some(before) = &self.remembered
            && !ledger.extends(before).await?
        {
            return Err(SealFault::CheckpointChanged { size: before.size }.into());
        }
        let since = self.report.borrow().head_unwritten_since;
        let mut outside = Outside::open(Arc::clone(&self.config.head), &ledger, since).await?;
        let mut next = Instant::now();
        loop {
            outside.begin(&ledger);
            self.publish(&ledger, &outside);
            match self.wait(&mut ledger, &mut outside, next).await? {
                Wake::Closed => return Ok(()),
                Wake::Wrote(wrote) => outside.settle(&ledger, wrote).await?,
                Wake::Grown => {
                    next = Instant::now() + INTERVAL;
                    bounded(ROUND_LIMIT, ledger.round()).await?;
                }
            }
        }
    }

    /// Takes the sealer's lock on the session that will write, however long another sealer holds it.
    async fn lock(&self, session: &Session) -> Result<(), Stop> {
        let client = session.client();
        let row = client.query_one("SELECT pg_try_advisory_lock($1)", &[&LOCK]).await?;
        if row.try_get::<_, bool>(0)? {
            return Ok(());
        }
        self.state(SealState::Standby);
        loop {
            let wait = client.execute("SELECT pg_advisory_lock($1)", &[&LOCK]);
            match tokio::time::timeout(ROUND_LIMIT, wait).await.map_err(LogError::from)? {
                // The bound of any wait for a lock has passed.
                Err(error) if error.code() == Some(&SqlState::LOCK_NOT_AVAILABLE) => {}
                locked => return locked.map(drop).map_err(Stop::from),
            }
        }
    }

    /// Waits until the log has grown, and then until it is time for the next head or a whole page waits.
    async fn wait(
        &mut self,
        ledger: &mut Ledger,
        outside: &mut Outside,
        next: Instant,
    ) -> Result<Wake, Stop> {
        let size = ledger.size();
        let positions = &mut self.positions;
        let due = async move {
            positions.wait_for(|position| position.get() > size).await?;
            tokio::select! {
                () = tokio::time::sleep_until(next) => {}
                page = positions.wait_for(|position| position.get() >= size.saturating_add(PAGE)) => drop(page?),
            }
            Ok::<_, watch::error::RecvError>(())
        };
        tokio::select! {
            () = ledger.ended() => {
                Err(LogError::Unavailable("the session of the sealer has ended".into()).into())
            }
            wrote = outside.ended() => Ok(Wake::Wrote(wrote)),
            grown = due => Ok(if grown.is_ok() { Wake::Grown } else { Wake::Closed }),
        }
    }

    fn publish(&mut self, ledger: &Ledger, outside: &Outside) {
        self.remembered = ledger.signed().map(|signed| signed.checkpoint.clone());
        self.report.send_replace(SealStatus {
            state: SealState::Sealing,
            sealed: ledger.size(),
            head_unwritten_since: outside.unwritten_since(),
        });
    }

    fn state(&self, state: SealState) {
        self.report.send_modify(|status| status.state = state);
    }
}

async fn bounded<T>(limit: Duration, work: impl Future<Output = Result<T, Stop>>) -> Result<T, Stop> {
    tokio::time::timeout(limit, work).await.map_err(LogError::from)?
}

/// Why a wait has ended.
enum Wake {
    /// There is something to seal, and it is time.
    Grown,
    /// A write of the head outside has ended, or is due.
    Wrote(Wrote),
    /// The log was closed.
    Closed,
}

/// An error with its causes, on one line.
fn reason(error: &dyn std::error::Error) -> String {
    let causes = std::iter::successors(Some(error), |error| error.source());
    causes.map(ToString::to_string).collect::<Vec<_>>().join(": ")
}
