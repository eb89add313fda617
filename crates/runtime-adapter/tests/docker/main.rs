//! The container adapter on a real engine: the contract, what only a kernel shows, the containers' profile, faults.

#![expect(clippy::expect_used, clippy::unwrap_used, reason = "a test fails by panicking")]

mod engine;
mod faults;
mod profile;
mod tmpfs;

use events::ids::{LogId, NodeId};
use futures::future::BoxFuture;
use runtime_adapter::container::{ContainerAdapter, ContainerConfig};
use runtime_adapter::contract::{Adapter, Subject, TestClock};
use uuid::Uuid;

/// The configuration of a process with a log and a node of its own.
fn config() -> ContainerConfig {
    ContainerConfig::new(LogId(Uuid::now_v7()), 0, NodeId(Uuid::now_v7()))
}

/// An adapter with the defaults.
async fn subject() -> Subject {
    subject_with(|_| {}).await
}

/// An adapter with something else than the defaults.
async fn subject_with(configure: impl FnOnce(&mut ContainerConfig)) -> Subject {
    let (clock, mut config) = (TestClock::default(), config());
    configure(&mut config);
    let started = ContainerAdapter::start(config.clone(), clock.as_clock()).await;
    let adapter = started.expect("the engine answers and has both images");
    let image = adapter.execution_image().clone();
    let again = clock.clone();
    let restart = Box::new(move || {
        let (config, clock) = (config.clone(), again.as_clock());
        let started = async move { ContainerAdapter::start(config, clock).await };
        Box::pin(async move { Adapter::new(started.await.expect("the engine answers")) })
            as BoxFuture<'static, Adapter>
    });
    Subject::new(Adapter::new(adapter), clock, image, restart)
}

runtime_adapter::contract_suite!(subject);
runtime_adapter::kernel_suite!(subject);
