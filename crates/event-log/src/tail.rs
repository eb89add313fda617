//! Learning that the log has grown: own appends at once, those of other processes by signal and by poll.
//!
//! The poll is the guarantee (every 50 ms while something moves, at most every second when nothing does). The signal (one
//! NOTIFY without payload, at most every 10 ms, outside the append's transaction) only makes it faster: when the listening
//! session is lost, or silently deaf, the poll goes on.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, SystemTime};

use deadpool_postgres::Pool;
use events::Position;
use futures::StreamExt as _;
use tokio::sync::{Notify, watch};
use tokio::time::Instant;
use tokio_postgres::{AsyncMessage, Config, NoTls};
use tokio_util::sync::CancellationToken;

use crate::clock::LogClock;
use crate::error::LogError;
use crate::session::CONNECT_LIMIT;

/// Shortest and longest pause between two polls.
const POLL_MIN: Duration = Duration::from_millis(50);
const POLL_MAX: Duration = Duration::from_secs(1);
/// A poll that has no answer by then failed.
const POLL_LIMIT: Duration = Duration::from_secs(2);
/// Shortest time between two signals of ours.
const SIGNAL_PAUSE: Duration = Duration::from_millis(10);

/// What the tasks share.
#[derive(Clone, Debug)]
pub(crate) struct Tail {
    pub(crate) config: Config,
    pub(crate) pool: Pool,
    pub(crate) clock: LogClock,
    pub(crate) positions: watch::Sender<Position>,
    /// Own appends.
    pub(crate) appended: Arc<Notify>,
    /// Appends of others: look now.
    pub(crate) look: Arc<Notify>,
    pub(crate) listening: Arc<AtomicBool>,
    pub(crate) stop: CancellationToken,
}

/// The head and the database's clock, in one round trip.
pub(crate) async fn read_head(pool: &Pool, clock: &LogClock) -> Result<Position, LogError> {
    let client = pool.get().await?;
    let row = client.query_one("SELECT next_position, clock_timestamp() FROM log.log_head", &[]).await?;
    let database_time: SystemTime = row.try_get(1)?;
    clock.observe(database_time, Instant::now());
    Ok(Position(row.try_get::<_, i64>(0)?.unsigned_abs()))
}

impl Tail {
    /// The polling task.
    pub(crate) async fn poll(self) {
        let mut pause = POLL_MIN;
        loop {
            tokio::select! {
                () = self.stop.cancelled() => return,
                () = self.look.notified() => {}
                () = tokio::time::sleep(pause) => {}
            }
            let head = tokio::time::timeout(POLL_LIMIT, read_head(&self.pool, &self.clock)).await;
            let moved = matches!(head, Ok(Ok(head)) if self.publish(head));
            pause = if moved { POLL_MIN } else { (pause * 2).min(POLL_MAX) };
        }
    }

    fn publish(&self, head: Position) -> bool {
        self.positions.send_if_modified(|known| {
            let newer = head > *known;
            if newer {
                *known = head;
            }
            newer
        })
    }

    /// The signalling task: listens for other processes and tells them of our appends.
    pub(crate) async fn signal(self) {
        let mut pause = POLL_MIN;
        while !self.stop.is_cancelled() {
            let began = Instant::now();
            let ended = tokio::select! {
                () = self.stop.cancelled() => return,
                ended = self.signal_session() => ended,
            };
            self.listening.store(false, Ordering::Relaxed);
            // What was signalled meanwhile was not heard.
            self.look.notify_one();
            if let Err(error) = ended {
                tracing::warn!(error = &error as &dyn std::error::Error, "the log's signal session ended");
            }
            pause = if began.elapsed() > POLL_MAX { POLL_MIN } else { (pause * 2).min(POLL_MAX) };
            tokio::select! {
                () = self.stop.cancelled() => return,
                () = tokio::time::sleep(pause) => {}
            }
        }
    }

    async fn signal_session(&self) -> Result<(), LogError> {
        let attempt = tokio::time::timeout(CONNECT_LIMIT, self.config.connect(NoTls)).await;
        let (client, mut connection) = attempt.map_err(|elapsed| LogError::Unavailable(elapsed.into()))??;
        let mut messages = futures::stream::poll_fn(move |context| connection.poll_message(context));
        let listen = async {
            let row = client.query_one("SELECT pg_backend_pid()", &[]).await?;
            client.batch_execute("LISTEN leasehold_log").await?;
            row.try_get::<_, i32>(0)
        };
        tokio::pin!(listen);
        let own = loop {
            tokio::select! {
                own = &mut listen => break own?,
                message = messages.next() => {
                    let Some(message) = message else { return Ok(()) };
                    message?;
                }
            }
        };
        self.listening.store(true, Ordering::Relaxed);
        self.look.notify_one();

        let mut last_signal = Instant::now();
        let notify = async {
            loop {
                self.appended.notified().await;
                // Appends of the pause share one signal.
                tokio::time::sleep_until(last_signal + SIGNAL_PAUSE).await;
                client.batch_execute("NOTIFY leasehold_log").await?;
                last_signal = Instant::now();
            }
        };
        tokio::pin!(notify);
        loop {
            tokio::select! {
                failed = &mut notify => {
                    let failed: Result<(), tokio_postgres::Error> = failed;
                    return failed.map_err(Into::into);
                }
                message = messages.next() => match message {
                    None => return Ok(()),
                    Some(Ok(AsyncMessage::Notification(signal))) if signal.process_id() != own => {
                        self.look.notify_one();
                    }
                    Some(other) => drop(other?),
                },
            }
        }
    }
}
