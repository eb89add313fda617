//! Ends of leases and of the service: renewals that race the clock, releases that come early, twice, or while the engine is
//! away, and a stop with work under way.

use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tests::api::id;
use tests::process::{Options, Service, data_dir, left_in_engine};

use super::{begin, bodies, commands_of, path_of, sh};

/// Renewals around the instant of expiry: each lease is either renewed or expired, never both, and a restart knows which.
#[tokio::test(flavor = "multi_thread")]
async fn a_renewal_and_the_expiry_never_both_win() {
    let data = data_dir();
    let fake = Options { mechanism: "fake", ..Options::default() };
    let service = Service::start(data.path(), &fake).await;
    let mut leases = Vec::new();
    for _ in 0..20 {
        leases.push(service.lease_for(1.0).await);
    }
    let races = leases.iter().enumerate().map(|(n, (_, lease))| {
        let (service, path) = (&service, path_of(lease));
        async move {
            // Asked again and again, by two clients, until the clock has decided.
            let mut renewed = None;
            let mut pause = Duration::from_millis(970 + 3 * n as u64);
            loop {
                tokio::time::sleep(pause).await;
                pause = Duration::from_millis(7);
                let body = json!({ "ttl_seconds": 1.2 });
                let renew = format!("{path}/renew");
                let (one, two) = tokio::join!(service.post(&renew, &body), service.post(&renew, &body));
                for (status, answer) in [one, two] {
                    match status {
                        200 => renewed = Some(answer),
                        409 => {
                            assert_eq!(answer["code"], "lease_lost", "{answer}");
                            return renewed;
                        }
                        other => panic!("{other}: {answer}"),
                    }
                }
                if renewed.is_some() {
                    // The last renewals race the end that the first one set.
                    pause = Duration::from_millis(1_170 + 3 * n as u64);
                }
            }
        }
    });
    let raced = tokio::time::timeout(Duration::from_secs(50), futures::future::join_all(races)).await;
    let raced = raced.expect("every lease ends");
    for ((run, lease), renewed) in leases.iter().zip(raced) {
        let path = path_of(lease);
        let ended = service.wait_for(&path, "the expiry", |lease| lease["state"] == "expired").await;
        if let Some(renewed) = renewed {
            assert_eq!(ended["expires_at"], renewed["expires_at"], "the end is the one last promised");
        }
        let events = service.events(*run).await;
        let kinds: Vec<&str> = events.iter().filter_map(|event| event["type"].as_str()).collect();
        assert_eq!(kinds.iter().filter(|kind| **kind == "LeaseExpired").count(), 1, "{kinds:?}");
        assert_eq!(kinds.last(), Some(&"LeaseExpired"), "nothing renews a dead lease: {kinds:?}");
    }

    // What a renewal promised survives a kill of the service; what ended meanwhile is found without its timer.
    let (_, kept) = service.lease_for(30.0).await;
    let (run, lost) = service.lease_for(1.0).await;
    let (status, renewed) =
        service.post(&format!("{}/renew", path_of(&kept)), &json!({ "ttl_seconds": 900 })).await;
    assert_eq!(status, 200, "{renewed}");
    service.kill_hard().await;
    let service = Service::start(data.path(), &fake).await;
    let (status, restored) = service.get(&path_of(&kept)).await;
    assert_eq!(
        (status, &restored["state"], &restored["expires_at"]),
        (200, &json!("live"), &renewed["expires_at"]),
        "{restored}"
    );
    service.wait_for(&path_of(&lost), "the expiry", |lease| lease["state"] == "expired").await;
    let (status, late) =
        service.post(&format!("{}/renew", path_of(&lost)), &json!({ "ttl_seconds": 60 })).await;
    assert_eq!((status, &late["code"]), (409, &json!("lease_lost")), "{late}");
    assert_eq!(bodies(&service.events(run).await, "LeaseExpired").len(), 1);
    service.assert_verified().await;
    service.stop().await;
}

