//! `leasehold doctor`: what this machine has and lacks for the service to run.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::io::Write as _;

use event_log::embedded;
use events::spec::{ImageDigest, Mechanism};
use runtime_adapter::container::{self, ProbedImage};
use runtime_adapter::ports::PortError;
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
            let execution_image = match probe.images.first() {
                Some(ProbedImage::Usable(digest)) => Some(digest.clone()),
                _ => None,
            };
            let mut checks =
                vec![Check { name: "container engine", ok: true, detail: probe.server_version.clone() }];
            for ((name, reference), found) in
                ["execution image", "files image"].into_iter().zip(images).zip(probe.images)
            {
                let (ok, detail) = match found {
                    ProbedImage::Missing => {
                        (false, format!("{reference} is not loaded: ./dev image builds it"))
                    }
                    ProbedImage::OtherVersion => {
                        (false, format!("{reference} is of another version: ./dev image builds it anew"))
                    }
                    ProbedImage::Usable(digest) => (true, format!("{reference} is {digest}")),
                };
                checks.push(Check { name, ok, detail });
            }
            checks.push(gvisor(config, execution_image.as_ref()).await);
            checks
        }
        Err(error) => vec![Check { name: "container engine", ok: false, detail: error.to_string() }],
    }
}

/// Found out by trying. Where another mechanism is configured, a machine without gVisor lacks nothing.
async fn gvisor(config: &Config, image: Option<&ImageDigest>) -> Check {
    let name = "gVisor";
    let is_needed = config.mechanism == Mechanism::Gvisor;
    let Some(image) = image else {
        return Check { name, ok: !is_needed, detail: "not tried: it takes the execution image".to_owned() };
    };
    let (host, runtime) = (config.engine_host.as_deref(), config.gvisor_runtime.as_str());
    let host_network = config.gvisor_allow_host_network;
    match container::probe_gvisor(None, host, runtime, host_network, image).await {
        Ok(facts) => {
            let network = if facts.has_host_network() {
                "; the network stack is the host's, which gvisor_allow_host_network allows"
            } else {
                ""
            };
            let words: Vec<&str> =
                std::iter::once(&facts.path).chain(&facts.arguments).map(String::as_str).collect();
            let detail = format!(
                "a container of runtime {runtime} ({}) sees kernel {}{network}",
                words.join(" "),
                facts.kernel_release
            );
            Check { name, ok: true, detail }
        }
        Err(error) if is_needed => Check { name, ok: false, detail: gvisor_hint(runtime, &error) },
        Err(error) => {
            let detail = format!(
                "not usable, and mechanism = {} goes without: {}",
                config.mechanism,
                gvisor_hint(runtime, &error)
            );
            Check { name, ok: true, detail }
        }
    }
}

fn gvisor_hint(runtime: &str, error: &PortError) -> String {
    let (PortError::Rejected { code } | PortError::Unavailable { code, .. }) = error else {
        return error.to_string();
    };
    let hint = match *code {
        "gvisor_not_registered" => "the engine knows no such runtime: ./dev setup registers it",
        "gvisor_is_default_runtime" => {
            "it is the engine's default runtime, in which the files containers would run"
        }
        "gvisor_host_network" => {
            "it is registered with --network=host, which gvisor_allow_host_network does not allow"
        }
        "gvisor_unsafe_arguments" => {
            "it is registered with arguments that are not known to leave the isolation whole"
        }
        "gvisor_not_in_use" => "the engine started its container in another runtime",
        "gvisor_starts_nothing" => "the engine cannot start a container in it",
        _ => return error.to_string(),
    };
    format!("{runtime}: {hint} ({code})")
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
    written.map_err(|error| exit::unwritten(&error, 0))
}
