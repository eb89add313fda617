//! Closing: no lease may follow, everything left gets its end, then nothing more is taken.

use events::event::command::KillReason;
use events::event::environment::TeardownCause;
use events::run::{Rejection, RunCommand, RunPhase};

use crate::story::{
    Story, accept, acquire, adopted, destroyed, dies, exits, expire, interrupted, kill, provision_failed,
    provisioned, ready, release, removed, renew, request, revoke, run, start, suspected, take_over,
    tear_down, teardown_failed, wrote,
};

const CLOSE: RunCommand = RunCommand::RequestClose;
const CLOSED: RunCommand = RunCommand::RecordClosed;

#[test]
fn closing_ends_the_lease_and_waits_for_everything_open() {
    let open = |commands, environments| Rejection::StillOpen { commands, environments };
    let story = ready()
        .does(run(1, 1))
        .does(accept(2, 1))
        .then(CLOSE, &["LeaseReleased L1 e1", "EnvironmentTeardownRequested E1 Closed", "RunCloseRequested"])
        .already(CLOSE)
        .refuses(acquire(2, 60), &Rejection::RunClosed)
        .refuses(take_over(2, 60), &Rejection::RunClosed)
        .refuses(accept(3, 1), &Rejection::LeaseLost)
        .refuses(start(2, 1), &Rejection::LeaseLost)
        .refuses(CLOSED, &open(2, 1))
        .then(exits(1, 0), &["CommandFinished C1 exit Some(0) killed None"])
        .refuses(CLOSED, &open(1, 1))
        .then(destroyed(1), &["CommandInterrupted C2 sandbox_lost never ran", "EnvironmentDestroyed E1"])
        .then(CLOSED, &["RunClosed e1 C=2 E=1"])
        .already(CLOSED)
        .already(CLOSE);
    assert_eq!(story.state.phase, RunPhase::Closed);
}

#[test]
fn closing_after_the_clock_ended_the_lease_records_the_expiry() {
    ready().at(300).then(
        CLOSE,
        &["LeaseExpired L1 e1 at 300", "EnvironmentTeardownRequested E1 Closed", "RunCloseRequested"],
    );
}

#[test]
fn a_run_without_a_lease_can_be_closed() {
    Story::new()
        .refuses_field(CLOSED, "run")
        .then(CLOSE, &["RunCloseRequested"])
        .then(CLOSED, &["RunClosed e0 C=0 E=0"])
        .refuses(acquire(1, 60), &Rejection::RunClosed);
    ready().does(release(1)).then(CLOSE, &["RunCloseRequested"]);
}

#[test]
fn a_closed_run_takes_nothing() {
    let mut story = ready().does(run(1, 1)).does(exits(1, 0)).does(CLOSE).does(destroyed(1)).does(CLOSED);
    for command in [
        acquire(2, 60),
        acquire(1, 60),
        take_over(2, 60),
        renew(1, 60),
        release(1),
        expire(1),
        revoke(1, None),
        request(2, 1),
        provisioned(1),
        provision_failed(1),
        adopted(1, 1),
        tear_down(1, TeardownCause::Lost),
        suspected(1),
        teardown_failed(1),
        destroyed(1),
        accept(2, 1),
        accept(1, 1),
        start(1, 1),
        kill(1, KillReason::Cancelled),
        exits(1, 0),
        dies(1, KillReason::Timeout),
        interrupted(1, events::event::command::InterruptCause::ServiceLost),
        wrote(1, "a"),
        removed(1, "a"),
    ] {
        story = story.refuses(command, &Rejection::RunClosed);
    }
}
