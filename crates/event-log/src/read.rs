//! Reading: one stream, all of it, from a position. Every event is decoded and checked against its header's commitment.

use deadpool_postgres::Client;
use events::stored::{Recorded, StreamName, decode};
use events::{Position, TenantId, Timestamp, Version};
use tokio_postgres::Row;
use tokio_postgres::types::{ToSql, Type};

use crate::append::Tip;
use crate::clock::unix_micros;
use crate::error::LogError;

/// Most events in one page.
pub(crate) const PAGE_EVENTS_MAX: usize = 4096;
/// A page ends once its headers and bodies pass this many bytes; it always holds at least one event.
const PAGE_BYTES_MAX: i64 = 8 << 20;

/// An idempotency key that was used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredKey {
    /// Digest of the request that used it.
    pub digest: [u8; 32],
    /// The stream it wrote to.
    pub stream: StreamName,
    /// The first event it wrote.
    pub first_position: Position,
    /// How many events it wrote.
    pub event_count: u64,
    /// When, by the database's clock.
    pub created_at: Timestamp,
}

const PAGE: &str = "\
    SELECT position, version, header, salt, body FROM (\
        SELECT *, sum(octet_length(header) + coalesce(octet_length(body), 0)) OVER (ORDER BY position) AS bytes, \
               row_number() OVER (ORDER BY position) AS row FROM (\
            SELECT e.position, e.version, e.header, b.salt, b.body FROM log.events AS e \
            LEFT JOIN log.event_bodies AS b ON b.position = e.position \
            WHERE {where} ORDER BY {order} LIMIT $2\
        ) AS candidates\
    ) AS page WHERE row = 1 OR bytes <= $3 ORDER BY position";

fn page_sql(condition: &str, order: &str) -> String {
    PAGE.replace("{where}", condition).replace("{order}", order)
}

fn limit(events: usize) -> i64 {
    i64::try_from(events.clamp(1, PAGE_EVENTS_MAX)).unwrap_or(1)
}

fn int8(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

/// Events from `from` on, without a gap: the first one is at `from`.
pub(crate) async fn read_all(
    client: &Client,
    from: Position,
    events: usize,
) -> Result<Vec<Recorded>, LogError> {
    let sql = page_sql("e.position >= $1", "e.position");
    let rows = client.query_typed(&sql, &page_parameters(&int8(from.get()), &limit(events))).await?;
    let mut expected = from;
    up_to_a_fault(&rows, |recorded| {
        if recorded.position != expected {
            return Err(LogError::Gap { expected, found: recorded.position });
        }
        expected = expected.next();
        Ok(())
    })
}

/// Decodes rows in order. A fault ends the page before it; only one in the first row is an error, so that a reader can use all
/// that comes before it and then learns where it is.
fn up_to_a_fault(
    rows: &[Row],
    mut follows: impl FnMut(&Recorded) -> Result<(), LogError>,
) -> Result<Vec<Recorded>, LogError> {
    let mut page = Vec::with_capacity(rows.len());
    for row in rows {
        match recorded(row).and_then(|recorded| follows(&recorded).map(|()| recorded)) {
            Ok(recorded) => page.push(recorded),
            Err(error) if page.is_empty() => return Err(error),
            Err(_) => break,
        }
    }
    Ok(page)
}

/// Events of one stream from version `from` on, without a gap.
pub(crate) async fn read_stream(
    client: &Client,
    stream: &StreamName,
    from: Version,
    events: usize,
) -> Result<Vec<Recorded>, LogError> {
    let Some(id) = stream_row(client, stream).await?.map(|(id, _)| id) else { return Ok(Vec::new()) };
    // The id is a number of ours; as text it leaves the parameters the same for both pages.
    let sql = page_sql(&format!("e.stream_id = {id} AND e.version >= $1"), "e.version");
    let first = Version(from.get().max(1));
    let rows = client.query_typed(&sql, &page_parameters(&int8(first.get()), &limit(events))).await?;
    let mut expected = first;
    up_to_a_fault(&rows, |recorded| {
        if recorded.header.version != expected {
            return Err(LogError::StreamGap { expected, found: recorded.header.version });
        }
        expected = expected.next();
        Ok(())
    })
}

/// The events at these positions, in ascending order, up to a page's bytes; positions without an event are left out.
pub(crate) async fn read_positions(
    client: &Client,
    positions: &[Position],
) -> Result<Vec<Recorded>, LogError> {
    let positions: Vec<i64> = positions.iter().map(|position| int8(position.get())).collect();
    let sql = page_sql("e.position = ANY ($1)", "e.position");
    let types = [Type::INT8_ARRAY, Type::INT8, Type::INT8];
    // Once per connection: every command is answered by such a read, and planning it takes longer than running it.
    let statement = client.prepare_typed_cached(&sql, &types).await?;
    let rows = client.query(&statement, &[&positions, &limit(positions.len()), &PAGE_BYTES_MAX]).await?;
    rows.iter().map(recorded).collect()
}

fn page_parameters<'a>(from: &'a i64, limit: &'a i64) -> [(&'a (dyn ToSql + Sync), Type); 3] {
    [(from, Type::INT8), (limit, Type::INT8), (&PAGE_BYTES_MAX, Type::INT8)]
}

