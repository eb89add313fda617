//! Frames of the spawn channel: commands, their streams, their ends.
//!
//! ```text
//! host                                       guest
//! Hello                       ->        <-   Hello {counters}
//! Start {stream}              ->        <-   Started {pid} | StartFailed (ends the stream)
//! StdinData*, StdinClose      ->        <-   StdinCredit*, StdinBroken?
//! Credit {output}*            ->        <-   Data {output}*, OutputClosed {output} (once each, after its data)
//! Kill                        ->        <-   Exited (once)
//! ```
//!
//! - A stream is over once `Exited` and both `OutputClosed` have arrived. `Exited` is control: it may overtake
//!   data still waiting for credit. `OutputClosed` never overtakes its own output's data.
//! - Credit: both outputs and stdin start with a full window when `Start` is sent. The guest returns stdin
//!   credit as the pipe takes bytes; the host returns output credit as it consumes them. After an `Exited`
//!   the host keeps granting until both outputs are closed.
//! - Stdin without `stdin: true` is `/dev/null`. Writing to a command that no longer reads is `StdinBroken`,
//!   once, never an end of the stream; later `StdinData` of that stream is dropped, without credit.
//! - One foreground command at a time: a second `Start` with `background: false` is a `StartFailed` (EBUSY).

use super::codec::{Put, Take};
use super::frame::{Frame, ProtocolError, check_stream};
use super::{Hello, MAX_DATA_BYTES, MAX_NONCE_BYTES, MAX_PATH_BYTES, MAX_PAYLOAD_BYTES};

/// Largest payload of a start frame in bytes: 64 KiB of argv, 128 KiB of environment and their lengths.
pub const MAX_START_BYTES: usize = 256 * 1024;

/// Most arguments of one command.
pub const MAX_ARGS: usize = 1024;

/// Most environment variables of one command.
pub const MAX_ENV: usize = 1024;

/// Longest message in a `StartFailed`, in bytes.
pub const MAX_MESSAGE_BYTES: usize = 1024;

/// How often the counters are sampled while a command runs, in milliseconds.
pub const COUNTER_INTERVAL_MS: u64 = 250;

/// How long leftover descendants may still end by themselves after the main process did, in milliseconds.
pub const STRAGGLER_GRACE_MS: u64 = 50;

/// Which of the two outputs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Output {
    /// The command's file descriptor 1.
    Stdout = 1,
    /// The command's file descriptor 2.
    Stderr = 2,
}

impl Output {
    fn from_u8(value: u8) -> Option<Self> {
        match value {
            1 => Some(Self::Stdout),
            2 => Some(Self::Stderr),
            _ => None,
        }
    }
}

/// Where the guest's cgroup counters come from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum CounterSource {
    /// None readable (gVisor, or no cgroup mount): every counter stays 0 and proves nothing.
    None = 0,
    /// cgroup v1: `memory.oom_control`, `memory.max_usage_in_bytes`, `pids.events`, `cpuacct.usage`.
    V1 = 1,
    /// cgroup v2: `memory.events`, `memory.peak`, `pids.events`, `cpu.stat`.
    V2 = 2,
}

impl CounterSource {
    pub(super) fn from_u8(value: u8) -> Option<Self> {
        match value {
            0 => Some(Self::None),
            1 => Some(Self::V1),
            2 => Some(Self::V2),
            _ => None,
        }
    }
}

/// The sandbox's cgroup counters since the container started. Unreadable ones are 0.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counters {
    /// Processes killed by the memory controller.
    pub oom_kills: u64,
    /// Forks refused by the pids controller.
    pub refused_forks: u64,
    /// Highest memory use so far, in bytes (never falls; not reset per command).
    pub memory_peak_bytes: u64,
    /// Processor time used by the whole container, in microseconds.
    pub cpu_us: u64,
}

/// Resource limits set on the child before it drops its privileges; hard and soft alike. Core is always 0.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Rlimits {
    /// Open files (count).
    pub nofile: Option<u64>,
    /// File size in bytes.
    pub fsize: Option<u64>,
    /// Processes of the uid (count; only meaningful under gVisor).
    pub nproc: Option<u64>,
}

