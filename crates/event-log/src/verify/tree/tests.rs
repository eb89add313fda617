//! The tree against what is signed and stored, on plain values.

use std::collections::BTreeMap;

use sha2::{Digest as _, Sha256};

use super::super::claims::{Claims, KeptHead, Trust};
use super::*;
use crate::proof::checkpoint::Checkpoint;
use crate::proof::note::SignerKey;
use crate::seal::{Pinned, StoredCheckpoint};

fn digest(bytes: &[u8]) -> Hash {
    Sha256::digest(bytes).into()
}

fn leaf(position: u64) -> Hash {
    digest(&position.to_be_bytes())
}

fn stored(tile: &Tile) -> StoredTile {
    StoredTile { id: tile.id(), digest: digest(&tile.to_bytes()) }
}

fn at(size: u64) -> Edge {
    let mut edge = Edge::default();
    (0..size).for_each(|position| edge.push(leaf(position)));
    edge
}

/// What a sealer leaves that has signed at these sizes; with the partial tiles of leaves, or without.
fn sealed(sizes: &[u64], partial_leaves: bool) -> (Vec<Claim>, Vec<StoredTile>) {
    let (mut edge, mut tiles, mut claims) = (Edge::default(), BTreeMap::new(), Vec::new());
    for size in sizes {
        (edge.size()..*size).for_each(|position| edge.push(leaf(position)));
        for tile in edge.take_new().into_iter().chain(edge.tiles()) {
            let id = tile.id();
            if id.level() > 0 || id.width() == WIDTH_MAX || partial_leaves {
                tiles.insert(id, stored(&tile));
            }
        }
        claims.push(Claim { size: *size, root: edge.root(), origin: Origin::Log });
    }
    (claims, tiles.into_values().collect())
}

/// Follows `size` events, of which those in `changed` are others.
fn follow(tree: &mut Tree, size: u64, changed: &[u64]) -> (Vec<Tile>, Vec<(Option<Position>, Fault)>) {
    for position in 0..size {
        let leaf = leaf(if changed.contains(&position) { u64::MAX } else { position });
        tree.follow(Position(position), leaf, Timestamp::try_from_unix_micros(1_000_000).ok());
    }
    let differ = tree.finish(Position(size));
    (differ, tree.take_found())
}

const SIZES: [u64; 7] = [1, 255, 256, 257, 600, 65_536, 65_800];

#[test]
fn what_a_sealer_leaves_is_right_with_and_without_partial_tiles_of_leaves() {
    for partial_leaves in [true, false] {
        let (claims, tiles) = sealed(&SIZES, partial_leaves);
        let count = u64::try_from(tiles.len()).unwrap();
        let mut tree = Tree::new(claims, tiles, 65_800, digest);
        let (differ, found) = follow(&mut tree, 65_900, &[]);
        assert!(differ.is_empty() && found.is_empty(), "{found:?}");
        assert_eq!((tree.tiles_compared, tree.claims_compared), (count, 7));
        assert_eq!(tree.anchor.as_ref().map(|claim| claim.size), Some(65_800));
        assert!(tree.tail.oldest.is_some());
    }
}

#[test]
fn a_changed_event_is_found_by_its_tile_and_by_every_later_checkpoint() {
    for partial_leaves in [true, false] {
        let (claims, tiles) = sealed(&SIZES, partial_leaves);
        let mut tree = Tree::new(claims, tiles, 65_800, digest);
        let (differ, found) = follow(&mut tree, 65_800, &[300]);
        assert_eq!(found, [(Some(Position(257)), Fault::CheckpointRoot { size: 600, others: 2 })]);
        assert_eq!(tree.anchor.as_ref().map(|claim| claim.size), Some(257));
        let leaves = differ.iter().find(|tile| tile.id().level() == 0).unwrap();
        let right = at(512).take_new().into_iter().find(|tile| tile.id().index() == 1).unwrap();
        let bytes = right.to_bytes();
        let entry = differing(leaves, &bytes[..usize::from(leaves.id().width()) * 32]);
        assert_eq!((leaves.id().index(), entry), (1, 44));
    }
}

