//! Running one command of the fake: the same admission, limits, kills and evidence as in a real sandbox.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use bytes::Bytes;
use events::event::command::{Evidence, InterruptCause, KillReason, Usage};
use events::time::Timestamp;
use policy::WorkspacePath;
use tokio::io::AsyncReadExt;

use super::environment::{Environment, Halt};
use super::program::{Input, Process, Stop};
use crate::capture::OutputCapture;
use crate::ports::{
    Cancel, CancelRequest, ExecuteError, ExecutionCommand, ExecutionResult, OutputSink, PortError,
    StdinSource, WorkspaceEntryKind,
};
use crate::quota::Allowance;

/// What a pipe takes although nobody reads it.
const PIPE_BYTES: u64 = 64 * 1024;

enum End {
    NoDirectory,
    Program(Result<i32, Stop>),
    Timeout,
    Cancelled(Box<CancelRequest>),
    Halted(Halt),
}

/// Runs an admitted command to its end.
pub(super) async fn run(
    environment: &Environment,
    command: ExecutionCommand,
    stdin: StdinSource,
    sink: Arc<dyn OutputSink>,
    mut cancel: Cancel,
    now: Timestamp,
) -> Result<ExecutionResult, ExecuteError> {
    let started = Instant::now();
    let capture = Mutex::new(OutputCapture::new(command.output_bytes_max));
    let emit = |stream, bytes: Vec<u8>| {
        let mut capture = capture.lock().unwrap_or_else(PoisonError::into_inner);
        let shown = capture.push(stream, Bytes::from(bytes));
        if !shown.is_empty() {
            sink.write(stream, shown);
        }
        if capture.is_over() { Err(Stop::Limit(KillReason::OutputLimit)) } else { Ok(()) }
    };
    let mut input = Input {
        source: match stdin {
            StdinSource::Empty => Box::pin(tokio::io::empty()),
            StdinSource::Stream(stream) => stream,
        },
        taken_bytes: 0,
        failed: false,
    };
    let used = || Some(environment.shared.tree().used());
    let allowance = Allowance::of(&environment.spec.limits, used());
    let strikes = environment.strikes.load(Ordering::SeqCst);
    let refusal = allowance.refusal(strikes, used());
    environment.begin_changes(command.command_id);
    let mut halts = environment.halts.subscribe();
    let mut left_running = 0;
    let end = match (refusal, working_directory(environment, &command.cwd)) {
        (Some(_), _) => End::Program(Err(Stop::Limit(KillReason::Disk))),
        (None, None) => End::NoDirectory,
        (None, Some(cwd)) => {
            let mut process = Process {
                shared: &environment.shared,
                cwd,
                env: &command.env,
                input: &mut input,
                emit: &emit,
                allowance: &allowance,
                now,
                left_running: 0,
            };
            let limit = Duration::from_millis(command.timeout_ms);
            let end = tokio::select! {
                biased;
                outcome = process.run(&command.argv) => End::Program(outcome),
                request = cancel.requested() => End::Cancelled(Box::new(request)),
                halt = halted(&mut halts) => End::Halted(halt),
                () = tokio::time::sleep(limit) => End::Timeout,
            };
            left_running = process.left_running;
            end
        }
    };
    let elapsed_ms = u64::try_from(started.elapsed().as_millis()).unwrap_or(u64::MAX);
    let capture = capture.into_inner().unwrap_or_else(PoisonError::into_inner);
    let (files_changed, files_changed_truncated) = environment.finish_changes(command.command_id);
    let mut evidence = Evidence::default();
    let mut killed_by = None;
    let mut exit_code = None;
    match &end {
        End::NoDirectory => {
            exit_code = Some(126);
            evidence.start_error = Some("the working directory does not exist".into());
        }
        End::Program(Ok(code) | Err(Stop::Exit(code))) => {
            exit_code = Some(*code);
            if input.failed {
                environment.halt(Halt::StoppedWith(command.command_id));
                return Err(lost(InterruptCause::InputLost));
            }
            evidence.stdin_undelivered_bytes = undelivered(&mut input).await;
        }
        End::Program(Err(Stop::NotFound)) => {
            exit_code = Some(127);
            evidence.start_error = Some("program not found".into());
        }
        End::Program(Err(Stop::Limit(reason))) => {
            killed_by = Some(*reason);
            let limits = environment.spec.limits;
            match reason {
                KillReason::OutputLimit => {
                    evidence.limit_bytes = Some(command.output_bytes_max);
                    evidence.produced_bytes = Some(capture.produced_bytes());
                }
                KillReason::Disk => {
                    let measured =
                        allowance.refusal(strikes, used()).or(allowance.excess(used(), Duration::ZERO));
                    evidence = measured.unwrap_or_default();
                }
                KillReason::Memory => {
                    evidence.limit_bytes = Some(limits.memory_bytes);
                    evidence.peak_bytes = Some(limits.memory_bytes);
                    evidence.oom_kills = Some(1);
                    evidence.source = Some("fake".into());
                }
                _ => {
                    evidence.limit = Some(limits.pids_max);
                    evidence.peak = Some(limits.pids_max);
                    evidence.source = Some("fake".into());
                }
            }
        }
        End::Timeout => {
            killed_by = Some(command.timeout_reason);
            if command.timeout_reason == KillReason::Expired {
                evidence.expires_at = Some(command.lease_expires_at);
            } else {
                evidence.limit_ms = Some(command.timeout_ms);
                evidence.elapsed_ms = Some(elapsed_ms);
            }
        }
        End::Cancelled(request) => {
            killed_by = Some(request.reason);
            evidence = request.evidence.clone();
        }
        End::Halted(Halt::StoppedWith(other)) => {
            killed_by = Some(KillReason::Cancelled);
            evidence.stopped_with = Some(*other);
        }
        End::Halted(Halt::Lost(cause)) => return Err(lost(*cause)),
    }
    let was_full = killed_by == Some(KillReason::Disk);
    environment.strikes.store(allowance.strikes(strikes, was_full, used()), Ordering::SeqCst);
    if killed_by.is_some() && !command.background && !matches!(end, End::Halted(_)) {
        environment.halt(Halt::StoppedWith(command.command_id));
    }
    let (stdout, stderr) = capture.finish();
    let result = ExecutionResult {
        exit_code,
        killed_by,
        evidence: (evidence != Evidence::default()).then_some(evidence),
        stdout,
        stderr,
        stragglers: left_running,
        files_changed,
        files_changed_truncated,
        usage: Usage::default(),
        duration_ms: elapsed_ms,
    };
    match end {
        End::Cancelled(_) => Err(ExecuteError::Cancelled { partial: Box::new(result) }),
        _ => Ok(result),
    }
}

