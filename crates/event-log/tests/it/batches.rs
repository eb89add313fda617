//! Batches: those that are written as a set and those that are walked say and write the same.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use event_log::verify::{Options, verify};
use event_log::{AppendError, AppendRequest, EventLog, Expected, RequestKey, Tip};
use events::stored::{StreamName, encode_body, seal};
use events::{Position, TenantId, Version};
use futures::future::join_all;
use tokio_postgres::Client;
use uuid::Uuid;

use crate::support::{
    Fixture, NO_TIP, blocked, event, fixture, hold_head, raw_append, request, run_stream, session,
};

/// One request with one event, as the function gets it.
struct Asked {
    stream: StreamName,
    tip: Tip,
    key: Option<&'static str>,
    /// Number of its stream in the batch, from 1.
    number: i32,
    late: bool,
}

impl Asked {
    fn new(stream: u128, tip: Tip, number: i32) -> Self {
        Self { stream: run_stream(stream), tip, key: None, number, late: false }
    }
}

/// Calls the function for these requests; `streams` are the batch's, in the order of their numbers. Answers statuses and firsts as
/// they come.
async fn call(
    client: &Client,
    log: &EventLog,
    streams: &[StreamName],
    asked: &[Asked],
) -> (Option<Vec<i16>>, Vec<Option<i64>>) {
    let salt = [5_u8; 32];
    let mut sealed = Vec::new();
    for one in asked {
        let mut new = event(log, "raw");
        if one.late {
            new.recorded_at = new.recorded_at.plus_ms(60_000);
        }
        let body = encode_body(&new.event).unwrap();
        let header =
            seal(log.log_id(), &one.stream, one.tip.version.next(), &one.tip.leaf, &new, &salt, &body)
                .unwrap();
        sealed.push((new, header, body));
    }
    let numbers: Vec<i32> = (1..).take(asked.len()).collect();
    let stream_numbers: Vec<i32> = asked.iter().map(|one| one.number).collect();
    let versions: Vec<i64> = asked.iter().map(|one| one.tip.version.get() as i64).collect();
    let event_versions: Vec<i64> = versions.iter().map(|version| version + 1).collect();
    let bases: Vec<&[u8]> = asked.iter().map(|one| one.tip.leaf.as_slice()).collect();
    let leaves: Vec<&[u8]> = sealed.iter().map(|(_, sealed, _)| sealed.leaf.as_slice()).collect();
    let headers: Vec<&[u8]> = sealed.iter().map(|(_, sealed, _)| sealed.header.as_slice()).collect();
    let bodies: Vec<&[u8]> = sealed.iter().map(|(_, _, body)| body.as_slice()).collect();
    let ids: Vec<Uuid> = sealed.iter().map(|(new, ..)| new.event_id.as_uuid()).collect();
    let times: Vec<SystemTime> = sealed
        .iter()
        .map(|(new, ..)| UNIX_EPOCH + Duration::from_micros(new.recorded_at.unix_micros().unsigned_abs()))
        .collect();
    let types: Vec<i16> = sealed.iter().map(|(new, ..)| new.event.event_type().id()).collect();
    let tenants = vec![Uuid::from_u128(1); asked.len()];
    let keys: Vec<Option<&str>> = asked.iter().map(|one| one.key).collect();
    let categories: Vec<&str> = streams.iter().map(StreamName::category).collect();
    let names: Vec<&str> = streams.iter().map(StreamName::key).collect();
    let salts = vec![salt.as_slice(); asked.len()];
    let row = client
        .query_one(
            "SELECT statuses, firsts FROM log.append_batch($1::int[], array_fill(false, ARRAY[cardinality($1::int[])]), $2, $3, \
             array_fill(1, ARRAY[cardinality($1::int[])]), $4, $5, $6, $4, '{}', '{}', '{}', '{}', $7, $8, $9, $10, $11, $12, $5, \
             $13, $4, $14, $15, $16)",
            &[
                &stream_numbers,
                &versions,
                &bases,
                &leaves,
                &tenants,
                &keys,
                &categories,
                &names,
                &numbers,
                &event_versions,
                &types,
                &ids,
                &times,
                &headers,
                &salts,
                &bodies,
            ],
        )
        .await
        .unwrap();
    (row.get(0), row.get(1))
}

async fn tip(log: &EventLog, stream: u128) -> Tip {
    log.stream_tip(&run_stream(stream)).await.unwrap().unwrap_or(NO_TIP)
}

async fn assert_sound(fixture: &Fixture, events: u64) {
    let audit = session(&fixture.database.audit_url()).await;
    let report = verify(&audit, Options::default(), |_| {}, |_| {}).await.unwrap();
    assert!(report.is_sound(), "{:?}", report.faults);
    assert_eq!((report.events, report.head), (events, Position(events)));
}

