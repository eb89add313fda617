//! Instance locks, idempotency keys that age, migrations by two starters, logs that only a newer version reads.

use event_log::testing::empty_database;
use event_log::{AppendRequest, Appended, EventLog, Expected, InstanceLock, LogConfig, LogError, RequestKey};
use events::{InstanceId, Position, TenantId};
use uuid::Uuid;

use crate::support::{SOON, fixture, request, run_stream, until};

#[tokio::test]
async fn a_lock_shows_who_lives() {
    let fixture = fixture().await;
    let log = &fixture.log;
    let url = fixture.database.append_url();
    let (one, two) = (InstanceId(Uuid::from_u128(1)), InstanceId(Uuid::from_u128(2)));
    let lock = InstanceLock::acquire(&url, one).await.unwrap();
    assert!(log.instance_alive(one).await.unwrap());
    assert!(!log.instance_alive(two).await.unwrap());
    assert!(matches!(InstanceLock::acquire(&url, one).await, Err(LogError::Refused(_))));

    // Its session is lost: the owner sees it and takes the lock again.
    let mut held = lock.held();
    let admin = fixture.database.administrator().await.unwrap();
    let sql = "SELECT pg_terminate_backend(pid, 5000) FROM pg_locks WHERE locktype = 'advisory' \
               AND database = (SELECT oid FROM pg_database WHERE datname = current_database())";
    assert_eq!(admin.execute(sql, &[]).await.unwrap(), 1);
    tokio::time::timeout(SOON, held.changed()).await.unwrap().unwrap();
    tokio::time::timeout(SOON, held.wait_for(|held| *held)).await.unwrap().unwrap();
    until(async || log.instance_alive(one).await.unwrap()).await;

    drop(lock);
    until(async || !log.instance_alive(one).await.unwrap()).await;
    InstanceLock::acquire(&url, one).await.unwrap();
}

#[tokio::test]
async fn keys_are_forgotten_after_a_day() {
    let fixture = fixture().await;
    let log = &fixture.log;
    let tenant = TenantId(Uuid::from_u128(1));
    for key in ["old", "new"] {
        let key = RequestKey { tenant, key: key.to_owned(), digest: [1; 32] };
        let asked = AppendRequest { key: Some(key), ..request(log, &run_stream(1), Expected::Any) };
        log.append(asked).await.unwrap();
    }
    let admin = fixture.database.administrator().await.unwrap();
    let age = "UPDATE log.request_keys SET created_at = created_at - interval '25 hours' WHERE key = 'old'";
    assert_eq!(admin.execute(age, &[]).await.unwrap(), 1);
    assert!(log.find_key(tenant, "old").await.unwrap().is_none());
    // Forgotten for the append too, before anything is pruned: alone and in a batch.
    for events in [1, 2] {
        assert_eq!(admin.execute(age, &[]).await.unwrap(), 1);
        let key = RequestKey { tenant, key: "old".to_owned(), digest: [2; 32] };
        let mut asked = AppendRequest { key: Some(key), ..request(log, &run_stream(1), Expected::Any) };
        asked.events = vec![asked.events[0].clone(); events];
        let first = log.append(asked.clone()).await.unwrap();
        assert!(!first.duplicate);
        assert_eq!(log.append(asked).await.unwrap(), Appended { duplicate: true, ..first });
        let stored = log.find_key(tenant, "old").await.unwrap().unwrap();
        assert_eq!((stored.digest, stored.first_position), ([2; 32], first.first_position));
    }
    assert_eq!(admin.execute(age, &[]).await.unwrap(), 1);
    assert_eq!(log.prune_request_keys().await.unwrap(), 1);
    assert_eq!(log.prune_request_keys().await.unwrap(), 0);
    assert!(log.find_key(tenant, "new").await.unwrap().is_some());
    assert_eq!(log.head().await.unwrap(), Position(5));
}

#[tokio::test]
async fn two_starters_may_migrate_at_once_and_again() {
    let database = empty_database().await;
    let unmigrated = EventLog::open(LogConfig::new(database.append_url())).await.unwrap_err();
    assert!(matches!(unmigrated, LogError::Refused(_)), "{unmigrated:?}");
    let url = database.migrate_url();
    let (one, two) = tokio::join!(event_log::migrate(&url), event_log::migrate(&url));
    one.unwrap();
    two.unwrap();
    event_log::migrate(&url).await.unwrap();
    let log = EventLog::open(LogConfig::new(database.append_url())).await.unwrap();
    log.append(request(&log, &run_stream(1), Expected::None)).await.unwrap();
    // A populated database is migrated like an empty one.
    event_log::migrate(&url).await.unwrap();
    assert_eq!(log.head().await.unwrap(), Position(1));
}

#[tokio::test]
async fn a_log_of_a_newer_version_is_not_opened() {
    let fixture = fixture().await;
    let admin = fixture.database.administrator().await.unwrap();
    admin.execute("UPDATE log.log_meta SET min_reader = 2", &[]).await.unwrap();
    let error = EventLog::open(LogConfig::new(fixture.database.append_url())).await.unwrap_err();
    assert!(matches!(error, LogError::TooOld { needed: 2, ours: 1 }), "{error:?}");
}