fn recorded(row: &Row) -> Result<Recorded, LogError> {
    let position = Position(row.try_get::<_, i64>(0)?.unsigned_abs());
    let header: &[u8] = row.try_get(2)?;
    let salt: Option<&[u8]> = row.try_get(3)?;
    let body: Option<&[u8]> = row.try_get(4)?;
    // A salt of another length opens no commitment: it decodes as one of zeros would, to an error.
    let salt: Option<[u8; 32]> = salt.map(|salt| salt.try_into().unwrap_or([0; 32]));
    let salt_and_body = salt.as_ref().zip(body);
    decode(position, header, salt_and_body).map_err(|source| LogError::Undecodable { position, source })
}

async fn stream_row(client: &Client, stream: &StreamName) -> Result<Option<(i64, Tip)>, LogError> {
    let sql = "SELECT id, version, tip FROM log.streams WHERE category = $1 AND key = $2";
    let statement = client.prepare_cached(sql).await?;
    let row = client.query_opt(&statement, &[&stream.category(), &stream.key()]).await?;
    let Some(row) = row else { return Ok(None) };
    let leaf: &[u8] = row.try_get(2)?;
    let version = Version(row.try_get::<_, i64>(1)?.unsigned_abs());
    Ok(Some((row.try_get(0)?, Tip { version, leaf: leaf.try_into().unwrap_or([0; 32]) })))
}

pub(crate) async fn stream_tip(client: &Client, stream: &StreamName) -> Result<Option<Tip>, LogError> {
    Ok(stream_row(client, stream).await?.map(|(_, tip)| tip))
}

pub(crate) async fn find_key(
    client: &Client,
    tenant: TenantId,
    key: &str,
) -> Result<Option<StoredKey>, LogError> {
    if key.contains('\0') {
        return Ok(None);
    }
    let sql = "SELECT digest, stream, first_position, event_count, created_at FROM log.request_keys \
               WHERE tenant = $1 AND key = $2 AND created_at >= clock_timestamp() - interval '24 hours'";
    let statement = client.prepare_cached(sql).await?;
    let row = client.query_opt(&statement, &[&tenant.as_uuid(), &key]).await?;
    let Some(row) = row else { return Ok(None) };
    let malformed =
        |what: &str| LogError::Refused(format!("a stored idempotency key has a malformed {what}").into());
    let digest: &[u8] = row.try_get(0)?;
    Ok(Some(StoredKey {
        digest: digest.try_into().map_err(|_| malformed("digest"))?,
        stream: row.try_get::<_, &str>(1)?.parse().map_err(|_| malformed("stream"))?,
        first_position: Position(row.try_get::<_, i64>(2)?.unsigned_abs()),
        event_count: row.try_get::<_, i32>(3)?.unsigned_abs().into(),
        created_at: Timestamp::try_from_unix_micros(unix_micros(row.try_get(4)?))
            .map_err(|_| malformed("time"))?,
    }))
}
