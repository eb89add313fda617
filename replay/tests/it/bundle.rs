//! A run's history as a file, whole and damaged.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use event_log::testing::TestDatabase;
use events::stored::{Header, leaf_hash};
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::log::{
    append_namesake, append_unknown, assert_harmless, filled, open, other_tenant, replay, run, tamper,
    tenant, text, uuid,
};

fn export(database: &TestDatabase, arguments: &[&str]) -> (Option<i32>, String, String) {
    let (url, run) = (database.audit_url(), run().to_string());
    let output = replay(&[&["export", "--run", &run, "--database-url", &url], arguments].concat());
    (output.status.code(), text(&output.stdout), text(&output.stderr))
}

fn verify(file: &Path) -> (Option<i32>, Value) {
    let output = replay(&["verify", "--json", "--bundle", file.to_str().unwrap()]);
    let told = text(&output.stdout);
    assert_harmless(&told);
    let report =
        serde_json::from_str(&told).unwrap_or_else(|error| panic!("{error}: {}", text(&output.stderr)));
    (output.status.code(), report)
}

/// An export as values, to be damaged.
struct Bundle {
    lines: Vec<Value>,
    directory: TempDir,
}

impl Bundle {
    async fn new() -> Self {
        let (code, told, complaint) = export(&filled().await, &[]);
        assert_eq!(code, Some(0), "{complaint}");
        let lines = told.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        Self { lines, directory: tempfile::tempdir().unwrap() }
    }

    fn file(&self, text: &str) -> PathBuf {
        let path = self.directory.path().join("bundle");
        fs::write(&path, text).unwrap();
        path
    }

    fn written(lines: &[Value]) -> String {
        lines.iter().map(|line| format!("{line}\n")).collect()
    }

    fn check(&self, lines: &[Value]) -> (Option<i32>, Value) {
        verify(&self.file(&Self::written(lines)))
    }
}

fn bytes(value: &Value) -> Vec<u8> {
    base64::Engine::decode(&base64::engine::general_purpose::STANDARD, value.as_str().unwrap()).unwrap()
}

