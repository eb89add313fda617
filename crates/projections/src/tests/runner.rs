//! The live fold on a real log: equal to a fresh fold whatever happens to it.

use std::time::Duration;

use event_log::testing::{TestDatabase, test_database};
use event_log::{AppendRequest, EventLog, Expected, LogConfig};
use events::event::EventType;
use events::event::command::CommandFinished;
use events::event::environment::TeardownCause;
use events::stored::{Header, StreamName, body_commitment, leaf_hash};
use events::{Event, Position, Version};

use super::samples::*;
use crate::{Behind, Folded, RunEventFilter, Runner, RunnerStatus, StopReason, Views, checkpoint, compare};

/// Far more than anything here takes: a test that waits this long has failed.
const LONG: Duration = Duration::from_secs(20);

async fn open(database: &TestDatabase) -> EventLog {
    EventLog::open(LogConfig::new(database.append_url())).await.unwrap()
}

async fn append(log: &EventLog, events: impl IntoIterator<Item = Event>) -> Position {
    let now = log.clock().now();
    let request = AppendRequest {
        stream: StreamName::run(tenant(), run()),
        expected: Expected::Any,
        guards: Vec::new(),
        key: None,
        events: events.into_iter().map(|event| new_event(now, event)).collect(),
    };
    log.append(request).await.unwrap().last_position
}

/// The life of lease `number`, 13 events.
fn life(number: u128) -> [Event; 13] {
    let (first, second) = (2 * number, 2 * number + 1);
    [
        acquired(number),
        requested(number),
        provisioned(number),
        accepted(first, number),
        started(first),
        finished(first),
        accepted(second, number),
        started(second),
        kill_requested(second),
        timed_out(second),
        released(number),
        teardown(number, TeardownCause::Released),
        destroyed(number),
    ]
}

async fn fresh(log: &EventLog, until: Position) -> Folded {
    let mut folded = Folded::default();
    while folded.next < until {
        let limit = usize::try_from(until.get() - folded.next.get()).unwrap();
        for recorded in log.read_all(folded.next, limit).await.unwrap() {
            folded.apply(&recorded).unwrap();
        }
    }
    folded
}

/// The tables are what a fresh fold of the log up to their checkpoint says; answers the checkpoint.
async fn assert_fresh(database: &TestDatabase, log: &EventLog) -> Position {
    let client = database.administrator().await.unwrap();
    client.batch_execute("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY").await.unwrap();
    let position = checkpoint(&client).await.unwrap().map_or(Position(0), |found| found.position);
    let found = compare(&client, fresh(log, position).await).await.unwrap();
    assert!(found.is_equal(), "{found:#?}");
    assert_eq!(found.rows["run_events"], position.get(), "every event of these logs belongs to the run");
    position
}

async fn wait_for_status(
    runner: &Runner,
    what: &str,
    wanted: impl FnMut(&RunnerStatus) -> bool,
) -> RunnerStatus {
    let mut statuses = runner.statuses();
    let found = tokio::time::timeout(LONG, statuses.wait_for(wanted)).await;
    found.unwrap_or_else(|_| panic!("not {what}: {}", runner.status())).unwrap().clone()
}

