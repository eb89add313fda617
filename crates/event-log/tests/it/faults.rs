//! Lost sessions, lost answers, dropped callers, a database that goes away and comes back.

use std::os::unix::fs::PermissionsExt as _;
use std::time::Duration;

use event_log::embedded::EmbeddedPostgres;
use event_log::testing::connect;
use event_log::{AppendError, EventLog, Expected, LogConfig};
use events::{Position, Version};
use futures::FutureExt as _;
use tokio::task::JoinSet;

use crate::proxy::{Lose, Proxy};
use crate::support::{
    Fixture, NO_TIP, another, blocked, fixture, hold_head, raw_append, request, run_stream, seen, until,
};

/// Ends the sessions of that name; answers how many there were.
async fn terminate(fixture: &Fixture, application: &str) -> u64 {
    let admin = fixture.database.administrator().await.unwrap();
    let sql = "SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity \
               WHERE datname = current_database() AND application_name = $1";
    admin.execute(sql, &[&application]).await.unwrap()
}

async fn idle_in_transaction(fixture: &Fixture) -> i64 {
    let admin = fixture.database.administrator().await.unwrap();
    let sql = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() \
               AND state LIKE 'idle in transaction%'";
    admin.query_one(sql, &[]).await.unwrap().get(0)
}

#[tokio::test]
async fn t19_a_dropped_caller_cancels_nothing_and_leaves_no_transaction() {
    let fixture = fixture().await;
    let log = &fixture.log;
    // Dropped before it was first polled: nothing was asked.
    drop(log.append(request(log, &run_stream(1), Expected::None)));
    // Dropped after its first poll, which queues it, and dropped while the call waits for the head.
    let held = hold_head(&fixture).await;
    assert!(log.append(request(log, &run_stream(2), Expected::None)).now_or_never().is_none());
    let mut tasks = JoinSet::new();
    let (caller, asked) = (log.clone(), request(log, &run_stream(3), Expected::None));
    tasks.spawn(async move { caller.append(asked).await });
    blocked(&fixture, 1).await;
    tasks.abort_all();
    assert!(tasks.join_next().await.unwrap().unwrap_err().is_cancelled());
    held.batch_execute("COMMIT").await.unwrap();
    seen(log, Position(2)).await;
    assert!(log.stream_tip(&run_stream(1)).await.unwrap().is_none());
    assert!(log.stream_tip(&run_stream(2)).await.unwrap().is_some());
    assert!(log.stream_tip(&run_stream(3)).await.unwrap().is_some());

    // Readers dropped at every await they have.
    for polls in 0..40 {
        let mut read = Box::pin(log.read_all(Position(0), 10));
        for _ in 0..polls {
            if futures::poll!(&mut read).is_ready() {
                break;
            }
            tokio::task::yield_now().await;
        }
    }
    assert_eq!(log.read_all(Position(0), 10).await.unwrap().len(), 2);
    assert_eq!(idle_in_transaction(&fixture).await, 0);
}

#[tokio::test]
async fn a_lost_answer_is_found_out_and_a_lost_request_is_sent_again() {
    const MARKER: &[u8] = b"service:cut-here";
    let fixture = fixture().await;
    let server_dir = fixture.database.urls().socket_dir();
    let proxy = Proxy::start(server_dir, MARKER);
    let url = proxy.url(&fixture.database.append_url(), server_dir);
    let log = EventLog::open(LogConfig::new(url)).await.unwrap();
    let mut total = 0;
    for lose in [Lose::Answer, Lose::Request, Lose::Answer, Lose::Request] {
        // One event: the lean function. Three: the batch function.
        for count in [1, 3] {
            let mut asked = request(&log, &run_stream(1), Expected::Any);
            asked.events[0].actor = "service:cut-here".to_owned();
            asked.events = vec![asked.events[0].clone(); count];
            proxy.arm(lose);
            let appended = log.append(asked).await.unwrap();
            assert!(proxy.has_lost());
            assert_eq!(appended.first_position, Position(total), "{lose:?} {count}");
            total += count as u64;
            assert_eq!(appended.last_position.next(), Position(total));
            assert_eq!(appended.tip.version, Version(total));
        }
    }
    assert_eq!(fixture.log.head().await.unwrap(), Position(total));
    assert_eq!(fixture.log.read_stream(&run_stream(1), Version(1), 100).await.unwrap().len() as u64, total);
}

