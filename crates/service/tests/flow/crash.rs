//! What an earlier process left in the log is settled by the next one. The earlier process is played by appending what it
//! would have appended before it died; the engine is the same.

use events::event::EventType as T;
use events::event::command::{InterruptCause, StdinRecord};
use events::run::{AcceptCommand, RequestEnvironment, RunCommand};
use events::spec::Mechanism;
use events::{CommandId, EnvironmentId, InstanceId, LeaseId, RunId};
use projections::CommandStatus;
use runtime_adapter::ports::Inventory as _;
use service::runs::RunRef;
use uuid::Uuid;

use crate::harness::{Running, World, ctx, tenant};

async fn submit(service: &Running, run_id: RunId, command: RunCommand) {
    let run = RunRef { tenant: tenant(), run_id };
    service.app().parts().runs.submit(run, "service:dead", None, &command).await.unwrap();
}

fn accept(lease_id: LeaseId, script: &str, start_now: Option<InstanceId>) -> (CommandId, AcceptCommand) {
    let command_id = CommandId(Uuid::now_v7());
    let command = AcceptCommand {
        command_id,
        lease_id,
        argv: ["sh", "-c", script].map(str::to_owned).to_vec(),
        cwd: ".".to_owned(),
        env: std::collections::BTreeMap::new(),
        stdin: None,
        timeout_ms: 10_000,
        output_bytes_max: 1_000_000,
        background: false,
        start_now,
    };
    (command_id, command)
}

/// A service that leaves an adopted-to-be environment with a file in it, and is gone.
async fn left(world: &World) -> (RunId, LeaseId) {
    let service = world.start().await;
    let (run_id, lease_id) = service.lease(60_000).await;
    service.run(lease_id, "echo kept > file").await;
    service.stop_and_leave(std::time::Duration::ZERO).await;
    (run_id, lease_id)
}

#[tokio::test(flavor = "multi_thread")]
async fn what_was_accepted_runs_and_what_was_started_never_runs_again() {
    let world = World::new().await;
    let (run_id, lease_id) = left(&world).await;
    let dead = world.start().await;
    let (started, command) = accept(lease_id, "echo twice >> file", Some(InstanceId(Uuid::now_v7())));
    submit(&dead, run_id, RunCommand::AcceptCommand(command)).await;
    let (accepted, command) = accept(lease_id, "cat file", None);
    submit(&dead, run_id, RunCommand::AcceptCommand(command)).await;
    let (kept, mut command) = accept(lease_id, "cat", None);
    command.stdin =
        Some(StdinRecord { bytes: 2, sha256: "0".repeat(64), inline_base64: Some("aGk=".to_owned()) });
    submit(&dead, run_id, RunCommand::AcceptCommand(command)).await;
    let (input_lost, mut command) = accept(lease_id, "cat", None);
    command.stdin = Some(StdinRecord { bytes: 9, sha256: "0".repeat(64), inline_base64: None });
    submit(&dead, run_id, RunCommand::AcceptCommand(command)).await;
    dead.stop_and_leave(std::time::Duration::ZERO).await;

    let service = world.start().await;
    let ended = |command_id| service.command_until(command_id, |command| command.state.is_ended());
    let interrupted = ended(started).await;
    assert_eq!(
        (interrupted.state, interrupted.cause, interrupted.may_have_run),
        (CommandStatus::Interrupted, Some(InterruptCause::ServiceLost), Some(true))
    );
    assert_eq!(ended(accepted).await.result.unwrap().stdout.text, "kept\n");
    assert_eq!(ended(kept).await.result.unwrap().stdout.text, "hi");
    let lost = ended(input_lost).await;
    assert_eq!((lost.cause, lost.may_have_run), (Some(InterruptCause::InputLost), Some(false)));
    let kinds = service.types(run_id).await;
    assert!(kinds.contains(&T::EnvironmentAdopted));
    let outcomes =
        kinds.iter().filter(|kind| matches!(kind, T::CommandFinished | T::CommandInterrupted)).count();
    assert_eq!(outcomes, kinds.iter().filter(|kind| **kind == T::CommandAccepted).count());
    service.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_intent_of_a_dead_process_fails_and_the_next_call_makes_a_new_environment() {
    let world = World::new().await;
    let service = world.start().await;
    let (run_id, lease_id) = service.lease(60_000).await;
    let identity = service.app().parts().environments.identity().clone();
    let environment_id = EnvironmentId(Uuid::now_v7());
    service.stop_and_leave(std::time::Duration::ZERO).await;

    let service = world.start().await;
    let request = RunCommand::RequestEnvironment(RequestEnvironment {
        environment_id,
        lease_id,
        node_id: identity.node_id,
        mechanism: Mechanism::Fake,
        image_digest: identity.image_digest,
    });
    submit(&service, run_id, request).await;
    assert_eq!(service.run(lease_id, "echo made").await.result.unwrap().stdout.text, "made\n");
    let kinds = service.types(run_id).await;
    assert_eq!(kinds.iter().filter(|kind| **kind == T::EnvironmentRequested).count(), 2);
    assert_eq!(kinds.iter().filter(|kind| **kind == T::EnvironmentProvisionFailed).count(), 1);
    service.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_dead_goes_and_the_living_stays() {
    let world = World::new().await;
    let service = world.start().await;
    let (_, living) = service.lease(60_000).await;
    let (_, dying) = service.lease(6_000).await;
    service.run(living, "echo kept > file").await;
    service.run(dying, "true").await;
    service.stop_and_leave(std::time::Duration::ZERO).await;
    assert_eq!(world.fake.list().await.unwrap().iter().filter(|object| object.running).count() % 2, 0);

    let service = world.start().await;
    service
        .lease_until(dying, |lease| {
            lease.lease.state == events::run::LeasePhase::Expired
                && lease
                    .environment
                    .as_ref()
                    .is_some_and(|known| known.state == events::run::EnvironmentPhase::Destroyed)
        })
        .await;
    let read = service.run(living, "cat file").await.result.unwrap();
    assert_eq!((read.stdout.text.as_str(), read.files_changed.len()), ("kept\n", 0));
    let left = world.fake.list().await.unwrap();
    let owner = service.app().get_lease(&ctx(), living).await.unwrap().environment.unwrap().environment_id;
    assert!(!left.is_empty() && left.iter().all(|object| object.environment_id == Some(owner)));
    service.stop().await;
    assert_eq!(world.fake.list().await.unwrap(), []);
}
