//! Every event in words, with hostile text wherever foreign text can be.

use std::collections::BTreeMap;

use events::event::EventType;
use events::event::command::{
    CommandFinished, CommandInterrupted, Evidence, InterruptCause, KillEnforced, KillReason, StdinRecord,
};
use events::event::environment::{
    EnvironmentAdopted, EnvironmentProvisionFailed, EnvironmentSuspected, EnvironmentTeardownFailed,
    TeardownCause,
};
use events::event::lease::{
    LeaseExpired, LeaseFenced, LeaseRenewed, LeaseRevoked, RunCloseRequested, RunClosed,
};
use events::event::service::{OrphanDeleted, OrphanKind, ServiceStarted};
use events::event::workspace::{PathText, WorkspaceFileRemoved, WorkspaceFileWritten};
use events::spec::Mechanism;
use events::{Epoch, Event, NodeId};

use super::samples::*;
use crate::timeline::Timeline;

/// At least one event of every type that this version writes, in the order of a life.
fn all() -> Vec<Event> {
    let (lease_id, epoch, environment_id) = (lease(1), Epoch(1), environment(1));
    let hostile = || HOSTILE.to_owned();
    let Event::CommandAccepted(plain) = accepted(2, 1) else { unreachable!() };
    let mut odd = plain.clone();
    odd.argv = std::iter::once(hostile()).chain((0..20).map(|n| n.to_string())).collect();
    odd.cwd = hostile();
    odd.background = true;
    odd.stdin = Some(StdinRecord { bytes: 1, sha256: "00".repeat(32), inline_base64: None });
    let killed =
        |reason, evidence| Event::KillEnforced(KillEnforced { command_id: command(2), reason, evidence });
    vec![
        Event::ServiceStarted(ServiceStarted {
            instance_id: instance(),
            node_id: NodeId(uuid(3)),
            version: "0.1.0".to_owned(),
            mechanism: Mechanism::Docker,
            image_digest: None,
        }),
        acquired(1),
        Event::LeaseRenewed(LeaseRenewed { lease_id, epoch, ttl_ms: 90_000, expires_at: at(91_000) }),
        requested(1),
        provisioned(1),
        Event::EnvironmentProvisionFailed(EnvironmentProvisionFailed {
            environment_id,
            reason_code: hostile(),
        }),
        Event::EnvironmentAdopted(EnvironmentAdopted { environment_id, instance_id: instance() }),
        Event::EnvironmentSuspected(EnvironmentSuspected {
            environment_id,
            reason_code: "bad_frame".to_owned(),
        }),
        Event::WorkspaceFileWritten(WorkspaceFileWritten {
            lease_id,
            epoch,
            environment_id,
            path: PathText::from_bytes(HOSTILE.as_bytes()),
            size_bytes: 1_234,
            sha256: "ab".repeat(32),
            created: true,
            artifact_id: None,
        }),
        Event::WorkspaceFileRemoved(WorkspaceFileRemoved {
            lease_id,
            epoch,
            environment_id,
            path: PathText::from_bytes(b"\xff\n.csv"),
        }),
        accepted(1, 1),
        started(1),
        finished(1),
        Event::CommandAccepted(odd),
        kill_requested(2),
        killed(
            KillReason::Timeout,
            Evidence { limit_ms: Some(30_000), elapsed_ms: Some(30_004), ..Evidence::default() },
        ),
        killed(KillReason::Cancelled, Evidence { by: Some(hostile()), ..Evidence::default() }),
        timed_out(2),
        Event::CommandFinished(CommandFinished {
            exit_code: Some(127),
            evidence: Some(Evidence { start_error: Some(hostile()), ..Evidence::default() }),
            stragglers: 3,
            files_changed: Vec::new(),
            ..finished_body(3)
        }),
        Event::CommandInterrupted(CommandInterrupted {
            command_id: command(4),
            cause: InterruptCause::ServiceLost,
            may_have_run: true,
        }),
        released(1),
        Event::LeaseExpired(LeaseExpired { lease_id, epoch, expires_at: at(60_000) }),
        Event::LeaseRevoked(LeaseRevoked { lease_id, epoch, reason: Some(HOSTILE.repeat(9)) }),
        Event::LeaseFenced(LeaseFenced { lease_id, epoch, by_epoch: Epoch(2) }),
        teardown(1, TeardownCause::Released),
        Event::EnvironmentTeardownFailed(EnvironmentTeardownFailed {
            environment_id,
            attempt: 2,
            reason_code: "engine_unavailable".to_owned(),
        }),
        destroyed(1),
        Event::OrphanDeleted(OrphanDeleted {
            kind: OrphanKind::Volume,
            name: hostile(),
            environment_id: None,
        }),
        Event::RunCloseRequested(RunCloseRequested {}),
        Event::RunClosed(RunClosed {
            last_epoch: Epoch(2),
            commands: 4,
            environments: 1,
            children: Vec::new(),
        }),
    ]
}

#[test]
fn every_event_has_its_words() {
    let mut timeline = Timeline::default();
    let lines: Vec<String> = (0..)
        .zip(all())
        .map(|(position, event)| timeline.line(&recorded(position, event)).to_string())
        .collect();
    insta::assert_snapshot!(lines.join("\n"));
}

#[test]
fn no_line_can_be_forged() {
    let mut timeline = Timeline::default();
    for (position, event) in (0..).zip(all()) {
        let line = timeline.line(&recorded(position, event)).to_string();
        for hostile in ['\u{0}', '\n', '\r', '\u{1b}', '\u{9b}', '\u{202e}', '\u{2028}'] {
            assert!(!line.contains(hostile), "{hostile:?} in {line:?}");
        }
        assert!(line.chars().count() < 2_000, "unbounded: {line}");
    }
}

#[test]
fn no_event_type_is_left_out() {
    let mut kinds: BTreeMap<EventType, usize> = BTreeMap::new();
    for event in all() {
        *kinds.entry(event.event_type()).or_default() += 1;
    }
    // The number of payloads that this version writes: a new one needs words and a sample here.
    assert_eq!(kinds.len(), 26, "{kinds:?}");
}

#[test]
fn an_erased_body_says_so() {
    let mut erased = recorded(0, accepted(1, 1));
    erased.event = None;
    let line = Timeline::default().line(&erased).to_string();
    assert!(line.ends_with("CommandAccepted               its body was erased"), "{line:?}");
}
