//! Environments as objects: inventory, destroy, adoption.

use events::event::command::InterruptCause;
use events::event::service::OrphanKind;
use events::ids::EnvironmentId;
use uuid::Uuid;

use super::subject::Subject;
use crate::ports::PortError;

/// Two containers and a volume, each with its environment, its time and its end.
pub async fn everything_is_listed_with_its_labels(subject: &Subject) {
    let handle = subject.environment().await;
    let objects = subject.adapter.inventory.list().await.expect("listed");
    let count = |kind| objects.iter().filter(|object| object.kind == kind).count();
    assert_eq!((count(OrphanKind::Container), count(OrphanKind::Volume)), (2, 1));
    for object in &objects {
        assert!(object.name.starts_with("leasehold-"));
        assert_eq!(object.environment_id, Some(handle.environment_id));
        assert_eq!(object.created_at, Some(handle.created_at));
        assert_eq!(object.hard_deadline, Some(handle.expires_at));
        assert_eq!(object.running, object.kind == OrphanKind::Container);
    }
    assert_eq!(objects.iter().filter(|object| object.name.ends_with("-sandbox")).count(), 1);
}

/// An orphan pass removes objects one by one, and may do so twice.
pub async fn removing_each_object_removes_all(subject: &Subject) {
    subject.environment().await;
    let inventory = &subject.adapter.inventory;
    let mut objects = inventory.list().await.expect("listed");
    objects.sort_by_key(|object| object.kind);
    for object in objects.iter().chain(&objects) {
        inventory.remove(object).await.expect("removed");
    }
    assert_eq!(inventory.list().await, Ok(Vec::new()));
}

/// Nothing to remove is success.
pub async fn destroy_of_an_unknown_environment_is_quiet(subject: &Subject) {
    subject.adapter.execution.destroy(EnvironmentId(Uuid::now_v7())).await.expect("destroyed");
}

/// A second process takes the environment over with its files, and its baseline is what is there.
pub async fn a_restarted_service_takes_over(subject: &Subject) {
    let spec = subject.spec();
    let handle = subject.adapter.execution.provision(spec.clone()).await.expect("provisioned");
    subject.sh(&handle, "echo kept > file").await;
    let second = Subject::new(
        (subject.restart)().await,
        subject.clock.clone(),
        subject.mechanism,
        subject.image.clone(),
        Box::new(|| unreachable!()),
    );
    let adopted = second.adapter.execution.adopt(spec).await.expect("adopted");
    assert_eq!(adopted, handle);
    let result = second.sh(&adopted, "cat file; echo more > other").await;
    assert_eq!(result.stdout.head, b"kept\n");
    assert_eq!(result.files_changed.len(), 1);
    second.adapter.execution.destroy(handle.environment_id).await.expect("destroyed");
}

/// Without its containers there is nothing to take over.
pub async fn what_is_gone_cannot_be_taken_over(subject: &Subject) {
    let refused = subject.adapter.execution.adopt(subject.spec()).await;
    assert_eq!(refused, Err(PortError::Lost { cause: InterruptCause::SandboxLost }));
}

/// An id names one environment.
pub async fn the_same_environment_twice_is_refused(subject: &Subject) {
    let spec = subject.spec();
    let handle = subject.adapter.execution.provision(spec.clone()).await.expect("provisioned");
    let refused = subject.adapter.execution.provision(spec).await;
    assert_eq!(refused, Err(PortError::Rejected { code: "environment_exists" }));
    assert_eq!(subject.sh(&handle, "echo on").await.stdout.head, b"on\n");
}

/// Two epochs of one run share no file.
pub async fn epochs_of_a_run_share_nothing(subject: &Subject) {
    let first = subject.environment().await;
    let mut spec = subject.spec();
    (spec.tenant, spec.run_id, spec.epoch) = (first.tenant, first.run_id, events::ids::Epoch(2));
    let second = subject.adapter.execution.provision(spec).await.expect("provisioned");
    subject.write(&first, "secret", b"one").await.expect("written");
    assert_eq!(subject.read(&second, "secret").await, Err(crate::ports::WorkspaceError::NotFound));
    assert_eq!(subject.sh(&second, "cat secret").await.exit_code, Some(1));
}
