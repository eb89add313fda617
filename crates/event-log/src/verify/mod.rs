//! Verification: every leaf and every chain anew from stored bytes, and every column compared with the header it indexes.
//!
//! Nothing is trusted but bytes; nothing is written. The caller opens the transaction (the audit role, REPEATABLE READ, READ
//! ONLY) so that log and projections can be compared in one snapshot. What this cannot show: that a log was replaced as a whole by
//! another consistent one; that takes a signed head kept elsewhere.

mod check;
mod report;

use events::Position;
use events::stored::{Recorded, decode};
use futures::{Stream, StreamExt as _, TryStreamExt as _};
use tokio_postgres::types::{ToSql, Type};
use tokio_postgres::{GenericClient, Row, RowStream};

pub use report::{Fault, Finding, Report};

use crate::clock::unix_micros;
use crate::error::LogError;
use check::{Checker, StoredEvent, StoredStream};

/// How to verify.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// How many faults are described; the rest is counted.
    pub faults_max: usize,
    /// How many events lie between two calls of `progress`.
    pub progress_every: u64,
}

impl Default for Options {
    fn default() -> Self {
        Self { faults_max: 20, progress_every: 10_000 }
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

const EVENTS: &str = "\
    SELECT e.position, e.stream_id, e.version, e.type_id, e.event_id, e.tenant, e.recorded_at, e.leaf, e.header, b.salt, b.body \
    FROM log.events AS e LEFT JOIN log.event_bodies AS b ON b.position = e.position \
    WHERE e.position >= $1 ORDER BY e.position";

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
    let meta = transaction
        .query_one(
            "SELECT log_id, next_position, (SELECT count(*) FROM log.event_bodies) FROM log.log_meta, log.log_head",
            &[],
        )
        .await?;
    let head = Position(meta.try_get::<_, i64>(1)?.unsigned_abs());
    let bodies = meta.try_get::<_, i64>(2)?.unsigned_abs();
    let (streams, misnamed) = streams(transaction).await?;
    let mut checker = Checker::new(events::LogId(meta.try_get(0)?), head, streams, options.faults_max);
    for name in misnamed {
        checker.note(None, Fault::StreamName { name });
    }
    let mut bodies_seen = 0;
    let mut rows = std::pin::pin!(rows(transaction, EVENTS, Position(0)).await?);
    while let Some(row) = rows.try_next().await? {
        let stored = stored_event(&row)?;
        bodies_seen += u64::from(stored.body.is_some());
        if let Some(recorded) = checker.check(&stored) {
            on_event(&recorded);
        }
        if checker.events().is_multiple_of(options.progress_every.max(1)) {
            progress(Progress { events: checker.events(), events_total: head.get() });
        }
    }
    progress(Progress { events: checker.events(), events_total: head.get() });
    Ok(checker.finish(bodies, bodies_seen))
}

/// Every event from `from` on inside the caller's transaction, decoded, in order, without a gap. It ends at the first error.
///
/// # Errors
/// When the database does not answer; in the stream also when an event cannot be read or one is missing.
pub async fn events<C: GenericClient>(
    transaction: &C,
    from: Position,
) -> Result<impl Stream<Item = Result<Recorded, LogError>> + use<C>, LogError> {
    let rows = rows(transaction, EVENTS, from).await?;
    let mut expected = from;
    Ok(rows.map(move |row| {
        let row = row?;
        let stored = stored_event(&row)?;
        let position = stored.position;
        if position != expected {
            return Err(LogError::Gap { expected, found: position });
        }
        expected = position.next();
        let salt: Option<[u8; 32]> = stored.salt.map(|salt| salt.try_into().unwrap_or([0; 32]));
        decode(position, stored.header, salt.as_ref().zip(stored.body))
            .map_err(|source| LogError::Undecodable { position, source })
    }))
}

/// Rows as they arrive: the connection holds back the server, so memory stays flat.
async fn rows(
    client: &impl GenericClient,
    sql: &str,
    from: Position,
) -> Result<RowStream, tokio_postgres::Error> {
    let from = i64::try_from(from.get()).unwrap_or(i64::MAX);
    let parameters: [(&(dyn ToSql + Sync), Type); 1] = [(&from, Type::INT8)];
    client.query_typed_raw(sql, parameters).await
}

fn stored_event(row: &Row) -> Result<StoredEvent<'_>, tokio_postgres::Error> {
    Ok(StoredEvent {
        position: Position(row.try_get::<_, i64>(0)?.unsigned_abs()),
        stream_id: row.try_get(1)?,
        version: row.try_get(2)?,
        type_id: row.try_get(3)?,
        event_id: row.try_get(4)?,
        tenant: row.try_get(5)?,
        recorded_at_micros: unix_micros(row.try_get(6)?),
        leaf: row.try_get(7)?,
        header: row.try_get(8)?,
        salt: row.try_get(9)?,
        body: row.try_get(10)?,
    })
}

/// All streams, and the names of those that are none of ours.
async fn streams(client: &impl GenericClient) -> Result<(Vec<StoredStream>, Vec<String>), LogError> {
    let rows =
        client.query("SELECT id, category, key, version, tip FROM log.streams ORDER BY id", &[]).await?;
    let (mut streams, mut misnamed) = (Vec::with_capacity(rows.len()), Vec::new());
    for row in rows {
        let (category, key): (&str, &str) = (row.try_get(1)?, row.try_get(2)?);
        match events::stored::StreamName::try_new(category, key) {
            Ok(name) => {
                streams.push(StoredStream {
                    id: row.try_get(0)?,
                    name,
                    version: row.try_get(3)?,
                    tip: row.try_get(4)?,
                });
            }
            Err(_) => misnamed.push(format!("{category}/{key}")),
        }
    }
    Ok((streams, misnamed))
}
