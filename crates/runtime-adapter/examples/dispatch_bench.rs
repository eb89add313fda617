//! The container adapter beside the engine's own client, in one run: one command in a held environment (`docker exec`), a kill
//! until the environment answers again (`docker kill` and `docker start`), 256 MiB into and out of the workspace (`cat` through
//! `docker exec`), a new environment (`docker run`). Prints one JSON object; durations in microseconds (medians unless named otherwise).
//!
//! `cargo run --release -p runtime-adapter --example dispatch_bench [COMMANDS] [ENVIRONMENTS] [docker | gvisor]`
//!
//! The reference runs in the same mechanism. With 0 environments nothing but the commands is measured.

use std::collections::BTreeMap;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use events::event::command::{Evidence, KillReason};
use events::ids::{CommandId, EnvironmentId, Epoch, LogId, NodeId, RunId, TenantId};
use events::spec::{Limits, Mechanism};
use events::time::Timestamp;
use futures::StreamExt as _;
use policy::WorkspacePath;
use runtime_adapter::container::{ContainerAdapter, ContainerConfig};
use runtime_adapter::ports::{
    CancelRequest, EnvironmentHandle, EnvironmentSpec, ExecuteError, ExecutionCommand, ExecutionEnvironment,
    OutputSink, OutputStream, StdinSource, Workspace, cancel_pair,
};
use uuid::Uuid;

/// Size of the file that is moved.
const FILE_BYTES: usize = 256 << 20;
/// How often.
const TRANSFERS: usize = 5;

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
            workspace_bytes: 1 << 30,
            inodes_max: 100_000,
            wall_clock_seconds: 300,
        },
        expires_at,
        files_changed_max: 1000,
    }
}

fn command(handle: &EnvironmentHandle, argv: &[&str]) -> ExecutionCommand {
    ExecutionCommand {
        command_id: CommandId(Uuid::now_v7()),
        argv: argv.iter().map(|argument| (*argument).to_owned()).collect(),
        cwd: ".".to_owned(),
        env: BTreeMap::from([("PATH".to_owned(), "/usr/bin:/bin".to_owned())]),
        timeout_ms: 10_000,
        timeout_reason: KillReason::Timeout,
        lease_expires_at: handle.expires_at,
        output_bytes_max: 1 << 20,
        background: false,
    }
}

async fn dispatch(
    adapter: &ContainerAdapter,
    handle: &EnvironmentHandle,
    program: &str,
) -> Result<Duration, Failure> {
    let (_keep, cancel) = cancel_pair();
    let started = Instant::now();
    let result = adapter
        .execute(handle, command(handle, &[program]), StdinSource::Empty, Arc::new(Nowhere), cancel)
        .await?;
    let elapsed = started.elapsed();
    if result.exit_code == Some(0) {
        Ok(elapsed)
    } else {
        Err(format!("exit code {:?}", result.exit_code).into())
    }
}

/// A command that never ends is cancelled: until its result, and until the next command has answered.
async fn kill(
    adapter: &ContainerAdapter,
    handle: &EnvironmentHandle,
) -> Result<(Duration, Duration), Failure> {
    let (begun, seen) = tokio::sync::watch::channel(false);
    let (cancel_handle, cancel) = cancel_pair();
    let sleeper = adapter.execute(
        handle,
        command(handle, &["sh", "-c", "echo; exec sleep 600"]),
        StdinSource::Empty,
        Arc::new(Begun(begun)),
        cancel,
    );
    let mut seen = seen;
    let ask = async {
        seen.wait_for(|begun| *begun).await?;
        let started = Instant::now();
        cancel_handle.cancel(CancelRequest { reason: KillReason::Cancelled, evidence: Evidence::default() });
        Ok::<_, Failure>(started)
    };
    let (ended, started) = tokio::join!(sleeper, ask);
    let started = started?;
    let to_result = started.elapsed();
    if !matches!(ended, Err(ExecuteError::Cancelled { .. })) {
        return Err("the command was not cancelled".into());
    }
    dispatch(adapter, handle, "/bin/true").await?;
    Ok((to_result, started.elapsed()))
}

struct Begun(tokio::sync::watch::Sender<bool>);

impl OutputSink for Begun {
    fn write(&self, _: OutputStream, _: bytes::Bytes) {
        self.0.send_replace(true);
    }
}

/// Writes and reads one file through the port.
async fn transfer(
    adapter: &ContainerAdapter,
    handle: &EnvironmentHandle,
) -> Result<(Duration, Duration), Failure> {
    let path = WorkspacePath::try_new(b"f")?;
    let piece = bytes::Bytes::from(vec![7; 64 * 1024]);
    let pieces = futures::stream::iter((0..FILE_BYTES / piece.len()).map(move |_| Ok(piece.clone())));
    let started = Instant::now();
    adapter.write(handle, &path, Box::pin(pieces), FILE_BYTES as u64).await?;
    let written = started.elapsed();
    let started = Instant::now();
    let mut file = adapter.read(handle, &path, FILE_BYTES as u64).await?;
    let mut count = 0;
    while let Some(piece) = file.bytes.next().await {
        count += piece?.len();
    }
    if count == FILE_BYTES { Ok((written, started.elapsed())) } else { Err("a short read".into()) }
}

