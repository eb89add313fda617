//! One event of every type, with fixed values in every field that can have one.

use std::collections::BTreeMap;

use events::Event;
use events::event::command::{
    ChangeKind, CommandAccepted, CommandFinished, CommandInterrupted, CommandKillRequested, CommandStarted,
    Evidence, FileChange, InterruptCause, KillEnforced, KillReason, OutputRecord, StdinRecord, Usage,
};
use events::event::environment::{
    EnvironmentAdopted, EnvironmentDestroyed, EnvironmentProvisionFailed, EnvironmentProvisioned,
    EnvironmentRequested, EnvironmentSuspected, EnvironmentTeardownFailed, EnvironmentTeardownRequested,
    TeardownCause,
};
use events::event::lease::{
    ChildStream, LeaseAcquired, LeaseExpired, LeaseFenced, LeaseReleased, LeaseRenewed, LeaseRevoked,
    RunCloseRequested, RunClosed,
};
use events::event::service::{OrphanDeleted, OrphanKind, ServiceStarted};
use events::event::workspace::{PathText, WorkspaceFileRemoved, WorkspaceFileWritten};
use events::ids::{CommandId, EnvironmentId, Epoch, InstanceId, LeaseId, NodeId, TenantId, Version};
use events::spec::{ImageDigest, Limits, Mechanism};
use events::time::Timestamp;
use uuid::Uuid;

/// A fixed UUIDv7 that ends in `n`.
pub(crate) fn uuid(n: u8) -> Uuid {
    Uuid::from_u128(0x0190_a3c4_5e6f_7a8b_9c0d_1e2f_3a4b_5c00 + u128::from(n))
}

/// A fixed time with microseconds, `n` seconds on.
pub(crate) fn time(n: i64) -> Timestamp {
    Timestamp::try_from_unix_micros(1_772_600_767_123_457 + n * 1_000_001).expect("between 1970 and 9999")
}

fn limits() -> Limits {
    Limits {
        cpu_millicores: 2000,
        memory_bytes: 2_147_483_648,
        pids_max: 512,
        workspace_bytes: 4_294_967_296,
        inodes_max: 100_000,
        wall_clock_seconds: 300,
    }
}

fn digest(digit: char) -> String {
    digit.to_string().repeat(64)
}

fn image() -> ImageDigest {
    format!("sha256:{}", digest('a')).parse().expect("an image digest")
}

fn child() -> ChildStream {
    ChildStream { stream: format!("egress/{}", uuid(3)), version: Version(17), leaf: digest('d') }
}

/// Every payload, in the order of [`Event::TYPES`].
pub(crate) fn all() -> Vec<Event> {
    let mut all = leases();
    all.extend(environments());
    all.extend(commands());
    all.extend(workspace_and_service());
    all
}

fn leases() -> Vec<Event> {
    let (lease_id, epoch) = (LeaseId(uuid(1)), Epoch(2));
    vec![
        Event::LeaseAcquired(LeaseAcquired {
            lease_id,
            epoch,
            holder: Some("worker 7 \"östlich\"\n".to_owned()),
            ttl_ms: 60_000,
            expires_at: time(60),
            environment_cap_ms: 3_600_000,
            limits: limits(),
            network: true,
            tools: vec!["search".to_owned(), "fetch".to_owned()],
            labels: BTreeMap::from([
                ("team".to_owned(), "data".to_owned()),
                // Sorted by UTF-16 code units, not by bytes: U+1F600 stands before U+FB33 (RFC 8785, section 3.2.3).
                ("\u{fb33}".to_owned(), "hebrew".to_owned()),
                ("\u{1f600}".to_owned(), "emoji".to_owned()),
            ]),
        }),
        Event::LeaseRenewed(LeaseRenewed { lease_id, epoch, ttl_ms: 90_000, expires_at: time(90) }),
        Event::LeaseReleased(LeaseReleased { lease_id, epoch }),
        Event::LeaseExpired(LeaseExpired { lease_id, epoch, expires_at: time(60) }),
        Event::LeaseRevoked(LeaseRevoked { lease_id, epoch, reason: Some("incident 12".to_owned()) }),
        Event::LeaseFenced(LeaseFenced { lease_id, epoch, by_epoch: Epoch(3) }),
        Event::RunCloseRequested(RunCloseRequested {}),
        Event::RunClosed(RunClosed {
            last_epoch: Epoch(3),
            commands: 12,
            environments: 3,
            children: vec![child()],
        }),
    ]
}

fn environments() -> Vec<Event> {
    let environment_id = EnvironmentId(uuid(3));
    let reason_code = "engine_unreachable".to_owned();
    vec![
        Event::EnvironmentRequested(EnvironmentRequested {
            environment_id,
            lease_id: LeaseId(uuid(1)),
            epoch: Epoch(2),
            node_id: NodeId(uuid(5)),
            mechanism: Mechanism::Gvisor,
            image_digest: image(),
            limits: limits(),
            policy_digest: Some(digest('e')),
            from_pool: Some(EnvironmentId(uuid(4))),
            expires_at: time(3600),
        }),
        Event::EnvironmentProvisioned(EnvironmentProvisioned { environment_id, duration_ms: 431 }),
        Event::EnvironmentProvisionFailed(EnvironmentProvisionFailed {
            environment_id,
            reason_code: reason_code.clone(),
        }),
        Event::EnvironmentAdopted(EnvironmentAdopted { environment_id, instance_id: InstanceId(uuid(6)) }),
        Event::EnvironmentTeardownRequested(EnvironmentTeardownRequested {
            environment_id,
            cause: TeardownCause::ServiceShutdown,
        }),
        Event::EnvironmentTeardownFailed(EnvironmentTeardownFailed {
            environment_id,
            attempt: 2,
            reason_code,
        }),
        Event::EnvironmentDestroyed(EnvironmentDestroyed { environment_id, egress: Some(child()) }),
        Event::EnvironmentSuspected(EnvironmentSuspected {
            environment_id,
            reason_code: "unknown_stream".to_owned(),
        }),
    ]
}

