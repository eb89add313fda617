//! A run's history with the signed head and its proofs: what it proves offline, and every way of changing it.

use std::fs;
use std::path::PathBuf;

use event_log::AppendRequest;
use event_log::proof::checkpoint::Checkpoint;
use event_log::proof::note::SignerKey;
use events::event::lease::RunClosed;
use events::stored::{NewEvent, StreamName};
use events::{Epoch, Event, EventId};
use serde_json::{Value, json};

use crate::log::{append_orphans, assert_harmless, replay, run, tamper, tenant, text, uuid};
use crate::sealing::Sealed;

/// An export of a sealed log as values.
struct Bundle {
    sealed: Sealed,
    lines: Vec<Value>,
}

impl Bundle {
    /// Ten events of the run among 311, all of them sealed; the database is not needed any more.
    async fn new() -> Self {
        let sealed = Sealed::new().await;
        append_orphans(&sealed.log, 300).await;
        sealed.seal().await;
        let (code, lines, complaint) = export(&sealed);
        assert_eq!(code, Some(0), "{complaint}");
        assert!(complaint.ends_with(", 10 of them proven in checkpoint 311\n"), "{complaint}");
        Self { sealed, lines }
    }

    fn file(&self, lines: &[Value]) -> PathBuf {
        let path = self.sealed.directory.path().join("bundle");
        fs::write(&path, lines.iter().map(|line| format!("{line}\n")).collect::<String>()).unwrap();
        path
    }

    fn check(&self, lines: &[Value], keys: &[&str]) -> (Option<i32>, Value) {
        let file = self.file(lines);
        let keys = keys.iter().flat_map(|key| ["--key", key]);
        let arguments: Vec<&str> =
            ["verify", "--json", "--bundle", file.to_str().unwrap()].into_iter().chain(keys).collect();
        let output = replay(&arguments);
        let told = text(&output.stdout);
        assert_harmless(&told);
        let report =
            serde_json::from_str(&told).unwrap_or_else(|error| panic!("{error}: {}", text(&output.stderr)));
        (output.status.code(), report)
    }
}

fn export(sealed: &Sealed) -> (Option<i32>, Vec<Value>, String) {
    let output =
        replay(&["export", "--run", &run().to_string(), "--database-url", &sealed.database.audit_url()]);
    let lines = text(&output.stdout).lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    (output.status.code(), lines, text(&output.stderr))
}