fn docker(arguments: &[&str]) -> Result<Duration, Failure> {
    timed("docker", arguments)
}

fn shell(script: &str) -> Result<Duration, Failure> {
    timed("sh", &["-c", script])
}

#[expect(clippy::disallowed_methods, reason = "the thing to compare with is the client itself")]
fn timed(program: &str, arguments: &[&str]) -> Result<Duration, Failure> {
    let started = Instant::now();
    let status =
        Command::new(program).args(arguments).stdout(Stdio::null()).stderr(Stdio::null()).status()?;
    let elapsed = started.elapsed();
    if status.success() { Ok(elapsed) } else { Err(format!("{program} {arguments:?} failed").into()) }
}

fn quantile_us(durations: &mut [Duration], percent: usize) -> u64 {
    durations.sort_unstable();
    let index = (durations.len() * percent / 100).min(durations.len().saturating_sub(1));
    durations.get(index).map_or(0, |duration| u64::try_from(duration.as_micros()).unwrap_or(u64::MAX))
}

#[tokio::main]
async fn main() -> Result<(), Failure> {
    let mut counts = std::env::args().skip(1).take(2).map(|word| word.parse::<usize>());
    let mechanism = match std::env::args().nth(3).as_deref() {
        None | Some("docker") => Mechanism::Docker,
        Some("gvisor") => Mechanism::Gvisor,
        Some(_) => return Err("the mechanism is docker or gvisor".into()),
    };
    let commands = counts.next().transpose()?.unwrap_or(500);
    let environments = counts.next().transpose()?.unwrap_or(10);
    let now = Timestamp::try_from_unix_micros(1_767_225_600_000_000)?;
    let mut config = ContainerConfig::new(LogId(Uuid::now_v7()), 0, NodeId(Uuid::now_v7()));
    config.mechanism = mechanism;
    config.gvisor_allow_host_network = true;
    config.allow_old_engine = true;
    // What the reference runs in, too.
    let runtime =
        if mechanism == Mechanism::Gvisor { config.gvisor_runtime.clone() } else { "runc".to_owned() };
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
        run.push(docker(&["run", "--rm", "--runtime", &runtime, "--network", "none", image, "/bin/true"])?);
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
    let (mut to_result, mut to_answer, mut restart) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..environments {
        let (result, answer) = kill(&adapter, &handle).await?;
        to_result.push(result);
        to_answer.push(answer);
        restart.push(docker(&["kill", &sandbox])? + docker(&["start", &sandbox])?);
        dispatch(&adapter, &handle, "/bin/true").await?;
    }
    let (mut write, mut read, mut cat_in, mut cat_out) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    let local = tempfile::NamedTempFile::new()?;
    std::fs::write(local.path(), vec![7; FILE_BYTES])?;
    for _ in 0..if environments > 0 { TRANSFERS } else { 0 } {
        let (written, got) = transfer(&adapter, &handle).await?;
        write.push(written);
        read.push(got);
        let script =
            format!("exec docker exec -i {sandbox} sh -c 'cat > /workspace/g' < {}", local.path().display());
        cat_in.push(shell(&script)?);
        cat_out.push(docker(&["exec", &sandbox, "cat", "/workspace/g"])?);
    }
    adapter.destroy(handle.environment_id).await?;

    let (dispatch_p50, exec_p50) = (quantile_us(&mut dispatched, 50), quantile_us(&mut exec, 50));
    let (provision_p50, run_p50) = (quantile_us(&mut provision, 50), quantile_us(&mut run, 50));
    let hundredths = |part: u64, whole: u64| (part * 100).checked_div(whole).unwrap_or(0);
    let report = serde_json::json!({
        "dispatch_us": {"min": quantile_us(&mut dispatched, 0), "p50": dispatch_p50, "p99": quantile_us(&mut dispatched, 99), "count": commands},
        "docker_exec_us": {"min": quantile_us(&mut exec, 0), "p50": exec_p50},
        "exec_over_dispatch_hundredths": hundredths(exec_p50, dispatch_p50),
        "provision_us": {"p50": provision_p50, "count": environments},
        "destroy_us": {"p50": quantile_us(&mut destroy, 50)},
        "docker_run_us": {"p50": run_p50},
        "kill_to_result_us": {"p50": quantile_us(&mut to_result, 50)},
        "kill_to_next_answer_us": {"p50": quantile_us(&mut to_answer, 50)},
        "docker_kill_start_us": {"p50": quantile_us(&mut restart, 50)},
        "write_256_mib_us": {"p50": quantile_us(&mut write, 50)},
        "docker_cat_in_us": {"p50": quantile_us(&mut cat_in, 50)},
        "read_256_mib_us": {"p50": quantile_us(&mut read, 50)},
        "docker_cat_out_us": {"p50": quantile_us(&mut cat_out, 50)},
        "provision_over_run_hundredths": hundredths(provision_p50, run_p50),
    });
    println!("{report}");
    Ok(())
}
