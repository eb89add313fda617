//! The appender's session, and finding out what became of a call whose answer was lost.
//!
//! The connection has no task of its own: whoever waits for an answer drives it. An append alone thus needs no hand-over
//! between tasks.

use std::time::Duration;

use events::Position;
use tokio::time::Instant;
use tokio_postgres::error::SqlState;
use tokio_postgres::tls::NoTlsStream;
use tokio_postgres::{Client, Config, Connection, Error, NoTls, Socket};

use super::Tip;
use super::call::{Calls, to_i64};
use super::chain::Chained;
use super::prepare::Prepared;
use super::tips::tip_of;
use crate::error::LogError;
use crate::session::CONNECT_LIMIT;

/// Pauses between two attempts to connect: doubled from the first to the last.
const FIRST_PAUSE: Duration = Duration::from_millis(20);
const LAST_PAUSE: Duration = Duration::from_millis(500);

/// A call that has not returned by then counts as a lost session; the server's own limit is shorter.
const CALL_LIMIT: Duration = Duration::from_secs(35);

type Wire = Connection<Socket, NoTlsStream>;

/// A session, and the connection that carries it.
pub(super) struct Link {
    pub(super) peer: Peer,
    pub(super) wire: Wire,
}

/// The session's end of it.
pub(super) struct Peer {
    pub(super) client: Client,
    pub(super) calls: Calls,
    pub(super) backend: Backend,
}

/// Why a call has no answer.
#[derive(Debug)]
pub(super) enum Failure {
    /// No answer in time, or the connection ended without a word.
    Lost,
    /// An error of the driver or the server.
    Database(Error),
}

/// Waits for the answer to `call` while driving the connection it goes over.
pub(super) async fn drive<T>(
    wire: &mut Wire,
    call: impl Future<Output = Result<T, Error>>,
) -> Result<T, Failure> {
    tokio::select! {
        biased;
        answer = tokio::time::timeout(CALL_LIMIT, call) => {
            answer.map_err(|_| Failure::Lost)?.map_err(Failure::Database)
        }
        _ = wire => Err(Failure::Lost),
    }
}

/// Which server process serves a session; a number alone may be used again.
#[derive(Debug)]
pub(super) struct Backend {
    pid: i32,
    started: String,
}

impl Link {
    /// Tries until `limit` has passed, at least once.
    pub(super) async fn connect(config: &Config, limit: Duration) -> Option<Self> {
        let deadline = Instant::now() + limit;
        let mut pause = FIRST_PAUSE;
        loop {
            let error = match Self::try_connect(config).await {
                Ok(link) => return Some(link),
                Err(error) => error,
            };
            if Instant::now() + pause > deadline {
                tracing::warn!(error = &error as &dyn std::error::Error, "the appender has no database");
                return None;
            }
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(LAST_PAUSE);
        }
    }

    async fn try_connect(config: &Config) -> Result<Self, LogError> {
        let attempt = tokio::time::timeout(CONNECT_LIMIT, config.connect(NoTls)).await;
        let (client, mut wire) = attempt.map_err(|elapsed| LogError::Unavailable(elapsed.into()))??;
        let greeting = async {
            let sql = "SELECT pid, backend_start::text FROM pg_stat_activity WHERE pid = pg_backend_pid()";
            let row = client.query_one(sql, &[]).await?;
            let backend = Backend { pid: row.try_get(0)?, started: row.try_get(1)? };
            Ok((backend, Calls::prepare(&client).await?))
        };
        match drive(&mut wire, greeting).await {
            Ok((backend, calls)) => Ok(Self { peer: Peer { client, calls, backend }, wire }),
            Err(Failure::Database(error)) => Err(error.into()),
            Err(Failure::Lost) => Err(LogError::Unavailable("the session ended at once".into())),
        }
    }
}

impl Peer {
    /// Version and leaf of the event at `position`.
    pub(super) async fn tip_at(&self, position: Position) -> Result<Option<Tip>, Error> {
        let row = self
            .client
            .query_opt("SELECT version, leaf FROM log.events WHERE position = $1", &[&to_i64(position.get())])
            .await?;
        row.map(|row| Ok(tip_of(row.try_get(0)?, row.try_get(1)?))).transpose()
    }

    /// Per request the position of its last event, if it is in the log. Salts are random, so an equal leaf means this very
    /// request. `None` when the old session could not be ended: it may still commit.
    pub(super) async fn outcomes<'a>(
        &self,
        old: Option<&Backend>,
        requests: impl Iterator<Item = (&'a Prepared, &'a Chained)>,
    ) -> Result<Option<Vec<Option<Position>>>, Error> {
        if let Some(old) = old
            && !self.end(old).await?
        {
            return Ok(None);
        }
        let find = self
            .client
            .prepare(
                "SELECT e.position, e.leaf FROM log.streams AS t \
                 JOIN log.events AS e ON e.stream_id = t.id AND e.version = $3 \
                 WHERE t.category = $1 AND t.key = $2",
            )
            .await?;
        let mut positions = Vec::new();
        for (request, chained) in requests {
            let version = to_i64(chained.tip.version.get());
            let (category, key) = (request.stream.category(), request.stream.key());
            let row = self.client.query_opt(&find, &[&category, &key, &version]).await?;
            let found = match row {
                Some(row) if row.try_get::<_, &[u8]>(1)? == chained.tip.leaf => {
                    Some(Position(row.try_get::<_, i64>(0)?.unsigned_abs()))
                }
                _ => None,
            };
            positions.push(found);
        }
        Ok(Some(positions))
    }

    /// Ends a session of our own role and waits until it is gone: only then is its outcome final.
    async fn end(&self, backend: &Backend) -> Result<bool, Error> {
        let row = self
            .client
            .query_opt(
                "SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity \
                 WHERE pid = $1 AND backend_start::text = $2",
                &[&backend.pid, &backend.started],
            )
            .await?;
        row.map_or(Ok(true), |row| row.try_get(0))
    }
}

/// The head has passed the last partition: `ensure_partitions` was not called in time.
pub(super) fn is_missing_partition(error: &Error) -> bool {
    error.as_db_error().is_some_and(|db| {
        *db.code() == SqlState::CHECK_VIOLATION && db.message().starts_with("no partition of relation")
    })
}
