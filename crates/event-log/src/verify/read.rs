//! Reading for verifiers: rows as they arrive, bytes as they are stored, inside the caller's snapshot.

use events::stored::{Recorded, StreamName, decode};
use events::{LogId, Position, RunId, TenantId, Version};
use futures::{Stream, StreamExt as _};
use tokio_postgres::types::{ToSql, Type};
use tokio_postgres::{GenericClient, Row, RowStream};

use super::check::StoredStream;
use super::event::{StoredBytes, StoredEvent};
use crate::clock::unix_micros;
use crate::error::LogError;

const EVENTS: &str = "\
    SELECT e.position, b.salt, b.body, e.header, e.stream_id, e.version, e.type_id, e.event_id, e.tenant, e.recorded_at, e.leaf \
    FROM log.events AS e LEFT JOIN log.event_bodies AS b ON b.position = e.position ";

/// Which log it is, and how far it goes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Meta {
    /// The log.
    pub log_id: LogId,
    /// Its name in checkpoints.
    pub origin: String,
    /// First position after the log, as the head row says.
    pub head: Position,
}

/// Which log the database holds.
///
/// # Errors
/// When the database does not answer.
pub async fn meta(client: &impl GenericClient) -> Result<Meta, LogError> {
    let sql = "SELECT log_id, origin, next_position FROM log.log_meta, log.log_head";
    let row = client.query_one(sql, &[]).await?;
    let head = Position(row.try_get::<_, i64>(2)?.unsigned_abs());
    Ok(Meta { log_id: LogId(row.try_get(0)?), origin: row.try_get(1)?, head })
}

/// Every event from `from` on inside the caller's transaction, decoded, in order, without a gap. It ends at the first error.
///
/// # Errors
/// When the database does not answer; in the stream also when an event cannot be read or one is missing.
pub async fn events<C: GenericClient>(
    client: &C,
    from: Position,
) -> Result<impl Stream<Item = Result<Recorded, LogError>> + use<C>, LogError> {
    let rows = rows(client, from).await?;
    let mut expected = from;
    Ok(rows.map(move |row| {
        let row = row?;
        let stored = stored_bytes(&row)?;
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

/// A stream as the table of streams has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StreamTip {
    /// Its name.
    pub stream: StreamName,
    /// Whose run it is.
    pub tenant: TenantId,
    /// Version of its last event.
    pub version: Version,
    /// Leaf of its last event.
    pub leaf: [u8; 32],
    id: i64,
}

/// The streams of a run, one per tenant that has a run of that id.
///
/// # Errors
/// When the database does not answer.
pub async fn run_streams(client: &impl GenericClient, run_id: RunId) -> Result<Vec<StreamTip>, LogError> {
    let sql = "SELECT id, key, version, tip FROM log.streams \
               WHERE category = 'run' AND split_part(key, '/', 2) = $1 ORDER BY key";
    let mut found = Vec::new();
    for row in client.query(sql, &[&run_id.to_string()]).await? {
        let key: &str = row.try_get(1)?;
        let Some(tenant) = key.split('/').next().and_then(|tenant| tenant.parse().ok()) else { continue };
        let stream = StreamName::run(tenant, run_id);
        if stream.key() != key {
            continue;
        }
        // Another length than 32 bytes is the end of no chain.
        let leaf = row.try_get::<_, &[u8]>(3)?.try_into().unwrap_or([0; 32]);
        let version = Version(u64::try_from(row.try_get::<_, i64>(2)?).unwrap_or(0));
        found.push(StreamTip { stream, tenant, version, leaf, id: row.try_get(0)? });
    }
    Ok(found)
}

/// A row of the table of events; [`stored_bytes`] reads it.
pub type EventRow = Row;

/// The rows of one stream after a version, in order, at most `limit`.
///
/// # Errors
/// When the database does not answer.
pub async fn stream_rows(
    client: &impl GenericClient,
    tip: &StreamTip,
    after: Version,
    limit: u32,
) -> Result<Vec<EventRow>, LogError> {
    let after = i64::try_from(after.get()).unwrap_or(i64::MAX);
    let parameters: [(&(dyn ToSql + Sync), Type); 3] =
        [(&tip.id, Type::INT8), (&after, Type::INT8), (&i64::from(limit), Type::INT8)];
    let sql = format!("{EVENTS} WHERE e.stream_id = $1 AND e.version > $2 ORDER BY e.version LIMIT $3");
    Ok(client.query_typed(&sql, &parameters).await?)
}

/// The version of a row, by its column.
///
/// # Errors
/// When it is no row of the table of events.
pub fn stored_version(row: &EventRow) -> Result<Version, LogError> {
    Ok(Version(row.try_get::<_, i64>(5)?.unsigned_abs()))
}

/// Rows from a position on as they arrive: the connection holds back the server, so memory stays flat.
pub(super) async fn rows(client: &impl GenericClient, from: Position) -> Result<RowStream, LogError> {
    let from = i64::try_from(from.get()).unwrap_or(i64::MAX);
    let parameters: [(&(dyn ToSql + Sync), Type); 1] = [(&from, Type::INT8)];
    let sql = format!("{EVENTS} WHERE e.position >= $1 ORDER BY e.position");
    Ok(client.query_typed_raw(&sql, parameters).await?)
}

/// The bytes of a row.
///
/// # Errors
/// When it is no row of the table of events.
pub fn stored_bytes(row: &EventRow) -> Result<StoredBytes<'_>, LogError> {
    Ok(StoredBytes {
        position: Position(row.try_get::<_, i64>(0)?.unsigned_abs()),
        salt: row.try_get(1)?,
        body: row.try_get(2)?,
        header: row.try_get(3)?,
    })
}

pub(super) fn stored_event(row: &Row) -> Result<StoredEvent<'_>, LogError> {
    Ok(StoredEvent {
        bytes: stored_bytes(row)?,
        stream_id: row.try_get(4)?,
        version: row.try_get(5)?,
        type_id: row.try_get(6)?,
        event_id: row.try_get(7)?,
        tenant: row.try_get(8)?,
        recorded_at_micros: unix_micros(row.try_get(9)?),
        leaf: row.try_get(10)?,
    })
}

/// How many bodies are stored.
pub(super) async fn bodies(client: &impl GenericClient) -> Result<u64, LogError> {
    let row = client.query_one("SELECT count(*) FROM log.event_bodies", &[]).await?;
    Ok(row.try_get::<_, i64>(0)?.unsigned_abs())
}

/// All streams, and the names of those that are none of ours.
pub(super) async fn streams(
    client: &impl GenericClient,
) -> Result<(Vec<StoredStream>, Vec<String>), LogError> {
    let rows =
        client.query("SELECT id, category, key, version, tip FROM log.streams ORDER BY id", &[]).await?;
    let (mut streams, mut misnamed) = (Vec::with_capacity(rows.len()), Vec::new());
    for row in rows {
        let (category, key): (&str, &str) = (row.try_get(1)?, row.try_get(2)?);
        match StreamName::try_new(category, key) {
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
