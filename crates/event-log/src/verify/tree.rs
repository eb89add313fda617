//! The Merkle tree over the recomputed leaves, event by event, against what is signed and what is stored of it: no database here.
//!
//! Of a stored tile only a digest is at hand: that is enough to see that it differs. Where it does is looked up afterwards.

use std::collections::BTreeMap;
use std::iter::Peekable;
use std::vec::IntoIter;

use events::{Position, Timestamp};

use super::claims::Claim;
use super::report::Fault;
use super::witness::{Origin, Tail};
use crate::proof::Hash;
use crate::proof::tiles::{Edge, Tile, TileId, WIDTH_MAX};
use crate::proof::tree::empty_root;

/// Tiles that differ are kept in memory until they are looked up; beyond so many they are only named.
const LOOKED_UP_MAX: usize = 256;

/// A stored tile, in brief.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct StoredTile {
    pub(super) id: TileId,
    /// SHA-256 of its hashes.
    pub(super) digest: Hash,
}

impl StoredTile {
    /// Size of the smallest tree that has it at this width.
    fn due(&self) -> u64 {
        self.id.first_leaf(self.id.width())
    }
}

/// Takes the leaves of a whole log.
#[derive(Debug)]
pub(super) struct Tree {
    edge: Edge,
    /// Positions so far had no gap: behind one, no root can be right.
    whole: bool,
    sealed: u64,
    claims: Peekable<IntoIter<Claim>>,
    tiles: Peekable<IntoIter<StoredTile>>,
    digest: fn(&[u8]) -> Hash,
    differ: BTreeMap<(u8, u64), Tile>,
    wrong: Option<Wrong>,
    found: Vec<(Option<Position>, Fault)>,
    pub(super) anchor: Option<Claim>,
    pub(super) tail: Tail,
    pub(super) tiles_compared: u64,
    pub(super) claims_compared: u64,
}

/// Stored checkpoints in a row with another root than the events have.
#[derive(Clone, Copy, Debug)]
struct Wrong {
    first: u64,
    others: u64,
    after: u64,
}

impl Tree {
    /// `claims` by size; of the log `sealed` events have a stored checkpoint, so that all their full tiles must be there.
    pub(super) fn new(
        claims: Vec<Claim>,
        mut tiles: Vec<StoredTile>,
        sealed: u64,
        digest: fn(&[u8]) -> Hash,
    ) -> Self {
        tiles.sort_by_key(StoredTile::due);
        let beyond = tiles.split_off(tiles.partition_point(|tile| tile.due() <= sealed));
        let mut found = Vec::new();
        if let Some(first) = beyond.first() {
            let others = u64::try_from(beyond.len() - 1).unwrap_or(u64::MAX);
            let position = Position(first.id.first_leaf(0));
            found.push((Some(position), Fault::TileBeyond { tile: first.id, sealed, others }));
        }
        let mut tree = Self {
            edge: Edge::default(),
            whole: true,
            sealed,
            claims: claims.into_iter().peekable(),
            tiles: tiles.into_iter().peekable(),
            digest,
            differ: BTreeMap::new(),
            wrong: None,
            found,
            anchor: None,
            tail: Tail::default(),
            tiles_compared: 0,
            claims_compared: 0,
        };
        tree.compare_roots();
        tree
    }

    /// The leaf of the next event that is there, and when its header says that it was recorded.
    pub(super) fn follow(&mut self, position: Position, leaf: Hash, recorded_at: Option<Timestamp>) {
        self.tail.add(recorded_at);
        self.whole &= position.get() == self.edge.size();
        if !self.whole {
            return;
        }
        self.edge.push(leaf);
        self.compare_tiles();
        self.compare_roots();
    }

