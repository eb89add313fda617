//! Outputs, counters, and how a command ended.

use super::super::codec::{Put, Take};
use super::super::frame::ProtocolError;

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
    pub(in crate::protocol) fn from_u8(value: u8) -> Option<Self> {
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
    /// None readable (gVisor, or no cgroup mount): every counter stays 0 and proves nothing, but [`Counters::refused_forks`].
    None = 0,
    /// cgroup v1: `memory.oom_control`, `memory.max_usage_in_bytes`, `pids.events`, `cpuacct.usage`.
    V1 = 1,
    /// cgroup v2: `memory.events`, `memory.peak`, `pids.events`, `cpu.stat`.
    V2 = 2,
}

impl CounterSource {
    pub(in crate::protocol) fn from_u8(value: u8) -> Option<Self> {
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
    /// Forks refused by the pids controller. With [`CounterSource::None`], where nothing counts refusals: samples that found
    /// the processes of a command's user at their limit, as the sample before had.
    pub refused_forks: u64,
    /// Highest memory use so far, in bytes (never falls; not reset per command).
    pub memory_peak_bytes: u64,
    /// Processor time used by the whole container, in microseconds.
    pub cpu_us: u64,
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
    /// True: the kernel confirmed that no descendant is left. False: something survived the killing, or the
    /// watcher was lost; the host must restart the container.
    pub clean: bool,
}

impl Counters {
    pub(super) fn put(&self, out: &mut Vec<u8>) {
        out.put_u64(self.oom_kills);
        out.put_u64(self.refused_forks);
        out.put_u64(self.memory_peak_bytes);
        out.put_u64(self.cpu_us);
    }

    pub(super) fn take(take: &mut Take<'_>) -> Result<Self, ProtocolError> {
        Ok(Self {
            oom_kills: take.u64("oom_kills")?,
            refused_forks: take.u64("refused_forks")?,
            memory_peak_bytes: take.u64("memory_peak_bytes")?,
            cpu_us: take.u64("cpu_us")?,
        })
    }
}

impl Exited {
    pub(super) fn put(&self, out: &mut Vec<u8>) {
        let (tag, value) = match self.status {
            ExitStatus::Code(code) => (0, code),
            ExitStatus::Signal(signal) => (1, signal),
            ExitStatus::Lost => (2, 0),
        };
        out.put_u8(tag);
        out.put_i32(value);
        out.put_u64(self.cpu_ms);
        out.put_u64(self.max_rss_bytes);
        out.put_u32(self.stragglers);
        out.put_u64(self.oom_kills);
        out.put_u64(self.refused_forks);
        out.put_u64(self.memory_peak_bytes);
        out.put_u64(self.cgroup_cpu_ms);
        out.put_u64(self.stdin_bytes);
        out.put_bool(self.clean);
    }

    pub(super) fn take(take: &mut Take<'_>) -> Result<Self, ProtocolError> {
        let (tag, value) = (take.u8("status")?, take.i32("status")?);
        let status = match (tag, value) {
            (0, 0..=255) => ExitStatus::Code(value),
            (1, 1..=64) => ExitStatus::Signal(value),
            (2, 0) => ExitStatus::Lost,
            _ => return Err(take.malformed("status")),
        };
        Ok(Self {
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
}