#[tokio::test(flavor = "multi_thread")]
async fn every_append_becomes_visible_and_equals_a_fresh_fold() {
    let database = test_database().await;
    let log = open(&database).await;
    let runner = Runner::start(log.clone(), &database.project_url()).unwrap();
    for event in life(1) {
        let position = append(&log, [event]).await;
        runner.wait_for(position, LONG).await.unwrap();
        assert_eq!(assert_fresh(&database, &log).await, position.next());
    }
    let together = append(&log, life(2)).await;
    runner.wait_for(together, LONG).await.unwrap();
    assert_eq!(assert_fresh(&database, &log).await, Position(26));
    assert_eq!(runner.lag(), crate::Lag { events: 0, ms: 0 });
    runner.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_not_there_yet_is_behind() {
    let database = test_database().await;
    let log = open(&database).await;
    let runner = Runner::start(log.clone(), &database.project_url()).unwrap();
    wait_for_status(&runner, "live", |status| matches!(status, RunnerStatus::Live { .. })).await;
    runner.wait_until(Position(0), Duration::ZERO).await.unwrap();
    let behind = runner.wait_for(Position(0), Duration::from_millis(5)).await;
    assert_eq!(behind, Err(Behind { wanted: Position(1), reached: Position(0) }));
    let position = append(&log, [acquired(1)]).await;
    runner.wait_for(position, LONG).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_runner_cut_anywhere_loses_nothing_and_repeats_nothing() {
    let database = test_database().await;
    let log = open(&database).await;
    for number in 1..=20 {
        append(&log, life(number)).await;
    }
    let head = log.head().await.unwrap();
    let mut reached = Position(0);
    let mut cuts = 0;
    // Small pages, and a cut as soon as any progress shows: most cuts fall into an open transaction.
    while reached < head {
        let runner = Runner::start_paged(log.clone(), &database.project_url(), 3).unwrap();
        runner.wait_until(reached.next(), LONG).await.unwrap();
        drop(runner);
        cuts += 1;
        reached = assert_fresh(&database, &log).await;
    }
    assert!(cuts > 1, "it was never cut before the end");
    assert_eq!(assert_fresh(&database, &log).await, head);
}

#[tokio::test(flavor = "multi_thread")]
async fn one_of_two_keeps_the_views_and_the_other_takes_over() {
    let database = test_database().await;
    let log = open(&database).await;
    let first = Runner::start(log.clone(), &database.project_url()).unwrap();
    wait_for_status(&first, "live", |status| matches!(status, RunnerStatus::Live { .. })).await;
    let second = Runner::start(log.clone(), &database.project_url()).unwrap();
    wait_for_status(&second, "following", |status| matches!(status, RunnerStatus::Following { .. })).await;
    let position = append(&log, life(1)).await;
    first.wait_for(position, LONG).await.unwrap();
    second.wait_for(position, LONG).await.unwrap();
    first.stop().await;
    wait_for_status(&second, "live", |status| matches!(status, RunnerStatus::Live { .. })).await;
    let position = append(&log, life(2)).await;
    second.wait_for(position, LONG).await.unwrap();
    assert_eq!(assert_fresh(&database, &log).await, position.next());
}

#[tokio::test(flavor = "multi_thread")]
async fn lost_sessions_are_made_anew_without_a_restart() {
    let database = test_database().await;
    let log = open(&database).await;
    let runner = Runner::start(log.clone(), &database.project_url()).unwrap();
    let administrator = database.administrator().await.unwrap();
    for number in 1..=5 {
        let position = append(&log, life(number)).await;
        runner.wait_for(position, LONG).await.unwrap();
        let mut statuses = runner.statuses();
        let ended = administrator
            .query(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity \
                 WHERE datname = current_database() AND application_name = 'leasehold runner'",
                &[],
            )
            .await
            .unwrap();
        assert_eq!(ended.len(), 1);
        let away = |status: &RunnerStatus| matches!(status, RunnerStatus::Unavailable { .. });
        assert!(!tokio::time::timeout(LONG, statuses.wait_for(away)).await.unwrap().unwrap().is_serving());
    }
    let position = append(&log, life(6)).await;
    runner.wait_for(position, LONG).await.unwrap();
    assert_eq!(assert_fresh(&database, &log).await, position.next());
}

/// T-37: a checkpoint on the way is no arrival.
#[tokio::test(flavor = "multi_thread")]
async fn catching_up_is_not_over_before_the_head() {
    let database = test_database().await;
    let log = open(&database).await;
    for number in 1..=10 {
        append(&log, life(number)).await;
    }
    let head = log.head().await.unwrap();
    let runner = Runner::start_paged(log.clone(), &database.project_url(), 2).unwrap();
    let mut statuses = runner.statuses();
    let mut checkpoints = std::collections::BTreeSet::new();
    loop {
        tokio::time::timeout(LONG, statuses.changed()).await.unwrap().unwrap();
        match statuses.borrow_and_update().clone() {
            RunnerStatus::CatchingUp { position, head: known } => {
                assert!(position < head && known == head);
                checkpoints.insert(position);
            }
            RunnerStatus::Live { position } => {
                assert_eq!(position, head);
                break;
            }
            other => panic!("{other}"),
        }
    }
    assert!(checkpoints.len() > 2, "no checkpoint was seen on the way: {checkpoints:?}");
}

/// Puts an event into the log that this version does not know, as a newer version would have written it.
async fn append_unknown(database: &TestDatabase, log: &EventLog) -> Position {
    let administrator = database.administrator().await.unwrap();
    let tip = log.stream_tip(&StreamName::run(tenant(), run())).await.unwrap().unwrap();
    let version = tip.version.next();
    let now = log.clock().now();
    let (salt, body) = ([7_u8; 32], b"{}".as_slice());
    let header = Header {
        log_id: log.log_id(),
        version,
        prev_leaf: hex::encode(tip.leaf),
        kind: "BridgeCallDreamt".to_owned(),
        recorded_at: now,
        body_commit: hex::encode(body_commitment(&salt, body)),
        ..recorded(0, acquired(1)).header
    };
    let header = header.to_canonical().unwrap();
    let leaf = leaf_hash(&header);
    let (salt, version) = (salt.to_vec(), i64::try_from(version.get()).unwrap());
    let row = administrator
        .query_one(
            "WITH head AS (UPDATE log.log_head SET next_position = next_position + 1 RETURNING next_position - 1 AS position), \
             body AS (INSERT INTO log.event_bodies SELECT position, $1, $2 FROM head), \
             stream AS (UPDATE log.streams SET version = $3, tip = $4 WHERE category = 'run' RETURNING id) \
             INSERT INTO log.events SELECT position, stream.id, $3, 9999, gen_random_uuid(), $5, clock_timestamp(), $4, $6 \
             FROM head, stream RETURNING position",
            &[&salt, &body, &version, &leaf.to_vec(), &tenant().as_uuid(), &header],
        )
        .await
        .unwrap();
    assert_eq!(Version(u64::try_from(version).unwrap()), tip.version.next());
    Position(u64::try_from(row.get::<_, i64>(0)).unwrap())
}

#[tokio::test(flavor = "multi_thread")]
async fn an_unknown_event_stops_the_line_exactly_there() {
    let database = test_database().await;
    let log = open(&database).await;
    append(&log, life(1)).await;
    let unknown = append_unknown(&database, &log).await;
    for page_events in [3, 100] {
        let runner = Runner::start_paged(log.clone(), &database.project_url(), page_events).unwrap();
        let status =
            wait_for_status(&runner, "stopped", |status| matches!(status, RunnerStatus::Stopped { .. }))
                .await;
        assert!(!status.is_serving());
        assert!(
            matches!(&status, RunnerStatus::Stopped { position, reason: StopReason::Undecodable { position: at, .. } }
                if *position == unknown && *at == unknown),
            "{status}"
        );
        assert_eq!(
            status.to_string(),
            "stopped at position 13: the event at position 13 cannot be read: event type BridgeCallDreamt is not known to \
             this version"
        );
        assert_eq!(runner.position(), unknown, "everything before it is visible");
    }
    assert_eq!(assert_fresh(&database, &log).await, unknown);
}

#[tokio::test(flavor = "multi_thread")]
async fn views_of_another_history_or_epoch_stop_at_once() {
    let database = test_database().await;
    let log = open(&database).await;
    let position = append(&log, life(1)).await;
    let runner = Runner::start(log.clone(), &database.project_url()).unwrap();
    runner.wait_for(position, LONG).await.unwrap();
    runner.stop().await;
    let administrator = database.administrator().await.unwrap();
    let faults = [
        ("leaf_at_position = sha256('other')", StopReason::OtherHistory { position: Position(12) }),
        ("position = 100", StopReason::OtherHistory { position: Position(99) }),
        ("epoch = 7", StopReason::OtherEpoch { views: 7, log: 1 }),
    ];
    for (fault, expected) in faults {
        administrator.batch_execute("CREATE TABLE kept AS TABLE views.consumers").await.unwrap();
        administrator.batch_execute(&format!("UPDATE views.consumers SET {fault}")).await.unwrap();
        let runner = Runner::start(log.clone(), &database.project_url()).unwrap();
        let status =
            wait_for_status(&runner, "stopped", |status| matches!(status, RunnerStatus::Stopped { .. }))
                .await;
        assert!(matches!(&status, RunnerStatus::Stopped { reason, .. } if *reason == expected), "{status}");
        runner.stop().await;
        administrator
            .batch_execute(
                "DELETE FROM views.consumers; INSERT INTO views.consumers TABLE kept; DROP TABLE kept",
            )
            .await
            .unwrap();
    }
    // Put right again, it goes on.
    let runner = Runner::start(log.clone(), &database.project_url()).unwrap();
    let position = append(&log, life(2)).await;
    runner.wait_for(position, LONG).await.unwrap();
    assert_eq!(assert_fresh(&database, &log).await, position.next());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_runs_history_is_paged_from_the_log() {
    let database = test_database().await;
    let log = open(&database).await;
    let position = append(&log, life(1)).await;
    let runner = Runner::start(log.clone(), &database.project_url()).unwrap();
    runner.wait_for(position, LONG).await.unwrap();
    let views = Views::connect(&database.project_url()).unwrap();
    let mut filter = RunEventFilter::default();
    let mut seen = Vec::new();
    loop {
        let page = views.run_events(&log, Some(tenant()), run(), &filter, 5).await.unwrap();
        assert!(page.items.len() <= 5);
        seen.extend(page.items);
        let Some(cursor) = page.next_cursor else { break };
        filter.after = Some(cursor.0);
    }
    assert_eq!(seen, log.read_all(Position(0), 100).await.unwrap());

    filter = RunEventFilter { kind: Some(EventType::CommandFinished), after: None };
    let page = views.run_events(&log, None, run(), &filter, 100).await.unwrap();
    let positions: Vec<u64> = page.items.iter().map(|item| item.position.get()).collect();
    assert_eq!((positions, page.next_cursor), (vec![5, 9], None));
    for (who, which) in [(Some(events::TenantId(uuid(77))), run()), (Some(tenant()), events::RunId(uuid(8)))]
    {
        let page = views.run_events(&log, who, which, &RunEventFilter::default(), 100).await.unwrap();
        assert_eq!((page.items, page.next_cursor), (vec![], None));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn pages_of_large_events_are_shorter_and_none_is_lost() {
    let database = test_database().await;
    let log = open(&database).await;
    let large = CommandFinished { stdout: output(&"x".repeat(400 * 1024)), ..finished_body(1) };
    for _ in 0..30 {
        append(&log, [Event::CommandFinished(large.clone())]).await;
    }
    let runner = Runner::start(log.clone(), &database.project_url()).unwrap();
    runner.wait_for(Position(29), LONG).await.unwrap();
    let views = Views::connect(&database.project_url()).unwrap();
    let mut filter = RunEventFilter::default();
    let (mut pages, mut seen) = (0, Vec::new());
    loop {
        let page = views.run_events(&log, None, run(), &filter, 100).await.unwrap();
        pages += 1;
        seen.extend(page.items.iter().map(|item| item.position.get()));
        let Some(cursor) = page.next_cursor else { break };
        filter.after = Some(cursor.0);
    }
    assert!(pages > 1, "12 MB came in one page");
    assert_eq!(seen, (0..30).collect::<Vec<_>>());
}