/// Everything a command starts with.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StartCommand {
    /// 1 to [`MAX_ARGS`] arguments, raw bytes without NUL. The first is an absolute path or a bare name, looked
    /// up on `/usr/local/bin:/usr/bin:/bin` only.
    pub argv: Vec<Vec<u8>>,
    /// Directory relative to `/workspace`, raw bytes; empty is the workspace itself.
    pub cwd: Vec<u8>,
    /// The child's whole environment: name and value, raw bytes without NUL, names without `=`.
    pub env: Vec<(Vec<u8>, Vec<u8>)>,
    /// User id of the command; never 0.
    pub uid: u32,
    /// Group id of the command; never 0.
    pub gid: u32,
    /// Limits of the child.
    pub rlimits: Rlimits,
    /// Written to the child's `oom_score_adj`, -1000 to 1000.
    pub oom_score_adj: i32,
    /// True: stdin is a pipe fed by `StdinData`. False: `/dev/null`.
    pub stdin: bool,
    /// True: may run beside others, to be ended by `Kill`.
    pub background: bool,
}

impl StartCommand {
    /// Length of the start frame's payload in bytes, to be compared with [`MAX_START_BYTES`].
    #[must_use]
    pub fn encoded_bytes(&self) -> usize {
        let mut out = Vec::new();
        self.put(&mut out);
        out.len()
    }

    fn put(&self, out: &mut Vec<u8>) {
        out.put_u32(u32::try_from(self.argv.len()).unwrap_or(u32::MAX));
        for arg in &self.argv {
            out.put_bytes(arg);
        }
        out.put_bytes(&self.cwd);
        out.put_u32(u32::try_from(self.env.len()).unwrap_or(u32::MAX));
        for (name, value) in &self.env {
            out.put_bytes(name);
            out.put_bytes(value);
        }
        out.put_u32(self.uid);
        out.put_u32(self.gid);
        out.put_opt_u64(self.rlimits.nofile);
        out.put_opt_u64(self.rlimits.fsize);
        out.put_opt_u64(self.rlimits.nproc);
        out.put_i32(self.oom_score_adj);
        out.put_bool(self.stdin);
        out.put_bool(self.background);
    }

    fn take(take: &mut Take<'_>) -> Result<Self, ProtocolError> {
        let args = count(take, "argv", MAX_ARGS)?;
        let argv: Vec<_> = (0..args).map(|_| text(take, "argv", false)).collect::<Result<_, _>>()?;
        if argv.is_empty() {
            return Err(take.malformed("argv"));
        }
        let cwd = take.bytes("cwd", MAX_PATH_BYTES)?;
        let vars = count(take, "env", MAX_ENV)?;
        let env = (0..vars)
            .map(|_| Ok((text(take, "env name", true)?, text(take, "env value", false)?)))
            .collect::<Result<_, ProtocolError>>()?;
        let (uid, gid) = (take.u32("uid")?, take.u32("gid")?);
        if uid == 0 || gid == 0 || uid == u32::MAX || gid == u32::MAX {
            return Err(take.malformed("uid or gid"));
        }
        let rlimits = Rlimits {
            nofile: take.opt_u64("nofile")?,
            fsize: take.opt_u64("fsize")?,
            nproc: take.opt_u64("nproc")?,
        };
        let oom_score_adj = take.i32("oom_score_adj")?;
        if !(-1000..=1000).contains(&oom_score_adj) {
            return Err(take.malformed("oom_score_adj"));
        }
        let (stdin, background) = (take.bool("stdin")?, take.bool("background")?);
        Ok(Self { argv, cwd, env, uid, gid, rlimits, oom_score_adj, stdin, background })
    }
}

fn count(take: &mut Take<'_>, field: &'static str, max: usize) -> Result<usize, ProtocolError> {
    let count = usize::try_from(take.u32(field)?).unwrap_or(usize::MAX);
    if count > max { Err(take.malformed(field)) } else { Ok(count) }
}

fn text(take: &mut Take<'_>, field: &'static str, is_name: bool) -> Result<Vec<u8>, ProtocolError> {
    let bytes = take.bytes(field, MAX_START_BYTES)?;
    let bad_name = is_name && (bytes.is_empty() || bytes.contains(&b'='));
    if bad_name || bytes.contains(&0) { Err(take.malformed(field)) } else { Ok(bytes) }
}

/// How a command's main process ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ExitStatus {
    /// It ended by itself with this code, 0 to 255.
    Code(i32),
    /// A signal ended it.
    Signal(i32),
    /// The process that watched it is gone: the status is unknown, the container must be restarted.
    Lost,
}

