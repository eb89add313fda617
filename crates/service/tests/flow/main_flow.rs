//! Lease, command, events, files, release; lazy environments.

use events::event::EventType as T;
use events::event::command::KillReason;
use events::run::{EnvironmentPhase, LeasePhase};
use futures::StreamExt as _;
use runtime_adapter::ports::{Inventory as _, PortError};
use service::api::{ListFiles, ServiceError};

use crate::harness::{World, acquire, ctx, refusal, shell, tenant};

#[tokio::test(flavor = "multi_thread")]
async fn lease_command_events_release() {
    let world = World::new().await;
    let service = world.start().await;
    let (run_id, lease_id) = service.lease(60_000).await;
    let command = service.run(lease_id, "echo out; echo err >&2").await;
    let result = command.result.unwrap();
    assert_eq!((result.exit_code, result.stdout.text.as_str()), (Some(0), "out\n"));
    assert_eq!(result.stderr.text, "err\n");

    let released = service.app().release_lease(&ctx(), lease_id).await.unwrap();
    assert_eq!(released.lease.state, LeasePhase::Released);
    service
        .lease_until(lease_id, |lease| {
            lease.environment.as_ref().is_some_and(|known| known.state == EnvironmentPhase::Destroyed)
        })
        .await;
    assert_eq!(
        service.types(run_id).await,
        [
            T::LeaseAcquired,
            T::EnvironmentRequested,
            T::EnvironmentProvisioned,
            T::CommandAccepted,
            T::CommandStarted,
            T::CommandFinished,
            T::LeaseReleased,
            T::EnvironmentTeardownRequested,
            T::EnvironmentDestroyed,
        ]
    );
    let events = service.events(run_id).await;
    assert!(events.iter().all(|event| event.header.correlation_id == Some(run_id)));
    assert_eq!(
        events[4].header.causation_id,
        Some(events[3].header.event_id),
        "a start comes from its acceptance"
    );
    assert_eq!(events[3].header.actor, "token:test");
    assert!(events[5].header.actor.starts_with("service:"));
    assert_eq!(world.fake.list().await.unwrap(), []);

    // Nothing happens under a dead epoch, and releasing again is quiet.
    let refused = service.app().execute(&ctx(), lease_id, shell("true"), crate::harness::PATIENCE).await;
    assert_eq!(refusal(refused), ServiceError::LeaseLost);
    service.app().release_lease(&ctx(), lease_id).await.unwrap();
    assert_eq!(service.events(run_id).await.len(), 9);
    service.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn concurrent_first_callers_share_one_environment() {
    let world = World::new().await;
    let service = world.start().await;
    let (run_id, lease_id) = service.lease(60_000).await;
    let runs = (0..10).map(|n| {
        let service = &service;
        async move { service.run(lease_id, &format!("echo {n}")).await.result.unwrap().stdout.text }
    });
    let mut texts = futures::future::join_all(runs).await;
    texts.sort();
    assert_eq!(texts, (0..10).map(|n| format!("{n}\n")).collect::<Vec<_>>());
    let types = service.types(run_id).await;
    assert_eq!(types.iter().filter(|kind| **kind == T::EnvironmentRequested).count(), 1);
    assert_eq!(types.iter().filter(|kind| **kind == T::CommandFinished).count(), 10);
    service.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_failed_provision_is_told_and_the_next_call_makes_a_new_one() {
    let world = World::new().await;
    let service = world.start().await;
    let (run_id, lease_id) = service.lease(60_000).await;
    world.fake.faults().fail_provision(PortError::Unavailable { code: "no_space", effect_possible: true });
    let refused = service.app().execute(&ctx(), lease_id, shell("true"), crate::harness::PATIENCE).await;
    assert_eq!(refusal(refused), ServiceError::EnvironmentUnavailable { reason_code: "no_space".to_owned() });
    assert_eq!(service.run(lease_id, "echo again").await.result.unwrap().stdout.text, "again\n");
    let types = service.types(run_id).await;
    assert_eq!(
        types[..4],
        [
            T::LeaseAcquired,
            T::EnvironmentRequested,
            T::EnvironmentProvisionFailed,
            T::EnvironmentTeardownRequested
        ]
    );
    assert_eq!(types.iter().filter(|kind| **kind == T::CommandAccepted).count(), 1);
    service.stop().await;
    assert_eq!(world.fake.list().await.unwrap(), []);
}

#[tokio::test(flavor = "multi_thread")]
async fn files_are_written_read_listed_and_removed_on_record() {
    let world = World::new().await;
    let service = world.start().await;
    let (run_id, lease_id) = service.lease(60_000).await;
    let app = service.app();
    let body = |text: &'static str| {
        Box::pin(futures::stream::iter([Ok(bytes::Bytes::from_static(text.as_bytes()))]))
            as runtime_adapter::ports::ByteStream
    };
    let first = app.write_file(&ctx(), lease_id, b"dir/in.csv", body("a,b\n")).await.unwrap();
    assert_eq!((first.created, first.size_bytes), (true, 4));
    let second = app.write_file(&ctx(), lease_id, b"dir/in.csv", body("a,b\n")).await.unwrap();
    assert_eq!((second.created, &second.sha256), (false, &first.sha256));
    let command = service.run(lease_id, "cat dir/in.csv").await.result.unwrap();
    assert_eq!((command.stdout.text.as_str(), command.files_changed.len()), ("a,b\n", 0));
    let file = app.read_file(&ctx(), lease_id, b"dir/in.csv").await.unwrap();
    let pieces: Vec<_> = file.bytes.collect().await;
    assert_eq!(pieces.concat_bytes(), b"a,b\n");
    let all = ListFiles { path: None, recursive: true, after: None, limit: 100 };
    let listed = app.list_files(&ctx(), lease_id, all).await.unwrap();
    let paths: Vec<_> = listed.entries.iter().map(|entry| entry.path.clone()).collect();
    assert_eq!(paths, [b"dir".to_vec(), b"dir/in.csv".to_vec()]);
    app.remove_file(&ctx(), lease_id, b"dir/in.csv").await.unwrap();
    let gone = app.stat_file(&ctx(), lease_id, b"dir/in.csv").await;
    assert_eq!(refusal(gone), ServiceError::NotFound { what: "file" });
    for path in [&b"../x"[..], b"/etc/passwd", b"a//b", b"", b"a\0b", b".leasehold/x"] {
        let refused = refusal(app.stat_file(&ctx(), lease_id, path).await);
        assert!(matches!(refused, ServiceError::PathRefused { .. }), "{refused:?}");
    }
    let types = service.types(run_id).await;
    assert_eq!(types.iter().filter(|kind| **kind == T::WorkspaceFileWritten).count(), 2);
    assert_eq!(types.iter().filter(|kind| **kind == T::WorkspaceFileRemoved).count(), 1);
    service.stop().await;
}

trait ConcatBytes {
    fn concat_bytes(self) -> Vec<u8>;
}

impl<E: std::fmt::Debug> ConcatBytes for Vec<Result<bytes::Bytes, E>> {
    fn concat_bytes(self) -> Vec<u8> {
        self.into_iter().flat_map(|piece| piece.unwrap().to_vec()).collect()
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn limits_time_and_variables_are_checked_before_anything_happens() {
    let world = World::with(&[("LEASEHOLD_QUEUE_WAITING_MAX", "1")]).await;
    let service = world.start().await;
    let (run_id, lease_id) = service.lease(60_000).await;
    let app = service.app();
    let mut secret = shell("true");
    secret.env.insert("AWS_SECRET_ACCESS_KEY".to_owned(), "x".to_owned());
    assert!(matches!(
        refusal(app.execute(&ctx(), lease_id, secret, crate::harness::PATIENCE).await),
        ServiceError::EnvRefused { .. }
    ));
    let mut request = acquire(60_000);
    request.limits.pids_max = Some(1_000_000);
    let other = events::RunId(uuid::Uuid::now_v7());
    assert!(matches!(
        refusal(app.acquire_lease(&ctx(), other, request).await),
        ServiceError::Invalid { pointer, .. } if pointer == "/limits/pids_max"
    ));
    let mut foreign = ctx();
    foreign.principal.tenant = events::TenantId(uuid::Uuid::from_u128(99));
    assert_ne!(foreign.principal.tenant, tenant());
    assert_eq!(refusal(app.get_lease(&foreign, lease_id).await), ServiceError::NotFound { what: "lease" });
    assert_eq!(
        refusal(app.release_lease(&foreign, lease_id).await),
        ServiceError::NotFound { what: "lease" }
    );
    assert_eq!(service.types(run_id).await, [T::LeaseAcquired]);

    // One runs, one waits, the third is refused and leaves no event.
    let running = service.begin(lease_id, "sleep 60").await;
    let waiting = service.begin(lease_id, "echo waited").await;
    let refused = app.execute(&ctx(), lease_id, shell("true"), std::time::Duration::ZERO).await;
    assert_eq!(refusal(refused), ServiceError::QueueFull { waiting: 1 });
    app.kill_command(&ctx(), running.command_id).await.unwrap();
    let killed = service.command_until(running.command_id, |command| command.state.is_ended()).await;
    let result = killed.result.unwrap();
    assert_eq!((result.killed_by, result.exit_code), (Some(KillReason::Cancelled), None));
    assert_eq!(result.evidence.unwrap().by.as_deref(), Some("client"));
    let waited = service.command_until(waiting.command_id, |command| command.state.is_ended()).await;
    assert_eq!(waited.result.unwrap().stdout.text, "waited\n");
    assert!(waited.queued_ms.is_some());
    service.stop().await;
}
