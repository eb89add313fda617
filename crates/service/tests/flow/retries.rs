//! The same request twice: one effect, one answer.

use std::time::Duration;

use events::RunId;
use events::event::EventType as T;
use service::api::ServiceError;
use uuid::Uuid;

use crate::harness::{PATIENCE, World, acquire, ctx, keyed, refusal, shell};

#[tokio::test(flavor = "multi_thread")]
async fn a_keyed_acquire_names_one_lease() {
    let world = World::new().await;
    let service = world.start().await;
    let run_id = RunId(Uuid::now_v7());
    let app = service.app();
    let key = keyed("k", 1);
    let (one, two) = tokio::join!(
        app.acquire_lease(&key, run_id, acquire(60_000)),
        app.acquire_lease(&key, run_id, acquire(60_000)),
    );
    let (one, two) = (one.unwrap(), two.unwrap());
    assert_eq!(one.lease.lease_id, two.lease.lease_id);
    app.release_lease(&ctx(), one.lease.lease_id).await.unwrap();
    let later = app.acquire_lease(&keyed("k", 1), run_id, acquire(60_000)).await.unwrap();
    assert_eq!(later.lease.lease_id, one.lease.lease_id);
    assert_eq!(
        later.lease.state,
        events::run::LeasePhase::Released,
        "a repeat answers the lease as it is now"
    );
    let other = app.acquire_lease(&keyed("k", 2), run_id, acquire(60_000)).await;
    assert_eq!(refusal(other), ServiceError::IdempotencyKeyReused);
    let kinds = service.types(run_id).await;
    assert_eq!(kinds.iter().filter(|kind| **kind == T::LeaseAcquired).count(), 1);
    service.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_keyed_command_runs_once_however_often_it_is_sent() {
    let world = World::new().await;
    let service = world.start().await;
    let (run_id, lease_id) = service.lease(60_000).await;
    let app = service.app();
    let key = keyed("c", 1);
    let send = || app.execute(&key, lease_id, shell("echo x >> count; cat count"), PATIENCE);
    let answers = futures::future::join_all((0..5).map(|_| send())).await;
    let commands: Vec<_> = answers.into_iter().map(|answer| answer.unwrap()).collect();
    assert!(commands.iter().all(|command| command == &commands[0]));
    assert_eq!(commands[0].result.as_ref().unwrap().stdout.text, "x\n");
    assert_eq!(send().await.unwrap(), commands[0]);
    let kinds = service.types(run_id).await;
    assert_eq!(kinds.iter().filter(|kind| **kind == T::CommandAccepted).count(), 1);
    let other = app.execute(&keyed("c", 2), lease_id, shell("true"), PATIENCE).await;
    assert_eq!(refusal(other), ServiceError::IdempotencyKeyReused);
    service.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_repeat_attaches_to_the_running_command_and_a_caller_that_left_stops_nothing() {
    let world = World::new().await;
    let service = world.start().await;
    let (_, lease_id) = service.lease(60_000).await;
    let app = service.app();
    let request = || shell("sleep 0.5; echo done");
    let left = tokio::time::timeout(
        Duration::from_millis(200),
        app.execute(&keyed("slow", 1), lease_id, request(), PATIENCE),
    )
    .await;
    assert!(left.is_err(), "the caller went away in time");
    let attached = app.execute(&keyed("slow", 1), lease_id, request(), PATIENCE).await.unwrap();
    assert_eq!(attached.result.unwrap().stdout.text, "done\n");
    service.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn renewals_and_closings_are_idempotent_too() {
    let world = World::new().await;
    let service = world.start().await;
    let (run_id, lease_id) = service.lease(60_000).await;
    let app = service.app();
    let first = app.renew_lease(&keyed("r", 1), lease_id, 90_000).await.unwrap();
    let again = app.renew_lease(&keyed("r", 1), lease_id, 90_000).await.unwrap();
    assert_eq!(first, again);
    service.run(lease_id, "true").await;
    let closed = app.close_run(&keyed("z", 1), run_id, PATIENCE).await.unwrap();
    assert_eq!(closed.state, service::api::ClosedState::Closed);
    let again = app.close_run(&keyed("z", 1), run_id, PATIENCE).await.unwrap();
    assert_eq!(again.state, service::api::ClosedState::Closed);
    let kinds = service.types(run_id).await;
    assert_eq!(kinds.last(), Some(&T::RunClosed));
    assert_eq!(kinds.iter().filter(|kind| **kind == T::LeaseRenewed).count(), 1);
    let refused = app.acquire_lease(&ctx(), run_id, acquire(60_000)).await;
    assert_eq!(refusal(refused), ServiceError::RunClosed);
    service.stop().await;
}
