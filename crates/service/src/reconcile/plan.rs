//! What to do about one environment: desired (the log) against observed (this process), as a table.
//!
//! ```text
//! wanted      requested, nobody makes it          the intent of a dead process: it failed
//!             ready, not held here                take it over
//!             past its hard cap                   ask for its teardown
//! unwanted    commands wait or run                end them as the cause says, or let them drain
//!             nothing runs, or it took too long   destroy
//! ```

use std::time::Duration;

use events::Timestamp;
use events::event::command::{Evidence, KillReason};
use events::event::environment::TeardownCause;
use events::run::EnvironmentPhase;
use projections::OpenEnvironment;
use runtime_adapter::ports::CancelRequest;

use crate::execution::cancelled_by;

/// Longest wait for a killed command's outcome before its environment is removed all the same.
pub(super) const KILL_PATIENCE: Duration = Duration::from_secs(30);
/// Longest wait for workspace streams in use (decision D15).
pub(super) const STREAM_PATIENCE: Duration = Duration::from_secs(5);

/// What this process knows of an environment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Local {
    /// It can be used here.
    pub(super) held: bool,
    /// It is being made or taken over here.
    pub(super) in_flight: bool,
    /// Commands in the queue.
    pub(super) waiting: usize,
    /// Commands in the runtime.
    pub(super) running: usize,
    /// Workspace streams.
    pub(super) streams: usize,
    /// Its removal is under way.
    pub(super) destroying: bool,
    /// Time since its teardown was first seen here.
    pub(super) unwanted_for: Duration,
    /// The last attempt at removal failed a moment ago.
    pub(super) pausing: bool,
}

/// One step. The next pass decides again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// Nothing to do now.
    Rest,
    /// Record that its provisioning failed.
    FailProvision,
    /// Take it over.
    Adopt,
    /// Ask for its teardown.
    Teardown(TeardownCause),
    /// End the commands that wait, and those that run.
    End {
        /// For each that waits.
        waiting: Box<CancelRequest>,
        /// For each that runs; `None` lets them drain.
        running: Option<Box<CancelRequest>>,
    },
    /// Remove it.
    Destroy,
}

pub(super) fn step(open: &OpenEnvironment, local: Local, now: Timestamp, release_drain: Duration) -> Step {
    let environment = &open.environment;
    match environment.state {
        EnvironmentPhase::Destroyed => Step::Rest,
        // Also while it is being made: whoever makes it finds that it is not wanted any more.
        EnvironmentPhase::Requested | EnvironmentPhase::Ready if now >= environment.expires_at => {
            Step::Teardown(TeardownCause::Expired)
        }
        _ if local.in_flight || local.destroying => Step::Rest,
        // Its lease has ended on the clock: recording that comes first, and asks for the teardown.
        EnvironmentPhase::Requested | EnvironmentPhase::Ready if !open.is_wanted(now) => Step::Rest,
        EnvironmentPhase::Requested => Step::FailProvision,
        EnvironmentPhase::Ready if local.held => Step::Rest,
        EnvironmentPhase::Ready => Step::Adopt,
        EnvironmentPhase::TearingDown | EnvironmentPhase::Failed => {
            unwanted(environment.teardown_cause, open.lease_expires_at, local, release_drain)
        }
    }
}

fn unwanted(
    cause: Option<TeardownCause>,
    lease_expires_at: Timestamp,
    local: Local,
    release_drain: Duration,
) -> Step {
    let drains = matches!(cause, Some(TeardownCause::Released | TeardownCause::Closed));
    let killing_for =
        if drains { local.unwanted_for.saturating_sub(release_drain) } else { local.unwanted_for };
    let patient = killing_for < KILL_PATIENCE;
    if local.waiting + local.running > 0 && patient {
        let request = Box::new(kill(cause, lease_expires_at));
        let drain = drains && local.unwanted_for < release_drain;
        return Step::End { waiting: request.clone(), running: (!drain).then_some(request) };
    }
    if local.streams > 0 && local.unwanted_for < STREAM_PATIENCE || local.pausing {
        return Step::Rest;
    }
    Step::Destroy
}

/// What ending a command is called when its environment goes for `cause`.
fn kill(cause: Option<TeardownCause>, lease_expires_at: Timestamp) -> CancelRequest {
    match cause {
        Some(TeardownCause::Expired) => CancelRequest {
            reason: KillReason::Expired,
            evidence: Evidence { expires_at: Some(lease_expires_at), ..Evidence::default() },
        },
        Some(TeardownCause::ServiceShutdown) => CancelRequest {
            reason: KillReason::ServiceShutdown,
            evidence: Evidence { deadline_ms: Some(0), ..Evidence::default() },
        },
        Some(TeardownCause::Suspected | TeardownCause::ProvisionFailed | TeardownCause::Lost) => {
            cancelled_by("environment_lost")
        }
        Some(
            TeardownCause::Released | TeardownCause::Revoked | TeardownCause::Fenced | TeardownCause::Closed,
        )
        | None => cancelled_by("lease_ended"),
    }
}

#[cfg(test)]
mod tests {
    use events::run::LeasePhase;
    use events::spec::{Limits, Mechanism};
    use events::{EnvironmentId, Epoch, LeaseId, NodeId, Position, RunId, TenantId};
    use projections::EnvironmentRow;
    use uuid::Uuid;

    use super::*;

    const DRAIN: Duration = Duration::from_secs(30);

    fn at(seconds: i64) -> Timestamp {
        Timestamp::try_from_unix_micros(seconds * 1_000_000).unwrap()
    }

