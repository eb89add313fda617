//! The live views against the log.

use event_log::testing::{TestDatabase, test_database};
use serde_json::{Value, json};

use crate::log::{
    HOSTILE, append_orphans, assert_harmless, fill, filled, open, project, replay, tamper, text,
};

fn diff(database: &TestDatabase) -> (Option<i32>, Value) {
    let output = replay(&["diff", "--json", "--database-url", &database.audit_url()]);
    let told = text(&output.stdout);
    assert_harmless(&told);
    let report =
        serde_json::from_str(&told).unwrap_or_else(|error| panic!("{error}: {}", text(&output.stderr)));
    (output.status.code(), report)
}

#[tokio::test(flavor = "multi_thread")]
async fn equal_views_are_counted() {
    let database = filled().await;
    let (code, report) = diff(&database);
    assert_eq!((code, &report["verdict"]), (Some(0), &"equal".into()), "{report:#}");
    assert_eq!((&report["rows_checked"], &report["position"]), (&14.into(), &11.into()));
    assert_eq!((&report["folded_to"], &report["rows"]["run_events"]), (&11.into(), &10.into()));
    assert_eq!(report["differences"], json!([]));
    let words = text(&replay(&["diff", "--database-url", &database.audit_url()]).stdout);
    assert!(words.contains("compared 14 rows of 5 views") && words.ends_with("\nequal\n"), "{words}");
}

#[tokio::test(flavor = "multi_thread")]
async fn differences_are_named_with_both_values_and_nothing_can_forge_a_line() {
    let database = filled().await;
    let administrator = database.administrator().await.unwrap();
    let (holder, stdout) = (
        json!(format!("{HOSTILE} forged")).to_string(),
        json!({ "text": HOSTILE, "encoding": "utf-8",
        "bytes_total": 1, "sha256": "ab".repeat(32), "truncated": false })
        .to_string(),
    );
    administrator.execute("UPDATE views.leases SET holder = $1, ended_at = NULL", &[&holder]).await.unwrap();
    administrator
        .execute("UPDATE views.commands SET killed_by = 'MEMORY', stdout = $1", &[&stdout])
        .await
        .unwrap();
    administrator
        .batch_execute(
            "DELETE FROM views.run_events WHERE position = 4; \
             INSERT INTO views.run_events SELECT 99, tenant, run_id, 1 FROM views.runs; \
             UPDATE views.environments SET limits = '[]'; \
             UPDATE views.consumers SET leaf_at_position = sha256('other')",
        )
        .await
        .unwrap();
    let (code, report) = diff(&database);
    assert_eq!((code, &report["verdict"]), (Some(2), &"different".into()), "{report:#}");
    assert_eq!(report["differences_found"], 7, "the unreadable row counts for both sides: {report:#}");
    let differences = report["differences"].as_array().unwrap();
    let found = |view: &str, column: &str| {
        let of = |found: &&Value| found["view"] == view && found["column"] == column;
        differences.iter().find(of).unwrap_or_else(|| panic!("{view}.{column} in {report:#}"))
    };
    let lease = found("leases", "holder");
    assert_eq!((&lease["live"], &lease["folded"]), (&json!(format!("{HOSTILE} forged")), &json!(HOSTILE)));
    assert_eq!(
        (&lease["kind"], &lease["row"]),
        (&"differs".into(), &"01955f3c-7d00-7000-8000-000000000003".into())
    );
    let ended = found("leases", "ended_at");
    assert!(ended["live"].is_null() && ended["folded"].is_string(), "{ended}");
    let killed = found("commands", "killed_by");
    assert_eq!((&killed["live"], &killed["folded"]), (&"MEMORY".into(), &"TIMEOUT".into()));
    assert_eq!(found("commands", "stdout")["folded"]["bytes_total"], 28);
    let leaf = found("consumers", "leaf_at_position");
    assert!(leaf["live"].as_str().unwrap().len() == 64 && leaf["live"] != leaf["folded"], "{leaf}");
    let of_kind = |kind: &str| differences.iter().filter(|found| found["kind"] == kind).collect::<Vec<_>>();
    let missing = of_kind("missing");
    assert_eq!((&missing[1]["row"], &missing[1]["folded"]["type"]), (&"4".into(), &"CommandStarted".into()));
    assert!(missing[1]["live"].is_null());
    assert_eq!(
        (&of_kind("surplus")[0]["row"], &of_kind("surplus")[0]["live"]["type_id"]),
        (&"99".into(), &1.into())
    );
    assert_eq!(of_kind("unreadable")[0]["view"], "environments");

    let output = replay(&["diff", "--database-url", &database.audit_url()]);
    assert_eq!(output.status.code(), Some(2));
    let words = text(&output.stdout);
    assert_harmless(&words);
    let settle = |digest: &Value| digest.as_str().unwrap().to_owned();
    let words = words
        .replace(&settle(&report["log_id"]), "LOG")
        .replace(&settle(&leaf["folded"]), "LEAF")
        .replace(&settle(&ended["folded"]), "TIME");
    insta::assert_snapshot!(words);
}

