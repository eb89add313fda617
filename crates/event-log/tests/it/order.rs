//! Order: positions without a gap in commit order, whoever writes, fails, waits or competes.

use std::collections::{BTreeMap, BTreeSet};

use event_log::{AppendError, AppendRequest, EventLog, Expected};
use events::{Position, Version};
use futures::future::join_all;

use crate::support::{
    Fixture, NO_TIP, another, blocked, event, fixture, hold_head, raw_append, request, run_stream, seen,
    session,
};

/// Reads the whole log page by page and checks that every stream's versions go up by one.
async fn read_whole(log: &EventLog) -> u64 {
    let mut next = Position(0);
    let mut versions: BTreeMap<String, Version> = BTreeMap::new();
    loop {
        let page = log.read_all(next, 100).await.unwrap();
        let Some(last) = page.last() else { return next.get() };
        next = last.position.next();
        for recorded in &page {
            let version = versions.entry(recorded.header.stream.to_string()).or_default();
            *version = version.next();
            assert_eq!(recorded.header.version, *version);
        }
    }
}

/// Distinct transactions that wrote the log's events.
async fn transactions(fixture: &Fixture) -> i64 {
    let admin = fixture.database.administrator().await.unwrap();
    admin.query_one("SELECT count(DISTINCT xmin::text) FROM log.events", &[]).await.unwrap().get(0)
}

#[tokio::test]
async fn t01_a_later_append_waits_for_an_earlier_one_to_end() {
    let fixture = fixture().await;
    let log = &fixture.log;
    // A has taken position 0 and does not commit.
    let a = fixture.database.administrator().await.unwrap();
    a.batch_execute("BEGIN").await.unwrap();
    assert_eq!(raw_append(&a, log, &run_stream(1), NO_TIP, None).await.unwrap(), 0);
    let b_stream = run_stream(2);
    let b = log.append(request(log, &b_stream, Expected::None));
    let watch = async {
        blocked(&fixture, 1).await;
        assert!(log.read_all(Position(0), 10).await.unwrap().is_empty());
        assert_eq!(log.head().await.unwrap(), Position(0));
        a.batch_execute("COMMIT").await.unwrap();
    };
    let (b, ()) = tokio::join!(b, watch);
    assert_eq!(b.unwrap().first_position, Position(1));
    let read = log.read_all(Position(0), 10).await.unwrap();
    assert_eq!(read.iter().map(|r| r.position.get()).collect::<Vec<_>>(), [0, 1]);
    seen(log, Position(2)).await;
}

#[tokio::test]
async fn t02_a_thousand_failed_appends_leave_no_gap() {
    let fixture = fixture().await;
    let log = &fixture.log;
    let client = session(&fixture.database.append_url()).await;
    let kept = log.append(request(log, &run_stream(0), Expected::None)).await.unwrap().tip;
    let mut good = 1;
    for round in 0..1000_u32 {
        match round % 4 {
            0 => {
                let lost = log.append(request(log, &run_stream(0), Expected::None)).await;
                assert!(matches!(lost, Err(AppendError::Conflict { tip: Some(tip) }) if tip == kept));
            }
            1 => {
                // Fails in the middle of the function, after the tip was moved: the leaf has 31 bytes.
                let sql = "SELECT log.append_one('run', 'broken', false, 0, $1, NULL, NULL, NULL, 1::smallint, gen_random_uuid(), \
                           gen_random_uuid(), clock_timestamp(), $2, '', $1, '')";
                let error = client.execute(sql, &[&vec![0_u8; 32], &vec![0_u8; 31]]).await.unwrap_err();
                assert_eq!(error.code(), Some(&tokio_postgres::error::SqlState::CHECK_VIOLATION));
            }
            2 => {
                // The same, undone by its caller.
                client.batch_execute("BEGIN").await.unwrap();
                assert_eq!(raw_append(&client, log, &run_stream(9), NO_TIP, None).await.unwrap(), 0);
                client.batch_execute("ROLLBACK").await.unwrap();
            }
            _ => {
                let appended = log.append(request(log, &run_stream(1), Expected::Any)).await.unwrap();
                assert_eq!(appended.first_position, Position(good));
                good += 1;
            }
        }
    }
    assert_eq!(log.head().await.unwrap(), Position(good));
    assert_eq!(read_whole(log).await, good);
    assert!(log.stream_tip(&run_stream(9)).await.unwrap().is_none());
}

