//! The live fold: one task that reads the log page by page and keeps the views.
//!
//! ```text
//! connect ──> follow (another runner has the lock) ──> claim ──> check ──> apply page by page ──> …
//!    ^                                                                          │
//!    └────────────── connection lost, or superseded by a later claim ───────────┘
//! ```
//! Any number of services may run one each: one keeps the views, the others follow its checkpoint. It stops for good on what no
//! repetition cures: an event it cannot read, another history than the one applied, a row that cannot be written.

mod status;

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use event_log::{EventLog, LogError};
use events::{Position, Timestamp};
use tokio::sync::watch;
use tokio::task::JoinHandle;
use uuid::Uuid;

use crate::connect;
use crate::error::{Behind, ViewsError};
use crate::session::{ApplyError, Claim, Session};
use crate::supervise;
use crate::timeline::Escaped;
pub use status::{Lag, RunnerStatus, StopReason};

/// Events of a page: at 512 KiB an event, at most 64 MiB in memory.
const PAGE_EVENTS: usize = 128;
/// How long an event waits for more when nobody asks for it: what one command appends in a moment is then one page.
const GATHER: Duration = Duration::from_millis(2);
/// A follower looks at the checkpoint this often, and tries the lock.
const FOLLOW_PERIOD: Duration = Duration::from_millis(50);
/// First and longest wait before the next connection is tried.
const BACKOFF: (Duration, Duration) = (Duration::from_millis(50), Duration::from_secs(2));

/// A running fold. Dropping it ends it where it stands: an open page is undone, the next start goes on from the checkpoint.
pub struct Runner {
    shared: Arc<Shared>,
    task: JoinHandle<Option<()>>,
}

struct Shared {
    log: EventLog,
    config: tokio_postgres::Config,
    page_events: usize,
    position: watch::Sender<Position>,
    /// The furthest position that anybody waits for.
    wanted: watch::Sender<Position>,
    status: watch::Sender<RunnerStatus>,
    /// Unix microseconds of the last event applied here; negative before the first.
    last_recorded_at: AtomicI64,
}

/// Why a session came to its end.
enum Ended {
    /// The database, or the log, does not answer: connect again.
    Lost(String),
    /// Another runner claimed the views: follow it.
    Superseded,
    /// Nothing that is repeated would help.
    Stopped(StopReason),
}

impl Runner {
    /// Starts the fold of `log` with connections of the role `leasehold_project`.
    ///
    /// # Errors
    /// When the URL is not one. Whether the database answers shows in [`Runner::status`].
    pub fn start(log: EventLog, project_url: &str) -> Result<Self, ViewsError> {
        Self::start_paged(log, project_url, PAGE_EVENTS)
    }

    pub(crate) fn start_paged(
        log: EventLog,
        project_url: &str,
        page_events: usize,
    ) -> Result<Self, ViewsError> {
        let config = connect::config(project_url, "leasehold runner")?;
        let shared = Arc::new(Shared {
            log,
            config,
            page_events,
            position: watch::Sender::new(Position(0)),
            wanted: watch::Sender::new(Position(0)),
            status: watch::Sender::new(RunnerStatus::Starting),
            last_recorded_at: AtomicI64::new(-1),
        });
        let task = supervise::spawn("runner", run(Arc::clone(&shared)));
        Ok(Self { shared, task })
    }

    /// The next position to be applied: everything before it is visible.
    #[must_use]
    pub fn position(&self) -> Position {
        *self.shared.position.borrow()
    }

    /// [`Runner::position`] as it changes.
    #[must_use]
    pub fn positions(&self) -> watch::Receiver<Position> {
        self.shared.position.subscribe()
    }

    /// Waits until the event at `position` is visible.
    ///
    /// # Errors
    /// When it is not after `at_most`.
    pub async fn wait_for(&self, position: Position, at_most: Duration) -> Result<(), Behind> {
        self.wait_until(position.next(), at_most).await
    }

    /// Waits until everything before `next` is visible; `next` is a head that was read, so 0 of an empty log never waits.
    ///
    /// # Errors
    /// When it is not after `at_most`.
    pub async fn wait_until(&self, next: Position, at_most: Duration) -> Result<(), Behind> {
        let mut positions = self.positions();
        self.shared.wanted.send_if_modified(|wanted| {
            let is_further = next > *wanted;
            *wanted = next.max(*wanted);
            is_further
        });
        let reached = tokio::time::timeout(at_most, positions.wait_for(|reached| *reached >= next)).await;
        match reached {
            Ok(Ok(_)) => Ok(()),
            _ => Err(Behind { wanted: next, reached: self.position() }),
        }
    }

    /// Where it stands.
    #[must_use]
    pub fn status(&self) -> RunnerStatus {
        self.shared.status.borrow().clone()
    }

    /// [`Runner::status`] as it changes.
    #[must_use]
    pub fn statuses(&self) -> watch::Receiver<RunnerStatus> {
        self.shared.status.subscribe()
    }

    /// How far the views are behind what is known of the log.
    #[must_use]
    pub fn lag(&self) -> Lag {
        let head = *self.shared.log.subscribe().borrow();
        let events = head.get().saturating_sub(self.position().get());
        let last = self.shared.last_recorded_at.load(Ordering::Relaxed);
        let last = Timestamp::try_from_unix_micros(last).ok().filter(|_| events > 0);
        Lag { events, ms: last.map_or(0, |last| self.shared.log.clock().now().ms_since(last)) }
    }

