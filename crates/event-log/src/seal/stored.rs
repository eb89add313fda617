//! What the database holds, as the sealer and the readers of proofs see it. Nothing here judges.
//!
//! Tiles are rows, but for the partial one of level 0 at the edge: that one is read from the leaves of the events.

use std::collections::BTreeSet;

use events::{LogId, Position};
use tokio_postgres::types::{ToSql, Type};
use tokio_postgres::{GenericClient, Row};

use crate::error::LogError;
use crate::proof::Hash;
use crate::proof::tiles::{Tile, TileId, TileSet, WIDTH_MAX};

/// Levels of tiles that the database may hold: positions end at 2^53.
const LEVELS: u8 = 7;

/// What is pinned for a log. It stands in the database: a verifier that trusts nobody there brings its own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pinned {
    /// The log's id.
    pub log_id: LogId,
    /// The first line of its checkpoints, and the name of its keys.
    pub origin: String,
    /// Verifier keys as text: whether they can be read is for the caller to judge.
    pub verifier_keys: Vec<String>,
}

/// A row of the table of checkpoints.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredCheckpoint {
    /// How many events it covers, as its row says.
    pub size: u64,
    /// The signed note.
    pub note: String,
}

/// An event's row, as far as the sealer reads it.
#[derive(Clone, Debug)]
pub(super) struct StoredHeader {
    pub(super) position: Position,
    pub(super) stream_id: i64,
    pub(super) version: i64,
    pub(super) leaf: Vec<u8>,
    pub(super) header: Vec<u8>,
}

pub(super) async fn pinned(client: &impl GenericClient) -> Result<Pinned, LogError> {
    let row = client.query_one("SELECT log_id, origin, verifier_keys FROM log.log_meta", &[]).await?;
    Ok(Pinned { log_id: LogId(row.try_get(0)?), origin: row.try_get(1)?, verifier_keys: row.try_get(2)? })
}

pub(super) async fn head(client: &impl GenericClient) -> Result<Position, LogError> {
    let row = client.query_one("SELECT next_position FROM log.log_head", &[]).await?;
    Ok(Position(unsigned(row.try_get(0)?)))
}

pub(super) async fn last_checkpoint(
    client: &impl GenericClient,
) -> Result<Option<StoredCheckpoint>, LogError> {
    let row =
        client.query_opt("SELECT size, note FROM log.checkpoints ORDER BY size DESC LIMIT 1", &[]).await?;
    row.map(|row| checkpoint(&row)).transpose()
}

pub(super) async fn checkpoint_at(
    client: &impl GenericClient,
    size: u64,
) -> Result<Option<StoredCheckpoint>, LogError> {
    let sql = "SELECT size, note FROM log.checkpoints WHERE size >= $1 ORDER BY size LIMIT 1";
    let row = client.query_opt(sql, &[&signed(size)]).await?;
    row.map(|row| checkpoint(&row)).transpose()
}

/// Signed heads of more than `size` events, in order.
pub(super) async fn checkpoints_after(
    client: &impl GenericClient,
    size: u64,
    limit: u32,
) -> Result<Vec<StoredCheckpoint>, LogError> {
    let sql = "SELECT size, note FROM log.checkpoints WHERE size > $1 ORDER BY size LIMIT $2";
    let rows = client.query(sql, &[&signed(size), &i64::from(limit)]).await?;
    rows.iter().map(checkpoint).collect()
}

fn checkpoint(row: &Row) -> Result<StoredCheckpoint, LogError> {
    Ok(StoredCheckpoint { size: unsigned(row.try_get(0)?), note: row.try_get(1)? })
}

const TILES: &str = "\
    SELECT wanted.level, wanted.index, stored.width, stored.hashes \
    FROM unnest($1, $2, $3) AS wanted(level, index, width) \
    CROSS JOIN LATERAL (\
        SELECT t.width, t.hashes FROM log.tiles AS t \
        WHERE t.level = wanted.level AND t.index = wanted.index AND t.width >= wanted.width \
        ORDER BY t.width LIMIT 1\
    ) AS stored";

/// The tiles of a log of which `sealed` events are sealed, each at least as wide as asked if it is there: the narrowest row, or, where
/// the last events do not fill one, their leaves.
pub(super) async fn tiles(
    client: &impl GenericClient,
    wanted: &BTreeSet<TileId>,
    sealed: u64,
) -> Result<TileSet, LogError> {
    let at_edge = |tile: &&TileId| {
        tile.level() == 0 && tile.width() < WIDTH_MAX && tile.index() == sealed / u64::from(WIDTH_MAX)
    };
    let (edge, rows): (Vec<TileId>, Vec<TileId>) = wanted.iter().partition(at_edge);
    let mut set = stored_tiles(client, &rows).await?;
    for id in edge {
        let first = id.first_leaf(0);
        let end = first + u64::from(id.width());
        if end <= sealed {
            let leaves = leaves(client, first, end).await?;
            set.extend(Tile::from_bytes(id, &leaves.concat()).ok());
        }
    }
    Ok(set)
}