#[tokio::test]
async fn only_a_batch_in_which_everything_fits_is_written_as_a_set() {
    let fixture = fixture().await;
    let log = &fixture.log;
    let client = session(&fixture.database.append_url()).await;
    assert_eq!(raw_append(&client, log, &run_stream(1), NO_TIP, None).await.unwrap(), 0);
    let [one, two] = [1, 2].map(run_stream);
    let streams = [one.clone(), two];

    // One stream that exists and one that does not.
    let fits = [Asked::new(1, tip(log, 1).await, 1), Asked::new(2, NO_TIP, 2)];
    assert_eq!(call(&client, log, &streams, &fits).await, (None, vec![Some(1)]));
    assert_eq!((tip(log, 1).await.version, tip(log, 2).await.version), (Version(2), Version(1)));

    // The same again: both have moved, nothing is written.
    assert_eq!(call(&client, log, &streams, &fits).await, (Some(vec![3, 3]), vec![None, None]));
    // One of two fits: version and leaf count, each by itself.
    let forged = Tip { leaf: [7; 32], ..tip(log, 2).await };
    let half = [Asked::new(1, tip(log, 1).await, 1), Asked::new(2, forged, 2)];
    assert_eq!(call(&client, log, &streams, &half).await, (Some(vec![0, 3]), vec![Some(3), None]));
    let ahead = Tip { version: Version(9), ..tip(log, 1).await };
    let half = [Asked::new(1, ahead, 1), Asked::new(2, tip(log, 2).await, 2)];
    assert_eq!(call(&client, log, &streams, &half).await, (Some(vec![3, 0]), vec![None, Some(4)]));
    // A time that is off.
    let off =
        [Asked::new(1, tip(log, 1).await, 1), Asked { late: true, ..Asked::new(2, tip(log, 2).await, 2) }];
    assert_eq!(call(&client, log, &streams, &off).await, (Some(vec![0, 5]), vec![Some(5), None]));
    // A key is looked up and kept.
    let keyed =
        |tips: [Tip; 2]| [Asked { key: Some("k"), ..Asked::new(1, tips[0], 1) }, Asked::new(2, tips[1], 2)];
    let tips = [tip(log, 1).await, tip(log, 2).await];
    assert_eq!(call(&client, log, &streams, &keyed(tips)).await, (Some(vec![0, 0]), vec![Some(6), Some(7)]));
    assert!(log.find_key(TenantId(Uuid::from_u128(1)), "k").await.unwrap().is_some());
    // Requests that name their streams in another order, and two of one stream.
    let swapped = [Asked::new(2, tip(log, 2).await, 2), Asked::new(1, tip(log, 1).await, 1)];
    assert_eq!(call(&client, log, &streams, &swapped).await, (Some(vec![0, 0]), vec![Some(8), Some(9)]));
    let twice = [Asked::new(1, tip(log, 1).await, 1), Asked::new(1, tip(log, 1).await, 1)];
    assert_eq!(call(&client, log, &streams, &twice).await, (Some(vec![0, 3]), vec![Some(10), None]));
    let twice = [Asked::new(1, tip(log, 1).await, 1), Asked::new(1, tip(log, 1).await, 1)];
    assert_eq!(call(&client, log, &[one], &twice).await, (Some(vec![0, 3]), vec![Some(11), None]));

    assert_sound(&fixture, 12).await;
}

#[tokio::test]
async fn a_refused_row_leaves_nothing_of_a_batch_written_as_a_set() {
    let fixture = fixture().await;
    let log = &fixture.log;
    let admin = fixture.database.administrator().await.unwrap();
    admin.batch_execute("ALTER TABLE log.event_bodies ADD CHECK (position <> 3)").await.unwrap();
    let first = log.append(request(log, &run_stream(1), Expected::None)).await.unwrap();
    let held = hold_head(&fixture).await;
    let streams: Vec<_> = (2..5).map(run_stream).collect();
    let blocker = log.append(request(log, &run_stream(1), Expected::Exact(first.tip)));
    let rest = async {
        blocked(&fixture, 1).await;
        let work = join_all(streams.iter().map(|stream| log.append(request(log, stream, Expected::Any))));
        let release = async { held.batch_execute("COMMIT").await.unwrap() };
        tokio::join!(work, release).0
    };
    let (blocker, rest) = tokio::join!(blocker, rest);
    // Alone, each gets the position that the one before it could not fill.
    assert_eq!(blocker.unwrap().first_position, Position(1));
    assert_eq!(rest[0].as_ref().unwrap().first_position, Position(2));
    for refused in &rest[1..] {
        assert!(matches!(refused, Err(AppendError::Refused { .. })), "{refused:?}");
    }
    assert!(log.stream_tip(&streams[1]).await.unwrap().is_none());
    assert_sound(&fixture, 3).await;
}

#[tokio::test]
async fn requests_of_several_events_share_a_batch_with_and_without_a_key() {
    let fixture = fixture().await;
    let log = &fixture.log;
    let tenant = TenantId(Uuid::from_u128(1));
    let mut head = 0;
    for (round, key) in [None, Some("k")].into_iter().enumerate() {
        let known = log.stream_tip(&run_stream(0)).await.unwrap().map_or(Expected::None, Expected::Exact);
        let held = hold_head(&fixture).await;
        let blocker = log.append(request(log, &run_stream(100), Expected::Any));
        let rest = async {
            blocked(&fixture, 1).await;
            let asked = (0..6_u128).map(|n| {
                let expected = if n == 0 { known } else { Expected::Any };
                let mut asked = AppendRequest {
                    events: (0..=n).map(|_| event(log, "several")).collect(),
                    ..request(log, &run_stream(n), expected)
                };
                asked.key = key.filter(|_| n == 3).map(|key| RequestKey {
                    tenant,
                    key: key.to_owned(),
                    digest: [1; 32],
                });
                log.append(asked)
            });
            let work = join_all(asked);
            let release = async { held.batch_execute("COMMIT").await.unwrap() };
            tokio::join!(work, release).0
        };
        let (blocker, rest) = tokio::join!(blocker, rest);
        assert_eq!(blocker.unwrap().first_position, Position(head));
        let mut next = head + 1;
        for (n, appended) in rest.into_iter().enumerate() {
            let appended = appended.unwrap();
            let count = n as u64 + 1;
            assert_eq!(
                (appended.first_position.get(), appended.last_position.get()),
                (next, next + count - 1)
            );
            assert_eq!(appended.tip.version, Version(count * (round as u64 + 1)));
            assert_eq!(tip(log, n as u128).await, appended.tip);
            next += count;
        }
        head = next;
    }
    assert_sound(&fixture, head).await;
}
