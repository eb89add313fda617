//! Follows one command on the spawn channel from its start frame to its end or to the reason for killing it.

use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use events::event::command::{Evidence, KillReason, Usage};
use guest::protocol::CREDIT_WINDOW_BYTES;
use guest::protocol::spawn::{
    COUNTER_INTERVAL_MS, CounterSource, Counters, ExitStatus, Exited, Output, StartCommand,
};

use super::environment::Environment;
use super::files::FilesChannel;
use super::quota;
use super::spawn::{CommandStream, SpawnChannel, SpawnEvent};
use super::stdin::StdinPump;
use crate::capture::OutputCapture;
use crate::crash::CrashPoints;
use crate::ports::{Cancel, ExecutionCommand, OutputSink, OutputStream, StdinSource};
use crate::quota::Allowance;

/// Consumed output is granted again in pieces of at least this.
const GRANT_BYTES: u32 = CREDIT_WINDOW_BYTES / 4;
/// How long the outputs may take to close after everything has exited.
const DRAIN_DEADLINE: Duration = Duration::from_secs(5);
/// Beyond every cap of an environment; keeps deadlines within what the clock can add.
const LIMIT_MAX: Duration = Duration::from_secs(7 * 24 * 3600);
/// Two rises of a counter that are no further apart than this were seen in consecutive samples.
const CONSECUTIVE: Duration = Duration::from_millis(COUNTER_INTERVAL_MS * 8 / 5);

/// How following ended.
pub(super) enum FollowEnd {
    /// It ended and its output is complete.
    Exited(Exited),
    /// It was never started.
    StartFailed { exit_code: i32, message: String },
    /// It must be killed. `cancelled`: because the caller asked.
    Kill { reason: KillReason, evidence: Box<Evidence>, cancelled: bool },
    /// The channel ended before it did.
    ChannelEnded,
    /// Its standard input broke off.
    InputFailed,
    /// The files container is gone: what it changes could no longer be told.
    FilesLost,
}

/// A command in flight.
pub(super) struct Followed {
    pub(super) channel: Arc<SpawnChannel>,
    pub(super) capture: OutputCapture,
    pub(super) exited: Option<Exited>,
    pub(super) pump: Option<StdinPump>,
    pub(super) started_at: Instant,
    base: Counters,
    stream: CommandStream,
    sink: Arc<dyn OutputSink>,
    started: bool,
    outputs_open: u8,
    stdout_consumed: u32,
    stderr_consumed: u32,
    refusals: Option<(Instant, u64)>,
    /// The last sample while it ran.
    last: Option<Counters>,
}

impl Followed {
    /// Sends the start frame.
    pub(super) fn start(
        channel: Arc<SpawnChannel>,
        start: StartCommand,
        stdin: StdinSource,
        sink: Arc<dyn OutputSink>,
        output_bytes_max: u64,
    ) -> Self {
        let (stream, base) = channel.start(start);
        let pump = match stdin {
            StdinSource::Empty => None,
            StdinSource::Stream(source) => {
                Some(StdinPump::start(Arc::clone(&channel), stream.stream, source))
            }
        };
        Self {
            channel,
            capture: OutputCapture::new(output_bytes_max),
            exited: None,
            pump,
            started_at: Instant::now(),
            base,
            stream,
            sink,
            started: false,
            outputs_open: 2,
            stdout_consumed: 0,
            stderr_consumed: 0,
            refusals: None,
            last: None,
        }
    }

    /// Its id on the channel.
    pub(super) fn stream_id(&self) -> u32 {
        self.stream.stream
    }

    /// Milliseconds since the start frame.
    pub(super) fn elapsed_ms(&self) -> u64 {
        u64::try_from(self.started_at.elapsed().as_millis()).unwrap_or(u64::MAX)
    }

    /// What it used: as counted at its end, or as last sampled when the end took the counting with it.
    pub(super) fn usage(&self) -> Usage {
        let has_cgroup = self.channel.counter_source() != CounterSource::None;
        match self.exited {
            Some(Exited { status: ExitStatus::Lost, .. }) => Usage::default(),
            Some(exited) => Usage {
                cpu_ms: Some(if has_cgroup { exited.cgroup_cpu_ms } else { exited.cpu_ms }),
                peak_memory_bytes: Some(exited.max_rss_bytes),
            },
            None => Usage {
                cpu_ms: self
                    .last
                    .filter(|_| has_cgroup)
                    .map(|last| last.cpu_us.saturating_sub(self.base.cpu_us) / 1000),
                peak_memory_bytes: None,
            },
        }
    }

