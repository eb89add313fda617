//! Payloads: bytes read back are bytes hashed; bounds are kept before anything is queued.

use std::collections::BTreeMap;

use event_log::verify::{Fault, Options, verify};
use event_log::{AppendError, AppendRequest, Expected, REQUEST_BYTES_MAX, REQUEST_EVENTS_MAX};
use events::bounds::EVENT_BYTES_MAX;
use events::event::lease::LeaseAcquired;
use events::spec::Limits;
use events::stored::{NewEvent, StreamName, encode_body, seal};
use events::{Epoch, Event, EventId, LeaseId, LogId, Position, TenantId, Timestamp, Version};
use futures::future::join_all;
use uuid::Uuid;

use crate::support::{NO_TIP, blocked, event, fixture, hold_head, raw_append, request, run_stream, session};

#[tokio::test]
async fn t26_awkward_text_is_stored_exactly() {
    let fixture = fixture().await;
    let log = &fixture.log;
    let texts = [
        "",
        "NUL \0 inside \\u0000 and escaped",
        "replacement \u{fffd}, separators \u{2028}\u{2029}, direction \u{202e}",
        "astral \u{1f600}, last \u{10ffff}, private \u{e000}",
        "control \u{1}\u{1f}\u{7f}\u{9f} \" \\ /",
    ];
    for (text, version) in texts.iter().zip(1..) {
        let mut asked = request(log, &run_stream(1), Expected::Any);
        asked.events = vec![event(log, text)];
        let written = asked.events[0].event.clone();
        log.append(asked).await.unwrap();
        let read = log.read_stream(&run_stream(1), Version(version), 1).await.unwrap();
        assert_eq!(read[0].event.as_ref(), Some(&written));
        let client = session(&fixture.database.audit_url()).await;
        let sql = "SELECT body FROM log.event_bodies WHERE position = $1";
        let body: Vec<u8> = client.query_one(sql, &[&(version as i64 - 1)]).await.unwrap().get(0);
        assert_eq!(body, encode_body(&written).unwrap());
    }
}

