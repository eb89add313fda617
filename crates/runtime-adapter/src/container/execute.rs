//! One command, from its start frame to its structured result.
//!
//! A foreground command that must be killed takes the whole container with it: stop, start the same one, and look at the
//! files meanwhile. A background command that must be killed loses its own tree, and the container only if something
//! survives.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use events::event::command::{Evidence, InterruptCause, KillReason, Usage};
use events::ids::CommandId;
use events::spec::Mechanism;
use guest::protocol::spawn::{CounterSource, ExitStatus, Exited, Rlimits, StartCommand};

use super::config::ContainerConfig;
use super::environment::Environment;
use super::files::{FilesChannel, FilesFailure};
use super::follow::{FollowEnd, Followed, memory_evidence, source};
use super::quota::{self, file_size_max};
use super::reports::Collected;
use super::spawn::Stop;
use crate::capture::OutputCapture;
use crate::ports::{
    Cancel, ExecuteError, ExecutionCommand, ExecutionResult, OutputSink, PortError, StdinSource,
};
use crate::quota::{Allowance, Measured};

/// Every command is the first to go when memory runs out, before anything of ours. In gVisor the score means nothing: there the
/// sandbox dies whole.
const fn oom_score_adj(mechanism: Mechanism) -> i32 {
    match mechanism {
        Mechanism::Gvisor => 0,
        _ => 1000,
    }
}
/// How long a background command's tree may take to be gone.
const TREE_KILL_DEADLINE: Duration = Duration::from_secs(5);
/// What a killed container's channel still held is read at once; this only bounds a channel that does not end.
const DRAIN_DEADLINE: Duration = Duration::from_secs(2);
/// Looks beside other commands, after the end of one, that may be cut by their time before that counts as impossible.
const LOOKS_MAX: u32 = 3;
const LOOK_PAUSE: Duration = Duration::from_millis(100);
/// How much later than the sandbox's death the engine may tell of a kill by the kernel.
const OOM_EVENT_DEADLINE: Duration = Duration::from_millis(500);
/// How long before the finding of a lost sandbox the kernel may have ended what was lost.
const OOM_EVENT_AGE_MAX: Duration = Duration::from_secs(5);

/// How the command ended, before the files were looked at.
struct Outcome {
    exit_code: Option<i32>,
    killed_by: Option<KillReason>,
    evidence: Evidence,
    cancelled: bool,
}

impl Outcome {
    fn exited(exit_code: i32) -> Self {
        Self { exit_code: Some(exit_code), killed_by: None, evidence: Evidence::default(), cancelled: false }
    }

    /// Another command's end took it along.
    fn stopped_with(other: CommandId) -> Self {
        let evidence = Evidence { stopped_with: Some(other), ..Evidence::default() };
        Self::killed(KillReason::Cancelled, evidence)
    }

    fn killed(reason: KillReason, evidence: Evidence) -> Self {
        Self { exit_code: None, killed_by: Some(reason), evidence, cancelled: false }
    }
}

