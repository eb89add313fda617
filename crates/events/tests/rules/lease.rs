//! Leases: epochs, fencing, the clock, renewal, ends.

use events::bounds::INTEGER_MAX;
use events::run::{AcquireLease, Rejection, RunCommand};
use events::spec::Limits;

use crate::story::{
    CAP_S, Story, accept, acquire, acquisition, destroyed, expire, lease, limits, provision_failed,
    provisioned, ready, release, renew, request, revoke, s, take_over,
};

#[test]
fn epochs_grow_by_one_whatever_ended_the_lease_before() {
    Story::new()
        .then(acquire(1, 60), &["LeaseAcquired L1 e1 until 60"])
        .then(release(1), &["LeaseReleased L1 e1"])
        .then(acquire(2, 60), &["LeaseAcquired L2 e2 until 60"])
        .then(revoke(2, Some("incident")), &["LeaseRevoked L2 e2 Some(\"incident\")"])
        .then(acquire(3, 60), &["LeaseAcquired L3 e3 until 60"])
        .at(61)
        .then(expire(3), &["LeaseExpired L3 e3 at 60"])
        .then(acquire(4, 60), &["LeaseAcquired L4 e4 until 121"]);
}

#[test]
fn a_live_lease_holds_the_run_until_its_end_by_the_clock() {
    let held = Rejection::LeaseHeld { expires_at: s(60) };
    Story::new()
        .does(acquire(1, 60))
        .refuses(acquire(2, 60), &held)
        .at(59)
        .refuses(acquire(2, 60), &held)
        .at(60)
        .then(acquire(2, 60), &["LeaseExpired L1 e1 at 60", "LeaseAcquired L2 e2 until 120"]);
}

#[test]
fn a_takeover_fences_the_live_lease_in_the_same_append() {
    Story::new()
        .does(acquire(1, 60))
        .then(take_over(2, 60), &["LeaseFenced L1 e1 by e2", "LeaseAcquired L2 e2 until 60"])
        .refuses(renew(1, 60), &Rejection::LeaseLost);
    ready().at(10).then(
        take_over(2, 60),
        &[
            "LeaseFenced L1 e1 by e2",
            "EnvironmentTeardownRequested E1 Fenced",
            "LeaseAcquired L2 e2 until 70",
        ],
    );
}

#[test]
fn a_takeover_of_a_lease_past_its_end_records_the_expiry_and_fences_nothing() {
    ready().at(300).then(
        take_over(2, 60),
        &[
            "LeaseExpired L1 e1 at 300",
            "EnvironmentTeardownRequested E1 Expired",
            "LeaseAcquired L2 e2 until 360",
        ],
    );
    Story::new().then(take_over(1, 60), &["LeaseAcquired L1 e1 until 60"]);
}

#[test]
fn acquiring_the_same_lease_again_is_done_already() {
    Story::new()
        .does(acquire(1, 60))
        .already(acquire(1, 60))
        .already(take_over(1, 60))
        .does(release(1))
        .already(acquire(1, 60));
}

#[test]
fn a_lease_lives_from_one_second_to_the_environment_cap() {
    Story::new()
        .refuses_field(acquire(1, 0), "/ttl_seconds")
        .refuses_field(acquire(1, CAP_S + 1), "/ttl_seconds")
        .then(acquire(1, CAP_S), &["LeaseAcquired L1 e1 until 600"])
        .refuses_field(renew(1, 0), "/ttl_seconds")
        .refuses_field(renew(1, CAP_S + 1), "/ttl_seconds");
    Story::new().then(acquire(1, 1), &["LeaseAcquired L1 e1 until 1"]);
}

#[test]
fn what_a_lease_carries_is_bounded() {
    let refused = |change: &dyn Fn(&mut AcquireLease), pointer: &str| {
        let mut request = acquisition(1, 60);
        change(&mut request);
        Story::new().refuses_field(RunCommand::AcquireLease(request), pointer);
    };
    refused(&|r| r.holder = Some("é".repeat(129)), "/holder");
    refused(&|r| r.tools = vec!["t".to_owned(); 65], "/tools");
    refused(&|r| r.tools = vec!["t".repeat(257)], "/tools");
    refused(&|r| r.labels = (0..33).map(|n| (n.to_string(), String::new())).collect(), "/labels");
    refused(&|r| r.labels = [("k".repeat(129), String::new())].into(), "/labels");
    refused(&|r| r.labels = [(String::new(), "v".repeat(129))].into(), "/labels");
    refused(&|r| r.environment_cap_ms = u64::MAX, "environment_cap_ms");
    for (pointer, set) in [
        ("/limits/cpu_millicores", (|l, v| l.cpu_millicores = v) as fn(&mut Limits, u64)),
        ("/limits/memory_bytes", |l, v| l.memory_bytes = v),
        ("/limits/pids_max", |l, v| l.pids_max = v),
        ("/limits/workspace_bytes", |l, v| l.workspace_bytes = v),
        ("/limits/inodes_max", |l, v| l.inodes_max = v),
        ("/limits/wall_clock_seconds", |l, v| l.wall_clock_seconds = v),
    ] {
        for value in [0, INTEGER_MAX + 1, u64::MAX] {
            refused(&|r| set(&mut r.limits, value), pointer);
        }
    }
    let largest = AcquireLease {
        holder: Some("é".repeat(128)),
        tools: vec!["t".repeat(256); 64],
        labels: (0..32).map(|n| (format!("{n:0128}"), "v".repeat(128))).collect(),
        limits: Limits { cpu_millicores: INTEGER_MAX, ..limits() },
        ..acquisition(1, 60)
    };
    Story::new().does(RunCommand::AcquireLease(largest));
}