fn base64(bytes: &[u8]) -> Value {
    base64::Engine::encode(&base64::engine::general_purpose::STANDARD, bytes).into()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_whole_history_is_intact_and_not_anchored() {
    let database = filled().await;
    let (code, told, complaint) = export(&database, &[]);
    assert_eq!(code, Some(0));
    assert_eq!(complaint, format!("wrote 10 events of run/{}/{}\n", tenant(), run()));
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("run.jsonl");
    let file = path.to_str().unwrap();
    let (code, nothing, _) = export(&database, &["--out", file]);
    assert_eq!((code, nothing.as_str()), (Some(0), ""));
    assert_eq!(fs::read_to_string(&path).unwrap(), told, "the same by either way");
    assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    let (code, _, complaint) = export(&database, &["--out", file]);
    assert_eq!(code, Some(4), "nothing is overwritten: {complaint}");

    let head: Value = serde_json::from_str(told.lines().next().unwrap()).unwrap();
    assert_eq!(
        (&head["bundle"], &head["v"], &head["events"]),
        (&"leasehold-run".into(), &1.into(), &10.into())
    );
    assert_eq!((&head["head"], &head["checkpoint"]), (&11.into(), &Value::Null));

    // The database is not asked.
    drop(database);
    let (code, report) = verify(&path);
    assert_eq!((code, &report["verdict"]), (Some(3), &"unanchored".into()), "{report:#}");
    assert_eq!(report["proves"], "chain intact; not anchored in a signed head");
    assert_eq!((&report["events_checked"], &report["closed"]), (&10.into(), &false.into()));
    let output = replay(&["verify", "--bundle", file]);
    assert_eq!(output.status.code(), Some(3));
    let words = text(&output.stdout).replace(head["log_id"].as_str().unwrap(), "LOG");
    let size = format!("{} bytes", report["bytes_hashed"]);
    insta::assert_snapshot!(words.replace(&size, "N bytes"));
}

#[tokio::test(flavor = "multi_thread")]
async fn every_change_of_a_file_is_found() {
    type Change = fn(&mut Vec<Value>);
    let faults: &[(&str, Change, &str)] = &[
        (
            "header",
            |lines| lines[4]["header"] = base64(&[bytes(&lines[4]["header"]), b" ".to_vec()].concat()),
            "header",
        ),
        ("actor", |lines| edit(lines, 4, "token:test", "token:tesT"), "not chained"),
        ("recorded_at", |lines| edit(lines, 4, "\"recorded_at\":\"2", "\"recorded_at\":\"3"), "not chained"),
        ("type", |lines| edit(lines, 7, "CommandFinished", "CommandStarted"), "cannot be read"),
        (
            "stream",
            |lines| edit(lines, 4, "\"stream\":\"run/", "\"stream\":\"ran/"),
            "whose history this is not",
        ),
        ("the last event", |lines| edit(lines, 10, "token:test", "token:tesT"), "the tip of stream"),
        ("body", |lines| lines[4]["body"] = base64(b"{}"), "body is not"),
        ("salt", |lines| lines[4]["salt"] = base64(&[1; 32]), "body is not"),
        ("salt of 31 bytes", |lines| lines[4]["salt"] = base64(&[1; 31]), "body is not"),
        (
            "a body dropped",
            |lines| (lines[4]["body"], lines[4]["salt"]) = (Value::Null, Value::Null),
            "body is missing",
        ),
        ("position", |lines| lines[4]["position"] = 9.into(), "stands behind"),
        ("an event dropped", |lines| drop(lines.remove(4)), "where 4 follows"),
        ("the first dropped", |lines| drop(lines.remove(1)), "where 1 follows"),
        ("the tail cut", |lines| lines.truncate(9), "announces 10 events, 8 are there"),
        (
            "the tail cut and the count",
            |lines| {
                lines.truncate(9);
                lines[0]["events"] = 8.into();
            },
            "the tip of stream",
        ),
        ("swapped", |lines| lines.swap(4, 5), "where 4 follows"),
        ("twice", |lines| lines.insert(4, lines[4].clone()), "where 5 follows"),
        ("a tip", |lines| lines[0]["streams"][0]["tip"] = "ab".repeat(32).into(), "the tip of stream"),
        ("a version", |lines| lines[0]["streams"][0]["version"] = 11.into(), "the tip of stream"),
        (
            "another run",
            |lines| lines[0]["run_id"] = uuid(99).to_string().into(),
            "whose stream is not there",
        ),
        (
            "another tenant",
            |lines| lines[0]["tenant"] = uuid(99).to_string().into(),
            "whose stream is not there",
        ),
        ("another log", |lines| lines[0]["log_id"] = uuid(99).to_string().into(), "names another log"),
    ];
    let bundle = Bundle::new().await;
    assert_eq!(bundle.check(&bundle.lines).0, Some(3));
    for (name, change, expected) in faults {
        let mut lines = bundle.lines.clone();
        change(&mut lines);
        let (code, report) = bundle.check(&lines);
        assert_eq!((code, &report["verdict"]), (Some(2), &"tampered".into()), "{name}: {report:#}");
        assert!(report["faults"].to_string().contains(expected), "{name}: {report:#}");
        assert_eq!(report["proves"], Value::Null);
        assert!(report["faults_found"].as_u64().unwrap() > 0);
    }
}

/// Changes the text of a header, which stays canonical.
fn edit(lines: &mut [Value], line: usize, from: &str, to: &str) {
    let header = String::from_utf8(bytes(&lines[line]["header"])).unwrap();
    assert!(header.contains(from), "{header}");
    lines[line]["header"] = base64(header.replace(from, to).as_bytes());
}

/// What a file cannot show by itself: it was made anew as a whole.
#[tokio::test(flavor = "multi_thread")]
async fn a_history_forged_as_a_whole_is_intact_and_therefore_never_called_valid() {
    let bundle = Bundle::new().await;
    let mut lines = bundle.lines.clone();
    let mut previous = [0; 32];
    for line in &mut lines[1..] {
        let header = Header::from_canonical(&bytes(&line["header"])).unwrap();
        let header = Header { actor: "token:forged".to_owned(), prev_leaf: hex::encode(previous), ..header };
        let header = header.to_canonical().unwrap();
        previous = leaf_hash(&header);
        line["header"] = base64(&header);
    }
    lines[0]["streams"][0]["tip"] = hex::encode(previous).into();
    assert_eq!(bundle.check(&lines).0, Some(3));
}

#[tokio::test(flavor = "multi_thread")]
async fn fields_of_later_forms_are_no_obstacle_and_are_not_claimed() {
    let bundle = Bundle::new().await;
    let mut lines = bundle.lines.clone();
    lines[0]["children"] = json!([]);
    lines[4]["seen"] = true.into();
    let (code, report) = bundle.check(&lines);
    assert_eq!((code, &report["faults_found"]), (Some(3), &0.into()), "{report:#}");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_no_export_is_unreadable_and_says_where() {
    let bundle = Bundle::new().await;
    let whole = Bundle::written(&bundle.lines);
    let mut other_form = bundle.lines.clone();
    other_form[0]["v"] = 2.into();
    let mut no_base64 = bundle.lines.clone();
    no_base64[2]["header"] = "no base64\u{1b}[2J".into();
    for (written, expected) in [
        (String::new(), "line 1: it is empty"),
        ("{}\n".to_owned(), "line 1: missing field"),
        (whole[..whole.len() - 1].to_owned(), "line 11: it is cut off"),
        (whole[..whole.len() - 100].to_owned(), "line 11: it is cut off"),
        (format!("{whole}\n"), "line 12: EOF"),
        (format!("{whole}trailing\n"), "line 12: expected"),
        (whole.replacen("{\"body\"", "{\"body\":null,\"body\"", 1), "duplicate field"),
        (Bundle::written(&other_form), "line 1: another form"),
        (Bundle::written(&no_base64), "line 3: "),
        (format!("{{\"a\":\"{}\"}}\n", "x".repeat(3 << 20)), "line 1: it is cut off, or longer"),
    ] {
        let output = replay(&["verify", "--bundle", bundle.file(&written).to_str().unwrap()]);
        assert_eq!((output.status.code(), text(&output.stdout).as_str()), (Some(4), ""), "{expected}");
        let complaint = text(&output.stderr);
        assert_harmless(&complaint);
        assert!(
            complaint.contains("is not the export of a run") && complaint.contains(expected),
            "{complaint}"
        );
    }
    let nothing = bundle.directory.path().join("nothing");
    let output = replay(&["verify", "--bundle", nothing.to_str().unwrap()]);
    assert_eq!(output.status.code(), Some(4));
    assert!(text(&output.stderr).contains("cannot be used: No such file"), "{}", text(&output.stderr));
    // No event: nothing was proven.
    let mut head = bundle.lines[..1].to_vec();
    (head[0]["events"], head[0]["streams"][0]["version"]) = (0.into(), 0.into());
    assert_eq!(bundle.check(&head).0, Some(2), "a stream without an end");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_event_of_a_newer_version_is_exported_and_not_called_intact() {
    let database = filled().await;
    append_unknown(&database).await;
    let (code, told, complaint) = export(&database, &[]);
    assert_eq!(code, Some(4), "its bytes are whole, its meaning is not known: {complaint}");
    assert!(complaint.contains("BridgeCallDreamt") && complaint.contains("UNREADABLE"), "{complaint}");
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("bundle");
    fs::write(&path, told).unwrap();
    let (code, report) = verify(&path);
    assert_eq!((code, &report["verdict"]), (Some(4), &"unreadable".into()), "{report:#}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_damaged_history_is_written_as_it_is_and_named() {
    let database = filled().await;
    tamper(&database, "DELETE FROM log.event_bodies WHERE position = 3").await;
    let (code, told, complaint) = export(&database, &[]);
    assert_eq!(code, Some(2));
    assert!(complaint.contains("FAULT: position 3: the body is missing"), "{complaint}");
    assert!(
        complaint.ends_with("TAMPERED: the log is not what was recorded; the file holds what is stored\n"),
        "{complaint}"
    );
    let line: Value = serde_json::from_str(told.lines().nth(4).unwrap()).unwrap();
    assert_eq!((&line["body"], &line["salt"]), (&Value::Null, &Value::Null));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_run_of_two_tenants_must_be_told_apart() {
    let database = filled().await;
    append_namesake(&open(&database.append_url()).await).await;
    let (code, told, complaint) = export(&database, &[]);
    assert_eq!((code, told.as_str()), (Some(64), ""));
    assert!(complaint.contains("2 tenants have a run"), "{complaint}");
    let (code, told, _) = export(&database, &["--tenant", &other_tenant().to_string()]);
    assert_eq!((code, told.lines().count()), (Some(0), 2));
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("run.jsonl");
    let (code, _, complaint) =
        export(&database, &["--tenant", &uuid(99).to_string(), "--out", path.to_str().unwrap()]);
    assert_eq!(code, Some(4));
    assert!(complaint.contains("no event of run"), "{complaint}");
    assert!(!path.exists(), "nothing half is left");
}