/// Released while its containers are being made, twice, and taken again at once: a clean generation with nothing of the old.
#[tokio::test(flavor = "multi_thread")]
async fn a_release_is_accepted_in_any_state_and_the_next_generation_is_clean() {
    let data = data_dir();
    let service = Service::start(data.path(), &Options::docker()).await;
    let log_id = service.log_id().await;
    let (run, first) = service.lease_for(600.0).await;
    let body = sh("echo never");
    let release = format!("{}/release", path_of(&first));
    let released_while_starting = async {
        service
            .wait_for(&path_of(&first), "the intent", |lease| lease["environment"]["state"] == "requested")
            .await;
        for _ in 0..2 {
            let (status, released) = service.post(&release, &json!({})).await;
            assert_eq!((status, &released["state"]), (200, &json!("released")), "{released}");
        }
        service.post(&format!("/v1/runs/{run}/leases"), &json!({ "ttl_seconds": 600 })).await
    };
    let path = commands_of(&first);
    let ((status, refused), (acquired, second)) =
        tokio::join!(service.post(&path, &body), released_while_starting);
    assert_eq!((status, &refused["code"]), (409, &json!("lease_lost")), "its caller is refused: {refused}");
    assert_eq!((acquired, &second["epoch"]), (201, &json!(2)), "{second}");

    let written = service.run(&second, &sh("ls; echo mine > file")).await;
    assert_eq!((&written["exit_code"], &written["stdout"]["text"]), (&json!(0), &json!("")), "{written}");
    for (call, body) in [("commands", sh("true")), ("renew", json!({ "ttl_seconds": 60 }))] {
        let (status, stale) = service.post(&format!("{}/{call}", path_of(&first)), &body).await;
        assert_eq!((status, &stale["code"]), (409, &json!("lease_lost")), "{call}: {stale}");
    }
    service
        .wait_for(&path_of(&first), "teardown", |lease| lease["environment"]["state"] == "destroyed")
        .await;
    assert_eq!(service.run(&second, &sh("cat file")).await["stdout"]["text"], "mine\n");
    assert_eq!(left_in_engine(&log_id).await.len(), 3, "the living one's objects only");
    assert!(
        bodies(&service.events(run).await, "CommandAccepted").len() == 2,
        "the refused one left no command"
    );

    // Twice at once is once, and again a generation of its own follows.
    let release = format!("{}/release", path_of(&second));
    let nothing = json!({});
    let (one, two) = tokio::join!(service.post(&release, &nothing), service.post(&release, &nothing));
    assert_eq!((one.0, two.0), (200, 200));
    let (status, third) =
        service.post(&format!("/v1/runs/{run}/leases"), &json!({ "ttl_seconds": 600 })).await;
    assert_eq!((status, &third["epoch"]), (201, &json!(3)), "{third}");
    assert_eq!(service.run(&third, &sh("ls")).await["stdout"]["text"], "", "a workspace of its own");
    service.assert_verified().await;
    service.stop().await;
}

/// The engine is away when a lease is given back: accepted, visible, tried again, and done in the end.
#[tokio::test(flavor = "multi_thread")]
async fn a_release_without_an_engine_is_kept_and_carried_out_later() {
    let data = data_dir();
    let engine = crate::reconcile::Cuttable::start(data.path());
    let host = format!("unix://{}", engine.socket.display());
    let options = Options { variables: vec![("LEASEHOLD_ENGINE_HOST", host)], ..Options::docker() };
    let service = Service::start(data.path(), &options).await;
    let log_id = service.log_id().await;
    let (run, lease) = service.lease_for(600.0).await;
    service.run(&lease, &sh("true")).await;
    engine.set(false);
    let (status, released) = service.post(&format!("{}/release", path_of(&lease)), &json!({})).await;
    assert_eq!((status, &released["state"]), (200, &json!("released")), "{released}");
    let failed = format!("/v1/runs/{run}/events?type=EnvironmentTeardownFailed");
    service
        .wait_for(&failed, "two attempts", |page| {
            page["items"].as_array().is_some_and(|items| items.len() >= 2)
        })
        .await;
    let (_, waiting) = service.get(&path_of(&lease)).await;
    assert_eq!(waiting["environment"]["state"], "tearing_down", "{waiting}");
    let (status, ready) = service.get("/readyz").await;
    assert_eq!((status, &ready["ready"]), (503, &json!(false)), "{ready}");
    assert_eq!(left_in_engine(&log_id).await.len(), 3);

    engine.set(true);
    service
        .wait_for(&path_of(&lease), "teardown", |lease| lease["environment"]["state"] == "destroyed")
        .await;
    assert_eq!(left_in_engine(&log_id).await, Vec::<String>::new());
    let events = service.events(run).await;
    assert_eq!(bodies(&events, "EnvironmentDestroyed").len(), 1);
    assert!(
        bodies(&events, "EnvironmentTeardownFailed")
            .iter()
            .all(|body| body["reason_code"] == "engine_unreachable"),
        "{events:?}"
    );
    service.stop().await;
}

