//! How the tree is stored: C2SP tlog-tiles of height 8.
//!
//! ```text
//!   level 1   [ root of tile 0 | root of tile 1 | ...            ]  one hash per full tile of level 0
//!   level 0   [ leaf 0 ... leaf 255 ] [ leaf 256 ... leaf 511 ] ...  256 hashes, 8 KiB
//! ```
//! A tile that is full never changes. The last one of a level, the edge, is partial. Above level 0 it changes once in 256 leaves and is
//! stored under its width when it has changed and a head is signed. At level 0 it changes with every leaf and is not stored: its
//! hashes are the leaves of the events themselves. A tree of any smaller size is read from the same tiles, of which it uses fewer hashes.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::str::FromStr;

use super::Hash;
use super::tree::{HashReader, Node, ProofError, join, node_hash, root_nodes};

/// Levels of the tree that one tile covers.
pub(crate) const HEIGHT: u8 = 8;
/// Hashes in a full tile.
pub const WIDTH_MAX: u16 = 1 << HEIGHT;
/// The highest level of tiles that a tree of fewer than 2^63 leaves can have.
const LEVEL_MAX: u8 = 7;
/// Bytes of a hash.
const HASH_BYTES: usize = 32;

/// Names a tile at one of its widths.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TileId {
    level: u8,
    index: u64,
    width: u16,
}

/// Not the name or the content of a tile.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TileError {
    /// A level, index or width that no tile has, or a path that is not written as the standard asks.
    #[error("not the name of a tile")]
    Name,
    /// The bytes are not as many hashes as the tile is wide.
    #[error("a tile of {width} hashes cannot have {bytes} bytes")]
    Length {
        /// Hashes that it should have.
        width: u16,
        /// Bytes that it has.
        bytes: usize,
    },
}

impl TileId {
    /// A tile by its parts.
    ///
    /// # Errors
    /// When no tree can have it.
    pub const fn try_new(level: u8, index: u64, width: u16) -> Result<Self, TileError> {
        // The tile's last leaf has a number below 2^63.
        let fits = level <= LEVEL_MAX && index >> (63 - HEIGHT * level).saturating_sub(HEIGHT) == 0;
        if fits && width >= 1 && width <= WIDTH_MAX {
            Ok(Self { level, index, width })
        } else {
            Err(TileError::Name)
        }
    }

    /// The tile `(level, index)` as wide as it is in a tree of `size` leaves; `None` when the tree does not reach it.
    #[must_use]
    pub fn in_tree(level: u8, index: u64, size: u64) -> Option<Self> {
        let hashes = size.checked_shr(u32::from(HEIGHT) * u32::from(level))?;
        let before = index.checked_mul(u64::from(WIDTH_MAX))?;
        let width = u16::try_from(hashes.checked_sub(before)?.min(u64::from(WIDTH_MAX))).ok()?;
        Self::try_new(level, index, width).ok()
    }

    /// The tile that holds a node, as wide as it is in a tree of `size` leaves; `None` when the node is not complete there.
    #[must_use]
    pub fn of(node: Node, size: u64) -> Option<Self> {
        let end = node.index.checked_add(1)?.checked_mul(1_u64.checked_shl(u32::from(node.level))?)?;
        if end > size {
            return None;
        }
        let (level, inner) = (node.level / HEIGHT, node.level % HEIGHT);
        Self::in_tree(level, node.index >> (HEIGHT - inner), size)
    }

    /// The partial tiles of a tree: together with full ones to their left they are all of it, and alone they give its root.
    #[must_use]
    pub fn edge(size: u64) -> Vec<Self> {
        let tile = |level| {
            let index = size >> (HEIGHT * level) >> HEIGHT;
            Self::in_tree(level, index, size)
        };
        (0..=LEVEL_MAX).filter_map(tile).collect()
    }

    /// Level among the tiles: 0 holds leaves.
    #[must_use]
    pub const fn level(self) -> u8 {
        self.level
    }

    /// Number among the tiles of the level.
    #[must_use]
    pub const fn index(self) -> u64 {
        self.index
    }

    /// How many hashes it holds: 1 to 256.
    #[must_use]
    pub const fn width(self) -> u16 {
        self.width
    }

    /// The number of the first leaf below hash `entry` of the tile.
    #[must_use]
    pub const fn first_leaf(self, entry: u16) -> u64 {
        (self.index * WIDTH_MAX as u64 + entry as u64) << (HEIGHT * self.level)
    }
}

