//! The Merkle tree of RFC 6962: a list of leaves, its root, and what proves something about it.
//!
//! A tree of n leaves splits into the largest power of two below n on the left and the rest on the right. Every hash of a proof
//! belongs to a range of leaves, and every range falls into complete subtrees ([`Node`]): these never change once they are full,
//! so they are what is stored. Making a proof is choosing ranges; verifying one follows RFC 9162, 2.1.3.2 and 2.1.4.2.

use std::ops::Range;

use sha2::{Digest as _, Sha256};

use super::Hash;

/// The complete subtree over the leaves `index << level` up to `(index + 1) << level`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Node {
    /// 0 for a leaf.
    pub level: u8,
    /// Number among the nodes of its level.
    pub index: u64,
}

/// Where hashes of complete subtrees come from.
pub trait HashReader {
    /// Why a hash is not to be had, or a proof cannot be made at all.
    type Error: From<ProofError>;

    /// The hash of one complete subtree.
    ///
    /// # Errors
    /// When it is not there.
    fn hash(&self, node: Node) -> Result<Hash, Self::Error>;
}

/// A proof does not prove what it should.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ProofError {
    /// The leaf is outside of the tree, or the older tree is larger.
    #[error("the tree is too small for what is to be proven")]
    OutOfRange,
    /// Too few or too many hashes.
    #[error("the proof has a wrong number of hashes")]
    WrongLength,
    /// The hashes lead to another root.
    #[error("the proof leads to another root")]
    WrongRoot,
}

/// SHA-256(0x01 ‖ left ‖ right). Leaves are hashed by [`events::stored::leaf_hash`].
#[must_use]
pub fn node_hash(left: &Hash, right: &Hash) -> Hash {
    Sha256::new().chain_update([1_u8]).chain_update(left).chain_update(right).finalize().into()
}

/// The root of a tree without leaves: SHA-256 of nothing.
#[must_use]
pub fn empty_root() -> Hash {
    Sha256::digest([]).into()
}

/// The nodes that [`root`] reads.
#[must_use]
pub fn root_nodes(size: u64) -> Vec<Node> {
    subtrees(0..size)
}

/// The root of the first `size` leaves.
///
/// # Errors
/// When the reader lacks a hash.
pub fn root<R: HashReader>(size: u64, reader: &R) -> Result<Hash, R::Error> {
    if size == 0 { Ok(empty_root()) } else { range_hash(0..size, reader) }
}

/// The nodes that [`inclusion_proof`] reads.
///
/// # Errors
/// When the leaf is outside of the tree.
pub fn inclusion_nodes(index: u64, size: u64) -> Result<Vec<Node>, ProofError> {
    Ok(inclusion_ranges(index, size)?.into_iter().flat_map(subtrees).collect())
}

/// Proves that leaf `index` is in the tree of `size` leaves: sibling hashes, from the leaf upwards.
///
/// # Errors
/// When the leaf is outside of the tree, or the reader lacks a hash.
pub fn inclusion_proof<R: HashReader>(index: u64, size: u64, reader: &R) -> Result<Vec<Hash>, R::Error> {
    inclusion_ranges(index, size)?.into_iter().map(|range| range_hash(range, reader)).collect()
}

/// Checks that the leaf `leaf` is number `index` of the tree with `size` leaves and this root.
///
/// # Errors
/// When the proof does not show it.
pub fn verify_inclusion(
    leaf: &Hash,
    index: u64,
    size: u64,
    proof: &[Hash],
    root: &Hash,
) -> Result<(), ProofError> {
    if index >= size {
        return Err(ProofError::OutOfRange);
    }
    let mut path = Path { node: index, last: size - 1 };
    let mut hash = *leaf;
    for sibling in proof {
        hash = match path.step()? {
            Side::Left => node_hash(sibling, &hash),
            Side::Right => node_hash(&hash, sibling),
        };
    }
    path.end()?;
    if hash == *root { Ok(()) } else { Err(ProofError::WrongRoot) }
}

/// The nodes that [`consistency_proof`] reads.
///
/// # Errors
/// When the older tree is the larger one.
pub fn consistency_nodes(old: u64, new: u64) -> Result<Vec<Node>, ProofError> {
    Ok(consistency_ranges(old, new)?.into_iter().flat_map(subtrees).collect())
}

/// Proves that the tree of `new` leaves begins with the tree of `old` leaves. Empty when they are the same, and for an old tree
/// without leaves, which every tree extends.
///
/// # Errors
/// When the older tree is the larger one, or the reader lacks a hash.
pub fn consistency_proof<R: HashReader>(old: u64, new: u64, reader: &R) -> Result<Vec<Hash>, R::Error> {
    consistency_ranges(old, new)?.into_iter().map(|range| range_hash(range, reader)).collect()
}

