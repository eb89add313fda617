//! kill -9 at every named point, then a restart: nothing acknowledged is lost, nothing runs twice, the live lease goes on, the
//! rest is gone. Real containers, a real database, the real process.

use reqwest::Method;
use serde_json::{Value, json};
use tests::api::id;
use tests::process::{Options, Service, data_dir, left_in_engine};

/// What a restart must make of the command that was under way.
#[derive(Clone, Copy, PartialEq)]
enum Then {
    /// It was never accepted.
    Unknown,
    /// It may have run and is never run again.
    Interrupted,
    /// Its outcome is on record.
    Finished,
}

/// Appends a line to a file and prints how many there are: a second run of it would show.
fn counting_command() -> Value {
    json!({ "argv": ["sh", "-c", "echo ran >> count; wc -l < count"], "timeout_seconds": 20 })
}

async fn crash_and_restart(point: &'static str, then: Then) {
    let data = data_dir();
    let service =
        Service::start(data.path(), &Options { crash_point: Some(point), ..Options::docker() }).await;
    let log_id = service.log_id().await;
    let (run, lease) = service.lease_for(600.0).await;
    let commands = format!("/v1/leases/{}/commands", id(&lease, "lease_id"));
    let lost = service
        .request(Method::POST, &commands)
        .header("Idempotency-Key", "the-one")
        .json(&counting_command())
        .send()
        .await;
    assert!(lost.is_err(), "{point}: the service answered instead of crashing");
    service.wait_for_crash().await;

    let service = Service::start(data.path(), &Options::docker()).await;
    let lease_path = format!("/v1/leases/{}", id(&lease, "lease_id"));
    let (status, restored) = service.get(&lease_path).await;
    assert_eq!((status, restored["state"].as_str()), (200, Some("live")), "{point}: {restored}");

    // The lost request, sent again with its key: the same command, never a second one.
    let retried = service
        .request(Method::POST, &commands)
        .header("Idempotency-Key", "the-one")
        .json(&counting_command());
    let (status, command) = service.send(retried).await;
    assert_eq!(status, 200, "{point}: {command}");
    let expected = match then {
        Then::Unknown | Then::Finished => "finished",
        Then::Interrupted => "interrupted",
    };
    assert_eq!(command["state"], expected, "{point}: {command}");
    if then == Then::Interrupted {
        assert_eq!(command["cause"], "service_lost", "{point}: {command}");
    }

    // The workspace survived, and the command ran at most once.
    let count = service.run(&lease, &json!({ "argv": ["sh", "-c", "cat count 2>/dev/null | wc -l"] })).await;
    let lines = count["stdout"]["text"].as_str().expect("text").trim().to_owned();
    match then {
        Then::Unknown | Then::Finished => assert_eq!(lines, "1", "{point}: {count}"),
        Then::Interrupted => assert!(["0", "1"].contains(&lines.as_str()), "{point}: {count}"),
    }
    let events = service.events(run).await;
    let of = |kind: &str| events.iter().filter(|event| event["type"] == kind).count();
    assert_eq!(of("CommandAccepted"), 2, "{point}");
    assert_eq!(of("CommandFinished") + of("CommandInterrupted"), 2, "{point}: one outcome each");

    let (status, _) = service.post(&format!("{lease_path}/release"), &json!({})).await;
    assert_eq!(status, 200);
    service.wait_for(&lease_path, "teardown", |lease| lease["environment"]["state"] == "destroyed").await;
    assert_eq!(left_in_engine(&log_id).await, Vec::<String>::new(), "{point}");
    service.assert_verified().await;
    service.stop().await;
}

macro_rules! crash_tests {
    ($($name:ident: $then:ident),+ $(,)?) => {
        $(
            #[tokio::test(flavor = "multi_thread")]
            async fn $name() {
                crash_and_restart(stringify!($name), Then::$then).await;
            }
        )+
    };
}

crash_tests! {
    after_intent: Unknown,
    after_files: Unknown,
    after_sandbox: Unknown,
    after_spawn: Unknown,
    after_start_frame: Interrupted,
    after_result: Interrupted,
    after_outcome_append: Finished,
}

/// A dead lease's environment is gone after a restart, and a live one goes on with its files.
#[tokio::test(flavor = "multi_thread")]
async fn a_restart_adopts_the_living_and_removes_the_dead() {
    let data = data_dir();
    let service = Service::start(data.path(), &Options::docker()).await;
    let log_id = service.log_id().await;
    let (_, living) = service.lease_for(600.0).await;
    let (_, dying) = service.lease_for(600.0).await;
    service.run(&living, &json!({ "argv": ["sh", "-c", "echo kept > file"] })).await;
    service.run(&dying, &json!({ "argv": ["true"] })).await;
    let dying_path = format!("/v1/leases/{}", id(&dying, "lease_id"));
    let (status, shortened) =
        service.post(&format!("{dying_path}/renew"), &json!({ "ttl_seconds": 1 })).await;
    assert_eq!(status, 200, "{shortened}");
    service.kill_hard().await;

    let service = Service::start(data.path(), &Options::docker()).await;
    let gone = service
        .wait_for(&dying_path, "expiry and teardown", |lease| {
            lease["state"] == "expired" && lease["environment"]["state"] == "destroyed"
        })
        .await;
    assert!(gone["ended_at"].is_string(), "{gone}");
    let read = service.run(&living, &json!({ "argv": ["cat", "file"] })).await;
    assert_eq!(read["stdout"]["text"], "kept\n", "{read}");
    assert_eq!(read["files_changed"], json!([]), "{read}");
    let left = left_in_engine(&log_id).await;
    assert_eq!(left.len(), 3, "one sandbox, one files container, one volume: {left:?}");
    service.stop().await;
}
