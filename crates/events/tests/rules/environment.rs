//! Environments: one at a time, never replaced once used, always removed.

use events::event::command::InterruptCause;
use events::event::environment::TeardownCause;
use events::run::{EnvironmentPhase, Rejection};

use crate::story::{
    Story, accept, acquire, adopted, destroyed, environment, expire, interrupted, provision_failed,
    provisioned, ready, release, request, run, suspected, take_over, tear_down, teardown_failed,
};

fn requested() -> Story {
    Story::new().does(acquire(1, 300)).does(request(1, 1))
}

#[test]
fn intent_then_ready() {
    Story::new()
        .does(acquire(1, 300))
        .at(5)
        .then(request(1, 1), &["EnvironmentRequested E1 L1 e1 until 605"])
        .already(request(1, 1))
        .refuses(request(2, 1), &Rejection::EnvironmentExists)
        .then(provisioned(1), &["EnvironmentProvisioned E1"])
        .already(provisioned(1))
        .already(request(1, 1))
        .refuses(request(2, 1), &Rejection::EnvironmentExists);
}

#[test]
fn only_a_live_lease_gets_an_environment() {
    Story::new().does(acquire(1, 60)).at(60).refuses(request(1, 1), &Rejection::LeaseLost);
    Story::new().does(acquire(1, 60)).does(release(1)).refuses(request(1, 1), &Rejection::LeaseLost);
}

#[test]
fn a_failed_provision_is_torn_down_and_may_be_tried_again_under_a_new_id() {
    let failed = || {
        requested().then(
            provision_failed(1),
            &["EnvironmentProvisionFailed E1 no_space", "EnvironmentTeardownRequested E1 ProvisionFailed"],
        )
    };
    let story = failed();
    assert_eq!(story.state.environments[&environment(1)].phase, EnvironmentPhase::Failed);
    story
        .already(provision_failed(1))
        .already(provisioned(1))
        .already(tear_down(1, TeardownCause::Lost))
        .refuses(accept(1, 1), &Rejection::EnvironmentNotReady)
        .refuses_field(request(1, 1), "environment_id")
        .then(request(2, 1), &["EnvironmentRequested E2 L1 e1 until 600"])
        .then(destroyed(1), &["EnvironmentDestroyed E1"])
        .does(provisioned(2))
        .does(accept(1, 1));
    failed()
        .does(destroyed(1))
        .refuses(accept(1, 1), &Rejection::EnvironmentNotReady)
        .then(request(2, 1), &["EnvironmentRequested E2 L1 e1 until 600"]);
    ready().refuses_field(provision_failed(1), "environment_id");
}

#[test]
fn an_environment_that_was_ready_is_never_replaced_in_its_epoch() {
    let lost = Rejection::EnvironmentLost;
    ready()
        .then(tear_down(1, TeardownCause::Lost), &["EnvironmentTeardownRequested E1 Lost"])
        .refuses(request(2, 1), &lost)
        .refuses(accept(1, 1), &lost)
        .does(destroyed(1))
        .refuses(request(2, 1), &lost)
        .refuses(accept(1, 1), &lost)
        .does(take_over(2, 60))
        .then(request(2, 2), &["EnvironmentRequested E2 L2 e2 until 600"]);
}

#[test]
fn an_environment_that_was_never_ready_is_replaced_unless_it_was_suspected() {
    requested().does(tear_down(1, TeardownCause::Lost)).does(request(2, 1));
    requested().does(destroyed(1)).does(request(2, 1));
    requested().does(suspected(1)).refuses(request(2, 1), &Rejection::EnvironmentLost);
}

#[test]
fn the_order_of_ids_does_not_matter_within_one_instant() {
    Story::new()
        .does(acquire(1, 300))
        .does(request(2, 1))
        .does(provision_failed(2))
        .does(request(1, 1))
        .refuses(request(3, 1), &Rejection::EnvironmentExists)
        .does(provisioned(1))
        .does(accept(1, 1));
}

