//! What the tests share: small events, an open log on a fresh database, waiting for a condition.

use std::time::Duration;

use event_log::testing::{TestDatabase, test_database};
use event_log::{AppendRequest, EventLog, Expected, LogConfig};
use events::event::lease::LeaseRevoked;
use events::stored::{NewEvent, StreamName};
use events::{Epoch, Event, EventId, LeaseId, Position, RunId, TenantId};
use tokio_postgres::{Client, NoTls};
use uuid::Uuid;

/// Longest wait for anything that should happen soon.
pub(crate) const SOON: Duration = Duration::from_secs(20);

/// An open log on a database of its own.
pub(crate) struct Fixture {
    pub(crate) log: EventLog,
    pub(crate) database: TestDatabase,
}

pub(crate) async fn fixture() -> Fixture {
    let database = test_database().await;
    let log = EventLog::open(LogConfig::new(database.append_url())).await.unwrap();
    Fixture { log, database }
}

pub(crate) fn run_stream(number: u128) -> StreamName {
    StreamName::run(TenantId(Uuid::from_u128(1)), RunId(Uuid::from_u128(number)))
}

/// An event whose body holds `text`.
pub(crate) fn event(log: &EventLog, text: &str) -> NewEvent {
    NewEvent {
        event_id: EventId(Uuid::now_v7()),
        tenant: TenantId(Uuid::from_u128(1)),
        recorded_at: log.clock().now(),
        actor: "service:test".to_owned(),
        correlation_id: None,
        causation_id: None,
        event: Event::LeaseRevoked(LeaseRevoked {
            lease_id: LeaseId(Uuid::from_u128(7)),
            epoch: Epoch(1),
            reason: Some(text.to_owned()),
        }),
    }
}

/// A request with one event and nothing special.
pub(crate) fn request(log: &EventLog, stream: &StreamName, expected: Expected) -> AppendRequest {
    AppendRequest {
        stream: stream.clone(),
        expected,
        guards: Vec::new(),
        key: None,
        events: vec![event(log, "a reason")],
    }
}

/// A session as any role.
pub(crate) async fn session(url: &str) -> Client {
    let (client, connection) = tokio_postgres::connect(url, NoTls).await.unwrap();
    tokio::task::spawn(async move {
        let _ = connection.await;
    });
    client
}

/// Waits until a subscription shows `position`.
pub(crate) async fn seen(log: &EventLog, position: Position) {
    let mut positions = log.subscribe();
    tokio::time::timeout(SOON, positions.wait_for(|known| *known >= position)).await.unwrap().unwrap();
}

/// Looks until a condition holds; the pause only spaces the looks.
pub(crate) async fn until<F: Future<Output = bool>>(mut holds: impl FnMut() -> F) {
    let look = async {
        while !holds().await {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(SOON, look).await.unwrap();
}