#[test]
fn renewing_moves_the_end_from_now() {
    Story::new()
        .does(acquire(1, 60))
        .at(50)
        .then(renew(1, 60), &["LeaseRenewed L1 e1 until 110"])
        .already(renew(1, 60))
        .then(renew(1, 5), &["LeaseRenewed L1 e1 until 55"])
        .at(55)
        .refuses(renew(1, 60), &Rejection::LeaseLost);
}

#[test]
fn renewing_at_the_instant_of_the_end_is_too_late() {
    Story::new()
        .does(acquire(1, 60))
        .at(59)
        .does(renew(1, 60))
        .refuses(expire(1), &Rejection::NotExpired { expires_at: s(119) })
        .at(119)
        .refuses(renew(1, 60), &Rejection::LeaseLost)
        .then(expire(1), &["LeaseExpired L1 e1 at 119"])
        .refuses(renew(1, 60), &Rejection::LeaseLost);
}

#[test]
fn a_lease_cannot_outlive_its_environment() {
    let cap = Rejection::EnvironmentCap { expires_at: s(610) };
    Story::new()
        .does(acquire(1, 300))
        .at(10)
        .then(request(1, 1), &["EnvironmentRequested E1 L1 e1 until 610"])
        .at(250)
        .refuses(renew(1, 361), &cap)
        .refuses(renew(1, u64::MAX / 1000), &cap)
        .then(renew(1, 360), &["LeaseRenewed L1 e1 until 610"])
        .at(609)
        .refuses(renew(1, 2), &cap);
}

#[test]
fn a_failed_environment_caps_nothing() {
    Story::new()
        .does(acquire(1, 300))
        .does(request(1, 1))
        .does(provision_failed(1))
        .at(100)
        .then(renew(1, 600), &["LeaseRenewed L1 e1 until 700"])
        .then(request(2, 1), &["EnvironmentRequested E2 L1 e1 until 700"]);
}

#[test]
fn every_end_tears_the_environment_down_once() {
    ready().then(release(1), &["LeaseReleased L1 e1", "EnvironmentTeardownRequested E1 Released"]);
    ready().then(revoke(1, None), &["LeaseRevoked L1 e1 None", "EnvironmentTeardownRequested E1 Revoked"]);
    ready()
        .at(300)
        .then(expire(1), &["LeaseExpired L1 e1 at 300", "EnvironmentTeardownRequested E1 Expired"]);
    Story::new()
        .does(acquire(1, 300))
        .does(request(1, 1))
        .then(release(1), &["LeaseReleased L1 e1", "EnvironmentTeardownRequested E1 Released"])
        .already(provisioned(1))
        .already(provision_failed(1));
    Story::new()
        .does(acquire(1, 300))
        .does(request(1, 1))
        .does(provision_failed(1))
        .then(release(1), &["LeaseReleased L1 e1"]);
    ready().does(destroyed(1)).then(release(1), &["LeaseReleased L1 e1"]);
}

#[test]
fn ending_an_ended_lease_follows_the_first_end() {
    let released = || Story::new().does(acquire(1, 60)).does(release(1));
    released().already(release(1)).already(revoke(1, None)).already(expire(1));
    let revoked = || Story::new().does(acquire(1, 60)).does(revoke(1, None));
    revoked().refuses(release(1), &Rejection::LeaseLost).already(revoke(1, Some("again"))).already(expire(1));
    let expired = || Story::new().does(acquire(1, 60)).at(60).does(expire(1));
    expired().refuses(release(1), &Rejection::LeaseLost).already(revoke(1, None)).already(expire(1));
    let fenced = || Story::new().does(acquire(1, 60)).does(take_over(2, 60));
    fenced().refuses(release(1), &Rejection::LeaseLost).already(revoke(1, None)).already(expire(1));
}

#[test]
fn the_clock_ends_a_lease_before_anyone_records_it() {
    let past = || ready().at(300);
    past().refuses(release(1), &Rejection::LeaseLost);
    past().refuses(accept(1, 1), &Rejection::LeaseLost);
    past().refuses(renew(1, 60), &Rejection::LeaseLost);
    // The operator's wish is met; what happened is that it expired.
    past().then(
        revoke(1, Some("late")),
        &["LeaseExpired L1 e1 at 300", "EnvironmentTeardownRequested E1 Expired"],
    );
}

#[test]
fn unknown_leases_are_not_found() {
    let unknown = Rejection::NotFound { what: "lease" };
    Story::new()
        .refuses(renew(7, 60), &unknown)
        .refuses(release(7), &unknown)
        .refuses(expire(7), &unknown)
        .refuses(revoke(7, None), &unknown)
        .refuses(request(1, 7), &unknown)
        .refuses(accept(1, 7), &unknown);
}

#[test]
fn a_reason_of_revocation_is_bounded() {
    Story::new().does(acquire(1, 60)).refuses_field(revoke(1, Some(&"x".repeat(257))), "/reason");
}

#[test]
fn the_state_says_which_lease_is_live() {
    let story = Story::new().does(acquire(1, 60)).does(take_over(2, 90));
    let live = story.state.recorded_live_lease().expect("the second");
    assert_eq!(live.acquired.lease_id, lease(2));
    assert!(live.is_live(s(89)) && !live.is_live(s(90)));
    assert_eq!(story.state.leases[&lease(1)].ended_at, Some(s(0)));
}