/// The path of the standard: `tile/0/x001/x234/067`, and `tile/0/x001/x234/067.p/5` for a partial one.
impl fmt::Display for TileId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "tile/{}", self.level)?;
        let mut groups = vec![self.index % 1000];
        let mut rest = self.index / 1000;
        while rest > 0 {
            groups.push(rest % 1000);
            rest /= 1000;
        }
        for (place, group) in groups.iter().enumerate().rev() {
            let more = if place > 0 { "x" } else { "" };
            write!(f, "/{more}{group:03}")?;
        }
        if self.width < WIDTH_MAX {
            write!(f, ".p/{}", self.width)?;
        }
        Ok(())
    }
}

impl FromStr for TileId {
    type Err = TileError;

    fn from_str(path: &str) -> Result<Self, TileError> {
        let parts = path.strip_prefix("tile/").and_then(|rest| rest.split_once('/'));
        let (level, rest) = parts.ok_or(TileError::Name)?;
        let (index, width) = rest.split_once(".p/").unwrap_or((rest, "256"));
        let mut number: u64 = 0;
        for group in index.split('/') {
            let digits = group.strip_prefix('x').unwrap_or(group);
            let group: u64 = digits.parse().map_err(|_| TileError::Name)?;
            let next = number.checked_mul(1000).and_then(|number| number.checked_add(group));
            number = next.ok_or(TileError::Name)?;
        }
        let parse = |text: &str| text.parse::<u16>().map_err(|_| TileError::Name);
        let level = u8::try_from(parse(level)?).map_err(|_| TileError::Name)?;
        let tile = Self::try_new(level, number, parse(width)?)?;
        // One way to write it: whatever else parses (signs, zeros, missing marks) is refused here.
        if tile.to_string() == path { Ok(tile) } else { Err(TileError::Name) }
    }
}

/// A tile with its hashes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tile {
    id: TileId,
    hashes: Vec<Hash>,
}

impl Tile {
    /// From its stored bytes.
    ///
    /// # Errors
    /// When these are not as many hashes as the tile is wide.
    pub fn from_bytes(id: TileId, bytes: &[u8]) -> Result<Self, TileError> {
        if bytes.len() != usize::from(id.width) * HASH_BYTES {
            return Err(TileError::Length { width: id.width, bytes: bytes.len() });
        }
        let (hashes, _) = bytes.as_chunks::<HASH_BYTES>();
        Ok(Self { id, hashes: hashes.to_vec() })
    }

    /// As it is stored and served: the hashes one after the other.
    #[must_use]
    pub fn to_bytes(&self) -> Vec<u8> {
        self.hashes.concat()
    }

    /// Its name.
    #[must_use]
    pub const fn id(&self) -> TileId {
        self.id
    }

    /// Its hashes.
    #[must_use]
    pub fn hashes(&self) -> &[Hash] {
        &self.hashes
    }
}

/// The root of a complete subtree: a power of two of hashes.
pub(crate) fn subtree_root(hashes: &[Hash]) -> Hash {
    let mut level = hashes.to_vec();
    while level.len() > 1 {
        level = level.chunks_exact(2).map(|pair| node_hash(&pair[0], &pair[1])).collect();
    }
    level.first().copied().unwrap_or_default()
}

/// A proof cannot be made from the tiles at hand.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ReadError {
    /// A tile that holds one of the hashes is missing, or too narrow.
    #[error("no tile at hand holds node {} of level {}", .0.index, .0.level)]
    Missing(Node),
    /// There is no such proof.
    #[error(transparent)]
    Proof(#[from] ProofError),
}

/// Tiles at hand, each at its widest.
#[derive(Clone, Debug, Default)]
pub struct TileSet {
    tiles: BTreeMap<(u8, u64), Tile>,
}

impl TileSet {
    /// Adds a tile, unless it is there at least as wide.
    pub fn insert(&mut self, tile: Tile) {
        let place = (tile.id.level, tile.id.index);
        if self.tiles.get(&place).is_none_or(|there| there.id.width < tile.id.width) {
            self.tiles.insert(place, tile);
        }
    }

    /// The tile at a place, however wide.
    #[must_use]
    pub fn get(&self, level: u8, index: u64) -> Option<&Tile> {
        self.tiles.get(&(level, index))
    }

    /// The tiles in which the nodes are found, each as narrow as a tree of `size` leaves has it. Nodes that are not complete in that
    /// tree are left out.
    #[must_use]
    pub fn needed(nodes: &[Node], size: u64) -> BTreeSet<TileId> {
        nodes.iter().filter_map(|node| TileId::of(*node, size)).collect()
    }
}

