//! Compares what is stored with what was sealed: when sealing begins, and to say where the damage is when a root is wrong.

use std::collections::BTreeSet;

use events::Position;
use events::stored::{Header, leaf_hash};
use tokio_postgres::GenericClient;

use super::fault::{SealFault, Stop};
use super::stored::{self, StoredHeader};
use crate::proof::Hash;
use crate::proof::checkpoint::Checkpoint;
use crate::proof::tiles::{Edge, HEIGHT, ReadError, TileId, TileSet, WIDTH_MAX, subtree_root};
use crate::proof::tree::{self, HashReader as _, Node, root_nodes};

/// Events of which headers are read at once.
pub(super) const PAGE: u64 = 4096;

/// The edge of the stored tree that a believed head is about: the last events' leaves, and the partial tiles above them.
///
/// # Errors
/// When they do not have its root: the fault names the first event below the damage.
pub(super) async fn edge(client: &impl GenericClient, head: &Checkpoint) -> Result<Edge, Stop> {
    let wanted = TileId::edge(head.size).into_iter().collect();
    let tiles = stored::tiles(client, &wanted, head.size).await?;
    match Edge::try_new(head.size, &tiles) {
        Ok(edge) if edge.root() == head.root => Ok(edge),
        Ok(_) => Err(blame(client, head.size, &tiles).await?),
        Err(error) => {
            last_events(client, head.size).await?;
            Err(missing(error, head.size))
        }
    }
}

/// The root of the first `size` events of which `sealed` are sealed.
pub(super) async fn root(client: &impl GenericClient, size: u64, sealed: u64) -> Result<Hash, Stop> {
    let tiles = stored::tiles(client, &TileSet::needed(&root_nodes(size), size), sealed).await?;
    tree::root(size, &tiles).map_err(|error| missing(error, size))
}

/// Names the missing tile of a tree of `size` events.
fn missing(error: ReadError, size: u64) -> Stop {
    match error {
        ReadError::Missing(node) => match TileId::of(node, size) {
            Some(tile) => {
                let position = Position(tile.first_leaf(0));
                SealFault::TileMissing { tile, position }.into()
            }
            None => SealFault::Root { size }.into(),
        },
        ReadError::Proof(_) => SealFault::Root { size }.into(),
    }
}

/// Finds where an edge of a wrong root is wrong: every hash of it is compared with what it stands for.
async fn blame(client: &impl GenericClient, size: u64, edge: &TileSet) -> Result<Stop, Stop> {
    last_events(client, size).await?;
    for id in TileId::edge(size).into_iter().filter(|id| id.level() > 0) {
        let Some(tile) = edge.get(id.level(), id.index()) else { continue };
        for (entry, hash) in (0..id.width()).zip(tile.hashes()) {
            let below = id.index() * u64::from(WIDTH_MAX) + u64::from(entry);
            let Some(child) = TileId::in_tree(id.level() - 1, below, size) else { continue };
            let stored = stored::tiles(client, &BTreeSet::from([child]), size).await?;
            let position = Position(child.first_leaf(0));
            let Some(stored) = stored.get(child.level(), child.index()) else {
                return Ok(SealFault::TileMissing { tile: child, position }.into());
            };
            if subtree_root(stored.hashes()) != *hash {
                return Ok(SealFault::TileChanged { tile: id, position }.into());
            }
        }
    }
    Ok(SealFault::Root { size }.into())
}

/// Finds which of the last events, those that fill no tile yet, is not the sealed one. No tile tells, but the leaf of an event is
/// written twice: the next event of its stream is chained to it, or the row of its stream ends with it.
///
/// # Errors
/// A fault at the first that is found so. Whoever changes an event and all that follows from it is not: then only the root tells.
async fn last_events(client: &impl GenericClient, size: u64) -> Result<(), Stop> {
    let first = size - size % u64::from(WIDTH_MAX);
    let rows = stored::witnessed(client, first, size).await?;
    let mut rows = rows.iter();
    for position in (first..size).map(Position) {
        let row = rows.next();
        let leaf = in_order(row.map(|row| &row.event), position)?;
        let witness = row.and_then(|row| {
            let next = row.next.as_deref().and_then(|header| Header::from_canonical(header).ok());
            next.map(|next| next.prev_leaf).or_else(|| row.tip.as_ref().map(hex::encode))
        });
        if witness.is_some_and(|witness| witness != hex::encode(leaf)) {
            return Err(SealFault::Sealed { position }.into());
        }
    }
    Ok(())
}

/// Compares the last `count` sealed events (rounded up to whole tiles) with their tiles, and these with the tiles above. The edge has
/// been found to have the signed root, so that the leaves of those that fill no tile are the sealed ones.
///
/// # Errors
/// A fault at the first event that is not the sealed one.
pub(super) async fn tail(client: &impl GenericClient, size: u64, count: u64) -> Result<(), Stop> {
    let width = u64::from(WIDTH_MAX);
    let mut first = size.saturating_sub(count) / width * width;
    while first < size {
        let end = size.min(first + PAGE);
        let nodes: Vec<Node> = (first..end)
            .step_by(usize::from(WIDTH_MAX))
            .flat_map(|leaf| [Node { level: 0, index: leaf }, Node { level: HEIGHT, index: leaf / width }])
            .collect();
        let tiles = stored::tiles(client, &TileSet::needed(&nodes, size), size).await?;
        compare(client, first, end, &tiles).await?;
        first = end;
    }
    Ok(())
}

/// Compares the events from `first` (where a tile begins) up to `end` with these tiles of level 0. Of a full tile and an event that
/// differ, the tile is believed when the tile above agrees with it.
async fn compare(client: &impl GenericClient, first: u64, end: u64, tiles: &TileSet) -> Result<(), Stop> {
    let limit = i64::try_from(PAGE).unwrap_or(i64::MAX);
    let rows = stored::headers(client, first, end, limit).await?;
    let mut rows = rows.iter();
    let mut from = first;
    while from < end {
        let index = from / u64::from(WIDTH_MAX);
        let to = end.min(from + u64::from(WIDTH_MAX));
        let width = u16::try_from(to - from).unwrap_or(WIDTH_MAX);
        let id = TileId::try_new(0, index, width).map_err(|_| SealFault::Root { size: end })?;
        let tile = tiles.get(0, index).filter(|tile| tile.id().width() >= width);
        let tile = tile.ok_or(SealFault::TileMissing { tile: id, position: Position(from) })?;
        let above = tiles.hash(Node { level: HEIGHT, index }).ok().filter(|_| width == WIDTH_MAX);
        let disagrees = above.is_some_and(|above| above != subtree_root(tile.hashes()));
        for (leaf, position) in tile.hashes().iter().zip((from..to).map(Position)) {
            if in_order(rows.next(), position)? != *leaf {
                return Err(if disagrees {
                    SealFault::TileChanged { tile: tile.id(), position }.into()
                } else {
                    SealFault::Sealed { position }.into()
                });
            }
        }
        if disagrees && let Some(parent) = tiles.get(1, index / u64::from(WIDTH_MAX)) {
            return Err(SealFault::TileChanged { tile: parent.id(), position: Position(from) }.into());
        }
        from = to;
    }
    Ok(())
}

/// The leaf of the event at a position, recomputed, when its row is there and in order by itself.
fn in_order(row: Option<&StoredHeader>, position: Position) -> Result<Hash, SealFault> {
    let Some(row) = row.filter(|row| row.position == position) else {
        return Err(SealFault::Gap { position });
    };
    let leaf = leaf_hash(&row.header);
    if row.leaf == leaf { Ok(leaf) } else { Err(SealFault::Leaf { position }) }
}
