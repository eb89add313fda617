//! What keeps the log append-only: roles and triggers, on every partition by name.

use event_log::{AppendError, Expected};
use events::{Position, Version};
use tokio_postgres::error::SqlState;

use crate::support::{fixture, request, run_stream, session};

const TABLES: [&str; 8] =
    ["log_meta", "log_head", "streams", "events", "event_bodies", "request_keys", "tiles", "checkpoints"];

#[tokio::test]
async fn t57_no_role_of_the_service_can_change_the_log() {
    let fixture = fixture().await;
    fixture.log.append(request(&fixture.log, &run_stream(1), Expected::None)).await.unwrap();
    let database = &fixture.database;
    let sealer = database.seal_url();
    for url in [database.append_url(), database.project_url(), sealer.clone(), database.audit_url()] {
        let client = session(&url).await;
        let mut refused = Vec::new();
        for table in TABLES.into_iter().chain(["events_p0", "event_bodies_p0"]) {
            refused.push(format!("DELETE FROM log.{table}"));
            refused.push(format!("TRUNCATE log.{table}"));
            refused.push(format!("DROP TABLE log.{table}"));
            // The sealer adds to its own two tables, and does nothing else to them either.
            if url != sealer || !["tiles", "checkpoints"].contains(&table) {
                refused.push(format!("INSERT INTO log.{table} SELECT * FROM log.{table}"));
            }
            refused.push(format!("COPY log.{table} FROM PROGRAM 'true'"));
            refused.push(format!("ALTER TABLE log.{table} DISABLE TRIGGER ALL"));
        }
        for statement in [
            "UPDATE log.events SET tenant = tenant",
            "UPDATE log.events_p0 SET tenant = tenant",
            "UPDATE log.event_bodies SET body = body",
            "UPDATE log.log_head SET next_position = 0",
            "UPDATE log.log_meta SET epoch = 2",
            "UPDATE log.streams SET version = 0",
            "UPDATE log.request_keys SET key = key",
            "MERGE INTO log.events e USING log.events o ON e.position = o.position WHEN MATCHED THEN DELETE",
            "DROP TRIGGER refuse_update ON log.events_p0",
            "SET session_replication_role = replica",
            "SELECT log.create_partition('events', 9)",
            "SELECT log.guard_table('log.streams')",
            "UPDATE log.tiles SET hashes = hashes",
            "UPDATE log.checkpoints SET note = note",
            "INSERT INTO log.checkpoints (size, note) VALUES (1, '') ON CONFLICT (size) DO UPDATE SET note = ''",
            "SELECT log.pin_verifier_key('')",
            "CREATE TABLE log.mine (x int)",
            "SET ROLE leasehold_owner",
            "ALTER ROLE CURRENT_USER SUPERUSER",
        ] {
            refused.push(statement.to_owned());
        }
        for statement in refused {
            let error = client.batch_execute(&statement).await.expect_err(&statement);
            assert_eq!(
                error.code(),
                Some(&SqlState::INSUFFICIENT_PRIVILEGE),
                "{url}: {statement}: {error:?}"
            );
        }
    }
    for url in [database.project_url(), sealer.clone(), database.audit_url()] {
        let error = session(&url).await.execute("SELECT log.ensure_partitions()", &[]).await.unwrap_err();
        assert_eq!(error.code(), Some(&SqlState::INSUFFICIENT_PRIVILEGE));
    }
    // Bodies, and columns that it does not check, are not the sealer's business.
    let client = session(&sealer).await;
    client.execute("SELECT position, stream_id, version, leaf, header FROM log.events", &[]).await.unwrap();
    client.execute("SELECT id, version, tip FROM log.streams", &[]).await.unwrap();
    for statement in
        ["SELECT body FROM log.event_bodies", "SELECT tenant FROM log.events", "SELECT key FROM log.streams"]
    {
        let error = client.batch_execute(statement).await.expect_err(statement);
        assert_eq!(error.code(), Some(&SqlState::INSUFFICIENT_PRIVILEGE), "{statement}");
    }
}

