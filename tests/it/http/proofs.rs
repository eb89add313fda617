//! Signed heads and proofs, verified as a stranger would: with the pinned key, the head and the event alone.

use std::time::{Duration, Instant};

use event_log::proof::Hash;
use event_log::proof::checkpoint::Checkpoint;
use event_log::proof::tree::{verify_consistency, verify_inclusion};
use reqwest::Method;
use serde_json::{Value, json};
use tests::api::keys;
use tests::process::PATIENCE;

use super::harness::Api;

/// The last head, once there is one.
async fn note(api: &Api) -> String {
    let begun = Instant::now();
    loop {
        let answer = api.request(Method::GET, "/v1/log/checkpoint").send().await.expect("an answer");
        if answer.status() == 200 {
            assert_eq!(answer.headers()["content-type"], "text/plain; charset=utf-8");
            return answer.text().await.expect("a note");
        }
        assert!(answer.status() == 404 && begun.elapsed() < PATIENCE, "{}", answer.status());
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// The first head that covers everything up to now.
async fn covering_head(api: &Api) -> Checkpoint {
    let (origin, key) = api.verifier().await;
    let (head, begun) = (api.head().await.get(), Instant::now());
    loop {
        let note = note(api).await;
        let checkpoint =
            Checkpoint::open(note.as_bytes(), &origin, std::slice::from_ref(&key)).expect("it verifies");
        if checkpoint.size >= head {
            return checkpoint;
        }
        assert!(begun.elapsed() < PATIENCE, "{} of {head} events are sealed", checkpoint.size);
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

fn hash(value: &Value) -> Hash {
    let mut hash = Hash::default();
    hex::decode_to_slice(value.as_str().expect("text"), &mut hash).expect("a hash");
    hash
}

fn hashes(value: &Value) -> Vec<Hash> {
    value.as_array().expect("a list").iter().map(hash).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn every_event_of_a_run_is_proven_in_the_signed_head() {
    let api = Api::start().await;
    let (run, lease) = api.lease().await;
    api.run(&lease, &json!({"argv": ["echo", "x"]})).await;
    let events = api.events(run).await;
    let head = covering_head(&api).await;
    assert!(events.len() >= 6, "{events:?}");
    let (origin, key) = api.verifier().await;
    for event in &events {
        let position = event["position"].as_u64().expect("a position");
        let (status, proof) = api.get(&format!("/v1/log/proof?position={position}&size={}", head.size)).await;
        assert_eq!(status, 200, "{proof}");
        assert_eq!(keys(&proof), ["checkpoint", "hashes", "leaf", "position", "size"]);
        assert_eq!((&proof["leaf"], &proof["position"]), (&event["leaf"], &event["position"]));
        let path = hashes(&proof["hashes"]);
        verify_inclusion(&hash(&event["leaf"]), position, head.size, &path, &head.root).expect("it is there");
        assert!(
            verify_inclusion(&hash(&event["leaf"]), position ^ 1, head.size, &path, &head.root).is_err(),
            "the proof binds the position"
        );

        // Without a size, the proof brings its head along.
        let (status, proof) = api.get(&format!("/v1/log/proof?position={position}")).await;
        assert_eq!(status, 200, "{proof}");
        let note = proof["checkpoint"].as_str().expect("a note");
        let first =
            Checkpoint::open(note.as_bytes(), &origin, std::slice::from_ref(&key)).expect("it verifies");
        assert_eq!(proof["size"], first.size);
        let path = hashes(&proof["hashes"]);
        verify_inclusion(&hash(&event["leaf"]), position, first.size, &path, &first.root)
            .expect("it is there");

        let (status, proof) =
            api.get(&format!("/v1/log/consistency?from={}&to={}", first.size, head.size)).await;
        assert_eq!(status, 200, "{proof}");
        verify_consistency(first.size, &first.root, head.size, &head.root, &hashes(&proof["hashes"]))
            .expect("it has only grown");
    }
    let (status, newest) = api.get("/v1/log/consistency?from=1").await;
    assert_eq!((status, newest["from"].as_u64()), (200, Some(1)), "{newest}");
    assert!(newest["checkpoint"].is_string(), "{newest}");
    api.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_cannot_be_proven_is_refused_in_our_words() {
    let api = Api::start().await;
    let size = covering_head(&api).await.size;
    for (path, status, code) in [
        ("proof".to_owned(), 400, "malformed_request"),
        ("proof?position=x".to_owned(), 400, "malformed_request"),
        ("proof?position=-1".to_owned(), 400, "malformed_request"),
        ("proof?position=0&colour=red".to_owned(), 400, "malformed_request"),
        ("proof?position=9007199254740992".to_owned(), 422, "invalid_request"),
        ("proof?position=9007199254740991".to_owned(), 404, "not_found"),
        ("proof?position=0&size=0".to_owned(), 422, "invalid_request"),
        (format!("proof?position=0&size={}", u64::MAX), 422, "invalid_request"),
        ("proof?position=0&size=1000000".to_owned(), 422, "invalid_request"),
        ("consistency".to_owned(), 400, "malformed_request"),
        ("consistency?from=0".to_owned(), 422, "invalid_request"),
        (format!("consistency?from={}&to={size}", size + 1), 422, "invalid_request"),
        (format!("consistency?from=1&to={}", size + 1_000), 422, "invalid_request"),
    ] {
        let (answered, problem) = api.get(&format!("/v1/log/{path}")).await;
        assert_eq!((answered, &problem["code"]), (status, &json!(code)), "{path}: {problem}");
    }
    for path in ["checkpoint", "proof?position=0", "consistency?from=1"] {
        let answer = api.anonymous(Method::GET, &format!("/v1/log/{path}")).send().await.expect("an answer");
        assert_eq!(answer.status(), 401);
    }
    api.stop().await;
}

/// Somebody who bypasses every guard: the sealer signs nothing more, and whoever watches readiness learns of it.
#[tokio::test(flavor = "multi_thread")]
async fn a_log_that_is_not_in_order_shows_on_readiness() {
    let api = Api::start().await;
    let head = covering_head(&api).await;
    let (status, ready) = api.get("/readyz").await;
    assert_eq!(status, 200, "{ready}");
    let tile = "INSERT INTO log.tiles (level, index, width, hashes) VALUES (1, 9000, 1, sha256('forged'))";
    api.administrator().await.batch_execute(tile).await.expect("a superuser");
    api.lease().await;
    let begun = Instant::now();
    let check = loop {
        let (status, report) = api.get("/readyz").await;
        let checks = report["checks"].as_array().expect("checks");
        let check = checks.iter().find(|check| check["name"] == "sealing").expect("a check").clone();
        assert_eq!(json!(status == 200), report["ready"], "{report}");
        if check["ok"] == false {
            assert_eq!(status, 503, "{report}");
            break check;
        }
        assert!(begun.elapsed() < PATIENCE, "{report}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    };
    assert_eq!(check["detail"], "sealing has stopped: keys, heads or tiles are not in order");
    let (origin, key) = api.verifier().await;
    let last = Checkpoint::open(note(&api).await.as_bytes(), &origin, &[key]).expect("it verifies");
    assert_eq!(last.size, head.size);
    // What is sealed can be proven none the less, what is not says so.
    let (status, _) = api.get(&format!("/v1/log/proof?position={}", head.size - 1)).await;
    assert_eq!(status, 200);
    let (status, problem) = api.get(&format!("/v1/log/proof?position={}", head.size)).await;
    assert_eq!((status, &problem["code"], &problem["retryable"]), (503, &json!("unavailable"), &json!(true)));
    api.stop().await;
}