/// Ended commands are put away as digests in a long fold; their values are found all the same.
#[tokio::test(flavor = "multi_thread")]
async fn values_of_commands_that_were_put_away_are_told() {
    let database = filled().await;
    let log = open(&database.append_url()).await;
    append_orphans(&log, 300).await;
    project(&log, &database.project_url()).await;
    assert_eq!(diff(&database).0, Some(0));
    tamper(&database, "UPDATE views.commands SET duration_ms = 1").await;
    let (code, report) = diff(&database);
    assert_eq!(code, Some(2));
    let difference = &report["differences"][0];
    assert_eq!(
        (&difference["column"], &difference["live"], &difference["folded"]),
        (&"duration_ms".into(), &1.into(), &1_004.into())
    );

    // Values that are alike as far as they are shown.
    let long = json!(["printf", "x".repeat(100)]).to_string();
    let administrator = database.administrator().await.unwrap();
    administrator.execute("UPDATE views.commands SET duration_ms = 1004, argv = $1", &[&long]).await.unwrap();
    tamper(&database, "UPDATE views.leases SET labels = replace(labels, '}', ',\"zzz\":\"1\"}')").await;
    let words = text(&replay(&["diff", "--database-url", &database.audit_url()]).stdout);
    assert_harmless(&words);
    assert!(
        words.contains("labels: live") && words.contains("(they differ further on: --json has all)"),
        "{words}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn views_behind_the_log_are_compared_where_they_are_and_views_ahead_differ() {
    let database = filled().await;
    append_orphans(&open(&database.append_url()).await, 3).await;
    let (code, report) = diff(&database);
    assert_eq!((code, &report["position"], &report["head"]), (Some(0), &11.into(), &14.into()));
    tamper(&database, "UPDATE views.consumers SET position = 50").await;
    let (code, report) = diff(&database);
    assert_eq!((code, &report["folded_to"]), (Some(2), &14.into()));
    let ahead = &report["differences"][0];
    assert_eq!(
        (&ahead["column"], &ahead["live"], &ahead["folded"]),
        (&"position".into(), &50.into(), &14.into())
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn what_cannot_be_read_is_neither_equal_nor_different() {
    let database = test_database().await;
    let (code, report) = diff(&database);
    assert_eq!((code, &report["verdict"], &report["rows_checked"]), (Some(4), &"empty".into(), &0.into()));
    fill(&database.append_url(), &database.project_url()).await;
    tamper(&database, "DELETE FROM log.events WHERE position = 5").await;
    let output = replay(&["diff", "--database-url", &database.audit_url()]);
    assert_eq!((output.status.code(), text(&output.stdout).as_str()), (Some(4), ""));
    assert!(text(&output.stderr).contains("no event at position 5"), "{}", text(&output.stderr));
}
