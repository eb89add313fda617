//! Appending: order, expectations, guards, keys, one bad request among good ones.

use event_log::{AppendError, AppendRequest, Expected, RequestKey, Tip};
use events::{Position, TenantId, Version};
use uuid::Uuid;

use crate::support::{event, fixture, request, run_stream, seen};

#[tokio::test]
async fn what_is_appended_is_read_back_in_order() {
    let fixture = fixture().await;
    let log = &fixture.log;
    let stream = run_stream(1);
    let events = vec![event(log, "one"), event(log, "two"), event(log, "three")];
    let appended = log
        .append(AppendRequest { events: events.clone(), ..request(log, &stream, Expected::None) })
        .await
        .unwrap();
    assert_eq!((appended.first_position, appended.last_position), (Position(0), Position(2)));
    assert_eq!(appended.tip.version, Version(3));

    let read = log.read_stream(&stream, Version(1), 10).await.unwrap();
    assert_eq!(
        read.iter().map(|r| r.event.clone().unwrap()).collect::<Vec<_>>(),
        events.iter().map(|e| e.event.clone()).collect::<Vec<_>>()
    );
    assert_eq!(read[2].leaf, appended.tip.leaf);
    assert_eq!(read[1].header.prev_leaf, hex::encode(read[0].leaf));
    assert_eq!(read, log.read_all(Position(0), 10).await.unwrap());
    assert_eq!(log.stream_tip(&stream).await.unwrap(), Some(appended.tip));
    assert_eq!(log.head().await.unwrap(), Position(3));
    seen(log, Position(3)).await;

    assert_eq!(log.read_stream(&stream, Version(3), 10).await.unwrap().len(), 1);
    assert!(log.read_stream(&stream, Version(4), 10).await.unwrap().is_empty());
    assert!(log.read_all(Position(3), 10).await.unwrap().is_empty());
    assert!(log.read_stream(&run_stream(2), Version(1), 10).await.unwrap().is_empty());
}

#[tokio::test]
async fn t15_expectations_that_do_not_hold_are_conflicts() {
    let fixture = fixture().await;
    let log = &fixture.log;
    let stream = run_stream(1);
    let imagined = Tip { version: Version(1), leaf: [7; 32] };
    let missing = log.append(request(log, &stream, Expected::Exact(imagined))).await;
    assert!(matches!(missing, Err(AppendError::Conflict { tip: None })), "{missing:?}");

    let first = log.append(request(log, &stream, Expected::None)).await.unwrap();
    let existing = log.append(request(log, &stream, Expected::None)).await;
    assert!(
        matches!(existing, Err(AppendError::Conflict { tip: Some(tip) }) if tip == first.tip),
        "{existing:?}"
    );
    // Version alone is not enough: another leaf is another history.
    let forged = log.append(request(log, &stream, Expected::Exact(Tip { leaf: [7; 32], ..first.tip }))).await;
    assert!(
        matches!(forged, Err(AppendError::Conflict { tip: Some(tip) }) if tip == first.tip),
        "{forged:?}"
    );

    let second = log.append(request(log, &stream, Expected::Exact(first.tip))).await.unwrap();
    assert_eq!(second.tip.version, Version(2));
    assert_eq!(log.head().await.unwrap(), Position(2));
}

#[tokio::test]
async fn guards_hold_the_caller_to_what_it_saw() {
    let fixture = fixture().await;
    let log = &fixture.log;
    let (guarded, stream) = (run_stream(1), run_stream(2));
    let seen = log.append(request(log, &guarded, Expected::None)).await.unwrap().tip;
    let guarded_request =
        || AppendRequest { guards: vec![(guarded.clone(), seen)], ..request(log, &stream, Expected::Any) };
    log.append(guarded_request()).await.unwrap();
    log.append(request(log, &guarded, Expected::Exact(seen))).await.unwrap();
    let late = log.append(guarded_request()).await;
    assert!(matches!(late, Err(AppendError::Conflict { .. })), "{late:?}");
    assert_eq!(log.stream_tip(&stream).await.unwrap().unwrap().version, Version(1));
}

#[tokio::test]
async fn t17_a_key_answers_once_and_repeats_the_answer() {
    let fixture = fixture().await;
    let log = &fixture.log;
    let tenant = TenantId(Uuid::from_u128(1));
    let key = |digest: u8| RequestKey { tenant, key: "k".to_owned(), digest: [digest; 32] };
    let keyed = |digest: u8| AppendRequest {
        key: Some(key(digest)),
        events: vec![event(log, "one"), event(log, "two")],
        ..request(log, &run_stream(1), Expected::Any)
    };
    // Twice at once: the same batch or two, one writes and the other is told what it wrote.
    let (one, two) = tokio::join!(log.append(keyed(1)), log.append(keyed(1)));
    let (one, two) = (one.unwrap(), two.unwrap());
    assert_eq!(
        (one.first_position, one.last_position, one.tip),
        (two.first_position, two.last_position, two.tip)
    );
    assert!(one.duplicate != two.duplicate);
    let again = log.append(keyed(1)).await.unwrap();
    assert!(again.duplicate);
    assert_eq!(again.tip, one.tip);
    let other = log.append(keyed(2)).await;
    assert!(matches!(other, Err(AppendError::KeyReused)), "{other:?}");
    // Another tenant's key of the same text is another key.
    let mut theirs = keyed(2);
    theirs.key = Some(RequestKey { tenant: TenantId(Uuid::from_u128(2)), ..key(2) });
    assert!(!log.append(theirs).await.unwrap().duplicate);

    let stored = log.find_key(tenant, "k").await.unwrap().unwrap();
    assert_eq!((stored.digest, stored.first_position, stored.event_count), ([1; 32], Position(0), 2));
    assert_eq!(stored.stream, run_stream(1));
    assert!(log.find_key(tenant, "other").await.unwrap().is_none());
    assert!(log.find_key(tenant, "nul\0").await.unwrap().is_none());
    assert_eq!(log.head().await.unwrap(), Position(4));
}
