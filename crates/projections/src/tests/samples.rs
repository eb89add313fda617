//! Events and their recorded form for tests: literal times, ids by number.

use std::collections::BTreeMap;

use events::event::command::{
    ChangeKind, CommandAccepted, CommandFinished, CommandKillRequested, CommandStarted, Evidence, FileChange,
    KillReason, OutputRecord, TextEncoding, Usage,
};
use events::event::environment::{
    EnvironmentDestroyed, EnvironmentProvisioned, EnvironmentRequested, EnvironmentTeardownRequested,
    TeardownCause,
};
use events::event::lease::{LeaseAcquired, LeaseReleased};
use events::event::workspace::PathText;
use events::spec::{Limits, Mechanism};
use events::stored::{Header, NewEvent, Recorded, StreamName, ZERO_LEAF};
use events::{
    CommandId, EnvironmentId, Epoch, Event, EventId, InstanceId, LeaseId, LogId, NodeId, Position, RunId,
    TenantId, Timestamp, Version,
};
use uuid::Uuid;

/// 2025-03-04T05:06:07.891234Z: no sub-second part is zero.
const START_UNIX_MICROS: i64 = 1_741_064_767_891_234;

pub(crate) fn uuid(number: u128) -> Uuid {
    Uuid::from_u128(0x0195_5f3c_7d00_7000_8000_0000_0000_0000 + number)
}

pub(crate) fn tenant() -> TenantId {
    TenantId(uuid(1))
}

pub(crate) fn run() -> RunId {
    RunId(uuid(2))
}

pub(crate) fn lease(number: u128) -> LeaseId {
    LeaseId(uuid(100 + number))
}

pub(crate) fn environment(number: u128) -> EnvironmentId {
    EnvironmentId(uuid(200 + number))
}

pub(crate) fn command(number: u128) -> CommandId {
    CommandId(uuid(300 + number))
}

pub(crate) fn instance() -> InstanceId {
    InstanceId(uuid(4))
}

/// `ms` after the start of all samples.
pub(crate) fn at(ms: u64) -> Timestamp {
    Timestamp::try_from_unix_micros(START_UNIX_MICROS).unwrap().plus_ms(ms)
}

/// The event as it would be read at `position`, recorded `position` seconds after the start.
pub(crate) fn recorded(position: u64, event: Event) -> Recorded {
    recorded_for(position, Some(run()), event)
}

pub(crate) fn recorded_for(position: u64, run_id: Option<RunId>, event: Event) -> Recorded {
    let header = Header {
        v: 1,
        log_id: LogId(uuid(5)),
        event_id: EventId(uuid(1_000 + u128::from(position))),
        tenant: tenant(),
        stream: StreamName::run(tenant(), run()),
        version: Version(position + 1),
        prev_leaf: "0".repeat(64),
        kind: event.event_type().name().to_owned(),
        schema: 1,
        recorded_at: at(position * 1_000),
        actor: "token:sample".to_owned(),
        correlation_id: run_id,
        causation_id: None,
        body_commit: "0".repeat(64),
    };
    Recorded { position: Position(position), header, leaf: ZERO_LEAF, event: Some(event) }
}

pub(crate) fn new_event(recorded_at: Timestamp, event: Event) -> NewEvent {
    NewEvent {
        event_id: EventId(Uuid::new_v4()),
        tenant: tenant(),
        recorded_at,
        actor: "token:sample".to_owned(),
        correlation_id: Some(run()),
        causation_id: None,
        event,
    }
}

pub(crate) fn limits() -> Limits {
    Limits {
        cpu_millicores: 2_000,
        memory_bytes: 2 << 30,
        pids_max: 512,
        workspace_bytes: 4 << 30,
        inodes_max: 100_000,
        wall_clock_seconds: 300,
    }
}

/// Text that breaks what takes it for harmless: U+0000, quotes, ESC, bidi, a line separator, an emoji.
pub(crate) const HOSTILE: &str = "a\u{0}b\"\\\u{1b}[31m\u{202e}\u{2028}\u{9b}\r\n🦀";