    /// Until it ends or must be killed.
    pub(super) async fn follow(
        &mut self,
        environment: &Environment,
        files: &Arc<FilesChannel>,
        command: &ExecutionCommand,
        allowance: &Allowance,
        mut cancel: Cancel,
        crash_points: &CrashPoints,
    ) -> FollowEnd {
        let mut files_closed = std::pin::pin!(files.closed());
        let channel = Arc::clone(&self.channel);
        let watching = quota::excess(environment, files, &channel, allowance, command.background);
        let mut watching = std::pin::pin!(watching);
        let limit = Duration::from_millis(command.timeout_ms).min(LIMIT_MAX);
        let mut deadline = self.started_at + limit;
        loop {
            // Events go first: what ended in time is not killed for it. Not so the workspace: what was too much was too
            // much, and a command that produces without pause must not put off the looking.
            let event = tokio::select! {
                biased;
                evidence = &mut watching, if self.exited.is_none() => {
                    let (reason, evidence) = (KillReason::Disk, Box::new(evidence));
                    return FollowEnd::Kill { reason, evidence, cancelled: false };
                }
                event = self.stream.events.recv() => event,
                request = cancel.requested(), if self.exited.is_none() => {
                    let (reason, evidence) = (request.reason, Box::new(request.evidence));
                    return FollowEnd::Kill { reason, evidence, cancelled: true };
                }
                () = input_failed(&mut self.pump), if self.exited.is_none() => {
                    return FollowEnd::InputFailed;
                }
                () = &mut files_closed, if self.exited.is_none() => return FollowEnd::FilesLost,
                () = tokio::time::sleep_until(deadline.into()) => {
                    return match self.exited {
                        Some(exited) => FollowEnd::Exited(Exited { clean: false, ..exited }),
                        None => self.timeout(command),
                    };
                }
            };
            let Some(event) = event else { return FollowEnd::ChannelEnded };
            match event {
                SpawnEvent::Started => {
                    self.started = true;
                    crash_points.reach("after_start_frame");
                }
                SpawnEvent::StartFailed { exit_code, message } => {
                    return FollowEnd::StartFailed { exit_code, message };
                }
                SpawnEvent::Exited(exited) => {
                    self.exited = Some(exited);
                    deadline = Instant::now() + DRAIN_DEADLINE;
                }
                // The guest tells what was counted before the program ran; what is counted after its end is not its own.
                SpawnEvent::Counters(counters) if !self.started => self.base = counters,
                SpawnEvent::Counters(_) if self.exited.is_some() => {}
                SpawnEvent::Counters(counters) => {
                    let counts = !command.background || environment.foreground().is_none();
                    if let Some(end) = self.counted(environment, counters).filter(|_| counts) {
                        return end;
                    }
                }
                other => self.take(other, true),
            }
            if let Some(exited) = self.exited.filter(|_| self.outputs_open == 0) {
                return FollowEnd::Exited(exited);
            }
            if self.exited.is_some() {
                continue;
            }
            if self.capture.is_over() {
                return self.over_limit(command);
            }
            // A command that produces without pause leaves the other branches no turn.
            if Instant::now() >= deadline && self.stream.events.is_empty() {
                return self.timeout(command);
            }
            if self.started_at.elapsed() > limit + CONSECUTIVE {
                return self.timeout(command);
            }
            if let Some(request) = cancel.get() {
                let (reason, evidence) = (request.reason, Box::new(request.evidence));
                return FollowEnd::Kill { reason, evidence, cancelled: true };
            }
        }
    }

    /// Takes what still arrives, until the end of the channel or `deadline`; true when the command ended by itself.
    pub(super) async fn drain(&mut self, deadline: Duration, grants: bool) -> bool {
        let drained = async {
            while let Some(event) = self.stream.events.recv().await {
                match event {
                    SpawnEvent::Exited(exited) => self.exited = Some(exited),
                    other => self.take(other, grants),
                }
                if self.exited.is_some() && self.outputs_open == 0 {
                    return true;
                }
            }
            false
        };
        tokio::time::timeout(deadline, drained).await.unwrap_or(false)
    }