/// Checks that the tree of `new` leaves and root `new_root` begins with the tree of `old` leaves and root `old_root`.
///
/// # Errors
/// When the proof does not show it.
pub fn verify_consistency(
    old: u64,
    old_root: &Hash,
    new: u64,
    new_root: &Hash,
    proof: &[Hash],
) -> Result<(), ProofError> {
    if old > new {
        return Err(ProofError::OutOfRange);
    }
    if old == new || old == 0 {
        let expected = if old == new { new_root } else { &empty_root() };
        return match (proof.is_empty(), old_root == expected) {
            (false, _) => Err(ProofError::WrongLength),
            (true, false) => Err(ProofError::WrongRoot),
            (true, true) => Ok(()),
        };
    }
    // An old tree that is complete is itself where the path begins; otherwise the proof says what does.
    let (start, rest) = match proof.split_first() {
        _ if old.is_power_of_two() => (old_root, proof),
        Some((start, rest)) => (start, rest),
        None => return Err(ProofError::WrongLength),
    };
    let mut path = Path { node: old - 1, last: new - 1 };
    path.climb(path.node.trailing_ones());
    let (mut before, mut after) = (*start, *start);
    for sibling in rest {
        match path.step()? {
            Side::Left => {
                before = node_hash(sibling, &before);
                after = node_hash(sibling, &after);
            }
            Side::Right => after = node_hash(&after, sibling),
        }
    }
    path.end()?;
    if before == *old_root && after == *new_root { Ok(()) } else { Err(ProofError::WrongRoot) }
}

/// On which side the next hash of a proof stands.
enum Side {
    Left,
    Right,
}

/// The way of a verifier from a node to the root: its number on the current level, and the number of the level's last node.
struct Path {
    node: u64,
    last: u64,
}

impl Path {
    /// Takes the next hash of the proof and goes up to where it is used.
    fn step(&mut self) -> Result<Side, ProofError> {
        if self.last == 0 {
            return Err(ProofError::WrongLength);
        }
        let side = if self.node & 1 == 1 || self.node == self.last {
            // The last node of a level has no sibling there: it moves up as it is until it is a right child.
            self.climb(self.node.trailing_zeros());
            Side::Left
        } else {
            Side::Right
        };
        self.climb(1);
        Ok(side)
    }

    fn climb(&mut self, levels: u32) {
        self.node = self.node.checked_shr(levels).unwrap_or(0);
        self.last = self.last.checked_shr(levels).unwrap_or(0);
    }

    /// The proof has no more hashes: the root must be reached.
    const fn end(&self) -> Result<(), ProofError> {
        if self.last == 0 { Ok(()) } else { Err(ProofError::WrongLength) }
    }
}

/// Size of the left part of a tree of `size` (2 or more) leaves.
const fn split(size: u64) -> u64 {
    1 << (size - 1).ilog2()
}

fn inclusion_ranges(index: u64, size: u64) -> Result<Vec<Range<u64>>, ProofError> {
    if index >= size {
        return Err(ProofError::OutOfRange);
    }
    let (mut first, mut end) = (0, size);
    let mut ranges = Vec::new();
    while end - first > 1 {
        let middle = first + split(end - first);
        if index < middle {
            ranges.push(middle..end);
            end = middle;
        } else {
            ranges.push(first..middle);
            first = middle;
        }
    }
    ranges.reverse();
    Ok(ranges)
}

fn consistency_ranges(old: u64, new: u64) -> Result<Vec<Range<u64>>, ProofError> {
    if old > new {
        return Err(ProofError::OutOfRange);
    }
    let (mut first, mut end) = (0, new);
    let mut ranges = Vec::new();
    while old != 0 && old != end {
        let middle = first + split(end - first);
        if old <= middle {
            ranges.push(middle..end);
            end = middle;
        } else {
            ranges.push(first..middle);
            first = middle;
        }
    }
    // What is left is a part of the old tree: the verifier knows it when it is the whole.
    if first > 0 {
        ranges.push(first..end);
    }
    ranges.reverse();
    Ok(ranges)
}

/// The complete subtrees of a range that begins at a multiple of its largest one, from left to right.
fn subtrees(range: Range<u64>) -> Vec<Node> {
    let (mut first, end) = (range.start, range.end);
    let mut nodes = Vec::new();
    while first < end {
        let level = (end - first).ilog2();
        nodes.push(Node { level: u8::try_from(level).unwrap_or(u8::MAX), index: first >> level });
        first += 1 << level;
    }
    nodes
}

fn range_hash<R: HashReader>(range: Range<u64>, reader: &R) -> Result<Hash, R::Error> {
    let hashes: Vec<Hash> =
        subtrees(range).into_iter().map(|node| reader.hash(node)).collect::<Result<_, _>>()?;
    Ok(join(&hashes))
}

/// The root over complete subtrees that stand side by side, the larger ones to the left.
pub(super) fn join(subtrees: &[Hash]) -> Hash {
    subtrees.iter().rev().copied().reduce(|right, left| node_hash(&left, &right)).unwrap_or_else(empty_root)
}

#[cfg(test)]
mod tests;
