//! Given a history, what do the rows say.

use events::event::command::{CommandInterrupted, InterruptCause, KillEnforced, KillReason};
use events::event::environment::{
    EnvironmentAdopted, EnvironmentProvisionFailed, EnvironmentTeardownFailed, TeardownCause,
};
use events::event::lease::{
    LeaseExpired, LeaseFenced, LeaseRenewed, LeaseRevoked, RunCloseRequested, RunClosed,
};
use events::run::{EnvironmentPhase, LeasePhase, RunPhase};
use events::{Epoch, Event, Position, RunId};

use super::samples::*;
use crate::{CommandStatus, Folded, NotContiguous};

fn folded(history: impl IntoIterator<Item = Event>) -> Folded {
    let mut folded = Folded::default();
    for (position, event) in (0..).zip(history) {
        folded.apply(&recorded(position, event)).unwrap();
    }
    folded
}

#[test]
fn an_acquired_lease_is_live_with_everything_it_was_given() {
    let folded = folded([acquired(1)]);
    let row = folded.leases.get(lease(1)).unwrap();
    assert_eq!(row.state, LeasePhase::Live);
    assert_eq!((row.tenant, row.run_id, row.epoch), (tenant(), run(), Epoch(1)));
    assert_eq!(row.holder.as_deref(), Some(HOSTILE));
    assert_eq!((row.acquired_at, row.expires_at, row.ended_at), (at(0), at(60_000), None));
    assert_eq!((row.created_position, row.position), (Position(0), Position(0)));
}

#[test]
fn renewal_moves_the_end_and_the_position() {
    let renewed = Event::LeaseRenewed(LeaseRenewed {
        lease_id: lease(1),
        epoch: Epoch(1),
        ttl_ms: 90_000,
        expires_at: at(91_000),
    });
    let folded = folded([acquired(1), renewed]);
    let row = folded.leases.get(lease(1)).unwrap();
    assert_eq!((row.expires_at, row.position, row.created_position), (at(91_000), Position(1), Position(0)));
}

#[test]
fn each_end_of_a_lease_has_its_name_and_the_first_one_counts() {
    let (lease_id, epoch) = (lease(1), Epoch(1));
    let ends = [
        (released(1), LeasePhase::Released),
        (Event::LeaseExpired(LeaseExpired { lease_id, epoch, expires_at: at(60_000) }), LeasePhase::Expired),
        (Event::LeaseRevoked(LeaseRevoked { lease_id, epoch, reason: None }), LeasePhase::Revoked),
        (Event::LeaseFenced(LeaseFenced { lease_id, epoch, by_epoch: Epoch(2) }), LeasePhase::Fenced),
    ];
    for (end, state) in ends.clone() {
        for (second, _) in ends.clone() {
            let folded = folded([acquired(1), end.clone(), second]);
            let row = folded.leases.get(lease(1)).unwrap();
            assert_eq!((row.state, row.ended_at, row.position), (state, Some(at(1_000)), Position(1)));
        }
    }
}