fn working_directory(environment: &Environment, cwd: &str) -> Option<Vec<u8>> {
    if cwd == "." {
        return Some(Vec::new());
    }
    let path = WorkspacePath::try_new(cwd.as_bytes()).ok()?;
    let entry = environment.shared.tree().stat(path.as_bytes()).ok()?;
    (entry.kind == WorkspaceEntryKind::Directory).then(|| path.as_bytes().to_vec())
}

async fn halted(halts: &mut tokio::sync::watch::Receiver<(u64, Option<Halt>)>) -> Halt {
    loop {
        if halts.changed().await.is_err() {
            return std::future::pending().await;
        }
        if let (_, Some(halt)) = *halts.borrow_and_update() {
            return halt;
        }
    }
}

/// What the program left unread, beyond what a pipe would have taken.
async fn undelivered(input: &mut Input) -> Option<u64> {
    let mut rest = 0_u64;
    let mut buffer = vec![0; 64 * 1024];
    loop {
        let read = tokio::time::timeout(Duration::from_millis(100), input.source.read(&mut buffer));
        match read.await {
            Ok(Ok(count)) if count > 0 => rest += count as u64,
            _ => break,
        }
    }
    (rest > PIPE_BYTES).then(|| rest - PIPE_BYTES)
}

fn lost(cause: InterruptCause) -> ExecuteError {
    ExecuteError::Port(PortError::Lost { cause })
}
