//! The handle that the rest of the house uses.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use deadpool_postgres::{Manager, ManagerConfig, Pool, RecyclingMethod, Runtime};
use events::stored::{Recorded, StreamName};
use events::{InstanceId, LogId, Position, TenantId, Version};
use tokio::sync::{Notify, watch};
use tokio::time::Instant;
use tokio_postgres::{Config, NoTls};
use tokio_util::sync::{CancellationToken, DropGuard};

use crate::append::{AppendRequest, Appended, Appender, AppenderHandle, Tip, prepare};
use crate::clock::LogClock;
use crate::error::{AppendError, LogError};
use crate::read::{self, StoredKey};
use crate::session::{CONNECT_LIMIT, config};
use crate::tail::Tail;
use crate::{instance, supervise, tail};

/// The form of events that this program reads; compared with `log_meta.min_reader`.
const READER_VERSION: i32 = 1;

/// Bound of a read as the caller sees it; the server's own limit is shorter.
const READ_LIMIT: Duration = Duration::from_secs(35);

/// How to open a log.
#[derive(Clone, Debug)]
pub struct LogConfig {
    /// Connection string of the append role.
    pub database_url: String,
    /// Most sessions for reads, besides the appender's and the signal's.
    pub read_sessions: usize,
    /// How long an append waits for a lost database before its caller is told.
    pub reconnect_limit: Duration,
}

impl LogConfig {
    /// The defaults: 8 sessions, 10 s.
    #[must_use]
    pub fn new(database_url: impl Into<String>) -> Self {
        Self { database_url: database_url.into(), read_sessions: 8, reconnect_limit: Duration::from_secs(10) }
    }
}

/// How well this process is connected to its log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogStatus {
    /// Time since the database last answered; more than a few seconds mean it is unreachable.
    pub silent_for: Duration,
    /// Whether signals of other processes arrive; without them their appends are seen by the poll.
    pub listening: bool,
    /// Whether the appender is there; a process without one must be replaced.
    pub appending: bool,
}

/// The log of one database. Clones share its tasks; they end when the last clone is dropped, after the queue is empty.
#[derive(Clone, Debug)]
pub struct EventLog {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    log_id: LogId,
    epoch: i32,
    clock: LogClock,
    pool: Pool,
    appender: AppenderHandle,
    positions: watch::Sender<Position>,
    listening: Arc<AtomicBool>,
    _stop: DropGuard,
}

impl EventLog {
    /// Connects, checks that this version can read the log, makes the partitions to come and starts the tasks.
    ///
    /// # Errors
    /// When the database cannot be reached, is not migrated, or holds what only a newer version reads.
    pub async fn open(settings: LogConfig) -> Result<Self, LogError> {
        let pool = pool(config(&settings.database_url, "leasehold log")?, settings.read_sessions)?;
        let client = pool.get().await?;
        client.execute("SELECT log.ensure_partitions()", &[]).await?;
        let row = client
            .query_one(
                "SELECT log_id, epoch, min_reader, next_position, clock_timestamp() FROM log.log_meta, log.log_head",
                &[],
            )
            .await?;
        drop(client);
        let needed: i32 = row.try_get(2)?;
        if needed > READER_VERSION {
            return Err(LogError::TooOld { needed, ours: READER_VERSION });
        }
        let log_id = LogId(row.try_get(0)?);
        let clock = LogClock::new(row.try_get(4)?, Instant::now());
        let (positions, _) = watch::channel(Position(row.try_get::<_, i64>(3)?.unsigned_abs()));
        let (appended, look) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
        let stop = CancellationToken::new();
        let listening = Arc::new(AtomicBool::new(false));

        let (task, appender) = Appender::new(
            config(&settings.database_url, "leasehold appender")?,
            settings.reconnect_limit,
            clock.clone(),
            positions.clone(),
            Arc::clone(&appended),
        );
        supervise::spawn("log appender", task.run());
        let tail = Tail {
            config: config(&settings.database_url, "leasehold log signal")?,
            pool: pool.clone(),
            clock: clock.clone(),
            positions: positions.clone(),
            appended,
            look,
            listening: Arc::clone(&listening),
            stop: stop.clone(),
        };
        supervise::spawn("log poll", tail.clone().poll());
        supervise::spawn("log signal", tail.signal());
        Ok(Self {
            inner: Arc::new(Inner {
                log_id,
                epoch: row.try_get(1)?,
                clock,
                pool,
                appender,
                positions,
                listening,
                _stop: stop.drop_guard(),
            }),
        })
    }

    /// The id of this log; every header names it.
    #[must_use]
    pub fn log_id(&self) -> LogId {
        self.inner.log_id
    }

    /// Grows when a restored database is accepted.
    #[must_use]
    pub fn log_epoch(&self) -> i32 {
        self.inner.epoch
    }

    /// The only source of `now`.
    #[must_use]
    pub fn clock(&self) -> &LogClock {
        &self.inner.clock
    }