#[test]
fn an_environment_goes_from_intent_to_nothing() {
    let adopted = Event::EnvironmentAdopted(EnvironmentAdopted {
        environment_id: environment(1),
        instance_id: instance(),
    });
    let failed = |attempt| {
        Event::EnvironmentTeardownFailed(EnvironmentTeardownFailed {
            environment_id: environment(1),
            attempt,
            reason_code: "engine_unavailable".to_owned(),
        })
    };
    let history = [
        acquired(1),
        requested(1),
        provisioned(1),
        adopted,
        teardown(1, TeardownCause::Expired),
        teardown(1, TeardownCause::Closed),
        failed(1),
        failed(2),
        destroyed(1),
    ];
    let states = [
        None,
        Some(EnvironmentPhase::Requested),
        Some(EnvironmentPhase::Ready),
        Some(EnvironmentPhase::Ready),
        Some(EnvironmentPhase::TearingDown),
        Some(EnvironmentPhase::TearingDown),
        Some(EnvironmentPhase::TearingDown),
        Some(EnvironmentPhase::TearingDown),
        Some(EnvironmentPhase::Destroyed),
    ];
    for (count, state) in states.iter().enumerate() {
        let folded = folded(history.iter().take(count + 1).cloned());
        assert_eq!(folded.environments.get(environment(1)).map(|row| row.state), *state, "after {count}");
    }
    let folded = folded(history);
    let row = folded.environments.get(environment(1)).unwrap();
    assert_eq!(row.teardown_cause, Some(TeardownCause::Expired), "the first cause stays");
    assert_eq!((row.teardown_attempts, row.reason_code.as_deref()), (2, Some("engine_unavailable")));
    assert_eq!(row.adopted_by, Some(instance()));
    assert_eq!(
        (row.created_at, row.ready_at, row.destroyed_at),
        (at(1_000), Some(at(2_000)), Some(at(8_000)))
    );
    assert_eq!((row.created_position, row.position), (Position(1), Position(8)));
}

#[test]
fn a_failed_environment_stays_failed_until_it_is_destroyed() {
    let failed = Event::EnvironmentProvisionFailed(EnvironmentProvisionFailed {
        environment_id: environment(1),
        reason_code: "image_missing".to_owned(),
    });
    let history =
        [acquired(1), requested(1), failed, teardown(1, TeardownCause::ProvisionFailed), destroyed(1)];
    let before = folded(history.iter().take(4).cloned());
    assert_eq!(before.environments.get(environment(1)).unwrap().state, EnvironmentPhase::Failed);
    let after = folded(history);
    let row = after.environments.get(environment(1)).unwrap();
    assert_eq!(row.state, EnvironmentPhase::Destroyed);
    assert_eq!((row.ready_at, row.reason_code.as_deref()), (None, Some("image_missing")));
}

#[test]
fn a_command_goes_from_accepted_to_its_result() {
    let history = [accepted(1, 1), started(1), kill_requested(1), timed_out(1)];
    let states =
        [CommandStatus::Accepted, CommandStatus::Running, CommandStatus::Running, CommandStatus::Finished];
    for (count, state) in states.into_iter().enumerate() {
        let folded = folded(history.iter().take(count + 1).cloned());
        assert_eq!(folded.commands.get(command(1)).unwrap().state, state, "after {count}");
    }
    let folded = folded(history);
    let row = folded.commands.get(command(1)).unwrap();
    assert!(row.timed_out());
    assert_eq!(row.kill_requested, Some(KillReason::Cancelled));
    assert_eq!((row.queued_ms, row.started_by), (Some(7), Some(instance())));
    assert_eq!((row.accepted_at, row.started_at, row.finished_at), (at(0), Some(at(1_000)), Some(at(3_000))));
    assert_eq!((row.created_position, row.position), (Position(0), Position(3)));
    let result = row.result.as_ref().unwrap();
    assert_eq!((result.exit_code, result.duration_ms), (None, 402));
    assert_eq!(result.evidence.as_ref().unwrap().elapsed_ms, Some(30_004));
}

#[test]
fn nothing_changes_a_command_after_its_outcome() {
    let interrupted = Event::CommandInterrupted(CommandInterrupted {
        command_id: command(1),
        cause: InterruptCause::SandboxLost,
        may_have_run: true,
    });
    let once = folded([accepted(1, 1), started(1), interrupted.clone()]);
    let row = once.commands.get(command(1)).unwrap();
    assert_eq!(row.state, CommandStatus::Interrupted);
    assert_eq!((row.cause, row.may_have_run), (Some(InterruptCause::SandboxLost), Some(true)));
    assert_eq!((row.finished_at, &row.result), (Some(at(2_000)), &None));
    assert!(!row.timed_out());
    for late in [interrupted.clone(), finished(1), started(1), kill_requested(1)] {
        let twice = folded([accepted(1, 1), started(1), interrupted.clone(), late]);
        assert_eq!(twice.commands.get(command(1)), Some(row));
    }
}