/// The leaves of the events from position `from` up to `end`; they end before the first that is missing or is no hash.
pub(super) async fn leaves(client: &impl GenericClient, from: u64, end: u64) -> Result<Vec<Hash>, LogError> {
    let sql =
        "SELECT position, leaf FROM log.events WHERE position >= $1 AND position < $2 ORDER BY position";
    let parameters: [(&(dyn ToSql + Sync), Type); 2] =
        [(&signed(from), Type::INT8), (&signed(end), Type::INT8)];
    let mut leaves = Vec::new();
    for (position, row) in (from..).zip(client.query_typed(sql, &parameters).await?) {
        match row.try_get::<_, &[u8]>(1)?.try_into() {
            Ok(leaf) if unsigned(row.try_get(0)?) == position => leaves.push(leaf),
            _ => break,
        }
    }
    Ok(leaves)
}

/// The narrowest stored tile that is as wide as asked, for each that is there.
async fn stored_tiles(client: &impl GenericClient, wanted: &[TileId]) -> Result<TileSet, LogError> {
    let mut set = TileSet::default();
    if wanted.is_empty() {
        return Ok(set);
    }
    let levels: Vec<i16> = wanted.iter().map(|tile| i16::from(tile.level())).collect();
    let indexes: Vec<i64> = wanted.iter().map(|tile| signed(tile.index())).collect();
    let widths: Vec<i16> = wanted.iter().map(|tile| width(*tile)).collect();
    let parameters: [(&(dyn ToSql + Sync), Type); 3] =
        [(&levels, Type::INT2_ARRAY), (&indexes, Type::INT8_ARRAY), (&widths, Type::INT2_ARRAY)];
    for row in client.query_typed(TILES, &parameters).await? {
        set.extend(tile(&row)?);
    }
    Ok(set)
}

/// A row whose bytes are not what its columns say is as good as missing: the caller names it.
fn tile(row: &Row) -> Result<Option<Tile>, LogError> {
    let (level, index, width): (i16, i64, i16) = (row.try_get(0)?, row.try_get(1)?, row.try_get(2)?);
    let bytes: &[u8] = row.try_get(3)?;
    let id = u8::try_from(level).ok().zip(u16::try_from(width).ok());
    let id = id.and_then(|(level, width)| TileId::try_new(level, unsigned(index), width).ok());
    Ok(id.and_then(|id| Tile::from_bytes(id, bytes).ok()))
}

const BEYOND: &str = "\
    SELECT stored.level, stored.index, stored.width \
    FROM unnest($1, $2, $3) AS edge(level, index, width) \
    CROSS JOIN LATERAL (\
        SELECT t.level, t.index, t.width FROM log.tiles AS t \
        WHERE t.level = edge.level AND (t.index, t.width) > (edge.index, edge.width) \
        ORDER BY t.index, t.width LIMIT 1\
    ) AS stored ORDER BY stored.level LIMIT 1";

/// The first stored tile that a tree of `size` leaves does not have yet.
pub(super) async fn tile_beyond(client: &impl GenericClient, size: u64) -> Result<Option<TileId>, LogError> {
    let (mut levels, mut indexes, mut widths) = (Vec::new(), Vec::new(), Vec::new());
    for level in 0..LEVELS {
        let full = size >> (8 * (u32::from(level) + 1));
        levels.push(i16::from(level));
        indexes.push(signed(full));
        widths.push(TileId::in_tree(level, full, size).map_or(0, width));
    }
    let parameters: [(&(dyn ToSql + Sync), Type); 3] =
        [(&levels, Type::INT2_ARRAY), (&indexes, Type::INT8_ARRAY), (&widths, Type::INT2_ARRAY)];
    let rows = client.query_typed(BEYOND, &parameters).await?;
    let Some(row) = rows.first() else { return Ok(None) };
    let (level, index, width): (i16, i64, i16) = (row.try_get(0)?, row.try_get(1)?, row.try_get(2)?);
    let id = u8::try_from(level).ok().zip(u16::try_from(width).ok());
    Ok(id.and_then(|(level, width)| TileId::try_new(level, unsigned(index), width).ok()))
}

