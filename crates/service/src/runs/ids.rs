//! Ids of events, and which event caused which.
//!
//! An event that happens at most once to its subject is named after it: a fact that is reported twice is the same event, and the
//! event that caused a fact can be named without looking it up.

use events::event::EventType;
use events::ids::derived_uuid;
use events::{Event, EventId};
use uuid::Uuid;

use super::RunRef;

/// The id of an event of a run.
#[must_use]
pub fn event_id(run: RunRef, event: &Event) -> EventId {
    let kind = event.event_type();
    match event {
        Event::LeaseAcquired(of) => named(run, kind, of.lease_id.0, &[]),
        Event::LeaseExpired(of) => named(run, kind, of.lease_id.0, &[]),
        Event::RunClosed(_) => named(run, kind, run.run_id.0, &[]),
        Event::EnvironmentRequested(of) => named(run, kind, of.environment_id.0, &[]),
        Event::EnvironmentProvisioned(of) => named(run, kind, of.environment_id.0, &[]),
        Event::EnvironmentProvisionFailed(of) => named(run, kind, of.environment_id.0, &[]),
        Event::EnvironmentTeardownRequested(of) => named(run, kind, of.environment_id.0, &[]),
        Event::EnvironmentSuspected(of) => named(run, kind, of.environment_id.0, &[]),
        Event::EnvironmentDestroyed(of) => named(run, kind, of.environment_id.0, &[]),
        Event::EnvironmentTeardownFailed(of) => {
            named(run, kind, of.environment_id.0, &of.attempt.to_be_bytes())
        }
        Event::EnvironmentAdopted(of) => named(run, kind, of.environment_id.0, of.instance_id.0.as_bytes()),
        Event::CommandAccepted(of) => named(run, kind, of.command_id.0, &[]),
        Event::CommandStarted(of) => named(run, kind, of.command_id.0, &[]),
        Event::CommandKillRequested(of) => named(run, kind, of.command_id.0, &[]),
        Event::KillEnforced(of) => named(run, kind, of.command_id.0, &[]),
        Event::CommandFinished(of) => named(run, kind, of.command_id.0, &[]),
        Event::CommandInterrupted(of) => named(run, kind, of.command_id.0, &[]),
        Event::LeaseRenewed(_)
        | Event::LeaseReleased(_)
        | Event::LeaseRevoked(_)
        | Event::LeaseFenced(_)
        | Event::RunCloseRequested(_)
        | Event::WorkspaceFileWritten(_)
        | Event::WorkspaceFileRemoved(_)
        | Event::ServiceStarted(_)
        | Event::OrphanDeleted(_) => EventId(Uuid::now_v7()),
    }
}

/// The event that had to happen for this one to happen: the acquisition of a lease, the request of an environment or of its
/// teardown, the acceptance of a command.
#[must_use]
pub fn causation_id(run: RunRef, event: &Event) -> Option<EventId> {
    use EventType as T;
    let (kind, subject) = match event {
        Event::LeaseRenewed(of) => (T::LeaseAcquired, of.lease_id.0),
        Event::LeaseReleased(of) => (T::LeaseAcquired, of.lease_id.0),
        Event::LeaseExpired(of) => (T::LeaseAcquired, of.lease_id.0),
        Event::LeaseRevoked(of) => (T::LeaseAcquired, of.lease_id.0),
        Event::LeaseFenced(of) => (T::LeaseAcquired, of.lease_id.0),
        Event::EnvironmentRequested(of) => (T::LeaseAcquired, of.lease_id.0),
        Event::EnvironmentProvisioned(of) => (T::EnvironmentRequested, of.environment_id.0),
        Event::EnvironmentProvisionFailed(of) => (T::EnvironmentRequested, of.environment_id.0),
        Event::EnvironmentAdopted(of) => (T::EnvironmentRequested, of.environment_id.0),
        Event::EnvironmentTeardownRequested(of) => (T::EnvironmentRequested, of.environment_id.0),
        Event::EnvironmentSuspected(of) => (T::EnvironmentRequested, of.environment_id.0),
        Event::EnvironmentTeardownFailed(of) => (T::EnvironmentTeardownRequested, of.environment_id.0),
        Event::EnvironmentDestroyed(of) => (T::EnvironmentTeardownRequested, of.environment_id.0),
        Event::CommandAccepted(of) => (T::EnvironmentRequested, of.environment_id.0),
        Event::CommandStarted(of) => (T::CommandAccepted, of.command_id.0),
        Event::CommandKillRequested(of) => (T::CommandAccepted, of.command_id.0),
        Event::KillEnforced(of) => (T::CommandAccepted, of.command_id.0),
        Event::CommandFinished(of) => (T::CommandAccepted, of.command_id.0),
        Event::CommandInterrupted(of) => (T::CommandAccepted, of.command_id.0),
        Event::WorkspaceFileWritten(of) => (T::EnvironmentRequested, of.environment_id.0),
        Event::WorkspaceFileRemoved(of) => (T::EnvironmentRequested, of.environment_id.0),
        Event::LeaseAcquired(_)
        | Event::RunCloseRequested(_)
        | Event::RunClosed(_)
        | Event::ServiceStarted(_)
        | Event::OrphanDeleted(_) => return None,
    };
    Some(named(run, kind, subject, &[]))
}

fn named(run: RunRef, kind: EventType, subject: Uuid, which: &[u8]) -> EventId {
    EventId(derived_uuid(&[
        run.tenant.0.as_bytes(),
        run.run_id.0.as_bytes(),
        subject.as_bytes(),
        kind.name().as_bytes(),
        which,
    ]))
}

#[cfg(test)]
mod tests {
    use events::event::environment::{
        EnvironmentDestroyed, EnvironmentTeardownFailed, EnvironmentTeardownRequested, TeardownCause,
    };
    use events::event::lease::RunCloseRequested;
    use events::{EnvironmentId, RunId, TenantId};

    use super::*;

    #[test]
    fn facts_are_named_after_their_subject_and_cause_each_other() {
        let run = RunRef { tenant: TenantId(Uuid::from_u128(1)), run_id: RunId(Uuid::from_u128(2)) };
        let environment_id = EnvironmentId(Uuid::from_u128(3));
        let destroyed = Event::EnvironmentDestroyed(EnvironmentDestroyed { environment_id, egress: None });
        assert_eq!(event_id(run, &destroyed), event_id(run, &destroyed));
        let failed = |attempt| {
            let reason_code = "timeout".to_owned();
            Event::EnvironmentTeardownFailed(EnvironmentTeardownFailed {
                environment_id,
                attempt,
                reason_code,
            })
        };
        assert_eq!(event_id(run, &failed(1)), event_id(run, &failed(1)));
        assert_ne!(event_id(run, &failed(1)), event_id(run, &failed(2)));
        let elsewhere = RunRef { run_id: RunId(Uuid::from_u128(9)), ..run };
        assert_ne!(event_id(run, &destroyed), event_id(elsewhere, &destroyed));
        let cause = TeardownCause::Released;
        let asked =
            Event::EnvironmentTeardownRequested(EnvironmentTeardownRequested { environment_id, cause });
        assert_eq!(causation_id(run, &destroyed), Some(event_id(run, &asked)));
        let close = Event::RunCloseRequested(RunCloseRequested {});
        assert_ne!(event_id(run, &close), event_id(run, &close));
    }
}
