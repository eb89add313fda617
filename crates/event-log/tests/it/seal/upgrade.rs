//! A database that is older than sealing.

use event_log::proof::tree::verify_inclusion;
use event_log::testing::database_of_version;
use event_log::{EventLog, LogConfig};
use events::Position;

use super::{append, root_of, sealing_of};
use crate::support::{Fixture, session};

#[tokio::test]
async fn a_log_that_is_older_than_sealing_is_migrated_and_sealed_from_its_first_event() {
    let database = database_of_version(3).await;
    let before = EventLog::open(LogConfig::new(database.append_url())).await.unwrap();
    append(&before, 300).await;
    let admin = database.administrator().await.unwrap();
    let there = "SELECT to_regclass('log.tiles') IS NOT NULL, (SELECT count(*) FROM log.events)";
    let row = admin.query_one(there, &[]).await.unwrap();
    assert_eq!((row.get::<_, bool>(0), row.get::<_, i64>(1)), (false, 300));
    let stored = "SELECT string_agg(leaf || header, '' ORDER BY position) FROM log.events";
    let bytes: Vec<u8> = admin.query_one(stored, &[]).await.unwrap().get(0);
    drop(before);

    event_log::migrate(&database.migrate_url()).await.unwrap();
    assert_eq!(admin.query_one(stored, &[]).await.unwrap().get::<_, Vec<u8>>(0), bytes);
    let log = EventLog::open(LogConfig::new(database.append_url())).await.unwrap();
    let sealing = sealing_of(Fixture { log, database }).await;
    let head = sealing.seal().await;
    assert_eq!((head.size, head.root), (300, root_of(&sealing.leaves().await)));
    // It goes on: streams that began before are chained to, and old events are proven in new heads.
    sealing.append(300).await;
    let (head, leaves) = (sealing.seal().await, sealing.leaves().await);
    assert_eq!((head.size, head.root), (600, root_of(&leaves)));
    let proof = sealing.proofs().inclusion(Position(7), 600).await.unwrap();
    assert_eq!(verify_inclusion(&leaves[7], 7, 600, &proof.hashes, &head.root), Ok(()));
    // A tile of level 0 that is not full has no row, whoever writes it.
    let sealer = session(&sealing.fixture.database.seal_url()).await;
    let partial = "INSERT INTO log.tiles VALUES (0, 2, 88, decode(repeat('00', 32 * 88), 'hex'))";
    let refused = sealer.batch_execute(partial).await.unwrap_err();
    let refused = refused.as_db_error().unwrap().constraint().map(str::to_owned);
    assert_eq!(refused.as_deref(), Some("leaves of a tile that is not full are in log.events"));
}
