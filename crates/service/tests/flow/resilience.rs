//! One thing that goes wrong harms nothing else, and what is on record is never answered as if it were not.

use std::time::Duration;

use events::RunId;
use events::event::EventType as T;
use events::event::command::InterruptCause;
use events::run::LeasePhase;
use projections::CommandStatus;
use runtime_adapter::ports::PortError;
use service::api::ServiceError;
use uuid::Uuid;

use crate::harness::{PATIENCE, World, acquire, ctx, keyed, refusal, shell};

/// Holds the rows that the runner must write, so that the views stand still while the log goes on.
pub(crate) async fn views_stand_still(world: &World) -> tokio_postgres::Client {
    let client = world.administrator().await;
    client.batch_execute("BEGIN; LOCK TABLE views.consumers IN ACCESS EXCLUSIVE MODE").await.unwrap();
    client
}

#[tokio::test(flavor = "multi_thread")]
async fn writes_are_answered_from_the_log_while_the_views_stand_still() {
    let world = World::new().await;
    let service = world.start().await;
    let (_, warm) = service.lease(60_000).await;
    service.run(warm, "true").await;
    let holder = views_stand_still(&world).await;

    let app = service.app();
    let run_id = RunId(Uuid::now_v7());
    let lease = app.acquire_lease(&ctx(), run_id, acquire(60_000)).await.unwrap();
    let lease_id = lease.lease.lease_id;
    assert_eq!((lease.lease.state, lease.environment.is_none()), (LeasePhase::Live, true));
    let command = app.execute(&ctx(), lease_id, shell("sleep 60"), Duration::ZERO).await.unwrap();
    assert_eq!(command.argv, ["sh", "-c", "sleep 60"]);
    let killed = app.kill_command(&ctx(), command.command_id).await.unwrap();
    assert!(killed.kill_requested.is_some());
    let done = app.execute(&ctx(), lease_id, shell("echo done"), PATIENCE).await.unwrap();
    assert_eq!(done.result.unwrap().stdout.text, "done\n");
    let renewed = app.renew_lease(&ctx(), lease_id, 90_000).await.unwrap();
    assert!(renewed.lease.expires_at > lease.lease.expires_at && renewed.environment.is_some());
    let released = app.release_lease(&ctx(), lease_id).await.unwrap();
    assert_eq!(released.lease.state, LeasePhase::Released);
    assert_eq!(
        refusal(
            app.get_lease(
                &service::api::RequestCtx { min_position: Some(released.position()), ..ctx() },
                lease_id
            )
            .await
        ),
        ServiceError::ProjectionBehind,
        "a read that asks for more than the views have is told so"
    );

    holder.batch_execute("ROLLBACK").await.unwrap();
    let kinds = service.types(run_id).await;
    assert_eq!(kinds.iter().filter(|kind| **kind == T::CommandAccepted).count(), 2, "{kinds:?}");
    service.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_key_that_was_forgotten_names_something_new() {
    let world = World::new().await;
    let service = world.start().await;
    let app = service.app();
    let run_id = RunId(Uuid::now_v7());
    let key = keyed("nightly", 1);
    let first = app.acquire_lease(&key, run_id, acquire(60_000)).await.unwrap();
    let command = app.execute(&key_of("c"), first.lease.lease_id, shell("echo 1"), PATIENCE).await.unwrap();
    world.administrator().await.batch_execute("DELETE FROM log.request_keys").await.unwrap();

    let again = app.execute(&key_of("c"), first.lease.lease_id, shell("echo 1"), PATIENCE).await.unwrap();
    assert_ne!(again.command_id, command.command_id, "a day later it is a new command");
    let once_more = app.execute(&key_of("c"), first.lease.lease_id, shell("echo 1"), PATIENCE).await.unwrap();
    assert_eq!(once_more.command_id, again.command_id, "and its repeat is that one");
    app.release_lease(&ctx(), first.lease.lease_id).await.unwrap();
    let second = app.acquire_lease(&key, run_id, acquire(60_000)).await.unwrap();
    assert_ne!(second.lease.lease_id, first.lease.lease_id);
    assert_eq!(second.lease.state, LeasePhase::Live);
    let repeat = app.acquire_lease(&key, run_id, acquire(60_000)).await.unwrap();
    assert_eq!(repeat.lease.lease_id, second.lease.lease_id);
    service.stop().await;
}

fn key_of(key: &str) -> service::api::RequestCtx {
    keyed(key, 7)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_refusal_by_the_runtime_costs_one_command_and_never_the_workspace() {
    let world = World::new().await;
    let service = world.start().await;
    let (run_id, lease_id) = service.lease(60_000).await;
    service.run(lease_id, "echo kept > file").await;
    world.fake.faults().fail_execute(PortError::Rejected { code: "busy" });
    let refused = service.run(lease_id, "true").await;
    assert_eq!((refused.state, refused.may_have_run), (CommandStatus::Interrupted, Some(false)));
    assert_ne!(refused.cause, Some(InterruptCause::SandboxLost));
    assert_eq!(service.run(lease_id, "cat file").await.result.unwrap().stdout.text, "kept\n");
    assert!(!service.types(run_id).await.contains(&T::EnvironmentTeardownRequested));
    service.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_no_sandbox_takes_is_refused_before_one_is_made() {
    let world = World::new().await;
    let service = world.start().await;
    let (run_id, lease_id) = service.lease(60_000).await;
    let app = service.app();
    let mut many = shell("true");
    many.env = (0..1_022).map(|n| (format!("V{n}"), String::new())).collect();
    assert!(matches!(
        refusal(app.execute(&ctx(), lease_id, many, PATIENCE).await),
        ServiceError::Invalid { pointer, .. } if pointer == "/env"
    ));
    let mut large = shell("true");
    large.env = [("A".to_owned(), "x".repeat(130_900))].into();
    large.cwd = Some(vec!["d".repeat(200); 20].join("/"));
    assert!(matches!(
        refusal(app.execute(&ctx(), lease_id, large, PATIENCE).await),
        ServiceError::CommandTooLarge { .. }
    ));
    let mut relative = shell("true");
    relative.argv[0] = "./run.sh".to_owned();
    assert!(matches!(
        refusal(app.execute(&ctx(), lease_id, relative, PATIENCE).await),
        ServiceError::Invalid { pointer, .. } if pointer == "/argv/0"
    ));
    let (short_run, short) = service.lease(4_000).await;
    assert_eq!(
        refusal(app.execute(&ctx(), short, shell("true"), PATIENCE).await),
        ServiceError::LeaseTooShort
    );
    assert_eq!(service.types(run_id).await, [T::LeaseAcquired]);
    assert_eq!(service.types(short_run).await[0], T::LeaseAcquired);
    assert!(!service.types(short_run).await.contains(&T::EnvironmentRequested));
    service.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_run_that_cannot_be_read_keeps_no_other_from_moving() {
    let world = World::new().await;
    let service = world.start().await;
    let (broken, _) = service.lease(4_000).await;
    let (_, fine) = service.lease(4_000).await;
    service.stop_and_leave(Duration::ZERO).await;
    // The log refuses to be changed, so the damage is done as an administrator who switches its guards off.
    let client = world.administrator().await;
    let tables = client
        .query(
            "SELECT 'log.events' UNION ALL \
             SELECT inhrelid::regclass::text FROM pg_inherits WHERE inhparent = 'log.events'::regclass",
            &[],
        )
        .await
        .unwrap();
    for table in tables {
        let name: String = table.get(0);
        client.batch_execute(&format!("ALTER TABLE {name} DISABLE TRIGGER ALL")).await.unwrap();
    }
    let damage = format!(
        "UPDATE log.events SET header = 'x' WHERE stream_id = \
         (SELECT id FROM log.streams WHERE key LIKE '%{broken}')"
    );
    client.batch_execute(&damage).await.unwrap();

    let service = world.start().await;
    service.lease_until(fine, |lease| lease.lease.state == LeasePhase::Expired).await;
    let (_, lease_id) = service.lease(60_000).await;
    assert_eq!(service.run(lease_id, "echo served").await.result.unwrap().stdout.text, "served\n");
    service.app().parts().reconciler.pass().await;
    assert!(!service.app().readiness().await.ready, "and it shows");
    service.stop().await;
}
