//! The log as it grows.

use std::io::{BufRead as _, BufReader, Read as _};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use event_log::embedded::EmbeddedPostgres;
use event_log::testing::TestDatabase;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use crate::log::{
    append_namesake, append_orphans, assert_harmless, fill, filled, open, other_tenant, run, tamper, text,
};

/// Longest wait for anything that should happen soon.
const SOON: Duration = Duration::from_secs(30);

/// A running watch; what is left of it goes with the value.
struct Watch {
    child: Child,
    lines: Receiver<String>,
    complaints: Receiver<String>,
}

fn lines_of(reader: impl std::io::Read + Send + 'static) -> Receiver<String> {
    let (lines, received) = channel();
    std::thread::spawn(move || {
        for line in BufReader::new(reader).lines() {
            if lines.send(line.unwrap()).is_err() {
                return;
            }
        }
    });
    received
}

impl Watch {
    #[expect(clippy::disallowed_methods, reason = "the binary under test is started here")]
    fn command(arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_leasehold-replay"));
        command.env_remove("LEASEHOLD_DATABASE_URL").arg("watch").args(arguments);
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }

    fn start(arguments: &[&str]) -> Self {
        let mut child = Self::command(arguments).spawn().unwrap();
        let lines = lines_of(child.stdout.take().unwrap());
        let complaints = lines_of(child.stderr.take().unwrap());
        Self { child, lines, complaints }
    }

    fn line(&self) -> String {
        let line = self.lines.recv_timeout(SOON).unwrap();
        assert_harmless(&line);
        line
    }

    /// The position of the next event, as JSON.
    fn position(&self) -> u64 {
        let event: Value = serde_json::from_str(&self.line()).unwrap();
        event["position"].as_u64().unwrap()
    }

    fn complaint(&self) -> String {
        self.complaints.recv_timeout(SOON).unwrap()
    }

    fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).unwrap();
    }

    fn ended(&mut self) -> Option<i32> {
        ended(&mut self.child)
    }
}

