//! Objects that nobody owns.

use std::time::Duration;

use events::event::service::OrphanKind;
use events::stored::StreamName;
use events::{EnvironmentId, Event, Version};
use runtime_adapter::ports::{Inventory as _, ObservedObject};
use service::api::ServiceError;
use uuid::Uuid;

use crate::harness::{PATIENCE, World, ctx, refusal, shell};
use crate::resilience::views_stand_still;

fn stray(name: &str, environment_id: Option<EnvironmentId>) -> ObservedObject {
    ObservedObject {
        kind: OrphanKind::Volume,
        name: name.to_owned(),
        environment_id,
        created_at: None,
        hard_deadline: None,
        running: false,
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_orphan_goes_after_its_grace_is_recorded_once_and_the_owned_stay() {
    let world = World::with(&[("LEASEHOLD_ORPHAN_GRACE_SECONDS", "1")]).await;
    let service = world.start().await;
    let (_, lease_id) = service.lease(60_000).await;
    let owned = service.run(lease_id, "true").await.environment_id;
    world.fake.plant(stray("leasehold-stray-workspace", Some(EnvironmentId(Uuid::now_v7()))));
    world.fake.plant(stray("leasehold-nameless", None));
    world.fake.plant(stray("leasehold-more-of-the-living", Some(owned)));

    let end = tokio::time::Instant::now() + PATIENCE;
    let names = loop {
        let names: Vec<_> = world.fake.list().await.unwrap().into_iter().map(|object| object.name).collect();
        if !names.iter().any(|name| name.contains("stray") || name.contains("nameless")) {
            break names;
        }
        assert!(tokio::time::Instant::now() < end, "{names:?}");
        tokio::time::sleep(Duration::from_millis(50)).await;
    };
    assert!(names.iter().any(|name| name == "leasehold-more-of-the-living"), "{names:?}");
    for _ in 0..3 {
        service.app().parts().reconciler.sweep_orphans().await.unwrap();
    }
    let parts = service.app().parts();
    let stream = StreamName::service(parts.environments.identity().instance_id);
    let events = parts.log.read_stream(&stream, Version(1), 100).await.unwrap();
    let deleted: Vec<_> = events
        .iter()
        .filter_map(|recorded| match &recorded.event {
            Some(Event::OrphanDeleted(deleted)) => Some(deleted.name.as_str()),
            _ => None,
        })
        .collect();
    assert_eq!(deleted.len(), 2, "{deleted:?}");
    assert_eq!(service.run(lease_id, "echo alive").await.result.unwrap().stdout.text, "alive\n");
    service.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_young_are_left_alone() {
    let world = World::new().await;
    let service = world.start().await;
    world.fake.plant(stray("leasehold-young", None));
    for _ in 0..3 {
        service.app().parts().reconciler.sweep_orphans().await.unwrap();
    }
    assert_eq!(world.fake.list().await.unwrap().len(), 1);
    service.stop().await;
}

/// Owners are looked up in everything that the log held after the listing: views that are behind remove nothing.
#[tokio::test(flavor = "multi_thread")]
async fn an_owner_that_the_views_do_not_know_yet_keeps_what_is_its() {
    let world = World::with(&[("LEASEHOLD_ORPHAN_GRACE_SECONDS", "0")]).await;
    let service = world.start().await;
    let holder = views_stand_still(&world).await;
    let (_, lease_id) = service.lease(60_000).await;
    let made = service.app().execute(&ctx(), lease_id, shell("echo kept > file"), PATIENCE).await.unwrap();
    let swept = service.app().parts().reconciler.sweep_orphans().await;
    assert_eq!(refusal(swept), ServiceError::ProjectionBehind);
    let owned = world.fake.list().await.unwrap();
    assert!(
        !owned.is_empty() && owned.iter().all(|object| object.environment_id == Some(made.environment_id))
    );

    holder.batch_execute("ROLLBACK").await.unwrap();
    service.app().parts().reads.see_all().await.unwrap();
    service.app().parts().reconciler.sweep_orphans().await.unwrap();
    assert_eq!(world.fake.list().await.unwrap().len(), owned.len());
    assert_eq!(service.run(lease_id, "cat file").await.result.unwrap().stdout.text, "kept\n");
    service.stop().await;
}