#[tokio::test]
async fn every_partition_refuses_even_its_owner_also_one_made_later() {
    let fixture = fixture().await;
    let admin = fixture.database.administrator().await.unwrap();
    // Half of the first partition: the next one is due.
    admin.execute("UPDATE log.log_head SET next_position = (1 << 23) - 1", &[]).await.unwrap();
    let count: i32 = admin.query_one("SELECT log.ensure_partitions()", &[]).await.unwrap().get(0);
    assert_eq!(count, 1);
    admin.execute("UPDATE log.log_head SET next_position = 1 << 23", &[]).await.unwrap();
    let count: i32 = admin.query_one("SELECT log.ensure_partitions()", &[]).await.unwrap().get(0);
    assert_eq!(count, 2);

    let partitions: Vec<String> = admin
        .query("SELECT inhrelid::regclass::text FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhrelid AND c.relkind = 'r' \
                WHERE inhparent IN ('log.events'::regclass, 'log.event_bodies'::regclass) ORDER BY 1", &[])
        .await
        .unwrap()
        .iter()
        .map(|row| row.get(0))
        .collect();
    assert_eq!(partitions, ["log.event_bodies_p0", "log.event_bodies_p1", "log.events_p0", "log.events_p1"]);
    let others = ["log.events", "log.event_bodies", "log.tiles", "log.checkpoints"];
    for table in partitions.iter().map(String::as_str).chain(others) {
        let always: i64 = admin
            .query_one(
                "SELECT count(*) FROM pg_trigger WHERE tgrelid = $1::text::regclass AND tgenabled = 'A' \
                 AND tgname IN ('refuse_update', 'refuse_delete', 'refuse_truncate')",
                &[&table],
            )
            .await
            .unwrap()
            .get(0);
        assert_eq!(always, 3, "{table}");
        let column = match table {
            "log.tiles" => "hashes",
            "log.checkpoints" => "note",
            _ => "position",
        };
        // The replica role skips ordinary triggers; these it does not skip, not even for a superuser.
        for statement in ["UPDATE {} SET @ = @", "DELETE FROM {}", "TRUNCATE {}"] {
            let statement = statement.replace("{}", table).replace('@', column);
            let error = admin
                .batch_execute(&format!("SET session_replication_role = replica; {statement}"))
                .await
                .expect_err(&statement);
            assert_eq!(error.code(), Some(&SqlState::INSUFFICIENT_PRIVILEGE), "{statement}");
            assert!(error.as_db_error().unwrap().message().contains("append-only"), "{statement}: {error:?}");
        }
    }
}

#[tokio::test]
async fn t09_large_positions_work_and_2_53_is_refused() {
    let fixture = fixture().await;
    let admin = fixture.database.administrator().await.unwrap();
    let log = &fixture.log;
    let beyond_int4 = (1_i64 << 31) + 5;
    admin.execute("UPDATE log.log_head SET next_position = $1", &[&beyond_int4]).await.unwrap();
    // No partition is there yet: the appender makes it and goes on.
    let appended = log.append(request(log, &run_stream(1), Expected::None)).await.unwrap();
    assert_eq!(appended.first_position, Position(beyond_int4 as u64));
    let read = log.read_all(appended.first_position, 10).await.unwrap();
    assert_eq!(read[0].position, appended.first_position);
    assert_eq!(log.head().await.unwrap(), appended.last_position.next());

    let last = (1_i64 << 53) - 1;
    admin.execute("UPDATE log.log_head SET next_position = $1", &[&last]).await.unwrap();
    let appended = log.append(request(log, &run_stream(1), Expected::Any)).await.unwrap();
    assert_eq!((appended.first_position, appended.tip.version), (Position(last as u64), Version(2)));
    assert_eq!(log.read_stream(&run_stream(1), Version(1), 10).await.unwrap().len(), 2);
    for events in [1, 2] {
        let mut over = request(log, &run_stream(2), Expected::Any);
        over.events = vec![over.events[0].clone(); events];
        let refused = log.append(over).await;
        assert!(
            matches!(&refused, Err(AppendError::Refused { reason }) if reason.contains("2^53")),
            "{refused:?}"
        );
    }
    assert!(log.stream_tip(&run_stream(2)).await.unwrap().is_none());
}
