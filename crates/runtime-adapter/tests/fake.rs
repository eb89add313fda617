//! The fake keeps the contract.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use runtime_adapter::contract::{Adapter, Subject, TestClock};
use runtime_adapter::fake::FakeAdapter;

async fn subject() -> Subject {
    let clock = TestClock::default();
    let image: events::spec::ImageDigest = format!("sha256:{}", "fa".repeat(32)).parse().unwrap();
    let fake = FakeAdapter::new(clock.as_clock(), image.clone());
    let again = fake.clone();
    let restart = Box::new(move || {
        let again = again.clone();
        Box::pin(async move { Adapter::new(again) }) as futures::future::BoxFuture<'static, Adapter>
    });
    Subject::new(Adapter::new(fake), clock, image, restart)
}

runtime_adapter::contract_suite!(subject);