    fn open(state: EnvironmentPhase, cause: Option<TeardownCause>) -> OpenEnvironment {
        let limits = Limits {
            cpu_millicores: 1,
            memory_bytes: 1,
            pids_max: 1,
            workspace_bytes: 1,
            inodes_max: 1,
            wall_clock_seconds: 1,
        };
        OpenEnvironment {
            environment: EnvironmentRow {
                environment_id: EnvironmentId(Uuid::from_u128(1)),
                tenant: TenantId(Uuid::from_u128(2)),
                run_id: RunId(Uuid::from_u128(3)),
                lease_id: LeaseId(Uuid::from_u128(4)),
                epoch: Epoch(1),
                node_id: NodeId(Uuid::from_u128(5)),
                mechanism: Mechanism::Fake,
                image_digest: format!("sha256:{}", "0".repeat(64)).parse().unwrap(),
                limits,
                policy_digest: None,
                state,
                teardown_cause: cause,
                teardown_attempts: 0,
                reason_code: None,
                adopted_by: None,
                created_at: at(100),
                expires_at: at(1_000),
                ready_at: None,
                destroyed_at: None,
                created_position: Position(1),
                position: Position(1),
            },
            lease_state: LeasePhase::Live,
            lease_expires_at: at(500),
        }
    }

    fn held() -> Local {
        Local { held: true, ..Local::default() }
    }

    #[test]
    fn wanted_environments_are_adopted_left_alone_or_given_up() {
        use EnvironmentPhase::{Ready, Requested};
        assert_eq!(step(&open(Ready, None), held(), at(200), DRAIN), Step::Rest);
        assert_eq!(step(&open(Ready, None), Local::default(), at(200), DRAIN), Step::Adopt);
        assert_eq!(step(&open(Requested, None), Local::default(), at(200), DRAIN), Step::FailProvision);
        let in_flight = Local { in_flight: true, ..Local::default() };
        assert_eq!(step(&open(Requested, None), in_flight, at(200), DRAIN), Step::Rest);
        assert_eq!(step(&open(Ready, None), in_flight, at(200), DRAIN), Step::Rest);
    }

    #[test]
    fn expiry_overrides_liveness() {
        let cap = Step::Teardown(TeardownCause::Expired);
        assert_eq!(step(&open(EnvironmentPhase::Ready, None), held(), at(1_000), DRAIN), cap);
        let in_flight = Local { in_flight: true, ..Local::default() };
        assert_eq!(step(&open(EnvironmentPhase::Requested, None), in_flight, at(1_000), DRAIN), cap);
        assert_eq!(step(&open(EnvironmentPhase::Ready, None), Local::default(), at(500), DRAIN), Step::Rest);
    }

    #[test]
    fn release_drains_what_runs_and_ends_what_waits() {
        let released = open(EnvironmentPhase::TearingDown, Some(TeardownCause::Released));
        let busy = Local { running: 1, waiting: 2, ..held() };
        let Step::End { waiting, running } = step(&released, busy, at(200), DRAIN) else { panic!() };
        assert_eq!((waiting.reason, running), (KillReason::Cancelled, None));
        let late = Local { unwanted_for: DRAIN, ..busy };
        let Step::End { running: Some(kill), .. } = step(&released, late, at(200), DRAIN) else { panic!() };
        assert_eq!(kill.evidence.by.as_deref(), Some("lease_ended"));
        let stuck = Local { unwanted_for: DRAIN + KILL_PATIENCE, ..busy };
        assert_eq!(step(&released, stuck, at(200), DRAIN), Step::Destroy);
    }

    #[test]
    fn other_ends_kill_at_once_and_say_why() {
        let busy = Local { running: 1, ..held() };
        for (cause, reason) in [
            (TeardownCause::Revoked, KillReason::Cancelled),
            (TeardownCause::Fenced, KillReason::Cancelled),
            (TeardownCause::Expired, KillReason::Expired),
            (TeardownCause::ServiceShutdown, KillReason::ServiceShutdown),
        ] {
            let open = open(EnvironmentPhase::TearingDown, Some(cause));
            let Step::End { running: Some(kill), .. } = step(&open, busy, at(200), DRAIN) else {
                panic!("{cause:?}")
            };
            assert_eq!(kill.reason, reason);
            if reason == KillReason::Expired {
                assert_eq!(kill.evidence.expires_at, Some(at(500)));
            }
        }
    }

    #[test]
    fn an_idle_unwanted_environment_is_destroyed_once_its_streams_are_given_up() {
        let gone = open(EnvironmentPhase::TearingDown, Some(TeardownCause::Revoked));
        assert_eq!(step(&gone, held(), at(200), DRAIN), Step::Destroy);
        let streaming = Local { streams: 1, ..held() };
        assert_eq!(step(&gone, streaming, at(200), DRAIN), Step::Rest);
        let abandoned = Local { unwanted_for: STREAM_PATIENCE, ..streaming };
        assert_eq!(step(&gone, abandoned, at(200), DRAIN), Step::Destroy);
        let pausing = Local { pausing: true, ..held() };
        assert_eq!(step(&gone, pausing, at(200), DRAIN), Step::Rest);
        let destroying = Local { destroying: true, ..held() };
        assert_eq!(step(&gone, destroying, at(200), DRAIN), Step::Rest);
        let failed = open(EnvironmentPhase::Failed, Some(TeardownCause::ProvisionFailed));
        assert_eq!(step(&failed, Local::default(), at(200), DRAIN), Step::Destroy);
    }
}