#[tokio::test]
async fn a_killed_appender_session_loses_nothing() {
    let fixture = fixture().await;
    let log = &fixture.log;
    for round in 0..5 {
        log.append(request(log, &run_stream(1), Expected::Any)).await.unwrap();
        if round % 2 == 0 {
            // While idle.
            assert_eq!(terminate(&fixture, "leasehold appender").await, 1);
        } else {
            // While it waits for the head: not committed, sent again.
            let held = hold_head(&fixture).await;
            let append = log.append(request(log, &run_stream(1), Expected::Any));
            let kill = async {
                blocked(&fixture, 1).await;
                assert_eq!(terminate(&fixture, "leasehold appender").await, 1);
                held.batch_execute("COMMIT").await.unwrap();
            };
            let (appended, ()) = tokio::join!(append, kill);
            appended.unwrap();
        }
    }
    assert_eq!(log.stream_tip(&run_stream(1)).await.unwrap().unwrap().version, Version(7));
    assert_eq!(log.head().await.unwrap(), Position(7));
}

#[tokio::test]
async fn t34_appends_of_others_arrive_by_signal_and_without_it() {
    let fixture = fixture().await;
    let other = another(&fixture).await;
    let log = &fixture.log;
    until(async || log.status().listening).await;
    for round in 1..=3 {
        let appended = other.append(request(&other, &run_stream(1), Expected::Any)).await.unwrap();
        assert_eq!(appended.last_position.next(), Position(2 * round - 1));
        seen(log, appended.last_position.next()).await;
        // The listening sessions die silently; the next event comes by poll or by the new session.
        assert_eq!(terminate(&fixture, "leasehold log signal").await, 2);
        // Nobody signals this one at all.
        let admin = fixture.database.administrator().await.unwrap();
        raw_append(&admin, log, &run_stream(u128::from(100 + round)), NO_TIP, None).await.unwrap();
        seen(log, Position(2 * round)).await;
        until(async || log.status().listening && other.status().listening).await;
    }
}

#[tokio::test]
async fn t35_everything_resumes_when_the_database_comes_back() {
    let dir = tempfile::Builder::new().permissions(std::fs::Permissions::from_mode(0o755)).tempdir().unwrap();
    let server = EmbeddedPostgres::start(dir.path()).await.unwrap();
    event_log::migrate(&server.migrate_url()).await.unwrap();
    let url = server.append_url();
    let settings = LogConfig { reconnect_limit: Duration::from_millis(200), ..LogConfig::new(&url) };
    let log = EventLog::open(settings).await.unwrap();
    let other = EventLog::open(LogConfig::new(&url)).await.unwrap();
    log.append(request(&log, &run_stream(1), Expected::None)).await.unwrap();
    let before = log.clock().now();

    server.stop().await.unwrap();
    let down = log.append(request(&log, &run_stream(1), Expected::Any)).await;
    assert!(matches!(down, Err(AppendError::Unavailable { outcome_unknown: false })), "{down:?}");
    assert!(log.head().await.unwrap_err().is_retryable());
    assert!(log.read_all(Position(0), 10).await.unwrap_err().is_retryable());
    until(async || !log.status().listening).await;
    assert!(log.clock().now() > before);
    // One that waits longer than the outage is simply late.
    let waiting = other.append(request(&other, &run_stream(2), Expected::None));
    let back = async {
        let server = EmbeddedPostgres::start(dir.path()).await.unwrap();
        assert_eq!(server.append_url(), url);
        server
    };
    let (waited, server) = tokio::join!(waiting, back);
    assert_eq!(waited.unwrap().first_position, Position(1));
    seen(&log, Position(2)).await;
    until(async || log.status().listening).await;
    let appended = log.append(request(&log, &run_stream(1), Expected::Any)).await.unwrap();
    assert_eq!((appended.first_position, appended.tip.version), (Position(2), Version(2)));
    assert!(log.status().silent_for < Duration::from_secs(5));
    assert!(log.status().appending);
    server.stop().await.unwrap();
}

#[tokio::test]
async fn t25_a_database_that_takes_no_writes_is_a_passing_fault() {
    let fixture = fixture().await;
    let log = &fixture.log;
    log.append(request(log, &run_stream(1), Expected::None)).await.unwrap();
    let admin = fixture.database.administrator().await.unwrap();
    // As a standby that took over: every new session is read-only.
    let name: String = admin.query_one("SELECT current_database()::text", &[]).await.unwrap().get(0);
    admin
        .batch_execute(&format!("ALTER DATABASE {name} SET default_transaction_read_only = on"))
        .await
        .unwrap();
    terminate(&fixture, "leasehold appender").await;
    let refused = log.append(request(log, &run_stream(1), Expected::Any)).await;
    assert!(matches!(refused, Err(AppendError::Unavailable { outcome_unknown: false })), "{refused:?}");
    let admin = connect(&fixture.database.administrator_url()).await.unwrap();
    admin
        .batch_execute(&format!(
            "SET transaction_read_only = off; ALTER DATABASE {name} RESET default_transaction_read_only"
        ))
        .await
        .unwrap();
    terminate(&fixture, "leasehold appender").await;
    let appended = log.append(request(log, &run_stream(1), Expected::Any)).await.unwrap();
    assert_eq!(appended.first_position, Position(1));
}
