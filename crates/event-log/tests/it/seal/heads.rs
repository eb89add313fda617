//! The head outside of the database, and the keys.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use async_trait::async_trait;
use event_log::proof::checkpoint::{Checkpoint, CheckpointError};
use event_log::proof::note::{NoteError, SignerKey};
use event_log::seal::{
    FileHead, HeadStore, HeadStoreError, SealConfig, SealFault, SealState, generate_key, pin_keys,
};

use super::{Sealing, fault, says, sealed, sealing};
use crate::support::{session, until};

#[tokio::test]
async fn a_crash_before_the_head_was_kept_outside_is_made_up_for() {
    let sealing = sealing().await;
    sealing.append(5).await;
    sealing.seal().await;
    let old = std::fs::read(sealing.head_file()).unwrap();
    sealing.append(300).await;
    let head = sealing.seal().await;
    // As if the process had been killed between its two writes.
    std::fs::write(sealing.head_file(), old).unwrap();
    let sealer = sealing.start();
    sealing.kept(305).await;
    assert_eq!(sealing.outside().unwrap(), head);
    sealing.append(1).await;
    sealed(&sealer, 306).await;
    // A first head that never got out is the same.
    drop(sealer);
    sealing.unlocked().await;
    std::fs::remove_file(sealing.head_file()).unwrap();
    let _sealer = sealing.start();
    sealing.kept(306).await;
}

#[tokio::test]
async fn a_database_that_was_set_back_is_not_sealed() {
    let sealing = sealing().await;
    sealing.append(5).await;
    sealing.seal().await;
    sealing.append(295).await;
    sealing.seal().await;
    // Consistent in itself: the database of before the second head, and other events since.
    sealing
        .damage(
            "DELETE FROM log.checkpoints WHERE size = 300;DELETE FROM log.tiles;\
             DELETE FROM log.event_bodies WHERE position >= 5;DELETE FROM log.events WHERE position >= 5;\
             UPDATE log.log_head SET next_position = 5;\
             UPDATE log.streams SET version = 0, tip = decode(repeat('00', 32), 'hex')",
        )
        .await;
    let sealer = sealing.start();
    assert_eq!(fault(&sealer).await, SealFault::HeadAhead { outside: 300, database: 5 });
    assert_eq!(sealing.heads().await, 1);
    // Nothing at all is set back too.
    sealing.damage("DELETE FROM log.checkpoints").await;
    let sealer = sealing.start();
    assert_eq!(fault(&sealer).await, SealFault::HeadAhead { outside: 300, database: 0 });
    assert_eq!(sealing.heads().await, 0);
    assert_eq!(sealing.outside().unwrap().size, 300);
}

/// A head of this log that another history would have.
fn forged(sealing: &Sealing, size: u64, key: &SignerKey) -> String {
    Checkpoint { origin: sealing.origin.clone(), size, root: [7; 32], extensions: Vec::new() }
        .sign(std::slice::from_ref(key))
        .unwrap()
}

#[tokio::test]
async fn a_head_of_another_history_or_of_nobody_is_not_signed_over() {
    let sealing = sealing().await;
    sealing.append(10).await;
    sealing.seal().await;
    let stranger = SignerKey::from_seed(&sealing.origin, &[9; 32]).unwrap();
    let other = SignerKey::from_seed("example.org/other", &[9; 32]).unwrap();
    for (kept, expected) in [
        (forged(&sealing, 7, &sealing.key).into_bytes(), SealFault::HeadDiffers { size: 7 }),
        (forged(&sealing, 10, &sealing.key).into_bytes(), SealFault::HeadDiffers { size: 10 }),
        (
            forged(&sealing, 10, &stranger).into_bytes(),
            SealFault::Head { reason: NoteError::NoKnownKey.into() },
        ),
        (forged(&sealing, 10, &other).into_bytes(), SealFault::Head { reason: NoteError::NoKnownKey.into() }),
        (Vec::new(), SealFault::Head { reason: NoteError::Malformed("it has no signatures").into() }),
        (vec![0xff], SealFault::Head { reason: NoteError::Malformed("it is no text").into() }),
    ] {
        std::fs::write(sealing.head_file(), &kept).unwrap();
        let sealer = sealing.start();
        assert_eq!(fault(&sealer).await, expected);
        assert_eq!(std::fs::read(sealing.head_file()).unwrap(), kept);
    }
    let elsewhere = Checkpoint { origin: "example.org/x".to_owned(), ..sealing.last().await };
    let note = elsewhere.sign(std::slice::from_ref(&sealing.key)).unwrap();
    std::fs::write(sealing.head_file(), note).unwrap();
    let reason = CheckpointError::Origin { found: "example.org/x".to_owned() };
    assert_eq!(fault(&sealing.start()).await, SealFault::Head { reason });
    assert_eq!(sealing.heads().await, 1);
}

#[tokio::test]
async fn a_head_that_somebody_puts_ahead_while_we_work_stops_us() {
    let sealing = sealing().await;
    sealing.append(10).await;
    let sealer = sealing.start();
    sealing.kept(10).await;
    sealed(&sealer, 10).await;
    std::fs::write(sealing.head_file(), forged(&sealing, 99, &sealing.key)).unwrap();
    sealing.append(1).await;
    assert_eq!(fault(&sealer).await, SealFault::HeadAhead { outside: 99, database: 11 });
}