#[tokio::test]
async fn t07_versions_follow_the_log_not_transaction_numbers() {
    let fixture = fixture().await;
    let log = &fixture.log;
    let stream = run_stream(1);
    let early = fixture.database.administrator().await.unwrap();
    early.batch_execute("BEGIN; SELECT pg_current_xact_id()").await.unwrap();
    let first = log.append(request(log, &stream, Expected::None)).await.unwrap();
    assert_eq!(raw_append(&early, log, &stream, first.tip, None).await.unwrap(), 0);
    early.batch_execute("COMMIT").await.unwrap();
    let read = log.read_stream(&stream, Version(1), 10).await.unwrap();
    assert_eq!(
        read.iter().map(|r| (r.position.get(), r.header.version.get())).collect::<Vec<_>>(),
        [(0, 1), (1, 2)]
    );
    // Our cache still believes in version 1: it is corrected, not believed.
    assert_eq!(log.append(request(log, &stream, Expected::Any)).await.unwrap().tip.version, Version(3));
}

#[tokio::test]
async fn t13_twenty_parallel_appends_without_expectation_all_succeed() {
    let fixture = fixture().await;
    let other = another(&fixture).await;
    let logs = [&fixture.log, &other];
    let stream = run_stream(1);
    let appends = (0..20).map(|n| logs[n % 2].append(request(logs[n % 2], &stream, Expected::Any)));
    let versions: BTreeSet<u64> =
        join_all(appends).await.into_iter().map(|appended| appended.unwrap().tip.version.get()).collect();
    assert_eq!(versions, (1..=20).collect());
    assert_eq!(read_whole(&other).await, 20);
}

#[tokio::test]
async fn t14_of_writers_with_one_expectation_exactly_one_wins() {
    let fixture = fixture().await;
    let other = another(&fixture).await;
    let stream = run_stream(1);
    let mut expected = Expected::None;
    for round in 1..=20 {
        let attempts = (0..8).map(|n| {
            let log = if n % 2 == 0 { &fixture.log } else { &other };
            log.append(request(log, &stream, expected))
        });
        let (won, lost): (Vec<_>, Vec<_>) = join_all(attempts).await.into_iter().partition(Result::is_ok);
        let tip = won[0].as_ref().unwrap().tip;
        assert_eq!((won.len(), tip.version), (1, Version(round)));
        for loser in lost {
            assert!(
                matches!(loser, Err(AppendError::Conflict { tip: Some(now) }) if now == tip),
                "{loser:?}"
            );
        }
        expected = Expected::Exact(tip);
    }
}

#[tokio::test]
async fn what_waits_together_commits_together() {
    let fixture = fixture().await;
    let log = &fixture.log;
    let streams: Vec<_> = (0..100).map(run_stream).collect();
    let held = hold_head(&fixture).await;
    let appends = join_all(streams.iter().map(|stream| log.append(request(log, stream, Expected::None))));
    let release = async {
        blocked(&fixture, 1).await;
        held.batch_execute("COMMIT").await.unwrap();
    };
    let (appended, ()) = tokio::join!(appends, release);
    let positions: BTreeSet<u64> = appended.into_iter().map(|a| a.unwrap().first_position.get()).collect();
    assert_eq!(positions, (0..100).collect());
    // The first went out alone, the others waited behind it.
    assert!(transactions(&fixture).await <= 3);
}