/// Runs an admitted command. The foreground turn is the caller's to hold.
pub(super) async fn run(
    environment: &Arc<Environment>,
    config: &ContainerConfig,
    command: ExecutionCommand,
    stdin: StdinSource,
    sink: Arc<dyn OutputSink>,
    cancel: Cancel,
) -> Result<ExecutionResult, ExecuteError> {
    let mut channel = environment.spawn_channel().await.map_err(nothing_ran)?;
    let files = environment.begin_changes(command.command_id).await.map_err(nothing_ran)?;
    let allowance = environment.allowance();
    let strikes = environment.strikes.load(Ordering::SeqCst);
    if let Some(evidence) = allowance.refusal(strikes, environment.used()) {
        environment.changes.lock().await.finish(command.command_id, 0);
        return Ok(never_started(evidence, command.output_bytes_max));
    }
    let start = start_command(environment, config, &command, matches!(stdin, StdinSource::Stream(_)));
    // What stops it now takes along nothing that never began.
    while channel.is_over() {
        channel = match environment.spawn_channel().await {
            Ok(channel) => channel,
            Err(error) => {
                environment.changes.lock().await.finish(command.command_id, 0);
                return Err(nothing_ran(error).into());
            }
        };
    }
    let _runs = Runs::begin(environment, &command);
    let oom_kills = environment.oom_events.borrow().kills;
    let mut followed = Followed::start(channel, start, stdin, sink, command.output_bytes_max);
    let end = followed.follow(environment, &files, &command, &allowance, cancel, &config.crash_points).await;
    let outcome = settle(environment, &command, &mut followed, end, oom_kills).await;
    let duration_ms = followed.elapsed_ms();
    let collected = environment.finish_changes(command.command_id, &files).await;
    let mut outcome = outcome?;
    let collected = collected?;
    let used = used_now(environment, &files, &followed, &collected, &allowance).await;
    judge(environment, &command, &mut outcome, &allowance, used, &followed);

    let exited = followed.exited;
    if let Some(pump) = followed.pump.take().filter(|_| outcome.killed_by.is_none()) {
        let undelivered = pump.undelivered_bytes(exited.map_or(0, |exited| exited.stdin_bytes)).await;
        outcome.evidence.stdin_undelivered_bytes = (undelivered > 0).then_some(undelivered);
    }
    let usage = followed.usage();
    let (stdout, stderr) = followed.capture.finish();
    let result = ExecutionResult {
        exit_code: outcome.exit_code,
        killed_by: outcome.killed_by,
        evidence: (outcome.evidence != Evidence::default()).then_some(outcome.evidence),
        stdout,
        stderr,
        stragglers: exited.filter(|_| outcome.killed_by.is_none()).map_or(0, |exited| exited.stragglers),
        files_changed: collected.changes,
        files_changed_truncated: collected.truncated,
        usage,
        duration_ms,
    };
    if outcome.cancelled { Err(ExecuteError::Cancelled { partial: Box::new(result) }) } else { Ok(result) }
}

/// A failure before the start frame: whatever the engine did, the program did not run.
fn nothing_ran(error: PortError) -> PortError {
    match error {
        PortError::Unavailable { code, .. } => PortError::Unavailable { code, effect_possible: false },
        other => other,
    }
}

/// Tells the environment that a command runs, and its other commands that it is the foreground one.
struct Runs<'a> {
    environment: &'a Environment,
    is_foreground: bool,
}

impl<'a> Runs<'a> {
    fn begin(environment: &'a Environment, command: &ExecutionCommand) -> Self {
        environment.running_commands.fetch_add(1, Ordering::SeqCst);
        let is_foreground = !command.background;
        if is_foreground {
            environment.set_foreground(Some(command.command_id));
        }
        Self { environment, is_foreground }
    }
}

impl Drop for Runs<'_> {
    fn drop(&mut self) {
        self.environment.running_commands.fetch_sub(1, Ordering::SeqCst);
        if self.is_foreground {
            self.environment.set_foreground(None);
        }
    }
}

fn start_command(
    environment: &Environment,
    config: &ContainerConfig,
    command: &ExecutionCommand,
    stdin: bool,
) -> StartCommand {
    let bytes = |text: &String| text.as_bytes().to_vec();
    StartCommand {
        argv: command.argv.iter().map(bytes).collect(),
        cwd: if command.cwd == "." { Vec::new() } else { bytes(&command.cwd) },
        env: command.env.iter().map(|(name, value)| (bytes(name), bytes(value))).collect(),
        uid: environment.uid,
        gid: environment.uid,
        rlimits: Rlimits {
            nofile: Some(config.open_files_max),
            fsize: Some(file_size_max(environment.spec.limits.workspace_bytes, environment.usage().as_ref())),
            // On a shared kernel it would be one budget of the user id across all containers; there the cgroup counts.
            nproc: (config.mechanism == Mechanism::Gvisor).then_some(environment.spec.limits.pids_max),
        },
        oom_score_adj: oom_score_adj(config.mechanism),
        stdin,
        background: command.background,
    }
}