/// A store that can be out of order.
#[derive(Debug)]
struct Broken {
    inner: FileHead,
    reads: AtomicBool,
    writes: AtomicBool,
}

#[async_trait]
impl HeadStore for Broken {
    async fn read(&self) -> Result<Option<String>, HeadStoreError> {
        if self.reads.load(Ordering::SeqCst) { self.inner.read().await } else { Err(HeadStoreError::Timeout) }
    }

    async fn replace(&self, expected: Option<&str>, note: &str) -> Result<(), HeadStoreError> {
        if self.writes.load(Ordering::SeqCst) {
            self.inner.replace(expected, note).await
        } else {
            // Worse than an error: it never comes back.
            std::future::pending().await
        }
    }
}

#[tokio::test]
async fn a_store_that_takes_no_write_stops_nothing_and_one_that_cannot_be_read_does() {
    let sealing = sealing().await;
    let store = Arc::new(Broken {
        inner: FileHead::new(&sealing.head_file()),
        reads: AtomicBool::new(false),
        writes: AtomicBool::new(false),
    });
    sealing.append(5).await;
    let sealer = sealing.start_with(sealing.config_with(Arc::clone(&store) as Arc<dyn HeadStore>));
    says(&sealer, |status| matches!(status.state, SealState::Unavailable { .. })).await;
    assert_eq!(sealing.heads().await, 0);
    store.reads.store(true, Ordering::SeqCst);
    sealed(&sealer, 5).await;
    // The write hangs: heads go on beside it, and after its time has passed it is shown.
    sealing.append(5).await;
    sealed(&sealer, 10).await;
    assert_eq!(sealing.outside(), None);
    let since = says(&sealer, |status| status.head_unwritten_since.is_some()).await.head_unwritten_since;
    sealing.append(5).await;
    sealed(&sealer, 15).await;
    assert_eq!(sealer.status().borrow().head_unwritten_since, since);
    store.writes.store(true, Ordering::SeqCst);
    sealing.kept(15).await;
    says(&sealer, |status| status.head_unwritten_since.is_none()).await;
}

#[tokio::test]
async fn a_rotation_signs_with_both_keys_and_then_with_the_new_one() {
    let sealing = sealing().await;
    sealing.append(1).await;
    sealing.seal().await;
    let new = generate_key(&sealing.dir.path().join("new"), &sealing.origin).unwrap();
    let (old_key, new_key) = (sealing.key.verifier().clone(), new.verifier().clone());
    let with = |keys: &[&SignerKey]| SealConfig {
        keys: keys.iter().map(|key| (*key).clone()).collect(),
        ..sealing.config()
    };
    // Not before it is pinned.
    let early = sealing.start_with(with(&[&sealing.key, &new]));
    assert_eq!(fault(&early).await, SealFault::KeyNotPinned { key: new_key.id().clone() });
    pin_keys(&sealing.fixture.database.migrate_url(), std::slice::from_ref(&new_key)).await.unwrap();
    pin_keys(&sealing.fixture.database.migrate_url(), &[old_key.clone(), new_key.clone()]).await.unwrap();
    for (keys, size, believed) in
        [(&[&sealing.key, &new][..], 2, [true, true]), (&[&new][..], 3, [false, true])]
    {
        sealing.append(1).await;
        let sealer = sealing.start_with(with(keys));
        sealed(&sealer, size).await;
        let note = sealing.proofs().last_checkpoint().await.unwrap().unwrap().note;
        for (key, believed) in [&old_key, &new_key].into_iter().zip(believed) {
            let opened = Checkpoint::open(note.as_bytes(), &sealing.origin, std::slice::from_ref(key));
            assert_eq!(opened.is_ok(), believed, "{opened:?}");
        }
        until(async || std::fs::read_to_string(sealing.head_file()).unwrap() == note).await;
        drop(sealer);
        sealing.unlocked().await;
    }
    let client = session(&sealing.fixture.database.audit_url()).await;
    let pinned: Vec<String> =
        client.query_one("SELECT verifier_keys FROM log.log_meta", &[]).await.unwrap().get(0);
    assert_eq!(pinned, [old_key.to_string(), new_key.to_string()]);
}

#[tokio::test]
async fn keys_of_nobody_or_of_another_log_sign_nothing() {
    let sealing = sealing().await;
    sealing.append(1).await;
    let other = SignerKey::from_seed("example.org/other", &[9; 32]).unwrap();
    let refused =
        pin_keys(&sealing.fixture.database.migrate_url(), &[other.verifier().clone()]).await.unwrap_err();
    assert!(!refused.is_retryable(), "{refused:?}");
    let key = other.verifier().id().clone();
    let with = |keys| SealConfig { keys, ..sealing.config() };
    let expected = SealFault::Origin { key, origin: sealing.origin.clone() };
    assert_eq!(fault(&sealing.start_with(with(vec![sealing.key.clone(), other]))).await, expected);
    assert!(matches!(fault(&sealing.start_with(with(Vec::new()))).await, SealFault::Keys { .. }));
    sealing.damage("UPDATE log.log_meta SET verifier_keys = '{nonsense}'").await;
    assert!(matches!(fault(&sealing.start()).await, SealFault::Keys { .. }));
    sealing.damage("UPDATE log.log_meta SET verifier_keys = '{}'").await;
    assert!(matches!(fault(&sealing.start()).await, SealFault::KeyNotPinned { .. }));
    assert_eq!(sealing.heads().await, 0);
}