#[test]
fn an_id_serves_once() {
    ready().does(take_over(2, 60)).refuses_field(request(1, 2), "environment_id");
}

#[test]
fn teardown_is_asked_for_once() {
    ready()
        .does(tear_down(1, TeardownCause::Lost))
        .already(tear_down(1, TeardownCause::Expired))
        .then(release(1), &["LeaseReleased L1 e1"])
        .then(teardown_failed(1), &["EnvironmentTeardownFailed E1 #1 timeout"])
        .then(teardown_failed(1), &["EnvironmentTeardownFailed E1 #2 timeout"])
        .then(destroyed(1), &["EnvironmentDestroyed E1"])
        .already(destroyed(1))
        .already(teardown_failed(1))
        .already(tear_down(1, TeardownCause::Lost));
}

#[test]
fn what_disappeared_by_itself_was_lost() {
    ready().then(destroyed(1), &["EnvironmentTeardownRequested E1 Lost", "EnvironmentDestroyed E1"]);
}

#[test]
fn suspicion_is_recorded_once_also_while_it_is_torn_down() {
    ready()
        .then(
            suspected(1),
            &["EnvironmentSuspected E1 unknown_stream", "EnvironmentTeardownRequested E1 Suspected"],
        )
        .already(suspected(1))
        .refuses(request(2, 1), &Rejection::EnvironmentLost);
    ready()
        .does(release(1))
        .then(suspected(1), &["EnvironmentSuspected E1 unknown_stream"])
        .already(suspected(1))
        .does(destroyed(1))
        .already(suspected(1));
}

#[test]
fn a_restarted_service_adopts_what_is_ready_under_a_live_lease() {
    ready()
        .then(adopted(1, 2), &["EnvironmentAdopted E1 I2"])
        .already(adopted(1, 2))
        .then(adopted(1, 3), &["EnvironmentAdopted E1 I3"])
        .does(accept(1, 1))
        .at(300)
        .refuses(adopted(1, 4), &Rejection::LeaseLost);
    requested().refuses(adopted(1, 2), &Rejection::EnvironmentNotReady);
    ready().does(tear_down(1, TeardownCause::Lost)).refuses(adopted(1, 2), &Rejection::EnvironmentLost);
    ready().does(release(1)).refuses(adopted(1, 2), &Rejection::LeaseLost);
}

#[test]
fn facts_are_taken_under_a_dead_epoch() {
    ready()
        .at(300)
        .does(expire(1))
        .then(teardown_failed(1), &["EnvironmentTeardownFailed E1 #1 timeout"])
        .then(destroyed(1), &["EnvironmentDestroyed E1"]);
    // Ready after the clock passed the end, before anyone recorded the end.
    requested()
        .at(301)
        .then(provisioned(1), &["EnvironmentProvisioned E1"])
        .then(expire(1), &["LeaseExpired L1 e1 at 300", "EnvironmentTeardownRequested E1 Expired"]);
}

#[test]
fn no_command_outlives_its_environment() {
    ready()
        .does(run(1, 1))
        .does(accept(2, 1))
        .does(run(3, 1))
        .does(interrupted(3, InterruptCause::ChannelLost))
        .does(release(1))
        .then(
            destroyed(1),
            &[
                "CommandInterrupted C1 sandbox_lost may have run",
                "CommandInterrupted C2 sandbox_lost never ran",
                "EnvironmentDestroyed E1",
            ],
        )
        .already(interrupted(1, InterruptCause::ServiceLost));
}

#[test]
fn unknown_environments_are_not_found() {
    let unknown = Rejection::NotFound { what: "environment" };
    Story::new()
        .refuses(provisioned(7), &unknown)
        .refuses(provision_failed(7), &unknown)
        .refuses(adopted(7, 1), &unknown)
        .refuses(tear_down(7, TeardownCause::Lost), &unknown)
        .refuses(suspected(7), &unknown)
        .refuses(teardown_failed(7), &unknown)
        .refuses(destroyed(7), &unknown);
}
