//! Verification of logs that are whole, and of logs that are not.

use event_log::embedded::EmbeddedPostgres;
use event_log::proof::checkpoint::Checkpoint;
use event_log::proof::note::SignerKey;
use event_log::testing::test_database;
use serde_json::Value;

use crate::log::{append_orphans, append_unknown, fill, filled, open, project, replay, tamper, text};

fn verify(url: &str) -> (Option<i32>, Value) {
    let output = replay(&["--json", "--database-url", url, "verify"]);
    let report = serde_json::from_slice(&output.stdout)
        .unwrap_or_else(|error| panic!("{error}: {}", text(&output.stderr)));
    (output.status.code(), report)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_whole_log_is_valid_and_says_how_much_was_checked() {
    let database = filled().await;
    let (code, report) = verify(&database.audit_url());
    assert_eq!(code, Some(0), "{report:#}");
    assert_eq!((&report["verdict"], &report["proof"]), (&"valid".into(), &"chain".into()));
    assert_eq!((&report["checkpoint"], &report["anchored_events"]), (&Value::Null, &0.into()));
    assert_eq!((&report["events_checked"], &report["streams_checked"]), (&11.into(), &2.into()));
    let projections = &report["projections"];
    assert_eq!(projections["rows_checked"], 14, "{report:#}");
    assert_eq!(projections["rows"]["run_events"], 10);
    assert_eq!((&projections["position"], &projections["differences_found"]), (&11.into(), &0.into()));

    let output = replay(&["verify", "--database-url", &database.audit_url()]);
    assert_eq!(output.status.code(), Some(0));
    let words = text(&output.stdout);
    assert!(words.contains("checked 11 events in 2 streams"), "{words}");
    assert!(words.contains("compared 14 rows of 5 views"), "{words}");
    assert!(words.contains("chain only: nothing is sealed"), "{words}");
    assert!(words.ends_with("\nvalid\n"), "{words}");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_empty_log_is_no_success() {
    let database = test_database().await;
    let (code, report) = verify(&database.audit_url());
    assert_eq!((code, &report["verdict"], &report["events_checked"]), (Some(4), &"empty".into(), &0.into()));
}

/// What a superuser can do to a filled log, and what is said about it.
pub(crate) const FAULTS: &[(&str, &str)] = &[
    ("UPDATE log.events SET version = 40 WHERE position = 3", "column version"),
    (
        "UPDATE log.events SET stream_id = (SELECT id FROM log.streams WHERE category = 'service') WHERE position = 3",
        "column stream_id",
    ),
    ("UPDATE log.events SET position = 20 WHERE position = 3", "no event from here"),
    ("UPDATE log.event_bodies SET position = 20 WHERE position = 3", "1 bodies have no event"),
    ("UPDATE log.events SET type_id = 41 WHERE position = 3", "column type_id"),
    ("UPDATE log.events SET event_id = gen_random_uuid() WHERE position = 3", "column event_id"),
    ("UPDATE log.events SET tenant = gen_random_uuid() WHERE position = 3", "column tenant"),
    (
        "UPDATE log.events SET recorded_at = recorded_at + interval '1 us' WHERE position = 3",
        "column recorded_at",
    ),
    ("UPDATE log.events SET leaf = sha256('other') WHERE position = 3", "leaf"),
    ("UPDATE log.events SET header = header || ' '::bytea WHERE position = 3", "header"),
    ("UPDATE log.event_bodies SET body = body || ' '::bytea WHERE position = 3", "body"),
    ("UPDATE log.event_bodies SET salt = sha256('other') WHERE position = 3", "body"),
    ("DELETE FROM log.event_bodies WHERE position = 3", "body is missing"),
    ("DELETE FROM log.events WHERE position = 3", "no event from here"),
    ("DELETE FROM log.events WHERE position = 10", "the head says 11"),
    ("UPDATE log.streams SET tip = sha256('other') WHERE category = 'run'", "the tip of stream"),
    ("UPDATE log.streams SET version = 9 WHERE category = 'run'", "the tip of stream"),
    ("UPDATE log.streams SET key = 'other' WHERE category = 'run'", "column stream_id"),
    ("UPDATE log.streams SET category = 'Run' WHERE category = 'run'", "a stream is named"),
    ("UPDATE log.log_meta SET log_id = gen_random_uuid()", "names another log"),
    // Another actor, with the leaf made anew: the next event of the stream knows better.
    (
        "UPDATE log.events SET header = x.header, leaf = sha256('\\x00'::bytea || x.header) FROM ( \
         SELECT convert_to(replace(convert_from(header, 'UTF8'), 'token:test', 'token:tesT'), 'UTF8') AS header \
         FROM log.events WHERE position = 3) AS x WHERE position = 3",
        "not chained",
    ),
    // The same in the last event of a stream: its tip knows better.
    (
        "UPDATE log.events SET header = x.header, leaf = sha256('\\x00'::bytea || x.header) FROM ( \
         SELECT convert_to(replace(convert_from(header, 'UTF8'), 'token:test', 'token:tesT'), 'UTF8') AS header \
         FROM log.events WHERE position = 9) AS x WHERE position = 9",
        "the tip of stream",
    ),
    // Two events changed places, bodies and all columns but the unique ones included.
    (
        "WITH bodies AS (UPDATE log.event_bodies AS b SET salt = o.salt, body = o.body FROM log.event_bodies AS o \
         WHERE (b.position, o.position) IN ((3, 4), (4, 3)) RETURNING 1) \
         UPDATE log.events AS e SET header = o.header, leaf = o.leaf, event_id = o.event_id, type_id = o.type_id \
         FROM log.events AS o WHERE (e.position, o.position) IN ((3, 4), (4, 3))",
        "where 4 follows",
    ),
    // One event twice, with a head that counts it.
    (
        "WITH head AS (UPDATE log.log_head SET next_position = 12), \
         body AS (INSERT INTO log.event_bodies SELECT 11, salt, body FROM log.event_bodies WHERE position = 9) \
         INSERT INTO log.events SELECT 11, stream_id, 11, type_id, event_id, tenant, recorded_at, leaf, header \
         FROM log.events WHERE position = 9",
        "version 10 of stream",
    ),
    ("UPDATE log.log_head SET next_position = 12", "the head says 12"),
];

#[tokio::test(flavor = "multi_thread")]
async fn every_changed_column_is_found() {
    let database = filled().await;
    let administrator = database.administrator().await.unwrap();
    let tables = ["events", "event_bodies", "streams", "log_head", "log_meta"];
    for table in tables {
        administrator
            .batch_execute(&format!("CREATE TABLE {table}_kept AS TABLE log.{table}"))
            .await
            .unwrap();
    }
    for (statement, expected) in FAULTS {
        tamper(&database, statement).await;
        let (code, report) = verify(&database.audit_url());
        assert_eq!(code, Some(2), "{statement}: {report:#}");
        assert_eq!(report["verdict"], "tampered");
        let told = report["faults"].to_string();
        assert!(told.contains(expected), "{statement}: {told}");
        for table in tables {
            let restore = format!("DELETE FROM log.{table}; INSERT INTO log.{table} TABLE {table}_kept");
            administrator.batch_execute(&restore).await.unwrap();
        }
    }
    assert_eq!(verify(&database.audit_url()).0, Some(0), "put right again, it is valid");
}

/// Whole bytes that say something new are no tampering: a newer version wrote them.
#[tokio::test(flavor = "multi_thread")]
async fn an_event_of_a_newer_version_is_unreadable() {
    let database = filled().await;
    append_unknown(&database).await;
    let (code, report) = verify(&database.audit_url());
    assert_eq!((code, &report["verdict"]), (Some(4), &"unreadable".into()), "{report:#}");
    assert_eq!((&report["events_checked"], &report["faults_found"]), (&12.into(), &1.into()));
    assert!(report["faults"][0].to_string().contains("BridgeCallDreamt"), "{report:#}");
    assert_eq!(report["projections"]["differences_found"], 0, "up to their position they are right");

    let output = replay(&["timeline", "--database-url", &database.audit_url()]);
    assert_eq!(output.status.code(), Some(4));
    assert_eq!(text(&output.stdout).lines().count(), 12, "a header and everything before it");
    assert!(text(&output.stderr).contains("position 11"), "{}", text(&output.stderr));
}

#[tokio::test(flavor = "multi_thread")]
async fn changed_projections_are_found_and_named() {
    let database = filled().await;
    tamper(&database, "UPDATE views.commands SET killed_by = 'MEMORY'").await;
    let (code, report) = verify(&database.audit_url());
    assert_eq!(code, Some(2), "{report:#}");
    assert_eq!(report["faults_found"], 0, "the log itself is whole");
    let difference = &report["projections"]["differences"][0];
    assert_eq!((&difference["view"], &difference["kind"]), (&"commands".into(), &"differs".into()));
    assert_eq!(difference["columns"], serde_json::json!(["killed_by"]));
    let words = text(&replay(&["verify", "--database-url", &database.audit_url()]).stdout);
    assert!(
        words.contains("DIFFERENCE in commands: 01955f3c-7d00-7000-8000-000000000005 has another killed_by"),
        "{words}"
    );
    assert!(words.contains("TAMPERED"), "{words}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_log_that_was_emptied_is_no_empty_log() {
    let database = filled().await;
    tamper(
        &database,
        "WITH events AS (DELETE FROM log.events), bodies AS (DELETE FROM log.event_bodies), \
         streams AS (DELETE FROM log.streams) UPDATE log.log_head SET next_position = 0",
    )
    .await;
    let (code, report) = verify(&database.audit_url());
    assert_eq!(
        (code, &report["events_checked"]),
        (Some(2), &0.into()),
        "the projections remember: {report:#}"
    );
}

/// More events than one range holds, in as many threads as there are: the same report, in the order of the log.
#[tokio::test(flavor = "multi_thread")]
async fn ranges_are_put_together_in_order() {
    let database = filled().await;
    let log = open(&database.append_url()).await;
    for _ in 0..4 {
        append_orphans(&log, 400).await;
    }
    project(&log, &database.project_url()).await;
    let (code, report) = verify(&database.audit_url());
    assert_eq!((code, &report["events_checked"]), (Some(0), &1_611.into()), "{report:#}");
    tamper(&database, "UPDATE log.events SET leaf = sha256('other') WHERE position % 100 = 50").await;
    let (code, report) = verify(&database.audit_url());
    assert_eq!((code, &report["faults_found"]), (Some(2), &16.into()), "{report:#}");
    let places = report["faults"].as_array().unwrap().iter().map(|fault| fault["position"].as_u64().unwrap());
    assert_eq!(places.collect::<Vec<_>>(), (0..16).map(|hundred| hundred * 100 + 50).collect::<Vec<_>>());
    assert!(
        replay(&["verify", "--database-url", &database.audit_url()]).stderr.is_empty(),
        "no progress in a pipe"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn projections_ahead_of_the_log_are_found() {
    let database = filled().await;
    tamper(&database, "UPDATE views.consumers SET position = 50").await;
    let (code, report) = verify(&database.audit_url());
    assert_eq!(code, Some(2), "{report:#}");
    let reason = report["projections"]["not_compared"].as_str().unwrap();
    assert!(reason.contains("position 50") && reason.contains("position 11"), "{reason}");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_embedded_database_is_found_by_its_directory_only_while_it_runs() {
    let directory = tempfile::tempdir().unwrap();
    let data = directory.path().to_str().unwrap();
    let output = replay(&["verify", "--data", data]);
    assert_eq!(output.status.code(), Some(4));
    assert!(text(&output.stderr).contains("no database is running on"), "{}", text(&output.stderr));

    let server = EmbeddedPostgres::start(directory.path()).await.unwrap();
    event_log::migrate(&server.migrate_url()).await.unwrap();
    fill(&server.append_url(), &server.project_url()).await;
    let output = replay(&["--data", data, "--json", "verify"]);
    assert_eq!(output.status.code(), Some(0), "{}{}", text(&output.stdout), text(&output.stderr));

    // The head that a service keeps in the directory counts without being named.
    let origin = event_log::testing::connect(&server.audit_url()).await.unwrap();
    let origin: String = origin.query_one("SELECT origin FROM log.log_meta", &[]).await.unwrap().get(0);
    let key = SignerKey::from_seed(&origin, &[3; 32]).unwrap();
    event_log::seal::pin_keys(&server.migrate_url(), &[key.verifier().clone()]).await.unwrap();
    let ahead = Checkpoint { origin, size: 12, root: [7; 32], extensions: Vec::new() }.sign(&[key]).unwrap();
    std::fs::write(directory.path().join("signed_head"), ahead).unwrap();
    let output = replay(&["--data", data, "--json", "verify"]);
    assert_eq!(output.status.code(), Some(2), "{}{}", text(&output.stdout), text(&output.stderr));
    assert!(text(&output.stdout).contains("signed_head signs 12 events, they end before 11"));

    server.stop().await.unwrap();
    let output = replay(&["verify", "--data", data]);
    assert_eq!(output.status.code(), Some(4), "stopped again");
}

#[test]
fn a_database_that_does_not_answer_is_unreadable() {
    let output = replay(&["verify", "--database-url", "postgresql://leasehold_audit@127.0.0.1:1/leasehold"]);
    assert_eq!(output.status.code(), Some(4));
    assert!(
        text(&output.stderr).starts_with("leasehold-replay: the database did not answer"),
        "{}",
        text(&output.stderr)
    );
}
