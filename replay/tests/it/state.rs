//! The views as of a place in the log.

use std::collections::{BTreeMap, BTreeSet};

use event_log::testing::{TestDatabase, test_database};
use serde_json::Value;

use crate::log::{
    HOSTILE, append_namesake, append_unknown, assert_harmless, filled, open, other_tenant, replay, run, text,
    uuid,
};

fn state(database: &TestDatabase, arguments: &[&str]) -> (Option<i32>, String, String) {
    let url = database.audit_url();
    let output = replay(&[&["state-at", "--database-url", &url], arguments].concat());
    let (told, complaint) = (text(&output.stdout), text(&output.stderr));
    assert_harmless(&told);
    (output.status.code(), told, complaint)
}

/// The place, and the rows by view.
fn rows(database: &TestDatabase, arguments: &[&str]) -> (Value, BTreeMap<String, Vec<Value>>) {
    let (code, told, complaint) = state(database, &[&["--json"], arguments].concat());
    assert_eq!(code, Some(0), "{complaint}");
    let mut lines = told.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    let place = lines.next().unwrap();
    let mut rows: BTreeMap<String, Vec<Value>> = BTreeMap::new();
    for mut line in lines {
        let row = line["row"].take();
        rows.entry(line["view"].as_str().unwrap().to_owned()).or_default().push(row);
    }
    (place, rows)
}

/// Without what is new at every start: the log's id and the one moment of the run's events.
fn settled(told: &str, place: &Value) -> String {
    let moment = place["recorded_at"].as_str().unwrap();
    told.replace(place["log_id"].as_str().unwrap(), "LOG").replace(moment, "YYYY-MM-DDThh:mm:ss.ffffffZ")
}

#[tokio::test(flavor = "multi_thread")]
async fn tables_show_what_was_known_and_nothing_can_forge_a_line() {
    let database = filled().await;
    let mut all = String::new();
    for position in ["0", "4", "9"] {
        let (place, _) = rows(&database, &["--position", position]);
        assert_eq!(place["position"].to_string(), position);
        let (code, told, complaint) = state(&database, &["--position", position]);
        assert_eq!((code, complaint.as_str()), (Some(0), ""));
        all.push_str(&settled(&told, &place));
        all.push('\n');
    }
    insta::assert_snapshot!(all);
}

#[tokio::test(flavor = "multi_thread")]
async fn json_rows_have_every_column_and_exact_values() {
    let database = filled().await;
    let (place, rows) = rows(&database, &[]);
    assert_eq!(place["position"], 10, "without a place: the end of the log");
    let administrator = database.administrator().await.unwrap();
    for (view, rows) in &rows {
        let sql = "SELECT column_name::text FROM information_schema.columns WHERE table_schema = 'views' AND table_name = $1";
        let columns = administrator.query(sql, &[view]).await.unwrap();
        let mut columns: BTreeSet<String> = columns.iter().map(|row| row.get(0)).collect();
        if view == "run_events" {
            columns.insert("type".to_owned());
        }
        for row in rows {
            let found: BTreeSet<String> = row.as_object().unwrap().keys().cloned().collect();
            assert_eq!(found, columns, "{view}");
        }
    }
    let counts: Vec<(&str, usize)> = rows.iter().map(|(view, rows)| (view.as_str(), rows.len())).collect();
    assert_eq!(
        counts,
        [("commands", 1), ("environments", 1), ("leases", 1), ("run_events", 10), ("runs", 1)]
    );
    let (lease, command) = (&rows["leases"][0], &rows["commands"][0]);
    assert_eq!((&lease["holder"], &lease["labels"][HOSTILE]), (&HOSTILE.into(), &HOSTILE.into()));
    assert_eq!(
        (&lease["state"], &lease["expires_at"]),
        (&"released".into(), &"2030-01-02T03:04:05.678901Z".into())
    );
    assert_eq!((&command["killed_by"], &command["exit_code"]), (&"TIMEOUT".into(), &Value::Null));
    assert_eq!((&command["stdout"]["text"], &command["argv"][1]), (&HOSTILE.into(), &HOSTILE.into()));
    assert_eq!((&command["duration_ms"], &command["usage"]["cpu_ms"]), (&1_004.into(), &31.into()));
    assert_eq!(rows["run_events"][0]["type"], "LeaseAcquired");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_place_is_a_position_or_a_time() {
    let database = filled().await;
    let (_, then) = rows(&database, &["--position", "4"]);
    assert_eq!(
        (&then["commands"][0]["state"], &then["leases"][0]["state"]),
        (&"running".into(), &"live".into())
    );
    // The run's events are of one moment, the service's event came later.
    let (place, _) = rows(&database, &["--position", "9"]);
    let moment = place["recorded_at"].as_str().unwrap();
    let (by_time, _) = rows(&database, &["--time", moment]);
    assert_eq!(by_time, place, "everything up to that time, and the position is told");
    let micros = moment.parse::<events::Timestamp>().unwrap().unix_micros();
    let before = events::Timestamp::try_from_unix_micros(micros - 1).unwrap().to_string();
    let (code, told, complaint) = state(&database, &["--time", &before]);
    assert_eq!((code, told.as_str()), (Some(4), ""));
    assert!(complaint.contains("no event that was recorded at"), "{complaint}");
    let (later, _) = rows(&database, &["--time", "2999-01-01T00:00:00+02:00"]);
    assert_eq!(later["position"], 10);
    let (code, _, complaint) = state(&database, &["--position", "11"]);
    assert_eq!(code, Some(4));
    assert!(complaint.contains("does not reach position 11: it ends at 10"), "{complaint}");
}

#[tokio::test(flavor = "multi_thread")]
async fn rows_are_selected_by_owner_and_view() {
    let database = filled().await;
    append_namesake(&open(&database.append_url()).await).await;
    let (run, others) = (run().to_string(), other_tenant().to_string());
    let (_, all) = rows(&database, &["--run", &run]);
    assert_eq!((all["leases"].len(), all["runs"].len()), (2, 2), "of both tenants");
    let (place, theirs) = rows(&database, &["--run", &run, "--tenant", &others]);
    assert_eq!((&place["position"], theirs["leases"].len()), (&11.into(), 1));
    assert_eq!(theirs["leases"][0]["tenant"], others);
    let (_, commands) = rows(&database, &["--view", "commands"]);
    assert_eq!(commands.keys().collect::<Vec<_>>(), ["commands"]);
    let other = uuid(99).to_string();
    for arguments in [&["--run", &other][..], &["--tenant", &others, "--position", "10"]] {
        let (code, told, complaint) = state(&database, arguments);
        assert_eq!((code, told.as_str()), (Some(4), ""), "{arguments:?}");
        assert!(complaint.contains("no event of what was asked for"), "{complaint}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_cannot_be_folded_is_unreadable_from_there_on() {
    let (code, told, complaint) = state(&test_database().await, &[]);
    assert_eq!((code, told.as_str()), (Some(4), ""));
    assert!(complaint.contains("the log holds no event"), "{complaint}");

    let database = filled().await;
    append_unknown(&database).await;
    let (code, _, complaint) = state(&database, &[]);
    assert_eq!(code, Some(4));
    assert!(complaint.contains("position 11"), "{complaint}");
    assert_eq!(rows(&database, &["--position", "10"]).0["position"], 10, "before it everything is as it was");
}
