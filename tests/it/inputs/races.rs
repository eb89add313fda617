//! Many clients at once on one run, and readers of logs of every size.

use std::collections::BTreeSet;
use std::time::Duration;

use event_log::testing::test_database;
use event_log::{AppendRequest, EventLog, Expected, LogConfig};
use events::event::lease::LeaseReleased;
use events::stored::{NewEvent, StreamName};
use events::{Epoch, Event, EventId, LeaseId, Position, RunId, TenantId};
use projections::Runner;
use serde_json::{Value, json};
use tests::api::id;
use tests::process::{Options, Service, data_dir};
use uuid::Uuid;

/// Twenty rounds of eight: one wins, the others are told why, nobody meets a fault of ours.
#[tokio::test(flavor = "multi_thread")]
async fn of_clients_that_want_one_run_exactly_one_gets_it() {
    let data = data_dir();
    let service = Service::start(data.path(), &Options { mechanism: "fake", ..Options::default() }).await;
    for _ in 0..20 {
        let run = Uuid::now_v7();
        let path = format!("/v1/runs/{run}/leases");
        let wanted = json!({ "ttl_seconds": 60 });
        let answers = futures::future::join_all((0..8).map(|_| service.post(&path, &wanted))).await;
        let (won, lost): (Vec<_>, Vec<_>) = answers.into_iter().partition(|(status, _)| *status == 201);
        assert_eq!(won.len(), 1, "{lost:?}");
        for (status, problem) in &lost {
            assert_eq!((status, &problem["code"]), (&409, &json!("lease_held")), "{problem}");
        }
        // All take over at once: every success is an epoch of its own, and one lease is live in the end.
        let takeover = json!({ "ttl_seconds": 60, "takeover": true });
        let answers = futures::future::join_all((0..8).map(|_| service.post(&path, &takeover))).await;
        let mut epochs = BTreeSet::from([won[0].1["epoch"].as_u64()]);
        for (status, answer) in &answers {
            match status {
                201 => assert!(epochs.insert(answer["epoch"].as_u64()), "an epoch twice: {answers:?}"),
                409 => assert_eq!(answer["code"], "conflict", "{answer}"),
                other => panic!("{other}: {answer}"),
            }
        }
        let last = epochs.last().copied().flatten().expect("an epoch");
        assert!(last >= 2 && epochs.len() as u64 == last, "without a gap: {epochs:?}");
        let events = service.events(run).await;
        let of = |kind: &str| events.iter().filter(|event| event["type"] == kind).count() as u64;
        assert_eq!((of("LeaseAcquired"), of("LeaseFenced")), (last, last - 1));
        let (_, live) = service.get(&format!("/v1/leases?run_id={run}&state=live")).await;
        let live: Vec<&Value> = live["items"].as_array().expect("items").iter().collect();
        assert_eq!((live.len(), &live[0]["epoch"]), (1, &json!(last)), "{live:?}");
        assert!(events.iter().any(|event| event["body"]["lease_id"] == id(live[0], "lease_id")));
    }
    service.assert_verified().await;
    service.stop().await;
}

/// T-11: logs of no, one and about a page's number of events are read, tailed and folded to their end, and nobody hangs.
#[tokio::test(flavor = "multi_thread")]
async fn logs_of_every_size_are_tailed_to_their_end() {
    let soon = Duration::from_secs(20);
    let database = test_database().await;
    let log = EventLog::open(LogConfig::new(database.append_url())).await.expect("the log opens");
    let runner = Runner::start(log.clone(), &database.project_url()).expect("a runner");
    let mut size = 0_u64;
    for wanted in [0, 1, 255, 256, 257] {
        while size < wanted {
            let count = (wanted - size).min(100);
            log.append(released(&log, count)).await.expect("appended");
            size += count;
        }
        // One that was there all along, and one that comes new.
        let late = EventLog::open(LogConfig::new(database.append_url())).await.expect("the log opens");
        for reader in [&log, &late] {
            let mut known = reader.subscribe();
            let told = tokio::time::timeout(soon, known.wait_for(|next| next.get() == wanted)).await;
            assert!(told.is_ok_and(|told| told.is_ok()), "{wanted} events are told of");
            let mut next = Position(0);
            while next.get() < wanted {
                let page = reader.read_all(next, 255).await.expect("a page");
                let positions: Vec<u64> = page.iter().map(|recorded| recorded.position.get()).collect();
                let whole: Vec<u64> = (next.get()..next.get() + page.len() as u64).collect();
                assert!(!page.is_empty() && positions == whole, "{positions:?}");
                next = Position(next.get() + page.len() as u64);
            }
            assert_eq!(next.get(), wanted, "not one too many");
            assert_eq!(reader.read_all(next, 255).await.expect("an empty page"), []);
        }
        runner.wait_until(Position(wanted), soon).await.expect("folded to the end");
        let fresh = Runner::start(late.clone(), &database.project_url()).expect("a runner");
        fresh.wait_until(Position(wanted), soon).await.expect("seen by a late one");
        fresh.stop().await;
    }
    runner.stop().await;
}

/// A request of `count` events.
fn released(log: &EventLog, count: u64) -> AppendRequest {
    let run_id = RunId(Uuid::now_v7());
    let tenant = TenantId(Uuid::from_u128(1));
    let event = || NewEvent {
        event_id: EventId(Uuid::now_v7()),
        tenant,
        recorded_at: log.clock().now(),
        actor: "service:test".to_owned(),
        correlation_id: Some(run_id),
        causation_id: None,
        event: Event::LeaseReleased(LeaseReleased { lease_id: LeaseId(Uuid::now_v7()), epoch: Epoch(1) }),
    };
    AppendRequest {
        stream: StreamName::run(tenant, run_id),
        expected: Expected::None,
        guards: Vec::new(),
        key: None,
        events: (0..count).map(|_| event()).collect(),
    }
}