    /// Appends events to one stream, all or nothing. Returns when they are durable. Dropping the future does not cancel a
    /// queued write.
    ///
    /// # Errors
    /// See [`AppendError`]: a conflict, a reused key, a bound, or a database that is away (the only retryable one).
    pub async fn append(&self, request: AppendRequest) -> Result<Appended, AppendError> {
        let prepared = prepare(self.inner.log_id, request)?;
        self.inner.appender.append(prepared).await
    }

    /// A key that was used in the last 24 hours. Looked up before deciding; the append checks it again.
    ///
    /// # Errors
    /// When the database does not answer.
    pub async fn find_key(&self, tenant: TenantId, key: &str) -> Result<Option<StoredKey>, LogError> {
        self.read(async |client| read::find_key(client, tenant, key).await).await
    }

    /// Events of one stream from version `from` (1 is the first) on, at most `limit`, in order. A page may be shorter than
    /// `limit` when its events are large; only an empty one means the end. Unknown streams are empty.
    ///
    /// # Errors
    /// When the database does not answer, or the first event asked for cannot be read or is missing; a later fault ends the
    /// page before it.
    pub async fn read_stream(
        &self,
        stream: &StreamName,
        from: Version,
        limit: usize,
    ) -> Result<Vec<Recorded>, LogError> {
        self.read(async |client| read::read_stream(client, stream, from, limit).await).await
    }

    /// Events of all streams from position `from` on, at most `limit`, in order and without a gap. A page may be shorter than
    /// `limit` when its events are large; only an empty one means the end.
    ///
    /// # Errors
    /// When the database does not answer, or the first event asked for cannot be read or is missing; a later fault ends the
    /// page before it.
    pub async fn read_all(&self, from: Position, limit: usize) -> Result<Vec<Recorded>, LogError> {
        self.read(async |client| read::read_all(client, from, limit).await).await
    }

    /// The events at these positions (at most 4,096), in ascending order. A page may be shorter when its events are large; it
    /// holds at least one.
    ///
    /// # Errors
    /// When the database does not answer or an event cannot be read.
    pub async fn read_positions(&self, positions: &[Position]) -> Result<Vec<Recorded>, LogError> {
        self.read(async |client| read::read_positions(client, positions).await).await
    }

    /// Where a stream ends; `None` when it does not exist.
    ///
    /// # Errors
    /// When the database does not answer.
    pub async fn stream_tip(&self, stream: &StreamName) -> Result<Option<Tip>, LogError> {
        self.read(async |client| read::stream_tip(client, stream).await).await
    }

    /// The position that the next event will get, read from the database now.
    ///
    /// # Errors
    /// When the database does not answer.
    pub async fn head(&self) -> Result<Position, LogError> {
        tokio::time::timeout(READ_LIMIT, tail::read_head(&self.inner.pool, &self.inner.clock)).await?
    }

    /// The next position as far as this process knows; changes whenever the log is seen to have grown.
    #[must_use]
    pub fn subscribe(&self) -> watch::Receiver<Position> {
        self.inner.positions.subscribe()
    }

    /// Whether the instance holds its lock (see [`crate::InstanceLock`]): one that does not is dead, one that does may be slow.
    ///
    /// # Errors
    /// When the database does not answer.
    pub async fn instance_alive(&self, instance_id: InstanceId) -> Result<bool, LogError> {
        self.read(async |client| instance::is_held(&***client, instance_id).await).await
    }

    /// Forgets idempotency keys older than 24 hours; answers how many.
    ///
    /// # Errors
    /// When the database does not answer.
    pub async fn prune_request_keys(&self) -> Result<u64, LogError> {
        self.read(async |client| {
            let row = client.query_one("SELECT log.prune_request_keys()", &[]).await?;
            Ok(row.try_get::<_, i64>(0)?.unsigned_abs())
        })
        .await
    }

    /// One use of a pooled session, bounded also when the server has vanished without a word.
    async fn read<T>(
        &self,
        work: impl AsyncFnOnce(&deadpool_postgres::Client) -> Result<T, LogError>,
    ) -> Result<T, LogError> {
        let client = self.inner.pool.get().await?;
        tokio::time::timeout(READ_LIMIT, work(&client)).await?
    }

    /// How well this process is connected.
    #[must_use]
    pub fn status(&self) -> LogStatus {
        LogStatus {
            silent_for: self.inner.clock.age(),
            listening: self.inner.listening.load(Ordering::Relaxed),
            appending: self.inner.appender.is_running(),
        }
    }
}

/// Sessions for reads.
pub(crate) fn pool(config: Config, sessions: usize) -> Result<Pool, LogError> {
    let manager =
        Manager::from_config(config, NoTls, ManagerConfig { recycling_method: RecyclingMethod::Fast });
    Pool::builder(manager)
        .max_size(sessions)
        .runtime(Runtime::Tokio1)
        .wait_timeout(Some(CONNECT_LIMIT))
        .create_timeout(Some(CONNECT_LIMIT))
        .build()
        .map_err(|error| LogError::Refused(error.into()))
}
