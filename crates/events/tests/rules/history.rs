//! The fold of histories that today's rules would not write: never refused, and the first end counts.

use events::Event;
use events::event::command::{CommandInterrupted, InterruptCause};
use events::event::environment::EnvironmentDestroyed;
use events::event::lease::LeaseExpired;
use events::ids::Epoch;
use events::run::{
    CommandOutcome, CommandPhase, Decision, LeasePhase, Rejection, RunCommand, RunState, decide,
};

use crate::story::{Story, acquire, command, environment, exits, lease, ready, release, result, run, s};

#[test]
fn the_first_outcome_of_a_command_counts() {
    let mut state = ready().does(run(1, 1)).does(exits(1, 0)).state;
    let second =
        CommandInterrupted { command_id: command(1), cause: InterruptCause::ServiceLost, may_have_run: true };
    state.apply(&Event::CommandInterrupted(second), s(9));
    assert_eq!(state.commands[&command(1)].phase, CommandPhase::Ended(CommandOutcome::Finished));
}

#[test]
fn the_first_end_of_a_lease_counts() {
    let mut state = Story::new().does(acquire(1, 60)).does(release(1)).state;
    let second = LeaseExpired { lease_id: lease(1), epoch: Epoch(1), expires_at: s(60) };
    state.apply(&Event::LeaseExpired(second), s(60));
    let ended = &state.leases[&lease(1)];
    assert_eq!((ended.phase, ended.ended_at), (LeasePhase::Released, Some(s(0))));
}

#[test]
fn facts_about_unknown_objects_change_nothing() {
    let mut state = RunState::default();
    let events = [
        Event::CommandFinished(result(7, Some(0), None)),
        Event::LeaseExpired(LeaseExpired { lease_id: lease(7), epoch: Epoch(7), expires_at: s(1) }),
        Event::EnvironmentDestroyed(EnvironmentDestroyed { environment_id: environment(7), egress: None }),
    ];
    for event in &events {
        state.apply(event, s(1));
    }
    assert_eq!(state, RunState::default());
}

/// `decide` gives every command its outcome before its environment is gone; a history that did not still cannot be closed.
#[test]
fn a_command_left_open_keeps_the_run_open() {
    let mut state = ready().does(run(1, 1)).does(RunCommand::RequestClose).state;
    let gone = EnvironmentDestroyed { environment_id: environment(1), egress: None };
    state.apply(&Event::EnvironmentDestroyed(gone), s(1));
    let open = Rejection::StillOpen { commands: 1, environments: 0 };
    assert_eq!(decide(&state, &RunCommand::RecordClosed, s(1)), Err(open));
    assert!(
        matches!(decide(&state, &exits(1, 0), s(1)), Ok(Decision::Append(_))),
        "its outcome is still taken"
    );
}
