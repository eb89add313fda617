//! Heads follow the log.

use std::collections::{BTreeMap, VecDeque};
use std::time::{Duration, Instant};

use event_log::Expected;
use event_log::proof::tiles::Edge;
use event_log::seal::{SealConfig, SealState};
use futures::future::join_all;

use super::{Sealing, root_of, says, sealed, sealing};
use crate::support::{request, run_stream, session};

#[tokio::test]
async fn heads_grow_with_the_log_and_a_restart_goes_on() {
    let sealing = sealing().await;
    let sealer = sealing.start();
    // Nothing is nothing to sign.
    says(&sealer, |status| status.state == SealState::Sealing).await;
    assert_eq!(sealing.heads().await, 0);
    let mut size = 0;
    for count in [1, 2, 253, 1, 44] {
        sealing.append(count).await;
        size += count as u64;
        sealed(&sealer, size).await;
        let head = sealing.last().await;
        assert_eq!((head.size, head.root), (size, root_of(&sealing.leaves().await)));
        sealing.kept(size).await;
        assert_eq!(sealing.outside().unwrap(), head);
    }
    drop(sealer);
    sealing.unlocked().await;
    // What was appended meanwhile is sealed at once; without anything new nothing is signed.
    sealing.append(400).await;
    assert_eq!(sealing.last().await.size, size);
    let head = sealing.seal().await;
    assert_eq!((head.size, head.root), (size + 400, root_of(&sealing.leaves().await)));
    let heads = sealing.heads().await;
    assert_eq!(sealing.seal().await, head);
    assert_eq!(sealing.heads().await, heads);
}

#[tokio::test]
async fn a_backlog_is_sealed_page_by_page() {
    let sealing = sealing().await;
    sealing.append(5000).await;
    let head = sealing.seal().await;
    assert_eq!((head.size, head.root), (5000, root_of(&sealing.leaves().await)));
    let client = session(&sealing.fixture.database.audit_url()).await;
    let rows = client.query("SELECT size FROM log.checkpoints ORDER BY size", &[]).await.unwrap();
    assert_eq!(rows.iter().map(|row| row.get(0)).collect::<Vec<i64>>(), [4096, 5000]);
}

#[tokio::test]
async fn stored_tiles_are_those_of_the_signed_sizes_and_nothing_else() {
    let sealing = sealing().await;
    for count in [3, 200, 60, 1, 300, 36, 256] {
        sealing.append(count).await;
        sealing.seal().await;
    }
    let leaves = sealing.leaves().await;
    let client = session(&sealing.fixture.database.audit_url()).await;
    let sizes: Vec<i64> = client
        .query("SELECT size FROM log.checkpoints ORDER BY size", &[])
        .await
        .unwrap()
        .iter()
        .map(|row| row.get(0))
        .collect();
    assert_eq!(sizes, [3, 203, 263, 264, 564, 600, 856]);
    let (mut edge, mut expected) = (Edge::default(), BTreeMap::new());
    for size in sizes {
        while edge.size() < size as u64 {
            edge.push(leaves[edge.size() as usize]);
        }
        for tile in edge.take_new() {
            expected.insert(tile.id().to_string(), tile.to_bytes());
        }
    }
    let rows = client.query("SELECT level, index, width, hashes FROM log.tiles", &[]).await.unwrap();
    let stored: BTreeMap<String, Vec<u8>> = rows
        .iter()
        .map(|row| {
            let (level, index, width): (i16, i64, i16) = (row.get(0), row.get(1), row.get(2));
            let partial = if width < 256 { format!(".p/{width}") } else { String::new() };
            (format!("tile/{level}/{index:03}{partial}"), row.get(3))
        })
        .collect();
    assert_eq!(stored, expected);
    let names: Vec<&str> = stored.keys().map(String::as_str).collect();
    // Level 0 where it is full; above it a row for each width, although five heads came between 256 and 768 events.
    let (full, above) =
        (["tile/0/000", "tile/0/001", "tile/0/002"], ["tile/1/000.p/1", "tile/1/000.p/2", "tile/1/000.p/3"]);
    assert_eq!(names, [full, above].concat());
}

/// What the machine kept, within the second when it was worst, from a task that only pauses and asks the database for nothing: a sealer
/// can be late by as much without any fault of its own. A quiet machine keeps a few hundredths of a second.
async fn withheld(sealing: &Sealing, end: Instant) -> Duration {
    const PAUSE: Duration = Duration::from_millis(20);
    let client = session(&sealing.fixture.database.audit_url()).await;
    let (mut last_second, mut worst) = (VecDeque::<(Instant, Duration)>::new(), Duration::ZERO);
    while Instant::now() < end {
        let begun = Instant::now();
        tokio::time::sleep(PAUSE).await;
        client.query_one("SELECT 1", &[]).await.unwrap();
        last_second.push_back((begun, begun.elapsed().saturating_sub(PAUSE)));
        // The newest one counts however long it took.
        while last_second.len() > 1 && last_second[0].0.elapsed() > Duration::from_secs(1) {
            last_second.pop_front();
        }
        worst = worst.max(last_second.iter().map(|(_, late)| *late).sum());
    }
    worst
}