#[tokio::test]
async fn t27_bytes_that_we_would_not_write_are_found() {
    let fixture = fixture().await;
    let log = &fixture.log;
    let admin = fixture.database.administrator().await.unwrap();
    let lease = Uuid::from_u128(7);
    // Committed to honestly, but not what an event is written as.
    let forms = [
        format!(r#"{{"lease_id":"{lease}","epoch":1,"reason":null}}"#),
        format!(r#"{{"epoch":1,"epoch":1,"lease_id":"{lease}","reason":null}}"#),
        format!(r#"{{"epoch":1.0,"lease_id":"{lease}","reason":null}}"#),
        format!(r#"{{"epoch":1e0,"lease_id":"{lease}","reason":null}}"#),
        format!(r#"{{"epoch":18446744073709551616,"lease_id":"{lease}","reason":null}}"#),
        format!(r#"{{"epoch":1,"lease_id":"{lease}","other":1,"reason":null}}"#),
        format!(r#"{{"epoch":1,"lease_id":"{lease}","reason":"\ud800"}}"#),
    ];
    for (n, form) in forms.iter().enumerate() {
        let stream = run_stream(n as u128);
        assert_eq!(raw_append(&admin, log, &stream, NO_TIP, Some(form.as_bytes())).await.unwrap(), 0);
        let refused = log.read_all(Position(n as u64), 1).await;
        assert!(refused.is_err(), "{form}: {refused:?}");
    }
    let report = verify(&admin, Options::default(), |_| {}, |_| {}).await.unwrap();
    assert_eq!(report.faults_found, forms.len() as u64);
    assert!(
        report.faults.iter().all(|finding| matches!(finding.what, Fault::Body { .. })),
        "{:?}",
        report.faults
    );
}

#[tokio::test]
async fn a_reader_gets_what_comes_before_a_fault_and_then_its_place() {
    let fixture = fixture().await;
    let log = &fixture.log;
    let admin = fixture.database.administrator().await.unwrap();
    log.append(request(log, &run_stream(1), Expected::None)).await.unwrap();
    raw_append(&admin, log, &run_stream(2), NO_TIP, Some(b"{}")).await.unwrap();
    log.append(request(log, &run_stream(1), Expected::Any)).await.unwrap();
    assert_eq!(log.read_all(Position(0), 10).await.unwrap().len(), 1);
    let error = log.read_all(Position(1), 10).await.unwrap_err();
    assert!(matches!(error, event_log::LogError::Undecodable { position: Position(1), .. }), "{error:?}");
    assert!(!error.is_retryable());
    assert_eq!(log.read_positions(&[Position(2), Position(0), Position(7)]).await.unwrap().len(), 2);
}

#[tokio::test]
async fn t29_the_hashed_time_is_the_stored_time() {
    let fixture = fixture().await;
    let log = &fixture.log;
    let base = log.clock().now().unix_micros();
    // An odd number of microseconds, so that nothing is rounded by luck.
    let odd = Timestamp::try_from_unix_micros(base - base % 1_000_000 + 123_457).unwrap();
    let mut asked = request(log, &run_stream(1), Expected::None);
    asked.events[0].recorded_at = odd;
    log.append(asked).await.unwrap();
    let client = session(&fixture.database.audit_url()).await;
    let sql = "SELECT to_char(recorded_at AT TIME ZONE 'UTC', 'YYYY-MM-DD\"T\"HH24:MI:SS.US\"Z\"'), header FROM log.events";
    let row = client.query_one(sql, &[]).await.unwrap();
    let header: serde_json::Value = serde_json::from_slice(row.get(1)).unwrap();
    assert_eq!(header["recorded_at"], row.get::<_, String>(0));
    assert!(row.get::<_, String>(0).ends_with(".123457Z"));
    assert_eq!(log.read_all(Position(0), 1).await.unwrap()[0].header.recorded_at, odd);
}

#[tokio::test]
async fn a_time_more_than_five_seconds_off_is_refused() {
    let fixture = fixture().await;
    let log = &fixture.log;
    for (ahead_ms, good) in [(4_000, true), (6_000, false)] {
        // Alone and among others: both functions check.
        for count in [1, 2] {
            let mut asked = request(log, &run_stream(1), Expected::Any);
            asked.events = vec![event(log, "late"); count];
            asked.events[count - 1].recorded_at = log.clock().now().plus_ms(ahead_ms);
            let result = log.append(asked).await;
            assert_eq!(result.is_ok(), good, "{ahead_ms} {count} {result:?}");
        }
    }
    assert_eq!(log.head().await.unwrap(), Position(3));
}

#[tokio::test]
async fn t30_bounds_are_kept_and_large_requests_share_no_batch() {
    let fixture = fixture().await;
    let log = &fixture.log;
    let sized = |bytes: usize| event(log, &"x".repeat(bytes));
    let with = |events| AppendRequest { events, ..request(log, &run_stream(1), Expected::Any) };
    for bytes in [0, 8_000, 64 * 1024, EVENT_BYTES_MAX - 2048] {
        log.append(with(vec![sized(bytes)])).await.unwrap();
    }
    for bytes in [EVENT_BYTES_MAX, 1 << 20] {
        let refused = log.append(with(vec![sized(bytes)])).await;
        assert!(matches!(refused, Err(AppendError::TooLarge { max: EVENT_BYTES_MAX, .. })), "{refused:?}");
    }
    let many = log.append(with(vec![sized(1); REQUEST_EVENTS_MAX + 1])).await;
    assert!(matches!(many, Err(AppendError::TooLarge { max: REQUEST_EVENTS_MAX, .. })), "{many:?}");
    let heavy = log.append(with(vec![sized(500_000); 9])).await;
    assert!(matches!(heavy, Err(AppendError::TooLarge { max: REQUEST_BYTES_MAX, .. })), "{heavy:?}");
    let none = log.append(with(Vec::new())).await;
    assert!(matches!(none, Err(AppendError::Refused { .. })), "{none:?}");

    // Ten requests of 1 MB each wait together: more than one batch takes.
    let held = hold_head(&fixture).await;
    let work = join_all((0..10).map(|_| log.append(with(vec![sized(500_000), sized(500_000)]))));
    let release = async {
        blocked(&fixture, 1).await;
        held.batch_execute("COMMIT").await.unwrap();
    };
    let (appended, ()) = tokio::join!(work, release);
    assert!(appended.iter().all(Result::is_ok));
    // 24 events, 10 MB: a page ends by bytes too.
    let first = log.read_all(Position(0), 100).await.unwrap();
    assert!((4..24).contains(&first.len()), "{}", first.len());
    let second = log.read_all(first.last().unwrap().position.next(), 100).await.unwrap();
    assert_eq!(first.len() + second.len(), 24);
}

#[test]
fn t31_moving_a_boundary_changes_the_bytes() {
    let labelled = |key: &str, value: &str| {
        Event::LeaseAcquired(LeaseAcquired {
            lease_id: LeaseId(Uuid::from_u128(7)),
            epoch: Epoch(1),
            holder: None,
            ttl_ms: 1,
            expires_at: Timestamp::try_from_unix_micros(1).unwrap(),
            environment_cap_ms: 1,
            limits: Limits {
                cpu_millicores: 1,
                memory_bytes: 1,
                pids_max: 1,
                workspace_bytes: 1,
                inodes_max: 1,
                wall_clock_seconds: 1,
            },
            network: false,
            tools: Vec::new(),
            labels: BTreeMap::from([(key.to_owned(), value.to_owned())]),
        })
    };
    assert_ne!(encode_body(&labelled("ab", "c")).unwrap(), encode_body(&labelled("a", "bc")).unwrap());
    // The same in the header: category and key of the stream.
    let new = NewEvent {
        event_id: EventId(Uuid::from_u128(1)),
        tenant: TenantId(Uuid::from_u128(2)),
        recorded_at: Timestamp::try_from_unix_micros(1).unwrap(),
        actor: "a".to_owned(),
        correlation_id: None,
        causation_id: None,
        event: labelled("a", "b"),
    };
    let leaf = |category: &str, key: &str| {
        let stream = StreamName::try_new(category, key).unwrap();
        seal(LogId(Uuid::from_u128(3)), &stream, Version(1), &[0; 32], &new, &[0; 32], b"{}").unwrap().leaf
    };
    assert_ne!(leaf("ab", "c"), leaf("a", "bc"));
}