pub(crate) fn acquired(number: u128) -> Event {
    Event::LeaseAcquired(LeaseAcquired {
        lease_id: lease(number),
        epoch: Epoch(u64::try_from(number).unwrap()),
        holder: Some(HOSTILE.to_owned()),
        ttl_ms: 60_000,
        expires_at: at(60_000),
        environment_cap_ms: 3_600_000,
        limits: limits(),
        network: false,
        tools: vec!["search".to_owned()],
        labels: BTreeMap::from([(HOSTILE.to_owned(), HOSTILE.to_owned())]),
    })
}

pub(crate) fn released(number: u128) -> Event {
    let epoch = Epoch(u64::try_from(number).unwrap());
    Event::LeaseReleased(LeaseReleased { lease_id: lease(number), epoch })
}

pub(crate) fn requested(number: u128) -> Event {
    Event::EnvironmentRequested(EnvironmentRequested {
        environment_id: environment(number),
        lease_id: lease(number),
        epoch: Epoch(u64::try_from(number).unwrap()),
        node_id: NodeId(uuid(3)),
        mechanism: Mechanism::Docker,
        image_digest: format!("sha256:{}", "ab".repeat(32)).parse().unwrap(),
        limits: limits(),
        policy_digest: None,
        from_pool: None,
        expires_at: at(3_600_000),
    })
}

pub(crate) fn provisioned(number: u128) -> Event {
    Event::EnvironmentProvisioned(EnvironmentProvisioned {
        environment_id: environment(number),
        duration_ms: 812,
    })
}

pub(crate) fn teardown(number: u128, cause: TeardownCause) -> Event {
    Event::EnvironmentTeardownRequested(EnvironmentTeardownRequested {
        environment_id: environment(number),
        cause,
    })
}

pub(crate) fn destroyed(number: u128) -> Event {
    Event::EnvironmentDestroyed(EnvironmentDestroyed { environment_id: environment(number), egress: None })
}

/// Command `number` in the environment (and under the lease) `owner`.
pub(crate) fn accepted(number: u128, owner: u128) -> Event {
    Event::CommandAccepted(CommandAccepted {
        command_id: command(number),
        lease_id: lease(owner),
        epoch: Epoch(u64::try_from(owner).unwrap()),
        environment_id: environment(owner),
        argv: vec!["printf".to_owned(), "%s\\n".to_owned(), "x\u{1b}[2Jy\u{202e}".to_owned()],
        cwd: ".".to_owned(),
        env: BTreeMap::from([("SECRET".to_owned(), "not in any view".to_owned())]),
        stdin: None,
        timeout_ms: 30_000,
        timeout_reason: KillReason::Timeout,
        output_bytes_max: 1 << 20,
        background: false,
    })
}

pub(crate) fn started(number: u128) -> Event {
    Event::CommandStarted(CommandStarted {
        command_id: command(number),
        instance_id: instance(),
        queued_ms: 7,
    })
}

pub(crate) fn kill_requested(number: u128) -> Event {
    Event::CommandKillRequested(CommandKillRequested {
        command_id: command(number),
        reason: KillReason::Cancelled,
    })
}

pub(crate) fn finished(number: u128) -> Event {
    Event::CommandFinished(finished_body(number))
}

pub(crate) fn finished_body(number: u128) -> CommandFinished {
    CommandFinished {
        command_id: command(number),
        exit_code: Some(0),
        killed_by: None,
        evidence: None,
        stdout: output(HOSTILE),
        stderr: output(""),
        stragglers: 0,
        files_changed: vec![FileChange {
            path: PathText::from_bytes(b"out/\xff.csv"),
            change: ChangeKind::Created,
            size_bytes: Some(12),
            sha256: Some("cd".repeat(32)),
        }],
        files_changed_truncated: false,
        usage: Usage { cpu_ms: Some(31), peak_memory_bytes: Some(9 << 20) },
        duration_ms: 402,
    }
}

/// A command killed because its time limit passed.
pub(crate) fn timed_out(number: u128) -> Event {
    Event::CommandFinished(CommandFinished {
        exit_code: None,
        killed_by: Some(KillReason::Timeout),
        evidence: Some(Evidence { limit_ms: Some(30_000), elapsed_ms: Some(30_004), ..Evidence::default() }),
        ..finished_body(number)
    })
}

pub(crate) fn output(text: &str) -> OutputRecord {
    OutputRecord {
        text: text.to_owned(),
        encoding: TextEncoding::Utf8,
        bytes_total: text.len() as u64,
        sha256: "ef".repeat(32),
        truncated: false,
    }
}
