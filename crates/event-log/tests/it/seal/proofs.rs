//! Proofs from stored tiles and the last leaves, through sessions that can only read.

use event_log::proof::checkpoint::Checkpoint;
use event_log::proof::tiles::TileId;
use event_log::proof::tree::{ProofError, verify_consistency, verify_inclusion};
use event_log::seal::{ProofReader, ProofsError};
use events::Position;

use super::{root_of, sealing};
use crate::support::session;

#[tokio::test]
async fn every_event_is_proven_in_every_tree() {
    let sealing = sealing().await;
    for count in [7, 250, 200, 263] {
        sealing.append(count).await;
        sealing.seal().await;
    }
    let leaves = sealing.leaves().await;
    let proofs = sealing.proofs();
    let sizes = [1_u64, 2, 3, 7, 8, 255, 256, 257, 258, 457, 511, 512, 513, 700, 719, 720];
    for (n, size) in sizes.into_iter().enumerate() {
        let root = root_of(&leaves[..size as usize]);
        let few = [0, 1, size / 3, size / 2, size.saturating_sub(2), size - 1];
        for position in few.into_iter().filter(|position| *position < size) {
            let proof = proofs.inclusion(Position(position), size).await.unwrap();
            assert_eq!((proof.position, proof.size), (Position(position), size));
            let leaf = &leaves[position as usize];
            assert_eq!(verify_inclusion(leaf, position, size, &proof.hashes, &root), Ok(()));
        }
        for old in &sizes[..=n] {
            let proof = proofs.consistency(*old, size).await.unwrap();
            assert_eq!((proof.old, proof.new), (*old, size));
            let old_root = root_of(&leaves[..*old as usize]);
            assert_eq!(
                verify_consistency(*old, &old_root, size, &root, &proof.hashes),
                Ok(()),
                "{old} {size}"
            );
        }
    }
    // With a signed head, as a verifier does it.
    let anchor = proofs.checkpoint_covering(258).await.unwrap();
    assert_eq!(anchor.size, 457);
    let head =
        Checkpoint::open(anchor.note.as_bytes(), &sealing.origin, &[sealing.key.verifier().clone()]).unwrap();
    let proof = proofs.inclusion(Position(257), head.size).await.unwrap();
    assert_eq!(verify_inclusion(&leaves[257], 257, head.size, &proof.hashes, &head.root), Ok(()));
}

#[tokio::test]
async fn what_cannot_be_proven_is_told() {
    let sealing = sealing().await;
    let proofs = sealing.proofs();
    assert_eq!(proofs.last_checkpoint().await.unwrap(), None);
    let unsealed = |result: ProofsError| match result {
        ProofsError::NotSealed { size, sealed } => (size, sealed),
        other => panic!("{other:?}"),
    };
    assert_eq!(unsealed(proofs.checkpoint_covering(1).await.unwrap_err()), (1, 0));
    sealing.append(300).await;
    sealing.seal().await;
    sealing.append(1).await;
    assert_eq!(unsealed(proofs.inclusion(Position(0), 301).await.unwrap_err()), (301, 300));
    assert_eq!(unsealed(proofs.consistency(300, 301).await.unwrap_err()), (301, 300));
    assert_eq!(unsealed(proofs.checkpoint_covering(301).await.unwrap_err()), (301, 300));
    let out = |result: ProofsError| matches!(result, ProofsError::OutOfRange(ProofError::OutOfRange));
    assert!(out(proofs.inclusion(Position(300), 300).await.unwrap_err()));
    assert!(out(proofs.inclusion(Position(0), 0).await.unwrap_err()));
    assert!(out(proofs.consistency(301, 300).await.unwrap_err()));
    assert_eq!(proofs.consistency(0, 300).await.unwrap().hashes, Vec::<[u8; 32]>::new());
    assert_eq!(proofs.consistency(300, 300).await.unwrap().hashes, Vec::<[u8; 32]>::new());

    sealing.damage("DELETE FROM log.tiles WHERE level = 0 AND index = 0").await;
    let id: TileId = "tile/0/000".parse().unwrap();
    let missing = proofs.inclusion(Position(5), 300).await.unwrap_err();
    assert!(matches!(missing, ProofsError::TileMissing(tile) if tile == id), "{missing:?}");
    // The other half of the tree is still proven.
    proofs.inclusion(Position(299), 300).await.unwrap();
    // An event of the edge that is gone is the tile that would hold it.
    sealing.damage("DELETE FROM log.events WHERE position = 270").await;
    let id: TileId = "tile/0/001.p/44".parse().unwrap();
    let missing = proofs.inclusion(Position(299), 300).await.unwrap_err();
    assert!(matches!(missing, ProofsError::TileMissing(tile) if tile == id), "{missing:?}");
    proofs.inclusion(Position(260), 270).await.unwrap();
    let admin = sealing.fixture.database.administrator().await.unwrap();
    admin.batch_execute("REVOKE SELECT ON log.checkpoints FROM leasehold_audit").await.unwrap();
    let refused = proofs.last_checkpoint().await;
    assert!(matches!(&refused, Err(ProofsError::Log(error)) if !error.is_retryable()), "{refused:?}");
}