#[test]
fn full_tiles_must_be_there_and_none_beyond_the_seal() {
    let (claims, tiles) = sealed(&[600], false);
    for missing in tiles.iter().filter(|tile| tile.id.width() == WIDTH_MAX) {
        let left = tiles.iter().filter(|tile| *tile != missing).copied().collect();
        let (_, found) = follow(&mut Tree::new(claims.clone(), left, 600, digest), 600, &[]);
        let position = Position(missing.id.first_leaf(0));
        assert_eq!(found, [(Some(position), Fault::TileMissing { tile: missing.id })]);
    }
    // The same rows, and a checkpoint that covers fewer events.
    let (claims, _) = sealed(&[300], false);
    let (_, found) = follow(&mut Tree::new(claims, tiles, 300, digest), 600, &[]);
    assert!(
        matches!(found[..], [(Some(Position(256)), Fault::TileBeyond { sealed: 300, others: 1, .. })]),
        "{found:?}"
    );
}

#[test]
fn behind_a_gap_nothing_is_compared_and_nothing_is_anchored() {
    let (claims, tiles) = sealed(&[100, 600], false);
    let mut tree = Tree::new(claims, tiles, 600, digest);
    for position in (0..600).filter(|position| *position != 200) {
        tree.follow(Position(position), leaf(position), None);
    }
    assert!(tree.finish(Position(600)).is_empty());
    assert_eq!((tree.take_found(), tree.anchor.unwrap().size), (Vec::new(), 100));
}

#[test]
fn what_is_signed_beyond_the_end_is_told_once() {
    let (mut claims, tiles) = sealed(&[100, 200, 300], false);
    claims.push(Claim { origin: Origin::Kept("a file".to_owned()), ..claims[2].clone() });
    let (_, found) = follow(&mut Tree::new(claims, tiles, 300, digest), 150, &[]);
    let end = Position(150);
    let name = "a file".to_owned();
    let expected = [
        (Some(end), Fault::HeadAhead { name, size: 300, end }),
        (Some(end), Fault::CheckpointAhead { size: 200, others: 1, end }),
    ];
    assert_eq!(found, expected);
}

/// A rotation: the verifier has only the new key, and old checkpoints are signed by the old one alone.
#[test]
fn checkpoints_of_unknown_keys_are_no_fault_below_one_that_is_believed() {
    let [old, new] = [1, 2].map(|seed| SignerKey::from_seed("a/log", &[seed; 32]).unwrap());
    let note = |size, keys: &[SignerKey]| {
        let root = at(size).root();
        Checkpoint { origin: "a/log".to_owned(), size, root, extensions: Vec::new() }.sign(keys).unwrap()
    };
    let stored = [
        StoredCheckpoint { size: 10, note: note(10, std::slice::from_ref(&old)) },
        StoredCheckpoint { size: 20, note: note(20, &[old.clone(), new.clone()]) },
        StoredCheckpoint { size: 30, note: note(30, std::slice::from_ref(&new)) },
    ];
    let pinned = |keys: &[&SignerKey]| Pinned {
        log_id: events::LogId(uuid::Uuid::nil()),
        origin: "a/log".to_owned(),
        verifier_keys: keys.iter().map(|key| key.verifier().to_string()).collect(),
    };
    let told = |trust: &Trust, pinned| {
        let mut claims = Claims::new(pinned, trust);
        stored.iter().for_each(|stored| claims.stored(stored));
        trust.heads.iter().for_each(|head| claims.kept(head));
        claims.finish()
    };
    let both = || pinned(&[&old, &new]);
    let given = |key: &SignerKey| Trust { keys: vec![key.verifier().clone()], heads: Vec::new() };
    let (claims, faults) = told(&given(&new), both());
    assert_eq!((claims.len(), faults), (2, Vec::new()), "the old one is below");
    let (_, faults) = told(&given(&old), both());
    assert_eq!(faults, [Fault::NoKnownKey { size: 30, others: 0 }], "who has the old key only cannot tell");
    let (claims, faults) = told(&Trust::default(), both());
    assert_eq!((claims.len(), faults), (3, Vec::new()));
    let (_, faults) = told(&Trust::default(), pinned(&[&new]));
    assert_eq!(faults, [Fault::NoKnownKey { size: 10, others: 0 }], "the log names every key it ever had");

    let head =
        KeptHead { name: "a file".to_owned(), note: note(20, std::slice::from_ref(&new)).into_bytes() };
    let (claims, faults) = told(&Trust { heads: vec![head], ..given(&new) }, both());
    assert_eq!((claims.len(), faults.len()), (3, 0));
    assert_eq!((claims[0].origin.clone(), claims[1].size), (Origin::Log, 20), "a stored one comes first");
}
