//! The house rules as a check: who may depend on whom, and which file alone may do what.
//!
//! The table below is the allowed direction, not today's state: an edge that is missing from a manifest is fine, an edge that
//! is missing from the table fails.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use cargo_metadata::{DependencyKind, MetadataCommand};

/// Every crate of the house and what it may depend on in the house, outside tests.
const MAY_DEPEND_ON: &[(&str, &[&str])] = &[
    ("events", &[]),
    ("policy", &[]),
    ("event-log", &["events"]),
    ("projections", &["events", "event-log"]),
    ("guest", &["policy"]),
    ("runtime-adapter", &["events", "policy", "guest"]),
    ("service", &["events", "policy", "event-log", "projections", "runtime-adapter"]),
    ("replay", &["events", "event-log", "projections"]),
    ("tests", &["events", "policy", "event-log", "projections", "runtime-adapter", "service", "replay"]),
];

/// What the pure crates must not know: the manifest keeps the rules pure.
const IMPURE: &[&str] = &["tokio", "sqlx", "axum", "tracing", "tokio-postgres", "reqwest"];

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("tests/ lies in the repository").to_path_buf()
}

#[test]
fn dependencies_point_one_way() {
    let metadata = MetadataCommand::new()
        .manifest_path(root().join("Cargo.toml"))
        .no_deps()
        .exec()
        .expect("cargo metadata answers");
    let allowed: BTreeMap<&str, BTreeSet<&str>> =
        MAY_DEPEND_ON.iter().map(|(name, on)| (*name, on.iter().copied().collect())).collect();
    let house: BTreeSet<String> = metadata.packages.iter().map(|package| package.name.to_string()).collect();
    let mut faults = Vec::new();
    for package in &metadata.packages {
        let name = package.name.to_string();
        let Some(may) = allowed.get(name.as_str()) else {
            faults.push(format!("{name} is not in the table"));
            continue;
        };
        let normal =
            package.dependencies.iter().filter(|dependency| dependency.kind == DependencyKind::Normal);
        for dependency in normal {
            if house.contains(&dependency.name) && !may.contains(dependency.name.as_str()) {
                faults.push(format!("{name} must not depend on {}", dependency.name));
            }
            if ["events", "policy"].contains(&name.as_str()) && IMPURE.contains(&dependency.name.as_str()) {
                faults.push(format!("{name} is pure and must not depend on {}", dependency.name));
            }
        }
    }
    assert!(faults.is_empty(), "{}", faults.join("\n"));
    assert!(house.len() >= MAY_DEPEND_ON.len(), "the table names crates that do not exist");
}

/// All Rust sources below `folder`, as (path relative to the repository, text without its test modules' imports).
fn sources(folder: &str) -> Vec<(String, String)> {
    let mut found = Vec::new();
    let mut folders = vec![root().join(folder)];
    while let Some(current) = folders.pop() {
        for entry in fs::read_dir(&current).expect("a source folder can be read") {
            let path = entry.expect("an entry can be read").path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                let name = path.strip_prefix(root()).expect("below the root").to_string_lossy().into_owned();
                found.push((name, fs::read_to_string(&path).expect("a source is UTF-8")));
            }
        }
    }
    found
}

/// Asserts that `needle` occurs only in product sources whose path starts with one of `homes`, and that it occurs at all.
fn only_in(needle: &str, homes: &[&str]) {
    let all: Vec<(String, String)> = ["crates", "replay"]
        .iter()
        .flat_map(|folder| sources(folder))
        .filter(|(path, _)| path.contains("/src/") && !path.contains("/examples/"))
        .filter(|(_, text)| text.contains(needle))
        .collect();
    assert!(!all.is_empty(), "nothing contains {needle:?}: this check has lost its subject");
    for (path, _) in all {
        assert!(homes.iter().any(|home| path.starts_with(home)), "{path} must not contain {needle:?}");
    }
}

#[test]
fn only_the_adapter_starts_container_processes_and_only_the_log_starts_its_server() {
    let homes = [
        "crates/runtime-adapter/src/container/cli.rs",
        "crates/event-log/src/embedded/",
        "crates/event-log/src/testing/",
        "crates/guest/src/",
    ];
    only_in("Command::new(", &homes);
}

#[test]
fn only_problem_knows_error_status_codes() {
    only_in(", CONFLICT,", &["crates/service/src/http/problem"]);
    only_in("application/problem+json", &["crates/service/src/http/"]);
}

#[test]
fn only_the_log_calls_the_append_function() {
    only_in("log.append_batch(", &["crates/event-log/src"]);
}

#[test]
fn tasks_are_started_by_supervise_alone() {
    only_in(
        "tokio::spawn(",
        &[
            "crates/service/src/supervise",
            "crates/event-log/src/supervise",
            "crates/runtime-adapter/src/supervise",
            "crates/projections/src/supervise",
        ],
    );
}

#[test]
fn no_source_outgrows_its_reader() {
    for folder in ["crates", "replay", "tests"] {
        for (path, text) in sources(folder) {
            let lines = text.lines().count();
            assert!(lines <= 600, "{path} has {lines} lines: split it by 600");
        }
    }
}
