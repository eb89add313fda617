//! What the tests share: small events, an open log on a fresh database, waiting for a condition.

use std::time::{Duration, UNIX_EPOCH};

use event_log::testing::{TestDatabase, connect, test_database};
use event_log::{AppendRequest, EventLog, Expected, LogConfig, Tip};
use events::event::lease::LeaseRevoked;
use events::stored::{NewEvent, StreamName, ZERO_LEAF, encode_body, seal};
use events::{Epoch, Event, EventId, LeaseId, Position, RunId, TenantId, Version};
use tokio_postgres::Client;
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
    connect(url).await.unwrap()
}

/// Another process on the same log.
pub(crate) async fn another(fixture: &Fixture) -> EventLog {
    EventLog::open(LogConfig::new(fixture.database.append_url())).await.unwrap()
}

/// Calls the append function without the appender, on any session: one event at the end `tip` of a stream. Answers the
/// function's status.
pub(crate) async fn raw_append(
    client: &Client,
    log: &EventLog,
    stream: &StreamName,
    tip: Tip,
    body: Option<&[u8]>,
) -> Result<i16, tokio_postgres::Error> {
    let (new, salt) = (event(log, "raw"), [5; 32]);
    let honest = encode_body(&new.event).unwrap();
    let body = body.unwrap_or(&honest);
    let sealed = seal(log.log_id(), stream, tip.version.next(), &tip.leaf, &new, &salt, body).unwrap();
    let recorded_at = UNIX_EPOCH + Duration::from_micros(new.recorded_at.unix_micros().unsigned_abs());
    let row = client
        .query_one(
            "SELECT status FROM log.append_one($1, $2, false, $3, $4, NULL, NULL, NULL, $5, $6, $7, $8, $9, $10, $11, $12)",
            &[
                &stream.category(),
                &stream.key(),
                &(tip.version.get() as i64),
                &tip.leaf.as_slice(),
                &new.event.event_type().id(),
                &new.event_id.as_uuid(),
                &new.tenant.as_uuid(),
                &recorded_at,
                &sealed.leaf.as_slice(),
                &sealed.header,
                &salt.as_slice(),
                &body,
            ],
        )
        .await?;
    row.try_get(0)
}

/// The tip of a stream that does not exist.
pub(crate) const NO_TIP: Tip = Tip { version: Version(0), leaf: ZERO_LEAF };

/// Takes the head row and keeps it until the returned session is told `COMMIT` or dropped: appends wait meanwhile.
pub(crate) async fn hold_head(fixture: &Fixture) -> Client {
    let client = fixture.database.administrator().await.unwrap();
    client.batch_execute("BEGIN; SELECT FROM log.log_head FOR UPDATE").await.unwrap();
    client
}

/// Waits until `count` sessions of the append role wait for a lock.
pub(crate) async fn blocked(fixture: &Fixture, count: i64) {
    let client = fixture.database.administrator().await.unwrap();
    until(async || {
        let sql = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() \
                   AND usename = 'leasehold_append' AND wait_event_type = 'Lock'";
        client.query_one(sql, &[]).await.unwrap().get::<_, i64>(0) == count
    })
    .await;
}

/// Waits until a subscription shows `position`.
pub(crate) async fn seen(log: &EventLog, position: Position) {
    let mut positions = log.subscribe();
    tokio::time::timeout(SOON, positions.wait_for(|known| *known >= position)).await.unwrap().unwrap();
}

/// Looks until a condition holds; the pause only spaces the looks.
pub(crate) async fn until(mut holds: impl AsyncFnMut() -> bool) {
    let look = async {
        while !holds().await {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(SOON, look).await.unwrap();
}
