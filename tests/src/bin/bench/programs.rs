//! The measures that crates take of themselves, and the programs they are compared with.

use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Instant;

use serde_json::Value;

use crate::Failure;
use crate::figures::{Figures, Goal, Measure, Unit};

/// Runs of `dispatch_bench` that count, after one that does not.
const DISPATCH_RUNS: usize = 5;
/// Commands and environments in each of them.
const DISPATCH_COUNTS: [&str; 2] = ["100", "3"];
/// The same for the commands alone.
const COMMANDS_ALONE: [&str; 3] = ["100", "0", "gvisor"];

/// One row from `dispatch_bench`: name, what, ours, reference, its fields of both, goal.
type Row = (&'static str, &'static str, &'static str, &'static str, &'static str, Goal);

const ROWS: [Row; 4] = [
    ("P1", "command at the port, p50", "docker exec", "dispatch_us", "docker_exec_us", Goal::FasterBy(30.0)),
    (
        "P13",
        "256 MiB into the workspace",
        "cat >F",
        "write_256_mib_us",
        "docker_cat_in_us",
        Goal::FasterBy(1.0),
    ),
    (
        "P13",
        "256 MiB out of the workspace",
        "cat F",
        "read_256_mib_us",
        "docker_cat_out_us",
        Goal::FasterBy(1.0),
    ),
    (
        "P15",
        "kill until the next answer",
        "docker kill + start",
        "kill_to_next_answer_us",
        "docker_kill_start_us",
        Goal::TimeAtMost(1.3),
    ),
];

const GVISOR_ROW: Row = (
    "P1",
    "gvisor: command at the port, p50",
    "docker exec",
    "dispatch_us",
    "docker_exec_us",
    Goal::FasterBy(15.0),
);

/// P1, P13, P15. The figure of a run is its median.
pub(crate) fn dispatch() -> Result<Vec<Measure>, Failure> {
    let runs = dispatch_runs("P1 P13 P15", &["20", "1"], &DISPATCH_COUNTS)?;
    ROWS.into_iter().map(|row| dispatch_measure(row, &runs)).collect()
}

/// P1 where commands run in a kernel of their own, beside an exec there. None where the engine knows no such runtime.
pub(crate) fn dispatch_in_gvisor() -> Result<Option<Measure>, Failure> {
    if !text("docker", &["info", "--format", "{{json .Runtimes}}"])?.contains("\"runsc\"") {
        eprintln!("bench: P1 gvisor: not measured, the engine knows no runsc");
        return Ok(None);
    }
    let runs = dispatch_runs("P1 gvisor", &["20", "0", "gvisor"], &COMMANDS_ALONE)?;
    dispatch_measure(GVISOR_ROW, &runs).map(Some)
}

fn dispatch_runs(name: &str, warm_up: &[&str], counts: &[&str]) -> Result<Vec<Value>, Failure> {
    eprintln!("bench: {name}: warm-up");
    example("dispatch_bench", warm_up)?;
    let run = |run| {
        eprintln!("bench: {name}: run {run} of {DISPATCH_RUNS}");
        example("dispatch_bench", counts)
    };
    (1..=DISPATCH_RUNS).map(run).collect()
}

fn dispatch_measure(row: Row, runs: &[Value]) -> Result<Measure, Failure> {
    let (name, what, against, ours, reference, goal) = row;
    let medians = |field: &str| -> Result<Figures, Failure> {
        let of_run = |run: &Value| number(run.get(field), "p50").ok_or(format!("no {field} in {run}"));
        Ok(Figures::of(&runs.iter().map(of_run).collect::<Result<Vec<_>, _>>()?))
    };
    Ok(Measure {
        name,
        what: what.to_owned(),
        against: against.to_owned(),
        unit: Unit::Microseconds,
        ours: medians(ours)?,
        reference: medians(reference)?,
        goal,
    })
}

/// P5, P6 and P7, as far as `append_bench` has them. It warms up, alternates and checks by itself.
pub(crate) fn append() -> Result<Vec<Measure>, Failure> {
    eprintln!("bench: P5 P7: appends beside pgbench");
    let report = example("append_bench", &[])?;
    let runs = report["rounds"].as_u64().ok_or("append_bench says no rounds")?.try_into()?;
    let measures = report["measures"].as_array().ok_or("append_bench says no measures")?;
    measures.iter().map(|measure| append_measure(measure, runs)).collect()
}

fn append_measure(measure: &Value, runs: usize) -> Result<Measure, Failure> {
    let missing = || format!("append_bench answered {measure}");
    let figures = |side: &str| -> Option<Figures> {
        let of = |field| number(measure.get(side), field);
        Some(Figures { median: of("median")?, min: of("min")?, max: of("max")?, runs })
    };
    let name = crate::APPEND.into_iter().find(|name| measure["measure"] == *name).ok_or_else(missing)?;
    let clients = measure["clients"].as_u64().ok_or_else(missing)?;
    let events = if name == "P6" { "batches of 100" } else { "one event each" };
    Ok(Measure {
        name,
        what: format!("append, {events}, {clients} client{}", if clients == 1 { "" } else { "s" }),
        against: "pgbench".to_owned(),
        unit: Unit::EventsPerSecond,
        ours: figures("ours").ok_or_else(missing)?,
        reference: figures("reference").ok_or_else(missing)?,
        goal: measure["goal"].as_f64().map_or(Goal::RateReported, Goal::RateAtLeast),
    })
}

/// P11: both looks at a large tree in which nothing has changed. The change scan must read no content.
pub(crate) fn scan() -> Result<Vec<Measure>, Failure> {
    eprintln!("bench: P11: scans beside find");
    let report = example("scan_bench", &[])?;
    let missing = || format!("scan_bench answered {report}");
    if report["content_bytes"] != 0 {
        return Err(format!("unchanged files were read: {report}").into());
    }
    let runs = report["rounds"].as_u64().ok_or_else(missing)?.try_into()?;
    let figures = |field: &str| -> Option<Figures> {
        let of = |name| number(report.get(field), name);
        Some(Figures { median: of("median")?, min: of("min")?, max: of("max")?, runs })
    };
    let rows = [("change scan", "diff_us"), ("quota's look", "measure_us")];
    rows.into_iter()
        .map(|(what, field)| {
            Ok(Measure {
                name: "P11",
                what: format!("{what}, 100k files, nothing changed"),
                against: "find -printf".to_owned(),
                unit: Unit::Microseconds,
                ours: figures(field).ok_or_else(missing)?,
                reference: figures("find_us").ok_or_else(missing)?,
                goal: Goal::TimeAtMost(1.3),
            })
        })
        .collect()
}

fn number(object: Option<&Value>, field: &str) -> Option<f64> {
    object?.get(field)?.as_f64()
}

/// Runs an example of the same build; answers the JSON it prints.
fn example(name: &str, arguments: &[&str]) -> Result<Value, Failure> {
    let own = std::env::current_exe()?;
    let path = own.parent().ok_or("this program lies nowhere")?.join("examples").join(name);
    let output = command(&path).args(arguments).stdin(Stdio::null()).stderr(Stdio::inherit()).output()?;
    if !output.status.success() {
        return Err(format!("{name} failed: {}", output.status).into());
    }
    Ok(serde_json::from_slice(&output.stdout)?)
}

/// Runs the engine's client to its end; answers how long that took in microseconds.
pub(crate) fn docker_us(arguments: &[&str]) -> Result<f64, Failure> {
    let began = Instant::now();
    text("docker", arguments)?;
    Ok(began.elapsed().as_secs_f64() * 1e6)
}

/// What a program prints.
pub(crate) fn text(program: &str, arguments: &[&str]) -> Result<String, Failure> {
    let output = command(Path::new(program)).args(arguments).stdin(Stdio::null()).output()?;
    if !output.status.success() {
        let error = String::from_utf8_lossy(&output.stderr);
        return Err(format!("{program} {arguments:?} failed: {error}").into());
    }
    Ok(String::from_utf8(output.stdout)?.trim().to_owned())
}

#[expect(clippy::disallowed_methods, reason = "a benchmark starts the programs that it compares")]
fn command(program: &Path) -> Command {
    Command::new(program)
}