fn ended(child: &mut Child) -> Option<i32> {
    let start = Instant::now();
    loop {
        match child.try_wait().unwrap() {
            Some(status) => return status.code(),
            None => assert!(start.elapsed() < SOON, "the watch does not end"),
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Until a watch has looked at the head of this database.
async fn watched(database: &TestDatabase) {
    is_watched(database, true).await;
}

/// Until the session of the last one has ended as well: it outlives the process for a moment.
async fn left(database: &TestDatabase) {
    is_watched(database, false).await;
}

async fn is_watched(database: &TestDatabase, expected: bool) {
    let administrator = database.administrator().await.unwrap();
    let sql = "SELECT FROM pg_stat_activity WHERE datname = current_database() AND application_name = 'leasehold-replay' \
               AND state = 'idle' AND query LIKE '%log.%'";
    let start = Instant::now();
    while administrator.query(sql, &[]).await.unwrap().is_empty() == expected {
        assert!(start.elapsed() < SOON, "watched: not {expected}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn new_events_are_told_until_ctrl_c() {
    let database = filled().await;
    let url = database.audit_url();
    let log = open(&database.append_url()).await;
    for signal in [Signal::INT, Signal::TERM] {
        let head = log.head().await.unwrap().get();
        let mut words = Watch::start(&["--database-url", &url]);
        watched(&database).await;
        append_namesake_or_orphans(&log, signal).await;
        let begin = words.line();
        assert!(begin.starts_with("position  time since 20"), "{begin}");
        let event = words.line();
        assert!(event.trim_start().starts_with(&format!("{head}  ")), "only what is new: {event}");
        words.signal(signal);
        assert_eq!(words.ended(), Some(0));
        assert!(words.complaints.recv().is_err(), "not a word of complaint");
        left(&database).await;
    }
}

/// One event of a run with hostile text, then one of the service.
async fn append_namesake_or_orphans(log: &event_log::EventLog, signal: Signal) {
    if signal == Signal::INT {
        append_namesake(log).await;
    } else {
        append_orphans(log, 1).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn json_lines_begin_where_they_are_asked_to_and_are_selected() {
    let database = filled().await;
    let url = database.audit_url();
    let log = open(&database.append_url()).await;
    let all = Watch::start(&["--json", "--from", "0", "--database-url", &url]);
    assert_eq!((0..11).map(|_| all.position()).collect::<Vec<_>>(), (0..11).collect::<Vec<_>>());
    let (run, others) = (run().to_string(), other_tenant().to_string());
    let theirs =
        Watch::start(&["--json", "--from", "5", "--run", &run, "--tenant", &others, "--database-url", &url]);
    append_orphans(&log, 2).await;
    append_namesake(&log).await;
    assert_eq!((0..3).map(|_| all.position()).collect::<Vec<_>>(), [11, 12, 13]);
    assert_eq!(theirs.position(), 13);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_reader_that_is_gone_ends_it_also_when_nothing_happens() {
    let database = filled().await;
    let url = database.audit_url();
    let mut child = Watch::command(&["--database-url", &url]).spawn().unwrap();
    watched(&database).await;
    drop(child.stdout.take());
    assert_eq!(ended(&mut child), Some(0));
    let mut complaints = String::new();
    child.stderr.take().unwrap().read_to_string(&mut complaints).unwrap();
    assert_eq!(complaints, "");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_restart_of_the_database_loses_and_repeats_nothing() {
    let directory = tempfile::tempdir().unwrap();
    let data = directory.path().to_str().unwrap();
    let server = EmbeddedPostgres::start(directory.path()).await.unwrap();
    event_log::migrate(&server.migrate_url()).await.unwrap();
    fill(&server.append_url(), &server.project_url()).await;
    let mut watch = Watch::start(&["--json", "--from", "9", "--data", data]);
    assert_eq!((watch.position(), watch.position()), (9, 10));
    server.stop().await.unwrap();
    let away = watch.complaint();
    assert!(away.starts_with("leasehold-replay: the database is away, waiting for it: "), "{away}");
    let server = EmbeddedPostgres::start(directory.path()).await.unwrap();
    let log = open(&server.append_url()).await;
    append_orphans(&log, 2).await;
    assert_eq!(watch.complaint(), "leasehold-replay: the database is back");
    assert_eq!((watch.position(), watch.position()), (11, 12));
    watch.signal(Signal::INT);
    assert_eq!(watch.ended(), Some(0));
    server.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_log_that_went_back_ends_it() {
    let database = filled().await;
    let url = database.audit_url();
    let mut watch = Watch::start(&["--json", "--from", "10", "--database-url", &url]);
    assert_eq!(watch.position(), 10);
    tamper(
        &database,
        "WITH cut AS (DELETE FROM log.events WHERE position = 10) UPDATE log.log_head SET next_position = 10",
    )
    .await;
    let complaint = watch.complaint();
    assert!(
        complaint.contains("before position 11 the database holds another log than before"),
        "{complaint}"
    );
    assert_eq!(watch.ended(), Some(2));
}

#[tokio::test(flavor = "multi_thread")]
async fn another_event_in_the_same_place_is_noticed_after_a_lost_session() {
    let database = filled().await;
    let url = database.audit_url();
    let mut watch = Watch::start(&["--json", "--from", "10", "--database-url", &url]);
    assert_eq!(watch.position(), 10);
    tamper(&database, "UPDATE log.events SET header = header || ' '::bytea WHERE position = 10").await;
    let administrator = database.administrator().await.unwrap();
    let sql = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity \
               WHERE datname = current_database() AND application_name = 'leasehold-replay'";
    assert_eq!(administrator.execute(sql, &[]).await.unwrap(), 1);
    assert!(watch.complaint().contains("the database is away"));
    assert!(watch.complaint().contains("another log than before"));
    assert_eq!(watch.ended(), Some(2));
}

#[tokio::test(flavor = "multi_thread")]
async fn what_cannot_be_watched_is_unreadable() {
    let database = filled().await;
    let url = database.audit_url();
    for (arguments, words) in [
        (["--from", "12", "--database-url", &url], "does not reach position 12"),
        (["--from", "0", "--data", "/nonexistent"], "no database is running"),
        (
            ["--from", "0", "--database-url", "postgresql://audit@127.0.0.1:1/x"],
            "the database did not answer",
        ),
    ] {
        let mut watch = Watch::start(&arguments);
        let complaint = watch.complaint();
        assert!(complaint.contains(words), "{complaint}");
        assert_eq!(watch.ended(), Some(4));
    }
    // What comes before an event that cannot be read is told.
    crate::log::append_unknown(&database).await;
    let output = Watch::command(&["--json", "--from", "9", "--database-url", &url]).output().unwrap();
    assert_eq!((output.status.code(), text(&output.stdout).lines().count()), (Some(4), 2));
    assert!(text(&output.stderr).contains("position 11"), "{}", text(&output.stderr));
}