/// What the workspace holds after a command. Nothing that has ended holds a deleted file open; what still runs may.
async fn used_now(
    environment: &Environment,
    files: &Arc<FilesChannel>,
    followed: &Followed,
    collected: &Collected,
    allowance: &Allowance,
) -> Measured {
    let used = environment.used()?;
    if !collected.others_run {
        return Some(used);
    }
    let (ended, mut is_hidden) = (Instant::now(), false);
    for _ in 0..LOOKS_MAX {
        match quota::shared_look(environment, files, &followed.channel, allowance.ceiling(), ended).await {
            Ok(found) if !found.is_unfinished(allowance.ceiling()) => return found.measured,
            // The sandbox has stopped, and everything in it; or the files container: whoever needs it next says so.
            Err(FilesFailure::ChannelEnded) => return Some(used),
            Ok(_) => is_hidden = true,
            Err(FilesFailure::WrongAnswer) => return None,
            // Out of threads or descriptors for a moment.
            Err(FilesFailure::Refused(_)) => tokio::time::sleep(LOOK_PAUSE).await,
        }
    }
    if is_hidden { None } else { Some(used) }
}

/// An end of its own is none when the workspace holds more than it may: programs make what they like of a full disk.
fn judge(
    environment: &Environment,
    command: &ExecutionCommand,
    outcome: &mut Outcome,
    allowance: &Allowance,
    used: Measured,
    followed: &Followed,
) {
    let is_charged = !command.background || environment.foreground().is_none();
    let has_run = outcome.evidence.start_error.is_none();
    if outcome.killed_by.is_none()
        && is_charged
        && has_run
        && let Some(evidence) = allowance.excess(used, followed.started_at.elapsed())
    {
        *outcome = Outcome::killed(KillReason::Disk, evidence);
    }
    let was_killed = outcome.killed_by == Some(KillReason::Disk);
    // Commands that end together each count.
    let _ = environment.strikes.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |strikes| {
        Some(allowance.strikes(strikes, was_killed, used))
    });
}

/// The result of a command for which the workspace is too full to begin.
fn never_started(evidence: Evidence, output_bytes_max: u64) -> ExecutionResult {
    let (stdout, stderr) = OutputCapture::new(output_bytes_max).finish();
    ExecutionResult {
        exit_code: None,
        killed_by: Some(KillReason::Disk),
        evidence: Some(evidence),
        stdout,
        stderr,
        stragglers: 0,
        files_changed: Vec::new(),
        files_changed_truncated: false,
        usage: Usage::default(),
        duration_ms: 0,
    }
}

/// Enforces what following found, and names the outcome.
async fn settle(
    environment: &Arc<Environment>,
    command: &ExecutionCommand,
    followed: &mut Followed,
    end: FollowEnd,
    oom_kills: u64,
) -> Result<Outcome, PortError> {
    let stop = Stop::With(command.command_id);
    match end {
        FollowEnd::StartFailed { exit_code, message } => {
            let mut outcome = Outcome::exited(exit_code);
            outcome.evidence.start_error = Some(message);
            Ok(outcome)
        }
        FollowEnd::Exited(exited) => {
            let outcome = exit_outcome(environment, command, followed, exited);
            // What it has left in memory, in its files there, must not be the next command's end.
            let is_full = outcome.as_ref().is_ok_and(|outcome| outcome.killed_by == Some(KillReason::Memory))
                && (!command.background || followed.channel.is_idle());
            if !exited.clean || is_full {
                restart(environment, followed, stop).await;
            }
            outcome
        }
        FollowEnd::Kill { reason, evidence, cancelled } => {
            kill(environment, command, followed).await;
            Ok(Outcome { cancelled, ..Outcome::killed(reason, *evidence) })
        }
        FollowEnd::InputFailed => {
            kill(environment, command, followed).await;
            Err(PortError::Lost { cause: InterruptCause::InputLost })
        }
        FollowEnd::FilesLost => {
            let cause = environment.files_cause().await;
            kill(environment, command, followed).await;
            Err(PortError::Lost { cause })
        }
        FollowEnd::ChannelEnded => match environment.stopped_by(&followed.channel).await {
            Stop::With(other) => Ok(Outcome::stopped_with(other)),
            // The kernel ends whom it likes: all of the sandbox in gVisor, and elsewhere perhaps the supervisor.
            Stop::Lost(InterruptCause::SandboxLost | InterruptCause::SupervisorLost)
                if oom_followed(environment, followed.started_at).await =>
            {
                if let Some(other) = followed.channel.foreground_at_stop()
                    && other != command.command_id
                {
                    return Ok(Outcome::stopped_with(other));
                }
                let limit = environment.spec.limits.memory_bytes;
                let kills = environment.oom_events.borrow().kills.saturating_sub(oom_kills);
                let evidence = memory_evidence(limit, None, kills, source(CounterSource::None));
                Ok(Outcome::killed(KillReason::Memory, evidence))
            }
            Stop::Lost(cause) => Err(PortError::Lost { cause }),
            Stop::Suspected(code) => Err(PortError::EscapeSuspected { code }),
        },
    }
}