/// Headers from position `from` up to `end`, at most `limit`, in order.
pub(super) async fn headers(
    client: &impl GenericClient,
    from: u64,
    end: u64,
    limit: i64,
) -> Result<Vec<StoredHeader>, LogError> {
    let sql = "SELECT position, stream_id, version, leaf, header FROM log.events \
               WHERE position >= $1 AND position < $2 ORDER BY position LIMIT $3";
    let parameters: [(&(dyn ToSql + Sync), Type); 3] =
        [(&signed(from), Type::INT8), (&signed(end), Type::INT8), (&limit, Type::INT8)];
    client.query_typed(sql, &parameters).await?.iter().map(stored_header).collect()
}

/// The events with these (stream id, version) before position `before`.
pub(super) async fn headers_of(
    client: &impl GenericClient,
    streams: &[i64],
    versions: &[i64],
    before: u64,
) -> Result<Vec<StoredHeader>, LogError> {
    let sql = "SELECT e.position, e.stream_id, e.version, e.leaf, e.header \
               FROM unnest($1, $2) AS wanted(stream_id, version) \
               JOIN log.events AS e ON e.stream_id = wanted.stream_id AND e.version = wanted.version \
               WHERE e.position < $3";
    let parameters: [(&(dyn ToSql + Sync), Type); 3] =
        [(&streams, Type::INT8_ARRAY), (&versions, Type::INT8_ARRAY), (&signed(before), Type::INT8)];
    client.query_typed(sql, &parameters).await?.iter().map(stored_header).collect()
}

/// An event of the edge, and where else its leaf is told.
#[derive(Clone, Debug)]
pub(super) struct Witnessed {
    pub(super) event: StoredHeader,
    /// Header of the next event of its stream, which is chained to it.
    pub(super) next: Option<Vec<u8>>,
    /// What the stream's row holds, where it says that this event is the last one.
    pub(super) tip: Option<Vec<u8>>,
}

/// The events from position `from` up to `end`, in order, each with what is chained to it.
pub(super) async fn witnessed(
    client: &impl GenericClient,
    from: u64,
    end: u64,
) -> Result<Vec<Witnessed>, LogError> {
    let sql = "SELECT e.position, e.stream_id, e.version, e.leaf, e.header, next.header, s.tip FROM log.events AS e \
               LEFT JOIN log.events AS next ON next.stream_id = e.stream_id AND next.version = e.version + 1 \
               LEFT JOIN log.streams AS s ON s.id = e.stream_id AND s.version = e.version \
               WHERE e.position >= $1 AND e.position < $2 ORDER BY e.position";
    let parameters: [(&(dyn ToSql + Sync), Type); 2] =
        [(&signed(from), Type::INT8), (&signed(end), Type::INT8)];
    let rows = client.query_typed(sql, &parameters).await?;
    let witnessed = rows
        .iter()
        .map(|row| Ok(Witnessed { event: stored_header(row)?, next: row.try_get(5)?, tip: row.try_get(6)? }));
    witnessed.collect()
}

fn stored_header(row: &Row) -> Result<StoredHeader, LogError> {
    Ok(StoredHeader {
        position: Position(unsigned(row.try_get(0)?)),
        stream_id: row.try_get(1)?,
        version: row.try_get(2)?,
        leaf: row.try_get(3)?,
        header: row.try_get(4)?,
    })
}

const WRITE: &str = "\
    WITH added AS (\
        INSERT INTO log.tiles (level, index, width, hashes) SELECT * FROM unnest($1, $2, $3, $4)\
    ) INSERT INTO log.checkpoints (size, note) VALUES ($5, $6)";

/// Adds tiles and the checkpoint that they belong to in one statement, which is one transaction.
pub(super) async fn write(
    client: &impl GenericClient,
    tiles: &[Tile],
    checkpoint: &StoredCheckpoint,
) -> Result<(), tokio_postgres::Error> {
    let levels: Vec<i16> = tiles.iter().map(|tile| i16::from(tile.id().level())).collect();
    let indexes: Vec<i64> = tiles.iter().map(|tile| signed(tile.id().index())).collect();
    let widths: Vec<i16> = tiles.iter().map(|tile| width(tile.id())).collect();
    let hashes: Vec<Vec<u8>> = tiles.iter().map(Tile::to_bytes).collect();
    let parameters: [(&(dyn ToSql + Sync), Type); 6] = [
        (&levels, Type::INT2_ARRAY),
        (&indexes, Type::INT8_ARRAY),
        (&widths, Type::INT2_ARRAY),
        (&hashes, Type::BYTEA_ARRAY),
        (&signed(checkpoint.size), Type::INT8),
        (&checkpoint.note, Type::TEXT),
    ];
    client.query_typed(WRITE, &parameters).await.map(drop)
}

fn width(tile: TileId) -> i16 {
    i16::try_from(tile.width()).unwrap_or(i16::MAX)
}

fn signed(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

fn unsigned(number: i64) -> u64 {
    u64::try_from(number).unwrap_or(0)
}
