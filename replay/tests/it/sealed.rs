//! Verification of sealed logs: what signed heads find, and what takes a head that was kept elsewhere.

use event_log::proof::note::SignerKey;
use serde_json::{Value, json};

use crate::log::{append_orphans, replay, text};
use crate::sealing::{Sealed, cut, unseal};
use crate::verify::FAULTS;

fn faults(report: &Value) -> String {
    report["faults"].to_string()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_sealed_log_is_valid_up_to_its_checkpoint() {
    let sealed = Sealed::large().await;
    let (key, head) = (sealed.verifier(), sealed.head());
    let (code, report) = sealed.verify(&["--key", &key, "--head", head.to_str().unwrap()]);
    assert_eq!((code, &report["verdict"]), (Some(0), &"valid".into()), "{report:#}");
    assert_eq!((&report["proof"], &report["keys_from"]), (&"checkpoint".into(), &"given".into()));
    assert_eq!((&report["anchored_events"], &report["unanchored_events"]), (&600.into(), &0.into()));
    assert_eq!((&report["checkpoints_stored"], &report["checkpoints_checked"]), (&3.into(), &3.into()));
    assert_eq!(report["checkpoint"]["size"], 600);
    let id = sealed.key.verifier().id().to_string();
    assert_eq!(report["checkpoint"]["signed_by"], json!([id]));
    let note = std::fs::read_to_string(&head).unwrap();
    assert_eq!(report["checkpoint"]["root"].as_str(), note.lines().nth(2));
    assert!(report["tiles_checked"].as_u64().unwrap() >= 4, "{report:#}");

    let (code, report) = sealed.verify(&[]);
    assert_eq!((code, &report["keys_from"]), (Some(0), &"log".into()), "{report:#}");

    append_orphans(&sealed.log, 2).await;
    let (code, report) = sealed.verify(&["--key", &key]);
    assert_eq!((code, &report["verdict"]), (Some(0), &"valid".into()), "{report:#}");
    assert_eq!((&report["anchored_events"], &report["unanchored_events"]), (&600.into(), &2.into()));
    let words = text(&replay(&["verify", "--database-url", &sealed.database.audit_url()]).stdout);
    for expected in [
        "anchored: 600 events by checkpoint 600, root ",
        "unanchored: 2 events from position 600 on, which no signed head covers",
        "taken from the log itself",
        "\nvalid up to the checkpoint; the events behind it are unanchored\n",
    ] {
        assert!(words.contains(expected), "{expected}: {words}");
    }

    // The tail is more than 10 s long: the sealer is not there any more.
    sealed
        .rewrite(601, |header| {
            let micros = header.recorded_at.unix_micros() + 10_500_000;
            header.recorded_at = events::Timestamp::try_from_unix_micros(micros).unwrap();
        })
        .await;
    let (code, report) = sealed.verify(&["--key", &key]);
    assert_eq!((code, &report["verdict"]), (Some(3), &"unanchored".into()), "{report:#}");
    assert_eq!(report["faults_found"], 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_log_that_nobody_vouches_for_is_unanchored() {
    let sealed = Sealed::new().await;
    sealed.damage("DELETE FROM log.checkpoints").await;
    assert!(sealed.database.administrator().await.is_ok());
    // Without them tiles may be left: these say that there was a checkpoint.
    if tiles(&sealed).await > 0 {
        let (code, report) = sealed.verify(&[]);
        assert_eq!(code, Some(2), "{report:#}");
        assert!(faults(&report).contains("checkpoints were removed"), "{report:#}");
        sealed.damage("DELETE FROM log.tiles").await;
    }
    let (code, report) = sealed.verify(&[]);
    assert_eq!((code, &report["verdict"]), (Some(3), &"unanchored".into()), "{report:#}");
    assert_eq!((&report["anchored_events"], &report["unanchored_events"]), (&0.into(), &11.into()));
    let (code, report) = sealed.verify(&["--head", sealed.head().to_str().unwrap()]);
    assert_eq!(code, Some(2), "{report:#}");
    assert!(faults(&report).contains("checkpoints were removed"), "{report:#}");

    // Also the key taken away: it looks as if it had never been sealed. Who has the key knows better.
    sealed.damage("UPDATE log.log_meta SET verifier_keys = '{}'").await;
    let (code, report) = sealed.verify(&[]);
    assert_eq!((code, &report["proof"]), (Some(0), &"chain".into()), "{report:#}");
    assert_eq!(sealed.verify(&["--key", &sealed.verifier()]).0, Some(3));
}

async fn tiles(sealed: &Sealed) -> i64 {
    let administrator = sealed.database.administrator().await.unwrap();
    administrator.query_one("SELECT count(*) FROM log.tiles", &[]).await.unwrap().get(0)
}

#[tokio::test(flavor = "multi_thread")]
async fn every_changed_column_of_a_sealed_log_is_found() {
    let sealed = Sealed::new().await;
    let key = sealed.verifier();
    sealed.keep().await;
    for (statement, expected) in FAULTS {
        crate::log::tamper(&sealed.database, statement).await;
        let (code, report) = sealed.verify(&["--key", &key]);
        assert_eq!(code, Some(2), "{statement}: {report:#}");
        assert!(faults(&report).contains(expected), "{statement}: {report:#}");
        sealed.restore().await;
    }
    assert_eq!(sealed.verify(&["--key", &key]).0, Some(0), "put right again, it is valid");
}

/// One bit of a stored hash.
fn flip(level: u8, index: u64, entry: u32) -> String {
    let byte = entry * 32 + 7;
    format!(
        "UPDATE log.tiles SET hashes = set_byte(hashes, {byte}, get_byte(hashes, {byte}) # 1) \
         WHERE level = {level} AND index = {index} AND width > {entry}"
    )
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_stored_of_the_seal_is_compared_and_named() {
    let sealed = Sealed::large().await;
    let key = sealed.verifier();
    let head = sealed.head();
    sealed.keep().await;
    let rows: [(String, Option<u64>, &str); 15] = [
        (flip(0, 0, 5), Some(5), "tile/0/000"),
        (flip(0, 1, 17), Some(273), "tile/0/001"),
        (flip(1, 0, 1), Some(256), "tile/1/000"),
        ("DELETE FROM log.tiles WHERE level = 0 AND index = 1 AND width = 256".into(), Some(256), "tile/0/001 is missing"),
        ("INSERT INTO log.tiles VALUES (0, 2, 256, decode(repeat('ab', 8192), 'hex'))".into(), Some(512), "tile/0/002 is of more"),
        (
            "UPDATE log.checkpoints SET note = replace(note, E'\\n311\\n', E'\\n310\\n') WHERE size = 311".into(),
            None,
            "checkpoint 311 is refused: the signature of key",
        ),
        (
            "UPDATE log.checkpoints SET note = overlay(note placing chr(ascii(substr(note, length(note) - 9)) # 1) \
             from length(note) - 9 for 1) WHERE size = 600".into(),
            None,
            "checkpoint 600 is refused",
        ),
        ("UPDATE log.checkpoints SET note = 'no note' WHERE size = 11".into(), None, "checkpoint 11 is refused: the note is malformed"),
        ("UPDATE log.checkpoints SET size = 312 WHERE size = 311".into(), None, "the note of checkpoint 312 is about 311 events"),
        ("DELETE FROM log.checkpoints WHERE size = 600".into(), None, "checkpoints were removed"),
        (
            "UPDATE log.log_meta SET origin = 'leasehold/log/other'".into(),
            None,
            "the log calls itself",
        ),
        (cut(590), Some(590), "checkpoint 600 signs more events than there are: they end before 590"),
        (format!("{}; {}", cut(590), unseal(311)), Some(590), "signs 600 events, they end before 590"),
        (format!("{}; {}", cut(311), unseal(311)), Some(311), "signs 600 events, they end before 311"),
        (
            "UPDATE log.events SET header = convert_to(replace(convert_from(header, 'UTF8'), 'token:test', 'token:tesT'), 'UTF8') \
             WHERE position = 300".into(),
            Some(300),
            " is not what the events give, from hash 44 on",
        ),
    ];
    for (statements, position, expected) in rows {
        sealed.damage(&statements).await;
        let (code, report) = sealed.verify(&["--key", &key, "--head", head.to_str().unwrap()]);
        assert_eq!((code, &report["verdict"]), (Some(2), &"tampered".into()), "{statements}: {report:#}");
        let told = report["faults"].as_array().unwrap().iter();
        let named = told.filter(|fault| fault["detail"].as_str().unwrap().contains(expected));
        let places: Vec<Option<u64>> = named.map(|fault| fault["position"].as_u64()).collect();
        assert!(!places.is_empty() && places.contains(&position), "{statements}: {places:?} {report:#}");
        sealed.restore().await;
    }
    let (code, report) = sealed.verify(&["--key", &key, "--head", head.to_str().unwrap()]);
    assert_eq!(code, Some(0), "put right again, it is valid: {report:#}");
}

/// The chain is whole, columns, tips and views agree: only what is signed shows it.
#[tokio::test(flavor = "multi_thread")]
async fn a_consistent_rewrite_does_not_have_the_signed_roots() {
    let sealed = Sealed::large().await;
    sealed.rewrite(400, |header| header.actor = "token:forged".to_owned()).await;
    let (code, report) = sealed.verify(&[]);
    assert_eq!(code, Some(2), "{report:#}");
    assert!(report["projections"]["differences_found"] == 0, "{report:#}");
    let told = faults(&report);
    assert!(told.contains("from here on the events are not those that checkpoint 600 signs"), "{report:#}");
    assert!(told.contains("tile/0/001 is not what the events give, from hash 144 on"), "{report:#}");
    let places: Vec<u64> =
        report["faults"].as_array().unwrap().iter().filter_map(|fault| fault["position"].as_u64()).collect();
    assert!(places.contains(&311) && places.contains(&400), "{report:#}");
    assert_eq!(report["anchored_events"], 311, "up to there it is as it was signed");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_log_sealed_anew_by_another_key_is_not_what_the_verifiers_key_signs() {
    let sealed = Sealed::large().await;
    let other = SignerKey::from_seed(&sealed.key.verifier().id().name, &[9; 32]).unwrap();
    sealed.rewrite(12, |header| header.actor = "token:forged".to_owned()).await;
    sealed.damage("DELETE FROM log.checkpoints; DELETE FROM log.tiles").await;
    let pin = format!("UPDATE log.log_meta SET verifier_keys = ARRAY['{}']", other.verifier());
    sealed.damage(&pin).await;
    sealed.seal_with(other, sealed.directory.path().join("other")).await;

    let (code, report) = sealed.verify(&["--key", &sealed.verifier()]);
    assert_eq!(code, Some(2), "{report:#}");
    assert!(faults(&report).contains("signed by none of the keys that are believed"), "{report:#}");
    assert_eq!((&report["anchored_events"], &report["unanchored_events"]), (&0.into(), &600.into()));
    let (code, report) = sealed.verify(&["--head", sealed.head().to_str().unwrap()]);
    assert_eq!(code, Some(2), "{report:#}");
    assert!(faults(&report).contains("is refused: no known key has signed the note"), "{report:#}");
    // With the log's own key and nothing from outside it is what the report says: no proof against this.
    let (code, report) = sealed.verify(&[]);
    assert_eq!((code, &report["keys_from"]), (Some(0), &"log".into()), "{report:#}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_log_sealed_anew_by_the_same_key_is_found_by_a_head_of_before() {
    let sealed = Sealed::new().await;
    append_orphans(&sealed.log, 300).await;
    sealed.seal().await;
    let older = sealed.directory.path().join("older");
    std::fs::copy(sealed.head(), &older).unwrap();
    append_orphans(&sealed.log, 100).await;
    sealed.seal().await;
    crate::log::project(&sealed.log, &sealed.database.project_url()).await;
    sealed.rewrite(50, |header| header.actor = "token:forged".to_owned()).await;
    sealed.damage("DELETE FROM log.checkpoints; DELETE FROM log.tiles").await;
    sealed.seal_with(sealed.key.clone(), sealed.directory.path().join("new")).await;

    let key = sealed.verifier();
    assert_eq!(sealed.verify(&["--key", &key]).0, Some(0), "who has the key can make all of it anew");
    for (head, size) in [(sealed.head(), 411), (older, 311)] {
        let (code, report) = sealed.verify(&["--key", &key, "--head", head.to_str().unwrap()]);
        assert_eq!(code, Some(2), "{report:#}");
        let expected = format!("the first {size} events are not those that the head in");
        assert!(faults(&report).contains(&expected), "{report:#}");
    }
}

/// What every log with fewer events looks like: only a head of before knows better.
#[tokio::test(flavor = "multi_thread")]
async fn an_older_log_is_found_by_a_head_of_after() {
    let sealed = Sealed::large().await;
    let key = sealed.verifier();
    sealed.damage(&format!("{}; {}", cut(311), unseal(311))).await;
    let (code, report) = sealed.verify(&["--key", &key]);
    assert_eq!((code, &report["anchored_events"]), (Some(0), &311.into()), "{report:#}");
    let (code, report) = sealed.verify(&["--key", &key, "--head", sealed.head().to_str().unwrap()]);
    assert_eq!(code, Some(2), "{report:#}");
    assert!(faults(&report).contains("the log was cut or set back"), "{report:#}");
}

#[tokio::test(flavor = "multi_thread")]
async fn keys_and_heads_that_cannot_be_used_are_named() {
    let sealed = Sealed::new().await;
    let other = SignerKey::from_seed("another/log", &[9; 32]).unwrap().verifier().to_string();
    let url = sealed.database.audit_url();
    let told = |arguments: &[&str]| {
        let output = replay(&[&["verify", "--database-url", &url], arguments].concat());
        (output.status.code(), text(&output.stderr))
    };
    assert_eq!(told(&["--key", "no key"]).0, Some(64));
    let (code, complaint) = told(&["--key", &other, "--key", &sealed.verifier()]);
    assert_eq!(code, Some(64), "{complaint}");
    assert!(complaint.contains("the keys are of different logs"), "{complaint}");
    let (code, complaint) = told(&["--head", "/nowhere/head"]);
    assert_eq!(code, Some(4), "{complaint}");
    let (code, report) = sealed.verify(&["--key", &other]);
    assert_eq!(code, Some(2), "{report:#}");
    assert!(faults(&report).contains("the keys are for"), "{report:#}");
    let garbage = sealed.directory.path().join("garbage");
    std::fs::write(&garbage, "no note").unwrap();
    let (code, report) = sealed.verify(&["--head", garbage.to_str().unwrap()]);
    assert_eq!(code, Some(2), "{report:#}");
    assert!(faults(&report).contains("is refused: the note is malformed"), "{report:#}");
}