/// A command's end. The deltas cover the whole container between its start and its end: with other commands
/// running beside it they cannot be told apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Exited {
    /// How the main process ended.
    pub status: ExitStatus,
    /// Processor time of the main process and every descendant waited for, in milliseconds.
    pub cpu_ms: u64,
    /// Resident set of the largest of them, in bytes.
    pub max_rss_bytes: u64,
    /// Descendants that outlived the main process and had to be killed (count).
    pub stragglers: u32,
    /// Rise of [`Counters::oom_kills`].
    pub oom_kills: u64,
    /// Rise of [`Counters::refused_forks`].
    pub refused_forks: u64,
    /// [`Counters::memory_peak_bytes`] at the end.
    pub memory_peak_bytes: u64,
    /// Rise of [`Counters::cpu_us`] in milliseconds.
    pub cgroup_cpu_ms: u64,
    /// Bytes of stdin that the pipe took.
    pub stdin_bytes: u64,
    /// True: the kernel confirmed that no descendant is left. False: something survived ten rounds, or the
    /// watcher was lost; the host must restart the container.
    pub clean: bool,
}

/// Host to guest.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ToGuest {
    /// First frame.
    Hello(Hello),
    /// Starts a command on a new, higher stream id.
    Start {
        /// The command's stream id.
        stream: u32,
        /// What to start.
        command: StartCommand,
    },
    /// Bytes for the command's stdin, under stdin credit.
    StdinData {
        /// The command's stream id.
        stream: u32,
        /// 1 to [`MAX_DATA_BYTES`] bytes.
        bytes: Vec<u8>,
    },
    /// No more stdin: the pipe is closed once everything before it was written.
    StdinClose {
        /// The command's stream id.
        stream: u32,
    },
    /// The host consumed this much of an output.
    Credit {
        /// The command's stream id.
        stream: u32,
        /// Which output.
        output: Output,
        /// Granted bytes.
        bytes: u32,
    },
    /// Kill this command's whole tree (background commands; a foreground kill restarts the container).
    Kill {
        /// The command's stream id.
        stream: u32,
    },
    /// Heartbeat; answered by `Pong` with the same token.
    Ping {
        /// Any value.
        token: u64,
    },
    /// Asks for the workspace's nonce as the sandbox sees it.
    ReadNonce,
}

/// Guest to host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ToHost {
    /// First frame.
    Hello(Hello),
    /// The program is running: exec succeeded.
    Started {
        /// The command's stream id.
        stream: u32,
        /// Process id inside the sandbox.
        pid: u32,
    },
    /// The program could not be started; the stream is over, no output frame follows.
    StartFailed {
        /// The command's stream id.
        stream: u32,
        /// 127: not found. 126: anything else (not executable, directory missing, no process left, ...).
        exit_code: i32,
        /// The system's error number, 0 when there is none.
        errno: i32,
        /// Ours, bounded, without paths of the host; for people.
        message: String,
    },
    /// Output bytes, under the output's credit.
    Data {
        /// The command's stream id.
        stream: u32,
        /// Which output.
        output: Output,
        /// 1 to [`MAX_DATA_BYTES`] bytes.
        bytes: Vec<u8>,
    },
    /// The output is complete: every byte of it went before this frame.
    OutputClosed {
        /// The command's stream id.
        stream: u32,
        /// Which output.
        output: Output,
        /// Bytes sent in all.
        total_bytes: u64,
    },
    /// The pipe took this much of the stdin sent.
    StdinCredit {
        /// The command's stream id.
        stream: u32,
        /// Granted bytes.
        bytes: u32,
    },
    /// The command closed its stdin (or ended) before taking everything sent.
    StdinBroken {
        /// The command's stream id.
        stream: u32,
        /// Bytes the pipe took before.
        delivered_bytes: u64,
    },
    /// The command's end.
    Exited {
        /// The command's stream id.
        stream: u32,
        /// How it ended.
        exited: Exited,
    },
    /// A sample in which `oom_kills` or `refused_forks` rose, sent at once.
    Counters(Counters),
    /// Answer to `Ping`.
    Pong {
        /// The ping's token.
        token: u64,
    },
    /// Answer to `ReadNonce`; `None` when there is no nonce in the workspace.
    Nonce(Option<Vec<u8>>),
}

