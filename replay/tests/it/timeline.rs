//! Timelines, with hostile text in the log.

use std::collections::BTreeSet;

use event_log::testing::test_database;

use crate::log::{
    append_namesake, assert_harmless, filled, open, other_tenant, replay, run, tenant, text, uuid,
};

#[tokio::test(flavor = "multi_thread")]
async fn a_run_is_told_in_aligned_lines_that_nothing_can_forge() {
    let database = filled().await;
    let url = database.audit_url();
    let output = replay(&["timeline", "--run", &run().to_string(), "--database-url", &url]);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    let shown = text(&output.stdout);
    assert_harmless(&shown);
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
    assert_harmless(&shown);
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

/// The positions of the events that are told.
fn positions(arguments: &[&str], url: &str) -> Vec<u64> {
    let output = replay(&[&["timeline", "--json", "--database-url", url], arguments].concat());
    assert_eq!(output.status.code(), Some(0), "{arguments:?}: {}", text(&output.stderr));
    let shown = text(&output.stdout);
    let position =
        |line| serde_json::from_str::<serde_json::Value>(line).unwrap()["position"].as_u64().unwrap();
    shown.lines().map(position).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_part_is_selected_by_owner_place_and_time() {
    let database = filled().await;
    append_namesake(&open(&database.append_url()).await).await;
    let url = database.audit_url();
    let (run, ours, others) = (run().to_string(), tenant().to_string(), other_tenant().to_string());
    assert_eq!(positions(&["--run", &run], &url), [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 11], "of both tenants");
    assert_eq!(positions(&["--run", &run, "--tenant", &ours, "--from", "7"], &url), [7, 8, 9]);
    assert_eq!(positions(&["--tenant", &others], &url), [11]);
    assert_eq!(positions(&["--from", "3", "--until", "5"], &url), [3, 4]);

    let both = replay(&["timeline", "--run", &run, "--database-url", &url]);
    assert_eq!(both.status.code(), Some(0));
    assert!(
        text(&both.stderr).contains("several tenants have a run of that id"),
        "nobody takes two runs for one"
    );

    // The run's ten events are of one moment; those behind them were recorded later.
    let first = text(&replay(&["timeline", "--json", "--database-url", &url, "--until", "1"]).stdout);
    let first: serde_json::Value = serde_json::from_str(&first).unwrap();
    let began = first["recorded_at"].as_str().unwrap();
    assert_eq!(positions(&["--from", began], &url).len(), 12);
    let after: events::Timestamp = began.parse().unwrap();
    let after = events::Timestamp::try_from_unix_micros(after.unix_micros() + 1).unwrap().to_string();
    assert_eq!(positions(&["--from", &after], &url), [10, 11]);
    assert_eq!(positions(&["--until", &after], &url).len(), 10);

    for (arguments, words) in [
        (["--from", "12"], "no event is in the selection"),
        (["--until", began], "no event is in the selection"),
        (["--tenant", &run], "no event of tenant"),
    ] {
        let output = replay(&[&["timeline", "--database-url", &url], &arguments[..]].concat());
        assert_eq!(output.status.code(), Some(4), "{arguments:?}");
        assert!(text(&output.stderr).contains(words), "{}", text(&output.stderr));
    }
}

#[test]
fn wrong_usage_is_not_taken_for_tampering() {
    for arguments in [
        &["timeline", "--run", "not-a-uuid"][..],
        &["timeline", "--from", "yesterday"],
        &["timeline", "--from", "9007199254740992"],
        &["state-at", "--position", "-1"],
        &["state-at", "--view", "secrets"],
        &["state-at", "--position", "1", "--time", "2030-01-02T03:04:05Z"],
        &["export"],
        &["rewrite"],
        &[],
        &["verify"],
    ] {
        let output = replay(arguments);
        assert_eq!(output.status.code(), Some(64), "{arguments:?}: {}", text(&output.stderr));
        assert!(output.stdout.is_empty());
    }
    let help = replay(&["--help"]);
    assert_eq!(help.status.code(), Some(0));
    assert!(text(&help.stdout).contains("0 valid, 2 tampered"), "exit codes are published");
}
