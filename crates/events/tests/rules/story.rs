//! A small language for tables: `Story::new().at(0).does(acquire(1, 60)).at(61).then(…, &["LeaseExpired L1", …])`.
//!
//! Time is in seconds after a fixed start with microseconds. Ids are small numbers: `L1` a lease, `E1` an environment, `C1` a
//! command, `I1` a service instance.

use std::collections::BTreeMap;

use events::event::command::{
    CommandFinished, CommandInterrupted, Evidence, InterruptCause, KillReason, OutputRecord, Usage,
};
use events::event::environment::TeardownCause;
use events::event::workspace::PathText;
use events::ids::{CommandId, EnvironmentId, InstanceId, LeaseId, NodeId};
use events::run::{
    AcceptCommand, AcquireLease, Decision, FileRemoved, FileWritten, LeaseEnd, LeaseEndCause, Rejection,
    RequestEnvironment, RunCommand, RunState, decide,
};
use events::spec::{Limits, Mechanism};
use events::{Event, Timestamp};
use uuid::Uuid;

/// The hard cap of every lease in the tables, in seconds.
pub(crate) const CAP_S: u64 = 600;

/// Seconds after the start of the story.
pub(crate) fn s(seconds: u64) -> Timestamp {
    Timestamp::try_from_unix_micros(1_772_600_767_123_457)
        .expect("between 1970 and 9999")
        .plus_ms(seconds * 1000)
}

/// One run as it goes on.
pub(crate) struct Story {
    pub(crate) state: RunState,
    now: Timestamp,
}

impl Story {
    pub(crate) fn new() -> Self {
        Self { state: RunState::default(), now: s(0) }
    }

    /// The log clock says `seconds`.
    pub(crate) fn at(mut self, seconds: u64) -> Self {
        self.now = s(seconds);
        self
    }

    /// Given: a command that has its effect.
    #[track_caller]
    pub(crate) fn does(mut self, command: RunCommand) -> Self {
        self.append(&command);
        self
    }

    /// When and then: exactly these events.
    #[track_caller]
    pub(crate) fn then(mut self, command: RunCommand, expected: &[&str]) -> Self {
        assert_eq!(self.append(&command), expected, "{command:?}");
        self
    }

    /// When and then: it had its effect before.
    #[track_caller]
    pub(crate) fn already(self, command: RunCommand) -> Self {
        assert_eq!(decide(&self.state, &command, self.now), Ok(Decision::AlreadyDone), "{command:?}");
        self
    }

    /// When and then: refused.
    #[track_caller]
    pub(crate) fn refuses(self, command: RunCommand, rejection: &Rejection) -> Self {
        assert_eq!(decide(&self.state, &command, self.now).as_ref(), Err(rejection), "{command:?}");
        self
    }

    /// When and then: refused because of that field.
    #[track_caller]
    pub(crate) fn refuses_field(self, command: RunCommand, pointer: &str) -> Self {
        match decide(&self.state, &command, self.now) {
            Err(Rejection::Invalid { field, .. } | Rejection::TooLarge { field, .. }) => {
                assert_eq!(field, pointer, "{command:?}");
            }
            other => panic!("{other:?} for {command:?}"),
        }
        self
    }

    /// The events of a command that has its effect, applied.
    #[track_caller]
    pub(crate) fn events(&mut self, command: &RunCommand) -> Vec<Event> {
        match decide(&self.state, command, self.now) {
            Ok(Decision::Append(events)) => {
                for event in &events {
                    self.state.apply(event, self.now);
                }
                events
            }
            other => panic!("{other:?} for {command:?}"),
        }
    }

    #[track_caller]
    fn append(&mut self, command: &RunCommand) -> Vec<String> {
        self.events(command).iter().map(brief).collect()
    }
}