#[test]
fn an_enforced_kill_alone_is_no_outcome() {
    let enforced = Event::KillEnforced(KillEnforced {
        command_id: command(1),
        reason: KillReason::Memory,
        evidence: Default::default(),
    });
    let without = folded([accepted(1, 1), started(1)]);
    let with = folded([accepted(1, 1), started(1), enforced]);
    assert_eq!(with.commands.get(command(1)), without.commands.get(command(1)));
}

#[test]
fn a_run_closes_in_two_steps_and_keeps_its_last_epoch() {
    let closed =
        Event::RunClosed(RunClosed { last_epoch: Epoch(2), commands: 0, environments: 0, children: vec![] });
    let history =
        [acquired(1), released(1), acquired(2), Event::RunCloseRequested(RunCloseRequested {}), closed];
    let expected = [
        (RunPhase::Open, 1, 0),
        (RunPhase::Open, 1, 0),
        (RunPhase::Open, 2, 2),
        (RunPhase::Closing, 2, 3),
        (RunPhase::Closed, 2, 4),
    ];
    for (count, (phase, epoch, position)) in expected.into_iter().enumerate() {
        let folded = folded(history.iter().take(count + 1).cloned());
        let row = folded.runs.get((tenant(), run())).unwrap();
        assert_eq!((row.phase, row.last_epoch, row.position), (phase, Epoch(epoch), Position(position)));
    }
    let reopened = folded(history.into_iter().chain([Event::RunCloseRequested(RunCloseRequested {})]));
    assert_eq!(reopened.runs.get((tenant(), run())).unwrap().phase, RunPhase::Closed);
}

#[test]
fn a_run_may_be_closed_before_its_first_lease() {
    let folded = folded([Event::RunCloseRequested(RunCloseRequested {})]);
    let row = folded.runs.get((tenant(), run())).unwrap();
    assert_eq!((row.phase, row.last_epoch), (RunPhase::Closing, Epoch(0)));
}

#[test]
fn history_holds_what_names_the_run_and_an_erased_body_stays_in_it() {
    let mut folded = Folded::default();
    folded.apply(&recorded(0, acquired(1))).unwrap();
    folded.apply(&recorded_for(1, None, acquired(2))).unwrap();
    folded.apply(&recorded_for(2, Some(RunId(uuid(9))), acquired(3))).unwrap();
    let mut erased = recorded(3, accepted(1, 1));
    erased.event = None;
    folded.apply(&erased).unwrap();
    let history: Vec<_> = folded.run_events.iter().map(|row| (row.position.get(), row.run_id)).collect();
    assert_eq!(history, [(0, run()), (2, RunId(uuid(9))), (3, run())]);
    assert!(folded.leases.get(lease(2)).is_none(), "an event without a run changes no view");
    assert!(folded.commands.is_empty(), "an erased body changes no other view");
}

#[test]
fn events_about_unknown_objects_change_nothing() {
    let folded = folded([released(1), provisioned(1), destroyed(1), started(1), finished(1)]);
    assert!(folded.leases.is_empty() && folded.environments.is_empty() && folded.commands.is_empty());
    assert_eq!(folded.run_events.len(), 5);
}

#[test]
fn a_gap_and_a_repetition_are_refused_and_change_nothing() {
    let mut folded = folded([acquired(1)]);
    for found in [0, 2, 7] {
        let refused = folded.apply(&recorded(found, released(1)));
        assert_eq!(refused, Err(NotContiguous { expected: Position(1), found: Position(found) }));
    }
    assert_eq!(folded.leases.get(lease(1)).unwrap().state, LeasePhase::Live);
    assert_eq!(folded.next, Position(1));
}
