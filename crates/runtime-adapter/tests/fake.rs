//! The fake keeps the contract.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use events::event::command::{InterruptCause, KillReason};
use events::event::service::OrphanKind;
use events::ids::{EnvironmentId, Epoch, RunId, TenantId};
use events::spec::{ImageDigest, Mechanism};
use runtime_adapter::contract::{Adapter, Call, RecordingSink, Subject, TestClock, limits, path_of};
use runtime_adapter::fake::FakeAdapter;
use runtime_adapter::ports::{
    EnvironmentSpec, ExecutionEnvironment, Inventory, ObservedObject, PortError, STREAM_DEADLINE, Workspace,
    WorkspaceError,
};
use uuid::Uuid;

async fn subject() -> Subject {
    let clock = TestClock::default();
    let image: ImageDigest = format!("sha256:{}", "fa".repeat(32)).parse().unwrap();
    let fake = FakeAdapter::new(clock.as_clock(), image.clone());
    let again = fake.clone();
    let restart = Box::new(move || {
        let again = again.clone();
        Box::pin(async move { Adapter::new(again) }) as futures::future::BoxFuture<'static, Adapter>
    });
    Subject::new(Adapter::new(fake), clock, Mechanism::Fake, image, restart)
}

runtime_adapter::contract_suite!(subject);

fn fake() -> (FakeAdapter, EnvironmentSpec) {
    let clock = TestClock::default();
    let image: ImageDigest = format!("sha256:{}", "fa".repeat(32)).parse().unwrap();
    let spec = EnvironmentSpec {
        environment_id: EnvironmentId(Uuid::from_u128(1)),
        tenant: TenantId(Uuid::from_u128(2)),
        run_id: RunId(Uuid::from_u128(3)),
        epoch: Epoch(1),
        image_digest: image.clone(),
        limits: limits(),
        expires_at: clock.now().plus_ms(60_000),
        files_changed_max: 10,
    };
    (FakeAdapter::new(clock.as_clock(), image), spec)
}

/// The same fake behind the suite's helpers.
fn helpers(fake: &FakeAdapter) -> Subject {
    let nobody = Box::new(|| unreachable!());
    Subject::new(
        Adapter::new(fake.clone()),
        TestClock::default(),
        Mechanism::Fake,
        fake.image_digest().clone(),
        nobody,
    )
}

const FAILED: PortError = PortError::Unavailable { code: "no_space", effect_possible: true };

#[tokio::test]
async fn failures_happen_once_and_in_order() {
    let (fake, spec) = fake();
    fake.faults().fail_provision(FAILED);
    assert_eq!(fake.provision(spec.clone()).await, Err(FAILED));
    assert_eq!(Inventory::list(&fake).await, Ok(Vec::new()));
    fake.provision(spec.clone()).await.unwrap();
    fake.faults().fail_destroy(FAILED);
    assert_eq!(fake.destroy(spec.environment_id).await, Err(FAILED));
    assert_eq!(Inventory::list(&fake).await.unwrap().len(), 3);
    fake.destroy(spec.environment_id).await.unwrap();
    assert_eq!(Inventory::list(&fake).await, Ok(Vec::new()));
}

#[tokio::test]
async fn an_outage_is_unavailable_and_ends() {
    let (fake, spec) = fake();
    let handle = fake.provision(spec).await.unwrap();
    fake.faults().set_outage(true);
    let down = PortError::Unavailable { code: "engine_unreachable", effect_possible: false };
    assert_eq!(fake.ping().await, Err(down.clone()));
    assert_eq!(Inventory::list(&fake).await, Err(down.clone()));
    assert_eq!(fake.destroy(handle.environment_id).await, Err(down));
    fake.faults().set_outage(false);
    assert_eq!(fake.ping().await, Ok(()));
}

#[tokio::test]
async fn a_full_disk_refuses_what_is_new_and_nothing_else() {
    let (fake, spec) = fake();
    fake.faults().set_disk_full(true);
    let full = PortError::Unavailable { code: "disk_reserve", effect_possible: false };
    assert_eq!(fake.provision(spec.clone()).await, Err(full.clone()));
    fake.faults().set_disk_full(false);
    let handle = fake.provision(spec).await.unwrap();
    assert_eq!(fake.check_room(&handle).await, Ok(()));
    fake.faults().set_disk_full(true);
    assert_eq!(fake.check_room(&handle).await, Err(full));
    fake.destroy(handle.environment_id).await.unwrap();
}

#[tokio::test]
async fn a_held_provision_finishes_when_released() {
    let (fake, spec) = fake();
    fake.faults().hold_provision(true);
    let other = fake.clone();
    let release = async move {
        tokio::task::yield_now().await;
        assert_eq!(Inventory::list(&other).await, Ok(Vec::new()));
        other.faults().hold_provision(false);
    };
    let (made, ()) = tokio::join!(fake.provision(spec), release);
    assert!(made.is_ok());
}

#[tokio::test]
async fn a_lost_environment_interrupts_and_refuses() {
    let (fake, spec) = fake();
    let handle = fake.provision(spec).await.unwrap();
    let subject = helpers(&fake);
    let sink = std::sync::Arc::new(RecordingSink::default());
    let lose = async {
        sink.shows("up").await;
        fake.lose(handle.environment_id, InterruptCause::FilesLost);
    };
    let call = Call::sh("echo up; sleep 60").sink(&sink);
    let (ended, ()) = tokio::join!(subject.run(&handle, call), lose);
    let lost = PortError::Lost { cause: InterruptCause::FilesLost };
    assert_eq!(ended, Err(lost.clone().into()));
    assert_eq!(subject.run(&handle, Call::sh("true")).await, Err(lost.into()));
}

#[tokio::test(start_paused = true)]
async fn a_stalled_upload_ends_at_the_deadline() {
    let (fake, spec) = fake();
    let handle = fake.provision(spec).await.unwrap();
    let path = path_of("f");
    let stalled = Box::pin(futures::stream::pending());
    let started = tokio::time::Instant::now();
    assert_eq!(fake.write(&handle, &path, stalled, 10).await, Err(WorkspaceError::DeadlineExceeded));
    assert_eq!(started.elapsed().as_secs(), STREAM_DEADLINE.as_secs());
    assert_eq!(fake.stat(&handle, &path).await, Err(WorkspaceError::NotFound));
}

#[tokio::test]
async fn a_planted_object_is_listed_and_removed() {
    let (fake, _) = fake();
    let orphan = ObservedObject {
        kind: OrphanKind::Network,
        name: "leasehold-x".to_owned(),
        environment_id: None,
        created_at: None,
        hard_deadline: None,
        running: false,
    };
    fake.plant(orphan.clone());
    assert_eq!(Inventory::list(&fake).await, Ok(vec![orphan.clone()]));
    Inventory::remove(&fake, &orphan).await.unwrap();
    assert_eq!(Inventory::list(&fake).await, Ok(Vec::new()));
}

#[tokio::test]
async fn exhausted_limits_are_kills() {
    let (fake, spec) = fake();
    let handle = fake.provision(spec).await.unwrap();
    let subject = helpers(&fake);
    for (script, reason) in [("exhaust memory", KillReason::Memory), ("exhaust pids", KillReason::Pids)] {
        let result = subject.sh(&handle, script).await;
        assert_eq!((result.exit_code, result.killed_by), (None, Some(reason)));
        assert!(result.evidence.is_some_and(|evidence| evidence.source.as_deref() == Some("fake")));
    }
}