fn exit_outcome(
    environment: &Environment,
    command: &ExecutionCommand,
    followed: &Followed,
    exited: Exited,
) -> Result<Outcome, PortError> {
    if exited.oom_kills > 0 {
        let evidence = memory_evidence(
            environment.spec.limits.memory_bytes,
            Some(exited.memory_peak_bytes),
            exited.oom_kills,
            source(followed.channel.counter_source()),
        );
        return Ok(Outcome::killed(KillReason::Memory, evidence));
    }
    if followed.capture.is_over() {
        // Its last output arrived after its end; the bound holds whichever was faster.
        return Ok(Outcome::killed(KillReason::OutputLimit, followed.output_evidence(command)));
    }
    match exited.status {
        ExitStatus::Code(code) => Ok(Outcome::exited(code)),
        ExitStatus::Signal(signal) => Ok(Outcome::exited(128 + signal)),
        ExitStatus::Lost => Err(PortError::Lost { cause: InterruptCause::SupervisorLost }),
    }
}

/// Ends a command that does not end by itself, with its partial output complete.
async fn kill(environment: &Arc<Environment>, command: &ExecutionCommand, followed: &mut Followed) {
    // Within milliseconds; stopping the container takes longer, but ends what escaped the tree as well.
    followed.channel.kill(followed.stream_id());
    if command.background {
        let ended = followed.drain(TREE_KILL_DEADLINE, true).await;
        if ended && followed.exited.is_some_and(|exited| exited.clean) {
            return;
        }
    }
    restart(environment, followed, Stop::With(command.command_id)).await;
}

/// Stops the container, takes what the command had still produced, and starts the container beside whatever follows.
async fn restart(environment: &Arc<Environment>, followed: &mut Followed, stop: Stop) {
    if environment.stop(&followed.channel, stop).await {
        let reopened = Arc::clone(environment);
        crate::supervise::detached("sandbox restart", async move {
            // The next command finds the sandbox open, opens it itself, or reports why it cannot.
            let _ = reopened.spawn_channel().await;
        });
    }
    followed.drain(DRAIN_DEADLINE, false).await;
}

/// The engine told of a kill by the kernel when the sandbox was lost, or tells of it soon. One from before the command, or long ago,
/// has nothing to do with it.
async fn oom_followed(environment: &Environment, started_at: Instant) -> bool {
    let recent =
        Instant::now().checked_sub(OOM_EVENT_AGE_MAX).map_or(started_at, |recent| recent.max(started_at));
    let mut events = environment.oom_events.subscribe();
    let told = events.wait_for(|told| told.last_at.is_some_and(|at| at >= recent));
    tokio::time::timeout(OOM_EVENT_DEADLINE, told).await.is_ok_and(|told| told.is_ok())
}