    fn compare_tiles(&mut self) {
        let size = self.edge.size();
        let mut filled =
            if size.is_multiple_of(u64::from(WIDTH_MAX)) { self.edge.take_new() } else { Vec::new() };
        filled.retain(|tile| tile.id().width() == WIDTH_MAX);
        while let Some(stored) = self.tiles.next_if(|tile| tile.due() == size) {
            let full = filled.iter().position(|tile| tile.id() == stored.id).map(|at| filled.swap_remove(at));
            let Some(tile) = full.or_else(|| self.edge.tiles().find(|tile| tile.id() == stored.id)) else {
                continue;
            };
            self.tiles_compared += 1;
            if (self.digest)(&tile.to_bytes()) != stored.digest {
                self.differs(tile);
            }
        }
        if size <= self.sealed {
            for tile in filled {
                let position = Position(tile.id().first_leaf(0));
                self.found.push((Some(position), Fault::TileMissing { tile: tile.id() }));
            }
        }
    }

    /// Keeps it to be looked up: of one place the narrowest, for its first difference is in every wider one too.
    fn differs(&mut self, tile: Tile) {
        let id = tile.id();
        let place = (id.level(), id.index());
        if self.differ.len() < LOOKED_UP_MAX {
            self.differ.entry(place).or_insert(tile);
        } else if !self.differ.contains_key(&place) {
            self.found.push((Some(Position(id.first_leaf(0))), Fault::Tile { tile: id, entry: None }));
        }
    }

    fn compare_roots(&mut self) {
        let size = self.edge.size();
        if self.claims.peek().is_none_or(|claim| claim.size != size) {
            return;
        }
        let root = if size == 0 { empty_root() } else { self.edge.root() };
        while let Some(claim) = self.claims.next_if(|claim| claim.size == size) {
            self.claims_compared += u64::from(claim.origin == Origin::Log);
            let anchored = self.anchor.as_ref().map_or(0, |anchor| anchor.size);
            if claim.root == root {
                self.tell_wrong();
                if size > anchored {
                    self.tail.restart();
                    self.anchor = Some(claim);
                }
                continue;
            }
            match claim.origin {
                Origin::Log => match &mut self.wrong {
                    Some(wrong) => wrong.others += 1,
                    None => self.wrong = Some(Wrong { first: size, others: 0, after: anchored }),
                },
                Origin::Kept(name) => self.found.push((None, Fault::HeadRoot { name, size })),
            }
        }
    }

    fn tell_wrong(&mut self) {
        if let Some(Wrong { first, others, after }) = self.wrong.take() {
            self.found.push((Some(Position(after)), Fault::CheckpointRoot { size: first, others }));
        }
    }

    /// What was found since the last call.
    pub(super) fn take_found(&mut self) -> Vec<(Option<Position>, Fault)> {
        std::mem::take(&mut self.found)
    }

    /// After the last event, with the position behind it: what is signed about events that are not there. Answers the tiles that
    /// are stored otherwise, as they should be.
    pub(super) fn finish(&mut self, end: Position) -> Vec<Tile> {
        self.tell_wrong();
        let mut ahead: Option<(u64, u64)> = None;
        for claim in self.claims.by_ref().filter(|claim| claim.size > end.get()) {
            match claim.origin {
                Origin::Log => {
                    ahead = Some(ahead.map_or((claim.size, 0), |(first, others)| (first, others + 1)));
                }
                Origin::Kept(name) => {
                    self.found.push((Some(end), Fault::HeadAhead { name, size: claim.size, end }));
                }
            }
        }
        if let Some((size, others)) = ahead {
            self.found.push((Some(end), Fault::CheckpointAhead { size, others, end }));
        }
        if let Some(Claim { size, origin: Origin::Kept(name), .. }) = &self.anchor
            && *size > self.sealed
        {
            let (name, size, sealed) = (name.clone(), *size, self.sealed);
            self.found.push((None, Fault::HeadNotStored { name, size, sealed }));
        }
        std::mem::take(&mut self.differ).into_values().collect()
    }
}

/// The first hash in which the stored bytes of a tile differ from what they should be.
pub(super) fn differing(tile: &Tile, stored: &[u8]) -> u16 {
    let (stored, _) = stored.as_chunks::<32>();
    let pairs = (0..tile.id().width()).zip(tile.hashes());
    let first = pairs.zip(stored).find(|((_, expected), stored)| expected != stored);
    first.map_or(0, |((entry, _), _)| entry)
}

#[cfg(test)]
mod tests;
