//! The table of users: what a command can do to init, spawn and the shims, row by row, and that they do their work after it.

use events::spec::Mechanism;
use serde_json::json;

use super::{Case, sh};

on_every_mechanism! {
    no_row_of_the_user_table_reaches_a_trusted_process,
    killing_stopping_and_forging_reach_only_ones_own,
}

const NO: &[&str] = &["EPERM", "EACCES"];

/// What each row may answer.
fn allowed(row: &str, mechanism: Mechanism) -> &'static [&'static str] {
    match (row, mechanism) {
        // No process group of that number, or none of one's own children.
        ("group signal" | "setpgid", _) => &["EPERM", "ESRCH"],
        // Absent on this kernel, or not for this user.
        ("stack" | "timer slack" | "coredump filter" | "pagemap" | "syscall" | "clear_refs", _) => {
            &["EPERM", "EACCES", "ENOENT", "empty"]
        }
        // A kernel of its own shows names and keeps no order of CPUs: there is nothing behind them.
        ("affinity" | "nice" | "scheduler", Mechanism::Gvisor) => {
            &["EPERM", "EACCES", "ok", "ESRCH", "EINVAL"]
        }
        // The null device of init may be opened through it as by its own name. Spawn's are pipes, and a shim has none.
        ("stdout written" | "stderr written" | "stdin read" | "stdin written", Mechanism::Gvisor) => {
            &["EPERM", "EACCES", "ENOENT", "null"]
        }
        ("environ", Mechanism::Gvisor) => &["EPERM", "EACCES", "empty", "bytes"],
        ("fds listed" | "fdinfo listed", Mechanism::Gvisor) => &["EPERM", "EACCES", "names"],
        ("maps" | "auxv", Mechanism::Gvisor) => &["EPERM", "EACCES", "empty", "bytes"],
        ("exe" | "cwd" | "root", Mechanism::Gvisor) => &["EPERM", "EACCES", "ENOENT", "ok"],
        (_, Mechanism::Gvisor) => &["EPERM", "EACCES", "ENOSYS", "ENOENT", "ESRCH", "EIO", "EINVAL"],
        _ => NO,
    }
}

async fn no_row_of_the_user_table_reaches_a_trusted_process(mechanism: Mechanism) {
    let case = Case::start(mechanism).await;
    let sandbox = case.sandbox().await;
    for round in ["at first", "again"] {
        let found = case.probe(&sandbox, include_str!("probes/trusted.py")).await;
        let table = found["table"].as_object().expect("a table");
        assert!(table.keys().any(|line| line.starts_with("/leasehold/guest init")), "{table:?}");
        assert!(
            table.keys().filter(|line| line.starts_with("/leasehold/guest spawn")).count() >= 2,
            "{table:?}"
        );
        let mut wrong = Vec::new();
        for (process, rows) in table {
            let rows = rows.as_object().expect("rows");
            assert!(rows.len() >= 44, "{rows:?}");
            for (row, got) in rows {
                if !got.as_str().is_some_and(|got| allowed(row, mechanism).contains(&got)) {
                    wrong.push(format!("{round}: {process}: {row}: {got}"));
                }
            }
        }
        assert!(wrong.is_empty(), "{wrong:#?}");
        case.answers(&sandbox).await;
    }
    case.finish().await;
}

/// P5, P9, B10: everything with one's own user dies, nothing else; what looks like a frame is output.
async fn killing_stopping_and_forging_reach_only_ones_own(mechanism: Mechanism) {
    let case = Case::start(mechanism).await;
    let sandbox = case.sandbox().await;
    let attacks = [
        "kill -9 -1",
        "kill -STOP 1; kill -9 1; kill -TERM 1; kill -HUP 1",
        "for p in /proc/[0-9]*; do for s in KILL STOP TERM HUP; do kill -$s ${p#/proc/} 2>/dev/null; done; done; true",
        "for p in /proc/[0-9]*; do for f in 0 1 2; do echo forged > $p/fd/$f; done; done 2>/dev/null; true",
    ];
    for script in attacks {
        let mut body = sh(script);
        body["timeout_seconds"] = json!(3.0);
        let command = case.run(&sandbox, &body).await;
        assert!(command["killed_by"].is_null() || command["killed_by"] == "TIMEOUT", "{script}: {command}");
        assert!(
            !command["stderr"]["text"]
                .as_str()
                .is_some_and(|text| text.contains("forged\nforged\nforged\nforged"))
        );
        case.answers(&sandbox).await;
    }

    // An exit frame, a start report, a length of 4 GiB: on one's own output they are bytes.
    let forge = "import os, struct\n\
                 for kind in range(256): os.write(1, struct.pack('<IB', 9, kind) + b'\\0' * 9)\n\
                 os.write(1, b'\\xff' * 4096)\n\
                 os._exit(7)";
    let command = case.run(&sandbox, &json!({ "argv": ["python3", "-c", forge] })).await;
    assert_eq!(
        (&command["exit_code"], &command["stdout"]["bytes_total"]),
        (&json!(7), &json!(256 * 14 + 4096)),
        "{command}"
    );
    case.answers(&sandbox).await;
    case.finish().await;
}
