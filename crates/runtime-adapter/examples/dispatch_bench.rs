//! How long one command takes in a held environment, against one `docker exec`, and how long an environment takes to make,
//! against one `docker run`. Prints one JSON object; durations in microseconds (medians unless named otherwise).
//!
//! `cargo run --release -p runtime-adapter --example dispatch_bench [COMMANDS] [ENVIRONMENTS]`

use std::collections::BTreeMap;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use events::event::command::KillReason;
use events::ids::{CommandId, EnvironmentId, Epoch, LogId, NodeId, RunId, TenantId};
use events::spec::Limits;
use events::time::Timestamp;
use runtime_adapter::container::{ContainerAdapter, ContainerConfig};
use runtime_adapter::ports::{
    EnvironmentHandle, EnvironmentSpec, ExecutionCommand, ExecutionEnvironment, OutputSink, OutputStream,
    StdinSource, cancel_pair,
};
use uuid::Uuid;

type Failure = Box<dyn std::error::Error>;

struct Nowhere;

impl OutputSink for Nowhere {
    fn write(&self, _: OutputStream, _: bytes::Bytes) {}
}

fn spec(adapter: &ContainerAdapter, expires_at: Timestamp) -> EnvironmentSpec {
    EnvironmentSpec {
        environment_id: EnvironmentId(Uuid::now_v7()),
        tenant: TenantId(Uuid::now_v7()),
        run_id: RunId(Uuid::now_v7()),
        epoch: Epoch(1),
        image_digest: adapter.execution_image().clone(),
        limits: Limits {
            cpu_millicores: 2000,
            memory_bytes: 512 << 20,
            pids_max: 256,
            workspace_bytes: 256 << 20,
            inodes_max: 100_000,
            wall_clock_seconds: 300,
        },
        expires_at,
        files_changed_max: 1000,
    }
}

async fn dispatch(
    adapter: &ContainerAdapter,
    handle: &EnvironmentHandle,
    program: &str,
) -> Result<Duration, Failure> {
    let command = ExecutionCommand {
        command_id: CommandId(Uuid::now_v7()),
        argv: vec![program.to_owned()],
        cwd: ".".to_owned(),
        env: BTreeMap::from([("PATH".to_owned(), "/usr/bin:/bin".to_owned())]),
        timeout_ms: 10_000,
        timeout_reason: KillReason::Timeout,
        lease_expires_at: handle.expires_at,
        output_bytes_max: 1 << 20,
        background: false,
    };
    let (_keep, cancel) = cancel_pair();
    let started = Instant::now();
    let result = adapter.execute(handle, command, StdinSource::Empty, Arc::new(Nowhere), cancel).await?;
    let elapsed = started.elapsed();
    if result.exit_code == Some(0) {
        Ok(elapsed)
    } else {
        Err(format!("exit code {:?}", result.exit_code).into())
    }
}

#[expect(clippy::disallowed_methods, reason = "the thing to compare with is the client itself")]
fn docker(arguments: &[&str]) -> Result<Duration, Failure> {
    let started = Instant::now();
    let status =
        Command::new("docker").args(arguments).stdout(Stdio::null()).stderr(Stdio::null()).status()?;
    let elapsed = started.elapsed();
    if status.success() { Ok(elapsed) } else { Err(format!("docker {arguments:?} failed").into()) }
}

fn quantile_us(durations: &mut [Duration], percent: usize) -> u64 {
    durations.sort_unstable();
    let index = (durations.len() * percent / 100).min(durations.len().saturating_sub(1));
    durations.get(index).map_or(0, |duration| u64::try_from(duration.as_micros()).unwrap_or(u64::MAX))
}

#[tokio::main]
async fn main() -> Result<(), Failure> {
    let mut counts = std::env::args().skip(1).map(|word| word.parse::<usize>());
    let commands = counts.next().transpose()?.unwrap_or(500);
    let environments = counts.next().transpose()?.unwrap_or(10);
    let now = Timestamp::try_from_unix_micros(1_767_225_600_000_000)?;
    let config = ContainerConfig::new(LogId(Uuid::now_v7()), 0, NodeId(Uuid::now_v7()));
    let adapter = ContainerAdapter::start(config, Arc::new(move || now)).await?;

    let (mut provision, mut destroy, mut run) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..environments {
        let started = Instant::now();
        let handle = adapter.provision(spec(&adapter, now.plus_ms(3_600_000))).await?;
        provision.push(started.elapsed());
        let started = Instant::now();
        adapter.destroy(handle.environment_id).await?;
        destroy.push(started.elapsed());
        let image = adapter.execution_image().as_str();
        run.push(docker(&["run", "--rm", "--network", "none", image, "/bin/true"])?);
    }

    let handle = adapter.provision(spec(&adapter, now.plus_ms(3_600_000))).await?;
    let sandbox = format!("leasehold-{}-sandbox", handle.environment_id);
    let (mut dispatched, mut exec) = (Vec::new(), Vec::new());
    for _ in 0..commands {
        dispatched.push(dispatch(&adapter, &handle, "/bin/true").await?);
    }
    for _ in 0..commands.min(50) {
        exec.push(docker(&["exec", &sandbox, "/bin/true"])?);
    }
    adapter.destroy(handle.environment_id).await?;

    let (dispatch_p50, exec_p50) = (quantile_us(&mut dispatched, 50), quantile_us(&mut exec, 50));
    let (provision_p50, run_p50) = (quantile_us(&mut provision, 50), quantile_us(&mut run, 50));
    let hundredths = |part: u64, whole: u64| (part * 100).checked_div(whole).unwrap_or(0);
    let report = serde_json::json!({
        "dispatch_us": {"p50": dispatch_p50, "p99": quantile_us(&mut dispatched, 99), "count": commands},
        "docker_exec_us": {"p50": exec_p50},
        "exec_over_dispatch_hundredths": hundredths(exec_p50, dispatch_p50),
        "provision_us": {"p50": provision_p50, "count": environments},
        "destroy_us": {"p50": quantile_us(&mut destroy, 50)},
        "docker_run_us": {"p50": run_p50},
        "provision_over_run_hundredths": hundredths(provision_p50, run_p50),
    });
    println!("{report}");
    Ok(())
}