impl Extend<Tile> for TileSet {
    fn extend<I: IntoIterator<Item = Tile>>(&mut self, tiles: I) {
        tiles.into_iter().for_each(|tile| self.insert(tile));
    }
}

impl HashReader for TileSet {
    type Error = ReadError;

    fn hash(&self, node: Node) -> Result<Hash, ReadError> {
        let inner = node.level % HEIGHT;
        let index = node.index >> (HEIGHT - inner);
        let first = usize::try_from((node.index << inner) % u64::from(WIDTH_MAX)).unwrap_or(0);
        self.get(node.level / HEIGHT, index)
            .and_then(|tile| tile.hashes.get(first..first + (1 << inner)))
            .map(subtree_root)
            .ok_or(ReadError::Missing(node))
    }
}

/// The right edge of a growing tree: all that new leaves need of the old ones.
#[derive(Clone, Debug, Default)]
pub struct Edge {
    size: u64,
    /// Per level the hashes of its partial tile.
    partial: Vec<Vec<Hash>>,
    /// Levels above 0 whose partial tile has changed since [`Edge::take_new`].
    changed: BTreeSet<usize>,
    filled: Vec<Tile>,
}

impl Edge {
    /// The edge of a stored tree: `tiles` holds what [`TileId::edge`] names.
    ///
    /// # Errors
    /// When a tile is missing or too narrow. Wider ones are cut to the tree's size.
    pub fn try_new(size: u64, tiles: &TileSet) -> Result<Self, ReadError> {
        let mut partial: Vec<Vec<Hash>> = Vec::new();
        for id in TileId::edge(size) {
            let missing = ReadError::Missing(Node { level: id.level * HEIGHT, index: id.index << HEIGHT });
            let tile = tiles.get(id.level, id.index).ok_or(missing)?;
            let hashes = tile.hashes.get(..usize::from(id.width)).ok_or(missing)?;
            partial.resize(usize::from(id.level) + 1, Vec::new());
            partial[usize::from(id.level)] = hashes.to_vec();
        }
        Ok(Self { size, partial, changed: BTreeSet::new(), filled: Vec::new() })
    }

    /// How many leaves the tree has.
    #[must_use]
    pub const fn size(&self) -> u64 {
        self.size
    }

    /// Appends a leaf. The tree ends at 2^63 leaves: the caller has an end far below.
    pub fn push(&mut self, leaf: Hash) {
        self.size += 1;
        let mut hash = leaf;
        for level in 0.. {
            if self.partial.len() == level {
                self.partial.push(Vec::new());
            }
            let tile = &mut self.partial[level];
            tile.push(hash);
            if tile.len() < usize::from(WIDTH_MAX) {
                if level > 0 {
                    self.changed.insert(level);
                }
                return;
            }
            hash = subtree_root(tile);
            let hashes = std::mem::take(tile);
            self.changed.remove(&level);
            let level = u8::try_from(level).unwrap_or(LEVEL_MAX);
            let index = (self.size >> (HEIGHT * level) >> HEIGHT) - 1;
            self.filled.push(Tile { id: TileId { level, index, width: WIDTH_MAX }, hashes });
        }
    }

    /// The tiles to store since the last call: those that were filled, and the partial ones above level 0 that have changed.
    pub fn take_new(&mut self) -> Vec<Tile> {
        let mut tiles = std::mem::take(&mut self.filled);
        for level in std::mem::take(&mut self.changed) {
            let hashes = self.partial[level].clone();
            let level = u8::try_from(level).unwrap_or(LEVEL_MAX);
            tiles.extend(
                TileId::in_tree(level, self.size >> (HEIGHT * level) >> HEIGHT, self.size)
                    .map(|id| Tile { id, hashes }),
            );
        }
        tiles
    }

    /// The partial tiles as they are.
    pub fn tiles(&self) -> impl Iterator<Item = Tile> {
        TileId::edge(self.size).into_iter().filter_map(|id| {
            let hashes = self.partial.get(usize::from(id.level))?.clone();
            Some(Tile { id, hashes })
        })
    }

    /// The root of the tree.
    #[must_use]
    pub fn root(&self) -> Hash {
        let subtree = |node: Node| {
            let inner = node.level % HEIGHT;
            let hashes = self.partial.get(usize::from(node.level / HEIGHT))?;
            let first = usize::try_from((node.index << inner) % u64::from(WIDTH_MAX)).ok()?;
            hashes.get(first..first + (1 << inner)).map(subtree_root)
        };
        join(&root_nodes(self.size).into_iter().filter_map(subtree).collect::<Vec<_>>())
    }
}

#[cfg(test)]
mod tests;