/// One line that says what matters of an event.
pub(crate) fn brief(event: &Event) -> String {
    let name = event.event_type().name();
    match event {
        Event::LeaseAcquired(e) => {
            format!("{name} L{} e{} until {}", small(e.lease_id.0), e.epoch, seconds(e.expires_at))
        }
        Event::LeaseRenewed(e) => {
            format!("{name} L{} e{} until {}", small(e.lease_id.0), e.epoch, seconds(e.expires_at))
        }
        Event::LeaseReleased(e) => format!("{name} L{} e{}", small(e.lease_id.0), e.epoch),
        Event::LeaseExpired(e) => {
            format!("{name} L{} e{} at {}", small(e.lease_id.0), e.epoch, seconds(e.expires_at))
        }
        Event::LeaseRevoked(e) => format!("{name} L{} e{} {:?}", small(e.lease_id.0), e.epoch, e.reason),
        Event::LeaseFenced(e) => format!("{name} L{} e{} by e{}", small(e.lease_id.0), e.epoch, e.by_epoch),
        Event::RunCloseRequested(_) => name.to_owned(),
        Event::RunClosed(e) => format!("{name} e{} C={} E={}", e.last_epoch, e.commands, e.environments),
        Event::EnvironmentRequested(e) => format!(
            "{name} E{} L{} e{} until {}",
            small(e.environment_id.0),
            small(e.lease_id.0),
            e.epoch,
            seconds(e.expires_at)
        ),
        Event::EnvironmentProvisioned(e) => format!("{name} E{}", small(e.environment_id.0)),
        Event::EnvironmentProvisionFailed(e) => {
            format!("{name} E{} {}", small(e.environment_id.0), e.reason_code)
        }
        Event::EnvironmentAdopted(e) => {
            format!("{name} E{} I{}", small(e.environment_id.0), small(e.instance_id.0))
        }
        Event::EnvironmentTeardownRequested(e) => {
            format!("{name} E{} {:?}", small(e.environment_id.0), e.cause)
        }
        Event::EnvironmentTeardownFailed(e) => {
            format!("{name} E{} #{} {}", small(e.environment_id.0), e.attempt, e.reason_code)
        }
        Event::EnvironmentDestroyed(e) => format!("{name} E{}", small(e.environment_id.0)),
        Event::EnvironmentSuspected(e) => format!("{name} E{} {}", small(e.environment_id.0), e.reason_code),
        Event::CommandAccepted(e) => format!(
            "{name} C{} E{} e{} {} {} ms",
            small(e.command_id.0),
            small(e.environment_id.0),
            e.epoch,
            e.timeout_reason.as_str(),
            e.timeout_ms
        ),
        Event::CommandStarted(e) => {
            format!("{name} C{} I{} after {} ms", small(e.command_id.0), small(e.instance_id.0), e.queued_ms)
        }
        Event::CommandKillRequested(e) => format!("{name} C{} {}", small(e.command_id.0), e.reason.as_str()),
        Event::KillEnforced(e) => format!("{name} C{} {}", small(e.command_id.0), e.reason.as_str()),
        Event::CommandFinished(e) => format!(
            "{name} C{} exit {:?} killed {:?}",
            small(e.command_id.0),
            e.exit_code,
            e.killed_by.map(KillReason::as_str)
        ),
        Event::CommandInterrupted(e) => format!(
            "{name} C{} {} {}",
            small(e.command_id.0),
            e.cause.as_str(),
            if e.may_have_run { "may have run" } else { "never ran" }
        ),
        Event::WorkspaceFileWritten(e) => {
            format!("{name} E{} e{} {}", small(e.environment_id.0), e.epoch, e.path.path)
        }
        Event::WorkspaceFileRemoved(e) => {
            format!("{name} E{} e{} {}", small(e.environment_id.0), e.epoch, e.path.path)
        }
        Event::ServiceStarted(_) | Event::OrphanDeleted(_) => name.to_owned(),
    }
}

fn small(id: Uuid) -> u128 {
    id.as_u128()
}

fn seconds(time: Timestamp) -> u64 {
    time.ms_since(s(0)) / 1000
}

pub(crate) fn lease(n: u128) -> LeaseId {
    LeaseId(Uuid::from_u128(n))
}

pub(crate) fn environment(n: u128) -> EnvironmentId {
    EnvironmentId(Uuid::from_u128(n))
}

pub(crate) fn command(n: u128) -> CommandId {
    CommandId(Uuid::from_u128(n))
}

pub(crate) fn instance(n: u128) -> InstanceId {
    InstanceId(Uuid::from_u128(n))
}

/// Every limit large; commands may run 300 s.
pub(crate) fn limits() -> Limits {
    Limits {
        cpu_millicores: 2000,
        memory_bytes: 1 << 31,
        pids_max: 512,
        workspace_bytes: 1 << 32,
        inodes_max: 100_000,
        wall_clock_seconds: 300,
    }
}

pub(crate) fn acquisition(n: u128, ttl_s: u64) -> AcquireLease {
    AcquireLease {
        lease_id: lease(n),
        ttl_ms: ttl_s * 1000,
        environment_cap_ms: CAP_S * 1000,
        holder: None,
        limits: limits(),
        network: false,
        tools: Vec::new(),
        labels: BTreeMap::new(),
        takeover: false,
    }
}

pub(crate) fn acquire(n: u128, ttl_s: u64) -> RunCommand {
    RunCommand::AcquireLease(acquisition(n, ttl_s))
}

pub(crate) fn take_over(n: u128, ttl_s: u64) -> RunCommand {
    RunCommand::AcquireLease(AcquireLease { takeover: true, ..acquisition(n, ttl_s) })
}

pub(crate) fn renew(n: u128, ttl_s: u64) -> RunCommand {
    RunCommand::RenewLease { lease_id: lease(n), ttl_ms: ttl_s * 1000 }
}

fn end(n: u128, cause: LeaseEndCause) -> RunCommand {
    RunCommand::EndLease(LeaseEnd { lease_id: lease(n), cause })
}

pub(crate) fn release(n: u128) -> RunCommand {
    end(n, LeaseEndCause::Released)
}

pub(crate) fn expire(n: u128) -> RunCommand {
    end(n, LeaseEndCause::Expired)
}

