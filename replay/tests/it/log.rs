//! A log with projections to look at, and the binary that looks.

use std::collections::BTreeMap;
use std::process::{Command, Output};
use std::time::Duration;

use event_log::testing::{TestDatabase, test_database};
use event_log::{AppendRequest, EventLog, Expected, LogConfig};
use events::event::command::{
    CommandAccepted, CommandFinished, CommandStarted, Evidence, KillEnforced, KillReason, OutputRecord,
    TextEncoding, Usage,
};
use events::event::environment::{
    EnvironmentDestroyed, EnvironmentProvisioned, EnvironmentRequested, EnvironmentTeardownRequested,
    TeardownCause,
};
use events::event::lease::{LeaseAcquired, LeaseReleased};
use events::event::service::{OrphanDeleted, OrphanKind};
use events::spec::{Limits, Mechanism};
use events::stored::{Header, NewEvent, StreamName, body_commitment, leaf_hash};
use events::{
    CommandId, EnvironmentId, Epoch, Event, EventId, InstanceId, LeaseId, NodeId, RunId, TenantId, Timestamp,
    Version,
};
use projections::Runner;
use uuid::Uuid;

/// Text that would move the cursor, colour, reorder or break a line.
pub(crate) const HOSTILE: &str = "x\u{0}\u{1b}[2J\u{9b}31m\u{202e}gnp\u{2028}\r\n\"\\🦀";

pub(crate) fn uuid(number: u128) -> Uuid {
    Uuid::from_u128(0x0195_5f3c_7d00_7000_8000_0000_0000_0000 + number)
}

pub(crate) fn tenant() -> TenantId {
    TenantId(uuid(1))
}

pub(crate) fn other_tenant() -> TenantId {
    TenantId(uuid(11))
}

pub(crate) fn run() -> RunId {
    RunId(uuid(2))
}

fn output(text: &str) -> OutputRecord {
    let (bytes_total, sha256) = (text.len() as u64, "ef".repeat(32));
    OutputRecord {
        text: text.to_owned(),
        encoding: TextEncoding::Utf8,
        bytes_total,
        sha256,
        truncated: false,
    }
}

/// A lease, its environment and one command killed by its time limit.
pub(crate) fn life() -> Vec<Event> {
    let (lease_id, environment_id, command_id) =
        (LeaseId(uuid(3)), EnvironmentId(uuid(4)), CommandId(uuid(5)));
    let epoch = Epoch(1);
    let end: Timestamp = "2030-01-02T03:04:05.678901Z".parse().unwrap();
    let limits = Limits {
        cpu_millicores: 2_000,
        memory_bytes: 2 << 30,
        pids_max: 512,
        workspace_bytes: 4 << 30,
        inodes_max: 100_000,
        wall_clock_seconds: 300,
    };
    let evidence = Evidence { limit_ms: Some(1_000), elapsed_ms: Some(1_003), ..Evidence::default() };
    vec![
        Event::LeaseAcquired(LeaseAcquired {
            lease_id,
            epoch,
            holder: Some(HOSTILE.to_owned()),
            ttl_ms: 60_000,
            expires_at: end,
            environment_cap_ms: 3_600_000,
            limits,
            network: false,
            tools: Vec::new(),
            labels: BTreeMap::from([(HOSTILE.to_owned(), HOSTILE.to_owned())]),
        }),
        Event::EnvironmentRequested(EnvironmentRequested {
            environment_id,
            lease_id,
            epoch,
            node_id: NodeId(uuid(6)),
            mechanism: Mechanism::Docker,
            image_digest: format!("sha256:{}", "ab".repeat(32)).parse().unwrap(),
            limits,
            policy_digest: None,
            from_pool: None,
            expires_at: end,
        }),
        Event::EnvironmentProvisioned(EnvironmentProvisioned { environment_id, duration_ms: 812 }),
        Event::CommandAccepted(CommandAccepted {
            command_id,
            lease_id,
            epoch,
            environment_id,
            argv: vec!["printf".to_owned(), HOSTILE.to_owned()],
            cwd: ".".to_owned(),
            env: BTreeMap::new(),
            stdin: None,
            timeout_ms: 1_000,
            timeout_reason: KillReason::Timeout,
            output_bytes_max: 1 << 20,
            background: false,
        }),
        Event::CommandStarted(CommandStarted { command_id, instance_id: InstanceId(uuid(7)), queued_ms: 0 }),
        Event::KillEnforced(KillEnforced {
            command_id,
            reason: KillReason::Timeout,
            evidence: evidence.clone(),
        }),
        Event::CommandFinished(CommandFinished {
            command_id,
            exit_code: None,
            killed_by: Some(KillReason::Timeout),
            evidence: Some(evidence),
            stdout: output(HOSTILE),
            stderr: output(""),
            stragglers: 0,
            files_changed: Vec::new(),
            files_changed_truncated: false,
            usage: Usage { cpu_ms: Some(31), peak_memory_bytes: Some(9 << 20) },
            duration_ms: 1_004,
        }),
        Event::LeaseReleased(LeaseReleased { lease_id, epoch }),
        Event::EnvironmentTeardownRequested(EnvironmentTeardownRequested {
            environment_id,
            cause: TeardownCause::Released,
        }),
        Event::EnvironmentDestroyed(EnvironmentDestroyed { environment_id, egress: None }),
    ]
}