/// A stop waits for what runs, then ends it under its own name, records that, and leaves nothing.
#[tokio::test(flavor = "multi_thread")]
async fn a_stop_ends_commands_under_its_own_name() {
    let data = data_dir();
    let options = Options {
        variables: vec![("LEASEHOLD_SHUTDOWN_DRAIN_SECONDS", "2".to_owned())],
        ..Options::docker()
    };
    let service = Service::start(data.path(), &options).await;
    let (run, lease) = service.lease_for(600.0).await;
    let finishing = begin(&service, &lease, sh("echo begun; sleep 1; echo done")).await;
    let mut body = sh("echo partial; sleep 600");
    body["background"] = json!(true);
    let running = begin(&service, &lease, body).await;
    let waiting = begin(&service, &lease, sh("sleep 600")).await;
    for command in [&finishing, &running] {
        let path = format!("/v1/commands/{}", id(command, "command_id"));
        service.wait_for(&path, "the start", |command| command["state"] == "running").await;
    }
    service.stop().await;

    let service = Service::start(data.path(), &options).await;
    let ended = async |command: &Value| {
        let (status, ended) = service.get(&format!("/v1/commands/{}", id(command, "command_id"))).await;
        assert_eq!((status, &ended["state"]), (200, &json!("finished")), "{ended}");
        ended
    };
    let finished = ended(&finishing).await;
    assert_eq!(
        (&finished["exit_code"], &finished["stdout"]["text"]),
        (&json!(0), &json!("begun\ndone\n")),
        "what ends in time is let end: {finished}"
    );
    for (command, output) in [(&running, "partial\n"), (&waiting, "")] {
        let killed = ended(command).await;
        assert_eq!(
            (&killed["killed_by"], &killed["exit_code"], &killed["stdout"]["text"]),
            (&json!("SERVICE_SHUTDOWN"), &Value::Null, &json!(output)),
            "{killed}"
        );
        assert_eq!(killed["evidence"]["deadline_ms"], 2_000, "{killed}");
    }
    let (_, lease) = service.get(&path_of(&lease)).await;
    assert_eq!(lease["environment"]["state"], "destroyed", "{lease}");
    assert_eq!(bodies(&service.events(run).await, "EnvironmentDestroyed").len(), 1);
    service.assert_verified().await;
    service.stop().await;
}

/// A download that nobody reads holds up neither a release nor a stop for longer than the patience with streams.
#[tokio::test(flavor = "multi_thread")]
async fn an_abandoned_download_holds_nobody_up() {
    let data = data_dir();
    let service = Service::start(data.path(), &Options::docker()).await;
    let stalled = async || {
        let (_, lease) = service.lease_for(600.0).await;
        let made = service.run(&lease, &sh("truncate -s 25165824 large")).await;
        assert_eq!(made["exit_code"], 0, "{made}");
        let target = format!("{}/files/large", path_of(&lease));
        let download = service.request(reqwest::Method::GET, &target).send().await.expect("an answer");
        assert_eq!(download.status(), 200);
        (lease, download)
    };
    let (lease, _unread) = stalled().await;
    let start = Instant::now();
    let (status, released) = service.post(&format!("{}/release", path_of(&lease)), &json!({})).await;
    assert_eq!(status, 200, "{released}");
    service
        .wait_for(&path_of(&lease), "teardown", |lease| lease["environment"]["state"] == "destroyed")
        .await;
    assert!(start.elapsed() < Duration::from_secs(15), "{:?}", start.elapsed());

    let (_, _unread_too) = stalled().await;
    let start = Instant::now();
    service.stop().await;
    assert!(start.elapsed() < Duration::from_secs(20), "{:?}", start.elapsed());
}
