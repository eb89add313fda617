//! `leasehold doctor`: what this machine has and lacks for the service to run.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::io::Write as _;

use event_log::embedded;
use runtime_adapter::container;
use serde_json::{Value, json};

use super::args::Doctor;
use super::exit::{self, Failure};
use super::serve::sources;
use crate::config::Config;

/// One finding.
struct Check {
    name: &'static str,
    ok: bool,
    detail: String,
}

pub(super) async fn doctor(args: Doctor, environment: BTreeMap<String, OsString>) -> Result<u8, Failure> {
    let sources = sources(&environment, args.config.as_deref(), None)?;
    let config = Config::load(&sources).map_err(|faults| Failure::usage(faults.to_string()))?;
    let mut checks = vec![postgres(&config)];
    checks.extend(engine(&config).await);
    print(&checks, args.json)?;
    Ok(if checks.iter().all(|check| check.ok) { 0 } else { exit::FAILED })
}

fn postgres(config: &Config) -> Check {
    let name = "PostgreSQL";
    if config.database.is_some() {
        return Check { name, ok: true, detail: "an external one is configured".to_owned() };
    }
    match embedded::installed() {
        Ok(found) => {
            Check { name, ok: true, detail: format!("{} in {}", found.major, found.bin_dir.display()) }
        }
        Err(error) => Check { name, ok: false, detail: error.to_string() },
    }
}

async fn engine(config: &Config) -> Vec<Check> {
    let images = [config.image.as_str(), config.files_image.as_str()];
    match container::probe(None, config.engine_host.as_deref(), &images).await {
        Ok(probe) => {
            let mut checks =
                vec![Check { name: "container engine", ok: true, detail: probe.server_version.clone() }];
            for ((name, reference), found) in
                ["execution image", "files image"].into_iter().zip(images).zip(probe.images)
            {
                let ok = found.is_some();
                let detail = found.map_or_else(
                    || format!("{reference} is not loaded: ./dev image builds it"),
                    |digest| format!("{reference} is {digest}"),
                );
                checks.push(Check { name, ok, detail });
            }
            checks
        }
        Err(error) => vec![Check { name: "container engine", ok: false, detail: error.to_string() }],
    }
}

fn print(checks: &[Check], json: bool) -> Result<(), Failure> {
    let mut out = std::io::stdout().lock();
    let written = if json {
        let items: Vec<Value> = checks
            .iter()
            .map(|check| json!({ "name": check.name, "ok": check.ok, "detail": check.detail }))
            .collect();
        writeln!(out, "{}", json!({ "ok": checks.iter().all(|check| check.ok), "checks": items }))
    } else {
        checks.iter().try_for_each(|check| {
            let mark = if check.ok { "ok" } else { "MISSING" };
            writeln!(out, "{mark:<8} {:<18} {}", check.name, check.detail)
        })
    };
    written.map_err(|error| Failure::failed(format!("output cannot be written: {error}")))
}