    fn take(&mut self, event: SpawnEvent, grants: bool) {
        match event {
            SpawnEvent::Data { output, bytes } => {
                let size = u32::try_from(bytes.len()).unwrap_or(u32::MAX);
                let stream = match output {
                    Output::Stdout => OutputStream::Stdout,
                    Output::Stderr => OutputStream::Stderr,
                };
                let shown = self.capture.push(stream, Bytes::from(bytes));
                if !shown.is_empty() {
                    self.sink.write(stream, shown);
                }
                let consumed = match output {
                    Output::Stdout => &mut self.stdout_consumed,
                    Output::Stderr => &mut self.stderr_consumed,
                };
                *consumed += size;
                if grants && *consumed >= GRANT_BYTES {
                    self.channel.grant(self.stream.stream, output, std::mem::take(consumed));
                }
            }
            SpawnEvent::OutputClosed => self.outputs_open = self.outputs_open.saturating_sub(1),
            SpawnEvent::StdinCredit(bytes) => {
                if let Some(pump) = &self.pump {
                    pump.grant(bytes);
                }
            }
            SpawnEvent::StdinBroken => {
                if let Some(pump) = &self.pump {
                    pump.broken();
                }
            }
            SpawnEvent::Counters(counters) => self.last = Some(counters),
            SpawnEvent::Started | SpawnEvent::StartFailed { .. } | SpawnEvent::Exited(_) => {}
        }
    }

    fn timeout(&self, command: &ExecutionCommand) -> FollowEnd {
        let evidence = if command.timeout_reason == KillReason::Expired {
            Evidence { expires_at: Some(command.lease_expires_at), ..Evidence::default() }
        } else {
            Evidence {
                limit_ms: Some(command.timeout_ms),
                elapsed_ms: Some(self.elapsed_ms()),
                ..Evidence::default()
            }
        };
        FollowEnd::Kill { reason: command.timeout_reason, evidence: Box::new(evidence), cancelled: false }
    }

    fn over_limit(&self, command: &ExecutionCommand) -> FollowEnd {
        let evidence = Box::new(self.output_evidence(command));
        FollowEnd::Kill { reason: KillReason::OutputLimit, evidence, cancelled: false }
    }

    /// What proves an OUTPUT_LIMIT.
    pub(super) fn output_evidence(&self, command: &ExecutionCommand) -> Evidence {
        Evidence {
            limit_bytes: Some(command.output_bytes_max),
            produced_bytes: Some(self.capture.produced_bytes()),
            ..Evidence::default()
        }
    }

    /// A sample in which a counter rose: a kill by the kernel counts at once, refused forks when they go on.
    fn counted(&mut self, environment: &Environment, counters: Counters) -> Option<FollowEnd> {
        let limits = &environment.spec.limits;
        self.last = Some(counters);
        let oom_kills = counters.oom_kills.saturating_sub(self.base.oom_kills);
        if oom_kills > 0 {
            let evidence = memory_evidence(
                limits.memory_bytes,
                Some(counters.memory_peak_bytes),
                oom_kills,
                source(self.channel.counter_source()),
            );
            let (reason, evidence) = (KillReason::Memory, Box::new(evidence));
            return Some(FollowEnd::Kill { reason, evidence, cancelled: false });
        }
        let refused = counters.refused_forks.saturating_sub(self.base.refused_forks);
        let before = self.refusals.map_or(0, |(_, count)| count);
        if refused <= before {
            return None;
        }
        let earlier = self.refusals.replace((Instant::now(), refused));
        // A census of processes counts only what lasted from one sample to the next.
        let is_census = self.channel.counter_source() == CounterSource::None;
        if !is_census && earlier.is_none_or(|(at, _)| at.elapsed() > CONSECUTIVE) {
            return None;
        }
        let source = if is_census { "process_count" } else { source(self.channel.counter_source()) };
        let evidence = Evidence {
            limit: Some(limits.pids_max),
            peak: Some(limits.pids_max),
            refused_forks: (!is_census).then_some(refused),
            source: Some(source.to_owned()),
            ..Evidence::default()
        };
        Some(FollowEnd::Kill { reason: KillReason::Pids, evidence: Box::new(evidence), cancelled: false })
    }
}

/// What proves a MEMORY kill.
pub(super) fn memory_evidence(
    limit_bytes: u64,
    peak_bytes: Option<u64>,
    oom_kills: u64,
    source: &str,
) -> Evidence {
    Evidence {
        limit_bytes: Some(limit_bytes),
        peak_bytes,
        oom_kills: Some(oom_kills),
        source: Some(source.to_owned()),
        ..Evidence::default()
    }
}

/// The observation's name in the evidence.
pub(super) const fn source(counters: CounterSource) -> &'static str {
    match counters {
        CounterSource::V1 => "cgroup_v1",
        CounterSource::V2 => "cgroup_v2",
        CounterSource::None => "engine_event",
    }
}

async fn input_failed(pump: &mut Option<StdinPump>) {
    match pump {
        Some(pump) => pump.failed().await,
        None => std::future::pending().await,
    }
}
