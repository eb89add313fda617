//! Ends of leases: expiry, takeover, revocation, release with work under way, lost and suspected environments.

use std::time::Duration;

use events::event::EventType as T;
use events::event::command::{InterruptCause, KillReason};
use events::run::{EnvironmentPhase, LeasePhase};
use projections::CommandStatus;
use runtime_adapter::ports::{Inventory as _, PortError};
use service::api::ServiceError;

use crate::harness::{PATIENCE, Running, World, acquire, ctx, refusal, shell};

async fn destroyed(service: &Running, lease_id: events::LeaseId) {
    service
        .lease_until(lease_id, |lease| {
            lease.environment.as_ref().is_none_or(|known| known.state == EnvironmentPhase::Destroyed)
        })
        .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn expiry_is_recorded_kills_and_removes() {
    let world = World::new().await;
    let service = world.start().await;
    let (run_id, lease_id) = service.lease(6_500).await;
    let running = service.begin(lease_id, "sleep 60").await;
    let waiting = service.begin(lease_id, "echo never").await;
    let lease = service.lease_until(lease_id, |lease| lease.lease.state == LeasePhase::Expired).await;
    assert!(lease.lease.ended_at >= Some(lease.lease.expires_at));
    destroyed(&service, lease_id).await;
    for command_id in [running.command_id, waiting.command_id] {
        let ended = service.command_until(command_id, |command| command.state.is_ended()).await;
        let result = ended.result.unwrap();
        assert_eq!((result.killed_by, result.exit_code), (Some(KillReason::Expired), None));
        assert_eq!(result.evidence.unwrap().expires_at, Some(lease.lease.expires_at));
    }
    let kinds = service.types(run_id).await;
    assert_eq!(kinds.iter().filter(|kind| **kind == T::LeaseExpired).count(), 1);
    assert_eq!(world.fake.list().await.unwrap(), []);
    let late = service.app().renew_lease(&ctx(), lease_id, 60_000).await;
    assert_eq!(refusal(late), ServiceError::LeaseLost);
    service.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_takeover_fences_kills_and_gets_a_workspace_of_its_own() {
    let world = World::new().await;
    let service = world.start().await;
    let (run_id, first) = service.lease(60_000).await;
    service.run(first, "echo secret > file").await;
    let running = service.begin(first, "sleep 60").await;
    let held = service.app().acquire_lease(&ctx(), run_id, acquire(60_000)).await;
    assert!(matches!(refusal(held), ServiceError::LeaseHeld { .. }));
    let request = service::api::AcquireRequest { takeover: true, ..acquire(60_000) };
    let second = service.app().acquire_lease(&ctx(), run_id, request).await.unwrap();
    assert_eq!(second.lease.epoch.get(), 2);
    let killed = service.command_until(running.command_id, |command| command.state.is_ended()).await;
    let result = killed.result.unwrap();
    assert_eq!(result.killed_by, Some(KillReason::Cancelled));
    assert_eq!(result.evidence.unwrap().by.as_deref(), Some("lease_ended"));
    destroyed(&service, first).await;
    let read = service.run(second.lease.lease_id, "cat file").await;
    assert_ne!(read.result.unwrap().exit_code, Some(0));
    let stale = service.app().execute(&ctx(), first, shell("true"), PATIENCE).await;
    assert_eq!(refusal(stale), ServiceError::LeaseLost);
    service.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn release_refuses_new_work_at_once_and_lets_running_work_finish() {
    let world = World::new().await;
    let service = world.start().await;
    let (_, lease_id) = service.lease(60_000).await;
    let running = service.begin(lease_id, "sleep 0.7; echo finished").await;
    service.command_until(running.command_id, |command| command.state == CommandStatus::Running).await;
    service.app().release_lease(&ctx(), lease_id).await.unwrap();
    let refused = service.app().execute(&ctx(), lease_id, shell("true"), PATIENCE).await;
    assert_eq!(refusal(refused), ServiceError::LeaseLost);
    let ended = service.command_until(running.command_id, |command| command.state.is_ended()).await;
    let result = ended.result.unwrap();
    assert_eq!((result.killed_by, result.stdout.text.as_str()), (None, "finished\n"));
    destroyed(&service, lease_id).await;
    service.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn release_does_not_wait_for_ever() {
    let world = World::with(&[("LEASEHOLD_RELEASE_DRAIN_SECONDS", "1")]).await;
    let service = world.start().await;
    let (_, lease_id) = service.lease(60_000).await;
    let running = service.begin(lease_id, "sleep 60").await;
    service.command_until(running.command_id, |command| command.state == CommandStatus::Running).await;
    service.app().release_lease(&ctx(), lease_id).await.unwrap();
    let ended = service.command_until(running.command_id, |command| command.state.is_ended()).await;
    assert_eq!(ended.result.unwrap().killed_by, Some(KillReason::Cancelled));
    destroyed(&service, lease_id).await;
    service.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_provision_in_flight_at_release_is_destroyed_when_it_lands_and_its_caller_refused() {
    let world = World::new().await;
    let service = world.start().await;
    let (run_id, lease_id) = service.lease(60_000).await;
    world.fake.faults().hold_provision(true);
    let app = std::sync::Arc::clone(service.app());
    let caller = service
        .app()
        .supervisor()
        .spawn("caller", async move { app.execute(&ctx(), lease_id, shell("true"), PATIENCE).await });
    service.lease_until(lease_id, |lease| lease.environment.is_some()).await;
    service.app().release_lease(&ctx(), lease_id).await.unwrap();
    world.fake.faults().hold_provision(false);
    assert_eq!(refusal(caller.await.unwrap()), ServiceError::LeaseLost);
    destroyed(&service, lease_id).await;
    assert_eq!(world.fake.list().await.unwrap(), []);
    assert!(!service.types(run_id).await.contains(&T::CommandAccepted));
    service.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lost_environment_interrupts_and_is_never_replaced_in_its_epoch() {
    let world = World::new().await;
    let service = world.start().await;
    let (run_id, lease_id) = service.lease(60_000).await;
    let running = service.begin(lease_id, "sleep 60").await;
    service.command_until(running.command_id, |command| command.state == CommandStatus::Running).await;
    let waiting = service.begin(lease_id, "echo never").await;
    world.fake.lose(running.environment_id, InterruptCause::SandboxLost);
    let ended = service.command_until(running.command_id, |command| command.state.is_ended()).await;
    assert_eq!((ended.state, ended.cause), (CommandStatus::Interrupted, Some(InterruptCause::SandboxLost)));
    let never = service.command_until(waiting.command_id, |command| command.state.is_ended()).await;
    let never = never.result.unwrap();
    assert_eq!((never.killed_by, never.exit_code), (Some(KillReason::Cancelled), None));
    assert_eq!(never.evidence.unwrap().by.as_deref(), Some("environment_lost"));
    destroyed(&service, lease_id).await;
    let refused = service.app().execute(&ctx(), lease_id, shell("true"), PATIENCE).await;
    assert_eq!(refusal(refused), ServiceError::EnvironmentLost);
    let request = service::api::AcquireRequest { takeover: true, ..acquire(60_000) };
    let next = service.app().acquire_lease(&ctx(), run_id, request).await.unwrap();
    assert_eq!(service.run(next.lease.lease_id, "echo new").await.result.unwrap().stdout.text, "new\n");
    service.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_suspected_environment_is_recorded_and_removed() {
    let world = World::new().await;
    let service = world.start().await;
    let (run_id, lease_id) = service.lease(60_000).await;
    service.run(lease_id, "true").await;
    world.fake.faults().fail_execute(PortError::EscapeSuspected { code: "unknown_stream" });
    let ended = service.run(lease_id, "true").await;
    assert_eq!(ended.state, CommandStatus::Interrupted);
    destroyed(&service, lease_id).await;
    assert!(service.types(run_id).await.contains(&T::EnvironmentSuspected));
    let refused = service.app().execute(&ctx(), lease_id, shell("true"), PATIENCE).await;
    assert_eq!(refusal(refused), ServiceError::EnvironmentLost);
    service.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_removal_that_fails_is_recorded_and_tried_again() {
    let world = World::new().await;
    let service = world.start().await;
    let (run_id, lease_id) = service.lease(60_000).await;
    service.run(lease_id, "true").await;
    world.fake.faults().fail_destroy(PortError::Unavailable { code: "timeout", effect_possible: true });
    service.app().revoke_lease(&ctx(), lease_id, Some("because".to_owned())).await.unwrap();
    destroyed(&service, lease_id).await;
    let kinds = service.types(run_id).await;
    let tail = &kinds[kinds.len() - 4..];
    assert_eq!(
        tail,
        [
            T::LeaseRevoked,
            T::EnvironmentTeardownRequested,
            T::EnvironmentTeardownFailed,
            T::EnvironmentDestroyed
        ]
    );
    assert_eq!(world.fake.list().await.unwrap(), []);
    service.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn stopping_kills_with_its_own_reason_and_removes_everything() {
    let world = World::new().await;
    let service = world.start().await;
    let (run_id, lease_id) = service.lease(60_000).await;
    let running = service.begin(lease_id, "sleep 60").await;
    service.command_until(running.command_id, |command| command.state == CommandStatus::Running).await;
    service.stop_and_leave(Duration::from_millis(100)).await;

    let service = world.start().await;
    let killed = service.command_until(running.command_id, |command| command.state.is_ended()).await;
    let result = killed.result.unwrap();
    assert_eq!(result.killed_by, Some(KillReason::ServiceShutdown));
    assert_eq!(result.evidence.unwrap().deadline_ms, Some(100));
    assert_eq!(service.run(lease_id, "echo adopted").await.result.unwrap().stdout.text, "adopted\n");
    assert!(service.types(run_id).await.contains(&T::EnvironmentAdopted));
    service.stop().await;
    assert_eq!(world.fake.list().await.unwrap(), []);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_write_that_outlasts_its_lease_leaves_nothing_except_after_a_release() {
    use futures::StreamExt as _;

    let world = World::new().await;
    let service = world.start().await;
    for end in [LeasePhase::Revoked, LeasePhase::Fenced, LeasePhase::Released] {
        let (run_id, lease_id) = service.lease(60_000).await;
        service.run(lease_id, "true").await;
        let (last, rest) = tokio::sync::oneshot::channel::<()>();
        let (begun, arrives) = tokio::sync::oneshot::channel::<()>();
        let first = futures::stream::once(async move {
            begun.send(()).unwrap();
            Ok(bytes::Bytes::from_static(b"first"))
        });
        let second = futures::stream::once(async move {
            rest.await.unwrap();
            Ok(bytes::Bytes::from_static(b"second"))
        });
        let body = first.chain(second).boxed();
        let ending = async {
            arrives.await.unwrap();
            match end {
                LeasePhase::Revoked => {
                    drop(service.app().revoke_lease(&ctx(), lease_id, None).await.unwrap());
                }
                LeasePhase::Fenced => {
                    let request = service::api::AcquireRequest { takeover: true, ..acquire(60_000) };
                    drop(service.app().acquire_lease(&ctx(), run_id, request).await.unwrap());
                }
                _ => drop(service.app().release_lease(&ctx(), lease_id).await.unwrap()),
            }
            last.send(()).unwrap();
        };
        let caller = ctx();
        let write = service.app().write_file(&caller, lease_id, b"late", body);
        let (answer, ()) = tokio::join!(write, ending);
        let written = service.types(run_id).await.contains(&T::WorkspaceFileWritten);
        if end == LeasePhase::Released {
            assert_eq!((answer.unwrap().size_bytes, written), (11, true));
        } else {
            assert_eq!((refusal(answer), written), (ServiceError::LeaseLost, false), "{end:?}");
        }
    }
    service.stop().await;
}