fn evidence() -> Evidence {
    Evidence {
        limit_ms: Some(1000),
        elapsed_ms: Some(1004),
        limit_bytes: Some(2_147_483_648),
        peak_bytes: Some(2_147_483_647),
        oom_kills: Some(1),
        limit: Some(512),
        peak: Some(512),
        refused_forks: Some(9),
        resource: Some("inodes".to_owned()),
        measured: Some(100_016),
        source: Some("memory.events".to_owned()),
        produced_bytes: Some(1_048_577),
        by: Some("client".to_owned()),
        stopped_with: Some(CommandId(uuid(9))),
        expires_at: Some(time(60)),
        deadline_ms: Some(30_000),
        start_error: Some("no such file".to_owned()),
        stdin_undelivered_bytes: Some(4096),
    }
}

fn commands() -> Vec<Event> {
    let command_id = CommandId(uuid(8));
    vec![
        Event::CommandAccepted(CommandAccepted {
            command_id,
            lease_id: LeaseId(uuid(1)),
            epoch: Epoch(2),
            environment_id: EnvironmentId(uuid(3)),
            argv: vec!["python3".to_owned(), "-c".to_owned(), "print('a\tb')".to_owned(), String::new()],
            cwd: "data/2026".to_owned(),
            env: BTreeMap::from([("GREETING".to_owned(), "  $HOME=\n\\".to_owned())]),
            stdin: Some(StdinRecord {
                bytes: 6,
                sha256: digest('b'),
                inline_base64: Some("YQBiCv/+".to_owned()),
            }),
            timeout_ms: 29_999,
            timeout_reason: KillReason::Expired,
            output_bytes_max: 1_048_576,
            background: true,
        }),
        Event::CommandStarted(CommandStarted { command_id, instance_id: InstanceId(uuid(6)), queued_ms: 12 }),
        Event::CommandKillRequested(CommandKillRequested { command_id, reason: KillReason::Cancelled }),
        Event::KillEnforced(KillEnforced {
            command_id,
            reason: KillReason::OutputLimit,
            evidence: evidence(),
        }),
        Event::CommandFinished(CommandFinished {
            command_id,
            exit_code: Some(-1),
            killed_by: Some(KillReason::ServiceShutdown),
            evidence: Some(Evidence { deadline_ms: Some(30_000), ..Evidence::default() }),
            stdout: OutputRecord::from_view(
                b"head\0\x07\xc3\xa4 tail\x7f\n",
                9_007_199_254_740_991,
                digest('1'),
                true,
            ),
            stderr: OutputRecord::from_view(b"\xff", 1, digest('2'), false),
            stragglers: 2,
            files_changed: vec![
                FileChange {
                    path: PathText::from_bytes("out/a\nb.csv".as_bytes()),
                    change: ChangeKind::Created,
                    size_bytes: Some(0),
                    sha256: Some(digest('3')),
                },
                FileChange {
                    path: PathText::from_bytes(b"caf\xe9"),
                    change: ChangeKind::Deleted,
                    size_bytes: None,
                    sha256: None,
                },
            ],
            files_changed_truncated: true,
            usage: Usage { cpu_ms: Some(17), peak_memory_bytes: Some(9_437_184) },
            duration_ms: 30_011,
        }),
        Event::CommandInterrupted(CommandInterrupted {
            command_id,
            cause: InterruptCause::SupervisorLost,
            may_have_run: true,
        }),
    ]
}

fn workspace_and_service() -> Vec<Event> {
    let (lease_id, epoch, environment_id) = (LeaseId(uuid(1)), Epoch(2), EnvironmentId(uuid(3)));
    vec![
        Event::WorkspaceFileWritten(WorkspaceFileWritten {
            lease_id,
            epoch,
            environment_id,
            path: PathText::from_bytes(b"in/\xff.bin"),
            size_bytes: 20_971_520,
            sha256: digest('4'),
            created: true,
            artifact_id: Some(uuid(10)),
        }),
        Event::WorkspaceFileRemoved(WorkspaceFileRemoved {
            lease_id,
            epoch,
            environment_id,
            path: PathText::from_bytes("in/ä.csv".as_bytes()),
        }),
        Event::ServiceStarted(ServiceStarted {
            instance_id: InstanceId(uuid(6)),
            node_id: NodeId(uuid(5)),
            version: "0.1.0".to_owned(),
            mechanism: Mechanism::Docker,
            image_digest: Some(image()),
        }),
        Event::OrphanDeleted(OrphanDeleted {
            kind: OrphanKind::Volume,
            name: format!("leasehold-{}-workspace", uuid(3)),
            environment_id: Some(environment_id),
        }),
    ]
}

/// The tenant of all samples.
pub(crate) fn tenant() -> TenantId {
    TenantId(uuid(20))
}