impl Frame for ToGuest {
    fn kind(&self) -> u8 {
        match self {
            Self::Hello(_) => 1,
            Self::Start { .. } => 2,
            Self::StdinData { .. } => 3,
            Self::StdinClose { .. } => 4,
            Self::Credit { .. } => 5,
            Self::Kill { .. } => 6,
            Self::Ping { .. } => 7,
            Self::ReadNonce => 8,
        }
    }

    fn stream(&self) -> u32 {
        match self {
            Self::Hello(_) | Self::Ping { .. } | Self::ReadNonce => 0,
            Self::Start { stream, .. }
            | Self::StdinData { stream, .. }
            | Self::StdinClose { stream }
            | Self::Credit { stream, .. }
            | Self::Kill { stream } => *stream,
        }
    }

    fn put_payload(&self, out: &mut Vec<u8>) {
        match self {
            Self::Hello(hello) => hello.put(out),
            Self::Start { command, .. } => command.put(out),
            Self::StdinData { bytes, .. } => out.put_raw(bytes),
            Self::Credit { output, bytes, .. } => {
                out.put_u8(*output as u8);
                out.put_u32(*bytes);
            }
            Self::Ping { token } => out.put_u64(*token),
            Self::StdinClose { .. } | Self::Kill { .. } | Self::ReadNonce => {}
        }
    }

    fn max_payload_bytes(kind: u8) -> Option<usize> {
        match kind {
            1 => Some(MAX_PAYLOAD_BYTES),
            2 => Some(MAX_START_BYTES),
            3 => Some(MAX_DATA_BYTES),
            4..=8 => Some(64),
            _ => None,
        }
    }

    fn from_parts(kind: u8, stream: u32, payload: &[u8]) -> Result<Self, ProtocolError> {
        check_stream(kind, stream, matches!(kind, 1 | 7 | 8))?;
        let mut take = Take::new(kind, payload);
        let frame = match kind {
            1 => return Hello::take(kind, payload).map(Self::Hello),
            2 => Self::Start { stream, command: StartCommand::take(&mut take)? },
            3 if payload.is_empty() => return Err(take.malformed("bytes")),
            3 => Self::StdinData { stream, bytes: take.rest() },
            4 => Self::StdinClose { stream },
            5 => Self::Credit {
                stream,
                output: take.map_u8("output", Output::from_u8)?,
                bytes: take.u32("bytes")?,
            },
            6 => Self::Kill { stream },
            7 => Self::Ping { token: take.u64("token")? },
            8 => Self::ReadNonce,
            _ => return Err(ProtocolError::UnknownKind { kind }),
        };
        take.finish()?;
        Ok(frame)
    }
}

impl Frame for ToHost {
    fn kind(&self) -> u8 {
        match self {
            Self::Hello(_) => 1,
            Self::Started { .. } => 2,
            Self::StartFailed { .. } => 3,
            Self::Data { .. } => 4,
            Self::OutputClosed { .. } => 5,
            Self::StdinCredit { .. } => 6,
            Self::StdinBroken { .. } => 7,
            Self::Exited { .. } => 8,
            Self::Counters(_) => 9,
            Self::Pong { .. } => 10,
            Self::Nonce(_) => 11,
        }
    }

    fn stream(&self) -> u32 {
        match self {
            Self::Hello(_) | Self::Counters(_) | Self::Pong { .. } | Self::Nonce(_) => 0,
            Self::Started { stream, .. }
            | Self::StartFailed { stream, .. }
            | Self::Data { stream, .. }
            | Self::OutputClosed { stream, .. }
            | Self::StdinCredit { stream, .. }
            | Self::StdinBroken { stream, .. }
            | Self::Exited { stream, .. } => *stream,
        }
    }

    fn put_payload(&self, out: &mut Vec<u8>) {
        match self {
            Self::Hello(hello) => hello.put(out),
            Self::Started { pid, .. } => out.put_u32(*pid),
            Self::StartFailed { exit_code, errno, message, .. } => {
                out.put_i32(*exit_code);
                out.put_i32(*errno);
                out.put_bytes(message.as_bytes());
            }
            Self::Data { output, bytes, .. } => {
                out.put_u8(*output as u8);
                out.put_raw(bytes);
            }
            Self::OutputClosed { output, total_bytes, .. } => {
                out.put_u8(*output as u8);
                out.put_u64(*total_bytes);
            }
            Self::StdinCredit { bytes, .. } => out.put_u32(*bytes),
            Self::StdinBroken { delivered_bytes, .. } => out.put_u64(*delivered_bytes),
            Self::Exited { exited, .. } => put_exited(exited, out),
            Self::Counters(counters) => {
                out.put_u64(counters.oom_kills);
                out.put_u64(counters.refused_forks);
                out.put_u64(counters.memory_peak_bytes);
                out.put_u64(counters.cpu_us);
            }
            Self::Pong { token } => out.put_u64(*token),
            Self::Nonce(nonce) => out.put_opt_bytes(nonce.as_deref()),
        }
    }

