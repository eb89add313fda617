//! The container adapter keeps the contract on a real engine.

use futures::future::BoxFuture;
use runtime_adapter::container::{ContainerAdapter, ContainerConfig};
use runtime_adapter::contract::{Adapter, Subject, TestClock};
use uuid::Uuid;

fn config() -> ContainerConfig {
    ContainerConfig::new(events::ids::LogId(Uuid::now_v7()), 0, events::ids::NodeId(Uuid::now_v7()))
}

async fn subject() -> Subject {
    let (clock, config) = (TestClock::default(), config());
    let adapter = ContainerAdapter::start(config.clone(), clock.as_clock())
        .await
        .expect("the engine and both images are there");
    let image = adapter.execution_image().clone();
    let again = clock.clone();
    let restart = Box::new(move || {
        let (config, clock) = (config.clone(), again.as_clock());
        Box::pin(async move {
            Adapter::new(ContainerAdapter::start(config, clock).await.expect("the engine is there"))
        }) as BoxFuture<'static, Adapter>
    });
    Subject::new(Adapter::new(adapter), clock, image, restart)
}

runtime_adapter::contract_suite!(subject);
