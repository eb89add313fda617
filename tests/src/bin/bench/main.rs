//! `./dev bench`: the figures this project claims, each beside its reference in one run on one machine.
//!
//! ```text
//! bench FILE.json [P1 P2 ...]
//! ```
//! P1, P13 and P15 come from runtime-adapter's `dispatch_bench`, P5 to P7 from event-log's `append_bench`, P11 from guest's
//! `scan_bench` (examples of their crates, run as programs and merged here); P2 and P3 drive a `leasehold` process over HTTP. A table goes to standard output,
//! the same with facts of the machine to FILE.json. Exits with 1 when a goal is missed, and fails when a result is not right.

mod figures;
mod http;
mod machine;
mod programs;

use std::process::ExitCode;

use figures::{Measure, table};
use serde_json::json;

type Failure = Box<dyn std::error::Error>;

/// What can be measured, by the program that does it.
const DISPATCH: [&str; 3] = ["P1", "P13", "P15"];
const HTTP: [&str; 2] = ["P2", "P3"];
const APPEND: [&str; 3] = ["P5", "P6", "P7"];
const SCAN: [&str; 1] = ["P11"];

#[tokio::main]
async fn main() -> Result<ExitCode, Failure> {
    let mut arguments = std::env::args().skip(1);
    let file = arguments.next().ok_or("usage: bench FILE.json [P1 P2 ...]")?;
    let asked: Vec<String> = arguments.collect();
    let known = [&DISPATCH[..], &HTTP[..], &APPEND[..], &SCAN[..]].concat();
    if let Some(unknown) = asked.iter().find(|name| !known.contains(&name.as_str())) {
        return Err(format!("there is no measure {unknown}; there are {}", known.join(" ")).into());
    }
    let wanted = |name: &str| asked.is_empty() || asked.iter().any(|asked| asked == name);

    let before = machine::load();
    let mut measures = Vec::new();
    if DISPATCH.iter().any(|name| wanted(name)) {
        measures.extend(programs::dispatch()?);
    }
    if wanted("P1") {
        measures.extend(programs::dispatch_in_gvisor()?);
    }
    if HTTP.iter().any(|name| wanted(name)) {
        measures.extend(http::measure(wanted("P2"), wanted("P3")).await?);
    }
    if APPEND.iter().any(|name| wanted(name)) {
        measures.extend(programs::append()?);
    }
    if SCAN.iter().any(|name| wanted(name)) {
        measures.extend(programs::scan()?);
    }
    measures.retain(|measure| wanted(measure.name));
    measures.sort_by_key(|measure| known_order(measure.name));

    let report = json!({
        "machine": machine::facts()?,
        "load_before": before,
        "load_after": machine::load(),
        "measures": measures.iter().map(Measure::json).collect::<Vec<_>>(),
    });
    std::fs::write(&file, serde_json::to_string_pretty(&report)? + "\n")?;
    print!("{}", table(&measures));
    let missed = measures.iter().any(|measure| measure.pass() == Some(false));
    Ok(ExitCode::from(u8::from(missed)))
}

/// P1 before P2 before P13.
fn known_order(name: &str) -> u32 {
    name.trim_start_matches('P').parse().unwrap_or(u32::MAX)
}