/// The product's bound: a head at most one second or 4,096 events later. Added to the second is what the machine withheld, and to the
/// events those that come while one page of as many is being sealed.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn under_load_heads_stay_close_behind() {
    let sealing = sealing().await;
    let log = &sealing.fixture.log;
    let sealer = sealing.start();
    says(&sealer, |status| status.state == SealState::Sealing).await;
    let end = Instant::now() + Duration::from_secs(6);
    let writers = join_all((0..32).map(|stream| async move {
        while Instant::now() < end {
            log.append(request(log, &run_stream(stream), Expected::Any)).await.unwrap();
        }
    }));
    let watch = async {
        // When each length of the log was first seen; what is sealed is forgotten, and how late that was is kept.
        let (mut positions, mut status) = (log.subscribe(), sealer.status());
        let mut seen: BTreeMap<u64, Instant> = BTreeMap::new();
        let (mut oldest, mut most) = (Duration::ZERO, 0);
        while Instant::now() < end {
            tokio::select! {
                changed = positions.changed() => changed.unwrap(),
                changed = status.changed() => changed.unwrap(),
            }
            let (head, sealed) = (positions.borrow_and_update().get(), status.borrow_and_update().sealed);
            seen.entry(head).or_insert_with(Instant::now);
            if let Some((_, first)) = seen.first_key_value() {
                oldest = oldest.max(first.elapsed());
            }
            seen.retain(|head, _| *head > sealed);
            most = most.max(head.saturating_sub(sealed));
        }
        (oldest, most)
    };
    let (_, (oldest, most), withheld) = tokio::join!(writers, watch, withheld(&sealing, end));
    let size = log.head().await.unwrap().get();
    let heads = sealing.heads().await;
    println!(
        "{size} events, {heads} heads; at most {oldest:?} and {most} events behind; withheld {withheld:?}"
    );
    assert!(oldest <= Duration::from_secs(1) + withheld, "{oldest:?} behind; withheld {withheld:?}");
    assert!(most <= 2 * 4096, "{most} events behind");
    sealed(&sealer, size).await;
    assert_eq!(sealing.last().await.root, root_of(&sealing.leaves().await));
    // Close behind, and still far fewer heads than events.
    let by_time = 6 * 2 + 1;
    assert!(heads <= by_time + (size / 4096) as i64 + 1, "{heads} heads");
}

/// A lone event is sealed within a second too, right after another head or long after.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lone_event_is_sealed_within_a_second() {
    let sealing = sealing().await;
    let sealer = sealing.start();
    says(&sealer, |status| status.state == SealState::Sealing).await;
    let end = Instant::now() + Duration::from_secs(3);
    let events = async {
        let (mut size, mut worst) = (0, Duration::ZERO);
        while Instant::now() < end {
            sealing.append(1).await;
            size += 1;
            let begun = Instant::now();
            sealed(&sealer, size).await;
            worst = worst.max(begun.elapsed());
        }
        (size, worst)
    };
    let ((size, worst), withheld) = tokio::join!(events, withheld(&sealing, end));
    println!("{size} events one by one, each sealed within {worst:?}; withheld {withheld:?}");
    assert!(size > 2 && worst <= Duration::from_secs(1) + withheld, "{worst:?}; withheld {withheld:?}");
}

/// What a log costs that grows by an event now and then, a head for each: some hundred bytes of head, and no tile of level 0 before it
/// is full. Pages and indexes of the two small tables are in the figure too.
#[tokio::test]
async fn a_head_for_every_event_costs_little() {
    const HEADS: i64 = 60;
    let sealing = sealing().await;
    sealing.append(220).await;
    for size in (1..=HEADS).map(|n| 220 + n as u64) {
        sealing.append(1).await;
        // A sealer that has just begun waits for nothing.
        let sealer = sealing.start_with(SealConfig { recheck_events: 0, ..sealing.config() });
        sealed(&sealer, size).await;
        drop(sealer);
        sealing.unlocked().await;
    }
    assert_eq!(sealing.heads().await, HEADS);
    assert_eq!(sealing.last().await.root, root_of(&sealing.leaves().await));
    let client = session(&sealing.fixture.database.audit_url()).await;
    let sql = "SELECT sum(octet_length(hashes)), pg_total_relation_size('log.tiles'), \
               pg_total_relation_size('log.checkpoints') FROM log.tiles";
    let row = client.query_one(sql, &[]).await.unwrap();
    let (hashes, tiles, checkpoints): (i64, i64, i64) = (row.get(0), row.get(1), row.get(2));
    println!("{HEADS} heads: {hashes} bytes of hashes, tiles {tiles} bytes, checkpoints {checkpoints} bytes");
    assert_eq!(hashes, 32 * 257, "tile/0/000 and tile/1/000.p/1");
    assert!(tiles + checkpoints < 3072 * HEADS, "tiles {tiles} bytes, checkpoints {checkpoints} bytes");
}