async fn append(log: &EventLog, stream: StreamName, owner: Option<(TenantId, RunId)>, events: Vec<Event>) {
    let recorded_at = log.clock().now();
    let run_id = owner.map(|(_, run_id)| run_id);
    let new = |event| NewEvent {
        event_id: EventId(Uuid::new_v4()),
        tenant: owner.map_or(TenantId::SYSTEM, |(tenant, _)| tenant),
        recorded_at,
        actor: "token:test".to_owned(),
        correlation_id: run_id,
        causation_id: None,
        event,
    };
    let events = events.into_iter().map(new).collect();
    let request = AppendRequest { stream, expected: Expected::Any, guards: Vec::new(), key: None, events };
    log.append(request).await.unwrap();
}

/// Writes ten events of one run and one of the service, and projects them.
pub(crate) async fn fill(append_url: &str, project_url: &str) {
    let log = open(append_url).await;
    append(&log, StreamName::run(tenant(), run()), Some((tenant(), run())), life()).await;
    append_orphans(&log, 1).await;
    project(&log, project_url).await;
}

/// Events of the service itself, all of one moment.
pub(crate) async fn append_orphans(log: &EventLog, count: usize) {
    let orphan = Event::OrphanDeleted(OrphanDeleted {
        kind: OrphanKind::Container,
        name: "leasehold-0a1b2c3d-sandbox".to_owned(),
        environment_id: None,
    });
    append(log, StreamName::service(InstanceId(uuid(7))), None, vec![orphan; count]).await;
}

/// A run of the same id, of another tenant: a lease and no more.
pub(crate) async fn append_namesake(log: &EventLog) {
    let event = match life().remove(0) {
        Event::LeaseAcquired(body) => {
            Event::LeaseAcquired(LeaseAcquired { lease_id: LeaseId(uuid(13)), ..body })
        }
        other => other,
    };
    append(log, StreamName::run(other_tenant(), run()), Some((other_tenant(), run())), vec![event]).await;
}

/// Brings the views to the end of the log.
pub(crate) async fn project(log: &EventLog, project_url: &str) {
    let runner = Runner::start(log.clone(), project_url).unwrap();
    runner.wait_until(log.head().await.unwrap(), Duration::from_secs(20)).await.unwrap();
    runner.stop().await;
}

pub(crate) async fn open(append_url: &str) -> EventLog {
    EventLog::open(LogConfig::new(append_url)).await.unwrap()
}

/// Appends an event that this version does not know, sound in every byte, to the run's stream.
pub(crate) async fn append_unknown(database: &TestDatabase) {
    let log = EventLog::open(LogConfig::new(database.append_url())).await.unwrap();
    let stream = StreamName::run(tenant(), run());
    let last = log.read_stream(&stream, Version(10), 1).await.unwrap().remove(0);
    let (salt, body) = ([7_u8; 32], b"{}".as_slice());
    let header = Header {
        event_id: EventId(uuid(50)),
        version: last.header.version.next(),
        prev_leaf: hex::encode(last.leaf),
        kind: "BridgeCallDreamt".to_owned(),
        body_commit: hex::encode(body_commitment(&salt, body)),
        ..last.header
    };
    let bytes = header.to_canonical().unwrap();
    let (salt, leaf, version) = (salt.to_vec(), leaf_hash(&bytes).to_vec(), 11_i64);
    let recorded_at = header.recorded_at.unix_micros();
    let administrator = database.administrator().await.unwrap();
    administrator
        .execute(
            "WITH head AS (UPDATE log.log_head SET next_position = next_position + 1 RETURNING next_position - 1 AS position), \
             body AS (INSERT INTO log.event_bodies SELECT position, $1, $2 FROM head), \
             stream AS (UPDATE log.streams SET version = $3, tip = $4 WHERE category = 'run' RETURNING id) \
             INSERT INTO log.events SELECT position, stream.id, $3, 9999, $5, $6, \
             'epoch'::timestamptz + $8::bigint * interval '1 us', $4, $7 FROM head, stream",
            &[&salt, &body, &version, &leaf, &uuid(50), &tenant().as_uuid(), &bytes, &recorded_at],
        )
        .await
        .unwrap();
}

pub(crate) async fn filled() -> TestDatabase {
    let database = test_database().await;
    fill(&database.append_url(), &database.project_url()).await;
    database
}

/// Changes stored bytes as only a superuser can, after taking the guards away.
pub(crate) async fn tamper(database: &TestDatabase, statement: &str) {
    let administrator = database.administrator().await.unwrap();
    let partitions = ["log.events_p0", "log.event_bodies_p0"];
    for table in ["log.events", "log.event_bodies", "log.tiles", "log.checkpoints"].iter().chain(&partitions)
    {
        administrator.batch_execute(&format!("ALTER TABLE {table} DISABLE TRIGGER ALL")).await.unwrap();
    }
    let changed = administrator.execute(statement, &[]).await.unwrap();
    assert!(changed > 0, "{statement} changed nothing");
}

/// Nothing in it acts on a terminal or breaks a line.
pub(crate) fn assert_harmless(shown: &str) {
    for hostile in ['\u{0}', '\r', '\u{1b}', '\u{9b}', '\u{202e}', '\u{2028}'] {
        assert!(!shown.contains(hostile), "{hostile:?} in {shown}");
    }
}

/// Runs the binary to its end.
#[expect(clippy::disallowed_methods, reason = "the binary under test is started here")]
pub(crate) fn replay(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_leasehold-replay"))
        .env_remove("LEASEHOLD_DATABASE_URL")
        .env_remove("COLUMNS")
        .args(arguments)
        .output()
        .unwrap()
}

pub(crate) fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}