#[tokio::test]
async fn t18_a_bad_request_fails_alone() {
    let fixture = fixture().await;
    let log = &fixture.log;
    // A tenant that the database refuses with an error, as a fault of ours would.
    let admin = fixture.database.administrator().await.unwrap();
    admin
        .batch_execute("ALTER TABLE log.events ADD CHECK (tenant <> '00000000-0000-0000-0000-0000000000ff')")
        .await
        .unwrap();
    let held = hold_head(&fixture).await;
    let first = log.append(request(log, &run_stream(1), Expected::None));
    let rest = async {
        blocked(&fixture, 1).await;
        let good: Vec<_> = (10..15).map(run_stream).collect();
        let taken = run_stream(1);
        let broken = run_stream(2);
        let mut poison = request(log, &broken, Expected::None);
        poison.events[0].tenant = events::TenantId(uuid::Uuid::from_u128(0xff));
        let mut large = request(log, &broken, Expected::Any);
        large.events = vec![event(log, &"x".repeat(600 * 1024))];
        let mut old = request(log, &broken, Expected::Any);
        old.events[0].recorded_at = old.events[0].recorded_at.plus_ms(60_000);
        let work = async {
            tokio::join!(
                join_all(good.iter().map(|stream| log.append(request(log, stream, Expected::None)))),
                log.append(request(log, &taken, Expected::None)),
                log.append(poison),
                log.append(large),
                log.append(old),
                join_all((0..5).map(|_| log.append(request(log, &taken, Expected::Any)))),
            )
        };
        let release = async { held.batch_execute("COMMIT").await.unwrap() };
        tokio::join!(work, release).0
    };
    let (first, (good, conflict, poison, large, old, any)) = tokio::join!(first, rest);
    first.unwrap();
    assert!(good.into_iter().chain(any).all(|result| result.is_ok()));
    assert!(matches!(conflict, Err(AppendError::Conflict { tip: Some(_) })), "{conflict:?}");
    assert!(matches!(poison, Err(AppendError::Refused { .. })), "{poison:?}");
    assert!(matches!(large, Err(AppendError::TooLarge { .. })), "{large:?}");
    assert!(matches!(old, Err(AppendError::Unavailable { outcome_unknown: false })), "{old:?}");
    assert_eq!(read_whole(log).await, 11);
    assert!(log.stream_tip(&run_stream(2)).await.unwrap().is_none());
}

#[tokio::test]
async fn a_stale_request_is_chained_again_behind_a_failed_one() {
    let fixture = fixture().await;
    let log = &fixture.log;
    let (stream, guard) = (run_stream(1), run_stream(2));
    let guard_tip = log.append(request(log, &guard, Expected::None)).await.unwrap().tip;
    log.append(request(log, &guard, Expected::Exact(guard_tip))).await.unwrap();
    let held = hold_head(&fixture).await;
    let blocker = log.append(request(log, &run_stream(3), Expected::None));
    let rest = async {
        blocked(&fixture, 1).await;
        // In one batch: the first fails its guard, the second was chained to it.
        let failing =
            AppendRequest { guards: vec![(guard, guard_tip)], ..request(log, &stream, Expected::None) };
        let work =
            async { tokio::join!(log.append(failing), log.append(request(log, &stream, Expected::Any))) };
        let release = async { held.batch_execute("COMMIT").await.unwrap() };
        tokio::join!(work, release).0
    };
    let (_, (failed, chained)) = tokio::join!(blocker, rest);
    assert!(matches!(failed, Err(AppendError::Conflict { tip: None })), "{failed:?}");
    assert_eq!(chained.unwrap().tip.version, Version(1));
    assert_eq!(read_whole(log).await, 4);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn eight_writers_leave_no_gap_and_t23_a_hot_stream_fails_no_cold_one() {
    let fixture = fixture().await;
    let logs = join_all((0..8).map(|_| another(&fixture))).await;
    let hot = run_stream(0);
    let writers = logs.iter().enumerate().map(|(n, log)| {
        let hot = &hot;
        async move {
            for round in 0..60 {
                let cold = run_stream(1000 + u128::try_from(n * 100 + round).unwrap());
                let (on_hot, on_cold) = tokio::join!(
                    join_all((0..2).map(|_| log.append(request(log, hot, Expected::Any)))),
                    log.append(request(log, &cold, Expected::None)),
                );
                on_cold.unwrap();
                for result in on_hot {
                    match result {
                        Ok(_) => {}
                        // Eight processes on one stream: one may lose nine times in a row, and is told so.
                        Err(AppendError::Conflict { tip: Some(_) }) => {}
                        Err(other) => panic!("{other:?}"),
                    }
                }
            }
        }
    });
    join_all(writers).await;
    let total = read_whole(&fixture.log).await;
    let hot_tip = fixture.log.stream_tip(&hot).await.unwrap().unwrap();
    assert_eq!(total, 8 * 60 + hot_tip.version.get());
    assert!(hot_tip.version.get() > 480, "most of 960 hot appends get through: {hot_tip:?}");
    assert_eq!(fixture.log.head().await.unwrap(), Position(total));
}