    /// Ends the fold and waits until it has ended.
    pub async fn stop(mut self) {
        self.task.abort();
        // Cancelled, or ended before: both are the end that was asked for.
        let _ = (&mut self.task).await;
    }
}

impl Drop for Runner {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn run(shared: Arc<Shared>) {
    let mut backoff = BACKOFF.0;
    loop {
        let before = *shared.position.borrow();
        match shared.session().await {
            Ended::Stopped(reason) => {
                let position = *shared.position.borrow();
                tracing::error!(%position, %reason, "the projections stopped");
                shared.status.send_replace(RunnerStatus::Stopped { position, reason });
                return;
            }
            Ended::Superseded => tracing::warn!("another instance has claimed the projections"),
            Ended::Lost(detail) => {
                tracing::warn!(detail, "the projections lost their database; connecting again");
                shared.status.send_replace(RunnerStatus::Unavailable { detail });
            }
        }
        if *shared.position.borrow() > before {
            backoff = BACKOFF.0;
        }
        tokio::time::sleep(backoff).await;
        backoff = (backoff * 2).min(BACKOFF.1);
    }
}

impl Shared {
    /// One connection from its start to its end.
    async fn session(&self) -> Ended {
        match self.keep().await {
            Ok(never) => match never {},
            Err(ended) => ended,
        }
    }

    async fn keep(&self) -> Result<std::convert::Infallible, Ended> {
        let mut heads = self.log.subscribe();
        let (session, connection_ended) = Session::connect(&self.config).await?;
        let mut connection_ended = std::pin::pin!(connection_ended);
        while !session.try_lock().await? {
            let position = session.position().await?;
            self.position.send_replace(position);
            self.status.send_replace(RunnerStatus::Following { position });
            tokio::select! {
                () = &mut connection_ended => return Err(Ended::Lost("the connection ended".to_owned())),
                () = tokio::time::sleep(FOLLOW_PERIOD) => {}
            }
        }
        let mut claim = session.claim(Uuid::new_v4(), self.log.log_epoch()).await?;
        self.check(&claim).await?;
        self.position.send_replace(claim.position);
        let mut was_live = false;
        loop {
            let head = *heads.borrow_and_update();
            let position = claim.position;
            if position < head {
                self.status.send_replace(RunnerStatus::CatchingUp { position, head });
                if std::mem::take(&mut was_live) {
                    self.gather(position).await;
                }
                self.apply_page(&session, &mut claim).await?;
                continue;
            }
            was_live = true;
            self.status.send_replace(RunnerStatus::Live { position });
            tokio::select! {
                () = &mut connection_ended => return Err(Ended::Lost("the connection ended".to_owned())),
                changed = heads.changed() => {
                    changed.map_err(|_| Ended::Lost("the log was closed".to_owned()))?;
                }
            }
        }
    }

    /// Lets more events come, unless somebody waits for what is not applied yet.
    async fn gather(&self, position: Position) {
        let mut wanted = self.wanted.subscribe();
        // Over because somebody asks or because the time is: both are the end of it.
        let _ = tokio::time::timeout(GATHER, wanted.wait_for(|wanted| *wanted > position)).await;
    }

    /// The views must continue the history that the log holds.
    async fn check(&self, claim: &Claim) -> Result<(), Ended> {
        let log = self.log.log_epoch();
        if claim.epoch != log {
            return Err(Ended::Stopped(StopReason::OtherEpoch { views: claim.epoch, log }));
        }
        let Some(leaf) = claim.leaf else { return Ok(()) };
        let position = Position(claim.position.get().saturating_sub(1));
        let last = self.log.read_all(position, 1).await?;
        if last.first().is_some_and(|last| last.position == position && last.leaf == leaf) {
            Ok(())
        } else {
            Err(Ended::Stopped(StopReason::OtherHistory { position }))
        }
    }

    async fn apply_page(&self, session: &Session, claim: &mut Claim) -> Result<(), Ended> {
        let page = self.log.read_all(claim.position, self.page_events).await?;
        let Some(last) = page.last() else {
            // The head is past this position, so an event must be here.
            return Err(Ended::Stopped(StopReason::Gap { expected: claim.position }));
        };
        session.apply(claim, &page).await?;
        self.last_recorded_at.store(last.header.recorded_at.unix_micros(), Ordering::Relaxed);
        self.position.send_replace(claim.position);
        Ok(())
    }
}

impl From<ViewsError> for Ended {
    fn from(error: ViewsError) -> Self {
        if error.is_retryable() {
            Self::Lost(with_causes(&error))
        } else {
            Self::Stopped(StopReason::Row { detail: with_causes(&error) })
        }
    }
}

impl From<ApplyError> for Ended {
    fn from(error: ApplyError) -> Self {
        match error {
            ApplyError::Superseded => Self::Superseded,
            ApplyError::Order(order) => Self::Stopped(StopReason::Gap { expected: order.expected }),
            ApplyError::Views(error) => error.into(),
        }
    }
}

impl From<LogError> for Ended {
    fn from(error: LogError) -> Self {
        match error {
            LogError::Undecodable { position, source } => {
                Self::Stopped(StopReason::Undecodable { position, detail: with_causes(&source) })
            }
            LogError::Gap { expected, .. } => Self::Stopped(StopReason::Gap { expected }),
            other => Self::Lost(with_causes(&other)),
        }
    }
}

/// The error and what caused it, on one line, safe to show.
fn with_causes(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        text.push_str(": ");
        text.push_str(&error.to_string());
        cause = error.source();
    }
    Escaped(&text).to_string()
}
