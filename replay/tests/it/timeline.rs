//! Timelines, with hostile text in the log.

use std::collections::BTreeSet;

use event_log::testing::test_database;

use crate::log::{filled, replay, run, text, uuid};

#[tokio::test(flavor = "multi_thread")]
async fn a_run_is_told_in_aligned_lines_that_nothing_can_forge() {
    let database = filled().await;
    let url = database.audit_url();
    let output = replay(&["timeline", "--run", &run().to_string(), "--database-url", &url]);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    let shown = text(&output.stdout);
    for hostile in ['\u{0}', '\r', '\u{1b}', '\u{9b}', '\u{202e}', '\u{2028}'] {
        assert!(!shown.contains(hostile), "{hostile:?} in {shown}");
    }
    // Times are of today: the first line names the start, the second column is relative to it.
    let lines: Vec<String> = shown
        .lines()
        .enumerate()
        .map(|(number, line)| match number {
            0 => line.split(" 20").next().unwrap().to_owned(),
            _ => format!("{}+m:ss.mmm{}", &line[..12], &line[21..]),
        })
        .collect();
    insta::assert_snapshot!(lines.join("\n"));
}

#[tokio::test(flavor = "multi_thread")]
async fn json_lines_have_the_shape_of_the_interface() {
    let database = filled().await;
    let url = database.audit_url();
    let output = replay(&["--database-url", &url, "--json", "timeline"]);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    let shown = text(&output.stdout);
    let events: Vec<serde_json::Value> =
        shown.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(events.len(), 11, "the whole log, the service's own event too");
    let keys = [
        "position",
        "event_id",
        "stream",
        "version",
        "type",
        "schema",
        "tenant",
        "recorded_at",
        "actor",
        "correlation_id",
        "causation_id",
        "body",
        "leaf",
    ];
    for (position, event) in events.iter().enumerate() {
        let found: BTreeSet<&str> = event.as_object().unwrap().keys().map(String::as_str).collect();
        assert_eq!(found, keys.into_iter().collect::<BTreeSet<_>>());
        assert_eq!(event["position"], position);
        assert_eq!(event["leaf"].as_str().unwrap().len(), 64);
    }
    assert_eq!(events[0]["body"]["holder"], crate::log::HOSTILE, "data is exact");
    assert_eq!(
        (&events[10]["type"], &events[10]["correlation_id"]),
        (&"OrphanDeleted".into(), &serde_json::Value::Null)
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn an_unknown_run_and_an_empty_log_say_so() {
    let database = filled().await;
    let url = database.audit_url();
    let other = uuid(99).to_string();
    let output = replay(&["timeline", "--run", &other, "--database-url", &url]);
    assert_eq!((output.status.code(), text(&output.stdout).as_str()), (Some(4), ""));
    assert_eq!(text(&output.stderr), format!("leasehold-replay: the log holds no event of run {other}\n"));

    let empty = test_database().await;
    let output = replay(&["timeline", "--database-url", &empty.audit_url()]);
    assert_eq!(
        (output.status.code(), text(&output.stderr).as_str()),
        (Some(4), "leasehold-replay: the log holds no event\n")
    );
}

#[test]
fn wrong_usage_is_not_taken_for_tampering() {
    for arguments in [&["timeline", "--run", "not-a-uuid"][..], &["rewrite"], &[], &["verify"]] {
        let output = replay(arguments);
        assert_eq!(output.status.code(), Some(64), "{arguments:?}: {}", text(&output.stderr));
        assert!(output.stdout.is_empty());
    }
    let help = replay(&["--help"]);
    assert_eq!(help.status.code(), Some(0));
    assert!(text(&help.stdout).contains("0 valid, 2 tampered"), "exit codes are published");
}