pub(crate) fn revoke(n: u128, reason: Option<&str>) -> RunCommand {
    end(n, LeaseEndCause::Revoked { reason: reason.map(str::to_owned) })
}

pub(crate) fn request(n: u128, lease_n: u128) -> RunCommand {
    RunCommand::RequestEnvironment(RequestEnvironment {
        environment_id: environment(n),
        lease_id: lease(lease_n),
        node_id: NodeId(Uuid::from_u128(9)),
        mechanism: Mechanism::Docker,
        image_digest: format!("sha256:{}", "a".repeat(64)).parse().expect("a digest"),
    })
}

pub(crate) fn provisioned(n: u128) -> RunCommand {
    RunCommand::RecordProvisioned { environment_id: environment(n), duration_ms: 400 }
}

pub(crate) fn provision_failed(n: u128) -> RunCommand {
    RunCommand::RecordProvisionFailed { environment_id: environment(n), reason_code: "no_space".to_owned() }
}

pub(crate) fn adopted(n: u128, by: u128) -> RunCommand {
    RunCommand::RecordAdopted { environment_id: environment(n), instance_id: instance(by) }
}

pub(crate) fn tear_down(n: u128, cause: TeardownCause) -> RunCommand {
    RunCommand::RequestTeardown { environment_id: environment(n), cause }
}

pub(crate) fn suspected(n: u128) -> RunCommand {
    RunCommand::RecordSuspected { environment_id: environment(n), reason_code: "unknown_stream".to_owned() }
}

pub(crate) fn teardown_failed(n: u128) -> RunCommand {
    RunCommand::RecordTeardownFailed { environment_id: environment(n), reason_code: "timeout".to_owned() }
}

pub(crate) fn destroyed(n: u128) -> RunCommand {
    RunCommand::RecordDestroyed { environment_id: environment(n) }
}

/// `true` under that lease, at most 60 s.
pub(crate) fn command_request(n: u128, lease_n: u128) -> AcceptCommand {
    AcceptCommand {
        command_id: command(n),
        lease_id: lease(lease_n),
        argv: vec!["true".to_owned()],
        cwd: ".".to_owned(),
        env: BTreeMap::new(),
        stdin: None,
        timeout_ms: 60_000,
        output_bytes_max: 1 << 20,
        background: false,
        start_now: None,
    }
}

pub(crate) fn accept(n: u128, lease_n: u128) -> RunCommand {
    RunCommand::AcceptCommand(command_request(n, lease_n))
}

/// Accepted and started by `I1` in one append.
pub(crate) fn run(n: u128, lease_n: u128) -> RunCommand {
    RunCommand::AcceptCommand(AcceptCommand { start_now: Some(instance(1)), ..command_request(n, lease_n) })
}

pub(crate) fn start(n: u128, by: u128) -> RunCommand {
    RunCommand::StartCommand { command_id: command(n), instance_id: instance(by), queued_ms: 7 }
}

pub(crate) fn kill(n: u128, reason: KillReason) -> RunCommand {
    RunCommand::RequestKill { command_id: command(n), reason }
}

pub(crate) fn result(n: u128, exit_code: Option<i32>, killed_by: Option<KillReason>) -> CommandFinished {
    let output = OutputRecord::from_view(b"out\n", 4, "0".repeat(64), false);
    CommandFinished {
        command_id: command(n),
        exit_code,
        killed_by,
        evidence: killed_by.map(|_| Evidence { by: Some("client".to_owned()), ..Evidence::default() }),
        stdout: output.clone(),
        stderr: output,
        stragglers: 0,
        files_changed: Vec::new(),
        files_changed_truncated: false,
        usage: Usage::default(),
        duration_ms: 12,
    }
}

pub(crate) fn exits(n: u128, exit_code: i32) -> RunCommand {
    RunCommand::RecordFinished(Box::new(result(n, Some(exit_code), None)))
}

pub(crate) fn dies(n: u128, reason: KillReason) -> RunCommand {
    RunCommand::RecordFinished(Box::new(result(n, None, Some(reason))))
}

pub(crate) fn interrupted(n: u128, cause: InterruptCause) -> RunCommand {
    RunCommand::RecordInterrupted(CommandInterrupted { command_id: command(n), cause, may_have_run: true })
}

pub(crate) fn wrote(environment_n: u128, path: &str) -> RunCommand {
    RunCommand::RecordFileWritten(FileWritten {
        environment_id: environment(environment_n),
        path: PathText::from_bytes(path.as_bytes()),
        size_bytes: 3,
        sha256: "1".repeat(64),
        created: true,
    })
}

pub(crate) fn removed(environment_n: u128, path: &str) -> RunCommand {
    RunCommand::RecordFileRemoved(FileRemoved {
        environment_id: environment(environment_n),
        path: PathText::from_bytes(path.as_bytes()),
    })
}

/// A run with lease `L1` until 300 and its environment `E1`, ready, until 600; the clock at 0.
pub(crate) fn ready() -> Story {
    Story::new().does(acquire(1, 300)).does(request(1, 1)).does(provisioned(1))
}
