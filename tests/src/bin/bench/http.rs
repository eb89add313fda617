//! P2 and P3: the service as a client sees it, a process of its own with a real database and real containers.

use std::time::Instant;

use serde_json::{Value, json};
use tests::api::id;
use tests::process::{Options, Service, data_dir};

use crate::Failure;
use crate::figures::{Figures, Goal, Measure, Unit, quantile};
use crate::programs::docker_us;

/// Runs that count, after a warm-up.
const ROUNDS: usize = 5;
/// Commands in each, one after the other on one connection.
const COMMANDS: usize = 300;
/// A sample of the reference comes after so many of them.
const COMMANDS_PER_EXEC: usize = 10;
/// Leases and commands before the first that counts.
const WARM_UP: usize = 20;
/// Samples of P3 on each side; each makes and removes an environment.
const LEASES: usize = 10;
const IMAGE: &str = "leasehold/execution:dev";

/// Starts a service, measures, stops it; fails when anything is left in the engine.
pub(crate) async fn measure(commands: bool, leases: bool) -> Result<Vec<Measure>, Failure> {
    let data = data_dir();
    let service = Service::start(data.path(), &Options::docker()).await;
    let mut measures = Vec::new();
    if commands {
        measures.extend(round_trips(&service).await?);
    }
    if leases {
        measures.push(cold_leases(&service).await?);
    }
    service.stop().await;
    Ok(measures)
}

/// P2.
async fn round_trips(service: &Service) -> Result<[Measure; 2], Failure> {
    eprintln!("bench: P2: warm-up");
    let (run, lease) = service.lease_for(3600.0).await;
    for _ in 0..WARM_UP {
        round_trip_us(service, &lease).await?;
    }
    let (_, held) = service.get(&format!("/v1/leases/{}", id(&lease, "lease_id"))).await;
    let sandbox = format!("leasehold-{}-sandbox", id(&held["environment"], "environment_id"));
    let exec = ["exec", sandbox.as_str(), "/bin/true"];
    docker_us(&exec)?;

    let (mut p50, mut p99, mut reference) = (Vec::new(), Vec::new(), Vec::new());
    for round in 1..=ROUNDS {
        eprintln!("bench: P2: round {round} of {ROUNDS}");
        let (mut ours, mut theirs) = (Vec::new(), Vec::new());
        for number in 1..=COMMANDS {
            ours.push(round_trip_us(service, &lease).await?);
            if number % COMMANDS_PER_EXEC == 0 {
                theirs.push(docker_us(&exec)?);
            }
        }
        p50.push(quantile(&ours, 50));
        p99.push(quantile(&ours, 99));
        reference.push(quantile(&theirs, 50));
    }
    let count = durable_results(service, run).await?;
    if count != WARM_UP + ROUNDS * COMMANDS {
        return Err(format!("the log has the results of {count} commands").into());
    }
    release(service, &lease).await?;
    let measure = |what: &str, ours: &[f64], goal| Measure {
        name: "P2",
        what: format!("command over HTTP, durable, {what}"),
        against: "docker exec p50".to_owned(),
        unit: Unit::Microseconds,
        ours: Figures::of(ours),
        reference: Figures::of(&reference),
        goal,
    };
    Ok([measure("p50", &p50, Goal::FasterBy(10.0)), measure("p99", &p99, Goal::TimeAtMost(0.5))])
}

/// One `/bin/true`, from the request to its recorded result.
async fn round_trip_us(service: &Service, lease: &Value) -> Result<f64, Failure> {
    let began = Instant::now();
    let command = service.run(lease, &json!({ "argv": ["/bin/true"] })).await;
    let elapsed = began.elapsed();
    if command["exit_code"] == 0 && command["killed_by"] == Value::Null {
        Ok(elapsed.as_secs_f64() * 1e6)
    } else {
        Err(format!("not the result of /bin/true: {command}").into())
    }
}

/// How many successful ends of commands the run's events hold.
async fn durable_results(service: &Service, run: uuid::Uuid) -> Result<usize, Failure> {
    let events = service.events(run).await;
    Ok(events
        .iter()
        .filter(|event| event["type"] == "CommandFinished" && event["body"]["exit_code"] == 0)
        .count())
}

/// P3.
async fn cold_leases(service: &Service) -> Result<Measure, Failure> {
    let (mut ours, mut reference) = (Vec::new(), Vec::new());
    // The first of each side is the warm-up.
    for number in 0..=LEASES {
        eprintln!("bench: P3: {number} of {LEASES}");
        let began = Instant::now();
        let (_, lease) = service.lease_for(600.0).await;
        let command = service.run(&lease, &json!({ "argv": ["echo", "first"] })).await;
        let elapsed = began.elapsed();
        if command["stdout"]["text"] != "first\n" {
            return Err(format!("not the output of echo: {command}").into());
        }
        release(service, &lease).await?;
        let run = docker_us(&["run", "--rm", "--network", "none", IMAGE, "/bin/true"])?;
        if number > 0 {
            ours.push(elapsed.as_secs_f64() * 1e6);
            reference.push(run);
        }
    }
    Ok(Measure {
        name: "P3",
        what: "cold lease to first output, p50".to_owned(),
        against: "docker run".to_owned(),
        unit: Unit::Microseconds,
        ours: Figures::of(&ours),
        reference: Figures::of(&reference),
        goal: Goal::TimeAtMost(1.4),
    })
}

/// Ends a lease and waits until its environment is gone: its end must not cost the next sample anything.
async fn release(service: &Service, lease: &Value) -> Result<(), Failure> {
    let path = format!("/v1/leases/{}", id(lease, "lease_id"));
    let (status, released) = service.post(&format!("{path}/release"), &json!({})).await;
    if status != 200 {
        return Err(format!("the release was refused: {released}").into());
    }
    service.wait_for(&path, "teardown", |lease| lease["environment"]["state"] == "destroyed").await;
    Ok(())
}