async fn close(sealed: &Sealed) {
    let closed = RunClosed { last_epoch: Epoch(1), commands: 1, environments: 1, children: Vec::new() };
    let event = NewEvent {
        event_id: EventId(uuid(60)),
        tenant: tenant(),
        recorded_at: sealed.log.clock().now(),
        actor: "token:test".to_owned(),
        correlation_id: Some(run()),
        causation_id: None,
        event: Event::RunClosed(closed),
    };
    let stream = StreamName::run(tenant(), run());
    let expected = event_log::Expected::Any;
    let request = AppendRequest { stream, expected, guards: Vec::new(), key: None, events: vec![event] };
    sealed.log.append(request).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_run_is_proven_offline_by_the_verifiers_key_alone() {
    let bundle = Bundle::new().await;
    let key = bundle.sealed.verifier();
    let id = bundle.sealed.key.verifier().id().to_string();
    let (code, report) = bundle.check(&bundle.lines, &[&key]);
    assert_eq!((code, &report["verdict"]), (Some(0), &"valid".into()), "{report:#}");
    assert_eq!((&report["anchored_events"], &report["unanchored_events"]), (&10.into(), &0.into()));
    assert_eq!((&report["checkpoint"]["size"], &report["proof"]), (&311.into(), &"checkpoint".into()));
    assert_eq!(report["checkpoint"]["signed_by"], json!([id]));
    let run = run();
    let proves = format!(
        "events 1 to 10 of run {run} are in the log at checkpoint size 311, at the positions shown, signed by {id}; \
         complete up to version 10; that nothing follows version 10 is not proven"
    );
    assert_eq!(report["proves"], proves);
    let file = bundle.file(&bundle.lines);
    let words = text(&replay(&["verify", "--key", &key, "--bundle", file.to_str().unwrap()]).stdout);
    assert!(words.ends_with(&format!("\nvalid: {proves}\n")), "{words}");

    // Without a key of the verifier nothing is believed, however well it all agrees.
    let (code, report) = bundle.check(&bundle.lines, &[]);
    assert_eq!((code, &report["verdict"]), (Some(3), &"unanchored".into()), "{report:#}");
    assert_eq!(
        (&report["proves"], &report["anchored_events"]),
        (&"chain intact; not anchored in a signed head".into(), &0.into())
    );

    // A run that is closed, and one that goes on behind the checkpoint.
    close(&bundle.sealed).await;
    let (code, lines, _) = export(&bundle.sealed);
    assert_eq!((code, &lines[11]["proof"]), (Some(0), &Value::Null), "not sealed yet");
    let (code, report) = bundle.check(&lines, &[&key]);
    assert_eq!((code, &report["verdict"]), (Some(3), &"unanchored".into()), "{report:#}");
    assert_eq!((&report["anchored_events"], &report["unanchored_events"]), (&10.into(), &1.into()));
    assert!(report["proves"].as_str().unwrap().contains("events 1 to 10"), "{report:#}");
    bundle.sealed.seal().await;
    let (_, lines, _) = export(&bundle.sealed);
    let (code, report) = bundle.check(&lines, &[&key]);
    assert_eq!((code, &report["closed"]), (Some(0), &true.into()), "{report:#}");
    assert!(report["proves"].as_str().unwrap().ends_with("the run is closed, nothing follows"), "{report:#}");
}

#[tokio::test(flavor = "multi_thread")]
async fn every_change_of_a_sealed_file_is_found() {
    type Change = fn(&mut Vec<Value>);
    let faults: &[(&str, Change, &str)] = &[
        ("position", |lines| lines[10]["position"] = 12.into(), "not shown to be at this position"),
        ("all positions", |lines| shift(lines), "not shown to be at this position"),
        ("a proof's hash", |lines| lines[4]["proof"][0] = "ab".repeat(32).into(), "leads to another root"),
        (
            "a proof cut",
            |lines| drop(lines[4]["proof"].as_array_mut().unwrap().pop()),
            "wrong number of hashes",
        ),
        ("a proof dropped", |lines| lines[4]["proof"] = Value::Null, "its proof is missing"),
        ("proofs swapped", |lines| swap_proofs(lines), "leads to another root"),
        ("the checkpoint dropped", |lines| lines[0]["checkpoint"] = Value::Null, "no checkpoint"),
        (
            "the checkpoint's size",
            |lines| replace(&mut lines[0]["checkpoint"], "\n311\n", "\n312\n"),
            "the signature of key",
        ),
        ("no note", |lines| lines[0]["checkpoint"] = "no note".into(), "the note is malformed"),
        ("the origin", |lines| lines[0]["origin"] = "leasehold/log/other".into(), "the keys are for"),
        ("an event dropped", |lines| drop(lines.remove(4)), "where 4 follows"),
        ("the tail cut", |lines| lines.truncate(9), "announces 10 events, 8 are there"),
        (
            "a body dropped",
            |lines| (lines[4]["body"], lines[4]["salt"]) = (Value::Null, Value::Null),
            "body is missing",
        ),
    ];
    let bundle = Bundle::new().await;
    let key = bundle.sealed.verifier();
    for (name, change, expected) in faults {
        let mut lines = bundle.lines.clone();
        change(&mut lines);
        let (code, report) = bundle.check(&lines, &[&key]);
        assert_eq!((code, &report["verdict"]), (Some(2), &"tampered".into()), "{name}: {report:#}");
        assert!(report["faults"].to_string().contains(expected), "{name}: {report:#}");
        assert_eq!(report["proves"], Value::Null);
    }
}

fn shift(lines: &mut [Value]) {
    for line in &mut lines[1..] {
        line["position"] = (line["position"].as_u64().unwrap() + 1).into();
    }
}

fn swap_proofs(lines: &mut [Value]) {
    let other = lines[5]["proof"].take();
    lines[5]["proof"] = std::mem::replace(&mut lines[4]["proof"], other);
}

fn replace(value: &mut Value, from: &str, to: &str) {
    let text = value.as_str().unwrap();
    assert!(text.contains(from), "{text}");
    *value = text.replace(from, to).into();
}

/// What a forger can make: everything but a signature of the verifier's key.
#[tokio::test(flavor = "multi_thread")]
async fn a_checkpoint_of_another_key_is_not_taken_for_the_verifiers() {
    let bundle = Bundle::new().await;
    let key = bundle.sealed.verifier();
    let other = SignerKey::from_seed(&bundle.sealed.key.verifier().id().name, &[9; 32]).unwrap();
    let note = bundle.lines[0]["checkpoint"].as_str().unwrap();
    let text = note.split("\n\n").next().unwrap();
    let forged = Checkpoint::parse(&format!("{text}\n")).unwrap().sign(std::slice::from_ref(&other)).unwrap();
    let mut lines = bundle.lines.clone();
    lines[0]["checkpoint"] = forged.into();
    let (code, report) = bundle.check(&lines, &[&key]);
    assert_eq!(code, Some(2), "{report:#}");
    assert!(report["faults"].to_string().contains("no known key has signed the note"), "{report:#}");
    assert_eq!(bundle.check(&lines, &[]).0, Some(3));
    let both = other.verifier().to_string();
    assert_eq!(bundle.check(&lines, &[&key, &both]).0, Some(0), "believed by who names both");
}

#[tokio::test(flavor = "multi_thread")]
async fn damage_of_the_seal_is_told_when_a_run_is_exported() {
    let bundle = Bundle::new().await;
    tamper(&bundle.sealed.database, "DELETE FROM log.tiles WHERE level = 0 AND index = 0 AND width = 256")
        .await;
    let (code, lines, complaint) = export(&bundle.sealed);
    assert_eq!(code, Some(2), "{complaint}");
    assert!(complaint.contains("FAULT: tile/0/000 is missing"), "{complaint}");
    assert_eq!((lines.len(), &lines[1]["proof"]), (11, &Value::Null), "written all the same");
}
