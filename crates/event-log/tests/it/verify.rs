//! Verification: a sound log at every size, and each kind of damage found.

use event_log::testing::TestDatabase;
use event_log::verify::{Fault, Options, Report, events, verify};
use event_log::{AppendRequest, Expected};
use events::Position;
use futures::TryStreamExt as _;

use crate::support::{Fixture, event, fixture, request, run_stream, session};

async fn verified(database: &TestDatabase) -> Report {
    let mut client = session(&database.audit_url()).await;
    let transaction = client
        .build_transaction()
        .isolation_level(tokio_postgres::IsolationLevel::RepeatableRead)
        .read_only(true)
        .start()
        .await
        .unwrap();
    let (mut read, mut last_progress) = (Vec::new(), None);
    let options = Options { progress_every: 100, ..Options::default() };
    let report =
        verify(&transaction, options.clone(), |r| read.push(r.position), |p| last_progress = Some(p))
            .await
            .unwrap();
    assert_eq!(last_progress.unwrap().events, report.events);
    let options = Options { ranges: 1, ..options };
    assert_eq!(
        verify(&transaction, options, |_| {}, |_| {}).await.unwrap(),
        report,
        "one range after the other"
    );
    if report.faults_found == 0 {
        let stream = events(&transaction, Position(0)).await.unwrap();
        let all: Vec<_> = stream.map_ok(|r| r.position).try_collect().await.unwrap();
        assert_eq!(all, read);
        assert_eq!(read.len() as u64, report.events);
    }
    report
}

/// `total` events on three streams, in requests of different sizes.
async fn fill(fixture: &Fixture, total: usize) {
    let log = &fixture.log;
    let mut left = total;
    let mut round = 0;
    while left > 0 {
        let count = left.min(1 + round % 7);
        let events = (0..count).map(|n| event(log, &format!("{round}/{n}"))).collect();
        let stream = run_stream(u128::try_from(round % 3).unwrap());
        log.append(AppendRequest { events, ..request(log, &stream, Expected::Any) }).await.unwrap();
        left -= count;
        round += 1;
    }
}

#[tokio::test]
async fn t11_logs_of_every_size_verify_and_the_empty_one_proves_nothing() {
    let fixture = fixture().await;
    let empty = verified(&fixture.database).await;
    assert_eq!((empty.events, empty.streams, empty.faults_found, empty.head), (0, 0, 0, Position(0)));
    assert!(!empty.is_sound());
    let mut there = 0;
    for size in [1, 255, 256, 257] {
        fill(&fixture, size - there).await;
        there = size;
        let report = verified(&fixture.database).await;
        assert!(report.is_sound(), "{:?}", report.faults);
        assert_eq!((report.events, report.head), (size as u64, Position(size as u64)));
        assert_eq!(report.log_id, fixture.log.log_id());
    }
}

/// Does what only someone who bypasses every guard can do.
async fn damage(fixture: &Fixture, sql: &str) {
    let admin = fixture.database.administrator().await.unwrap();
    for table in ["events", "event_bodies", "events_p0", "event_bodies_p0"] {
        admin.batch_execute(&format!("ALTER TABLE log.{table} DISABLE TRIGGER ALL")).await.unwrap();
    }
    let changed = admin.execute(sql, &[]).await.unwrap();
    assert!(changed > 0, "{sql} changed nothing");
}

async fn faults_after(sql: &str) -> Vec<(Option<Position>, Fault)> {
    let fixture = fixture().await;
    fill(&fixture, 20).await;
    damage(&fixture, sql).await;
    let report = verified(&fixture.database).await;
    assert_eq!(report.faults_found, report.faults.len() as u64);
    report.faults.into_iter().map(|finding| (finding.position, finding.what)).collect()
}

fn at(position: u64, what: Fault) -> (Option<Position>, Fault) {
    (Some(Position(position)), what)
}

#[tokio::test]
async fn every_column_is_compared_with_the_header() {
    for (column, value) in [
        ("version", "99"),
        ("type_id", "1"),
        ("event_id", "gen_random_uuid()"),
        ("tenant", "gen_random_uuid()"),
        ("recorded_at", "recorded_at + interval '1 us'"),
        ("stream_id", "stream_id + 100"),
    ] {
        let found =
            faults_after(&format!("UPDATE log.events SET {column} = {value} WHERE position = 5")).await;
        assert_eq!(found, [at(5, Fault::Column { column })], "{column}");
    }
}

#[tokio::test]
async fn one_changed_bit_is_found() {
    let flip = |column: &str| format!("{column} = set_byte({column}, 3, get_byte({column}, 3) # 1)");
    let leaf = faults_after(&format!("UPDATE log.events SET {} WHERE position = 5", flip("leaf"))).await;
    assert_eq!(leaf, [at(5, Fault::Leaf)]);
    let body =
        faults_after(&format!("UPDATE log.event_bodies SET {} WHERE position = 5", flip("body"))).await;
    assert_eq!(body, [at(5, Fault::BodyCommitment)]);
    let salt =
        faults_after(&format!("UPDATE log.event_bodies SET {} WHERE position = 5", flip("salt"))).await;
    assert_eq!(salt, [at(5, Fault::BodyCommitment)]);
    let header = faults_after(&format!("UPDATE log.events SET {} WHERE position = 5", flip("header"))).await;
    assert_eq!(header[0], at(5, Fault::Leaf));
    assert!(matches!(&header[1], (Some(Position(5)), Fault::Header { .. })), "{header:?}");
}

#[tokio::test]
async fn a_changed_actor_with_a_recomputed_leaf_breaks_the_chain() {
    // Same length, canonical, leaf recomputed: only the next event of the stream knows better.
    let found = faults_after(
        "UPDATE log.events SET header = x.header, leaf = sha256('\\x00'::bytea || x.header) \
         FROM (SELECT position AS p, convert_to(replace(convert_from(header, 'UTF8'), 'service:test', 'service:tesT'), 'UTF8') \
               AS header FROM log.events WHERE position = 2) AS x WHERE position = x.p",
    )
    .await;
    assert!(matches!(&found[..], [(Some(_), Fault::Chain { .. })]), "{found:?}");
}

#[tokio::test]
async fn missing_swapped_and_orphaned_rows_are_found() {
    let gone = faults_after("DELETE FROM log.events WHERE position = 19").await;
    assert!(gone.contains(&(None, Fault::Head { head: Position(20), end: Position(19) })), "{gone:?}");
    assert!(gone.contains(&(None, Fault::OrphanBodies { count: 1 })), "{gone:?}");
    assert!(gone.iter().any(|(_, what)| matches!(what, Fault::Tip { .. })), "{gone:?}");

    let gap = faults_after("DELETE FROM log.events WHERE position = 5").await;
    assert_eq!(gap[0], at(5, Fault::Missing { found: Position(6) }));

    let bodies = faults_after("DELETE FROM log.event_bodies WHERE position = 5").await;
    assert_eq!(bodies, [at(5, Fault::BodyMissing)]);

    // Positions 3 and 4 are two events of one request: swapped, neither follows its predecessor.
    let swapped = faults_after(
        "UPDATE log.events AS e SET header = o.header, leaf = o.leaf, event_id = o.event_id, recorded_at = o.recorded_at \
         FROM log.events AS o WHERE (e.position, o.position) IN ((3, 4), (4, 3))",
    )
    .await;
    assert!(swapped.iter().any(|(_, what)| matches!(what, Fault::Version { .. })), "{swapped:?}");
}