#[tokio::test]
async fn tiles_are_read_at_any_width_that_was_sealed() {
    let sealing = sealing().await;
    for count in [10, 20] {
        sealing.append(count).await;
        sealing.seal().await;
    }
    // Before level 0 has any row.
    let leaves = sealing.leaves().await;
    for width in [1, 10, 11, 30] {
        let id = TileId::try_new(0, 0, width).unwrap();
        assert_eq!(sealing.proofs().tile(id).await.unwrap(), Some(leaves[..width.into()].concat()));
    }
    sealing.append(230).await;
    sealing.seal().await;
    // What is appended and not sealed is in no tile.
    sealing.append(1).await;
    let leaves = sealing.leaves().await;
    let mut client = session(&sealing.fixture.database.append_url()).await;
    let transaction = client.build_transaction().read_only(true).start().await.unwrap();
    let reader = ProofReader::new(&transaction);
    for width in [1, 10, 11, 30, 31, 255, 256] {
        let id = TileId::try_new(0, 0, width).unwrap();
        assert_eq!(reader.tile(id).await.unwrap(), Some(leaves[..width.into()].concat()));
    }
    let partial = |path: &str| path.parse::<TileId>().unwrap();
    assert_eq!(reader.tile(partial("tile/0/001.p/4")).await.unwrap(), Some(leaves[256..260].concat()));
    assert_eq!(reader.tile(partial("tile/0/001.p/5")).await.unwrap(), None);
    assert_eq!(reader.tile(partial("tile/1/000.p/1")).await.unwrap(), Some(root_of(&leaves[..256]).to_vec()));
    assert_eq!(reader.tile(partial("tile/1/000.p/2")).await.unwrap(), None);
    let sizes = async |after, limit| {
        let heads = reader.checkpoints_after(after, limit).await.unwrap();
        heads.into_iter().map(|head| head.size).collect::<Vec<_>>()
    };
    assert_eq!(sizes(0, 9).await, [10, 30, 260]);
    assert_eq!(sizes(10, 1).await, [30]);
    assert_eq!(reader.last_checkpoint().await.unwrap().unwrap().size, 260);
    let pinned = reader.pinned().await.unwrap();
    assert_eq!((pinned.log_id, &pinned.origin), (sealing.fixture.log.log_id(), &sealing.origin));
    assert_eq!(pinned.verifier_keys, [sealing.key.verifier().to_string()]);
    let proof = reader.inclusion(Position(3), 260).await.unwrap();
    assert_eq!(proof, sealing.proofs().inclusion(Position(3), 260).await.unwrap());
}