    fn max_payload_bytes(kind: u8) -> Option<usize> {
        match kind {
            1 => Some(MAX_PAYLOAD_BYTES),
            3 => Some(MAX_MESSAGE_BYTES + 12),
            4 => Some(MAX_DATA_BYTES + 1),
            2 | 5..=11 => Some(128),
            _ => None,
        }
    }

    fn from_parts(kind: u8, stream: u32, payload: &[u8]) -> Result<Self, ProtocolError> {
        check_stream(kind, stream, matches!(kind, 1 | 9..=11))?;
        let mut take = Take::new(kind, payload);
        let frame = match kind {
            1 => return Hello::take(kind, payload).map(Self::Hello),
            2 => Self::Started { stream, pid: take.u32("pid")? },
            3 => Self::StartFailed {
                stream,
                exit_code: take.i32("exit_code")?,
                errno: take.i32("errno")?,
                message: take.string("message", MAX_MESSAGE_BYTES)?,
            },
            4 => {
                let output = take.map_u8("output", Output::from_u8)?;
                let bytes = take.rest();
                if bytes.is_empty() {
                    return Err(take.malformed("bytes"));
                }
                Self::Data { stream, output, bytes }
            }
            5 => Self::OutputClosed {
                stream,
                output: take.map_u8("output", Output::from_u8)?,
                total_bytes: take.u64("total_bytes")?,
            },
            6 => Self::StdinCredit { stream, bytes: take.u32("bytes")? },
            7 => Self::StdinBroken { stream, delivered_bytes: take.u64("delivered_bytes")? },
            8 => Self::Exited { stream, exited: take_exited(&mut take)? },
            9 => Self::Counters(Counters {
                oom_kills: take.u64("oom_kills")?,
                refused_forks: take.u64("refused_forks")?,
                memory_peak_bytes: take.u64("memory_peak_bytes")?,
                cpu_us: take.u64("cpu_us")?,
            }),
            10 => Self::Pong { token: take.u64("token")? },
            11 => Self::Nonce(take.opt_bytes("nonce", MAX_NONCE_BYTES)?),
            _ => return Err(ProtocolError::UnknownKind { kind }),
        };
        take.finish()?;
        Ok(frame)
    }
}

fn put_exited(exited: &Exited, out: &mut Vec<u8>) {
    let (tag, value) = match exited.status {
        ExitStatus::Code(code) => (0, code),
        ExitStatus::Signal(signal) => (1, signal),
        ExitStatus::Lost => (2, 0),
    };
    out.put_u8(tag);
    out.put_i32(value);
    out.put_u64(exited.cpu_ms);
    out.put_u64(exited.max_rss_bytes);
    out.put_u32(exited.stragglers);
    out.put_u64(exited.oom_kills);
    out.put_u64(exited.refused_forks);
    out.put_u64(exited.memory_peak_bytes);
    out.put_u64(exited.cgroup_cpu_ms);
    out.put_u64(exited.stdin_bytes);
    out.put_bool(exited.clean);
}

fn take_exited(take: &mut Take<'_>) -> Result<Exited, ProtocolError> {
    let (tag, value) = (take.u8("status")?, take.i32("status")?);
    let status = match (tag, value) {
        (0, 0..=255) => ExitStatus::Code(value),
        (1, 1..=64) => ExitStatus::Signal(value),
        (2, 0) => ExitStatus::Lost,
        _ => return Err(take.malformed("status")),
    };
    Ok(Exited {
        status,
        cpu_ms: take.u64("cpu_ms")?,
        max_rss_bytes: take.u64("max_rss_bytes")?,
        stragglers: take.u32("stragglers")?,
        oom_kills: take.u64("oom_kills")?,
        refused_forks: take.u64("refused_forks")?,
        memory_peak_bytes: take.u64("memory_peak_bytes")?,
        cgroup_cpu_ms: take.u64("cgroup_cpu_ms")?,
        stdin_bytes: take.u64("stdin_bytes")?,
        clean: take.bool("clean")?,
    })
}
