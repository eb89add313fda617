//! The life of a command: accepted, started, killed, finished or interrupted.

use std::collections::BTreeMap;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::{Deserialize, Serialize};

use super::workspace::PathText;
use crate::bounds::{
    INTEGER_MAX, VIEW_BYTES_MAX, VIEW_ENCODED_BYTES_MAX, cut_text, is_sha256_hex, json_text_bytes,
};
use crate::ids::{CommandId, EnvironmentId, Epoch, InstanceId, LeaseId};
use crate::time::Timestamp;

/// Recorded before anything runs; from here on the command gets exactly one outcome.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CommandAccepted {
    /// The command.
    pub command_id: CommandId,
    /// Under which lease.
    pub lease_id: LeaseId,
    /// The lease's generation.
    pub epoch: Epoch,
    /// Where it will run.
    pub environment_id: EnvironmentId,
    /// Program and arguments, exactly as given.
    pub argv: Vec<String>,
    /// Working directory relative to `/workspace`; `.` is the workspace itself.
    pub cwd: String,
    /// Variables of the request, on top of the built ones.
    pub env: BTreeMap<String, String>,
    /// What standard input will be; `None` means end of file at once.
    pub stdin: Option<StdinRecord>,
    /// Effective time limit in ms, from the start of the command.
    pub timeout_ms: u64,
    /// What a passed time limit is called: TIMEOUT, or EXPIRED when the lease's remainder was the smallest bound.
    pub timeout_reason: KillReason,
    /// Bytes of output (both streams together) past which the command is killed.
    pub output_bytes_max: u64,
    /// Runs beside the foreground command.
    pub background: bool,
}

/// Standard input as the record keeps it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StdinRecord {
    /// Number of bytes.
    pub bytes: u64,
    /// SHA-256 of the bytes, lower-case hex.
    pub sha256: String,
    /// The bytes in base64 when they are small enough to be kept; otherwise a restart cannot run the command.
    pub inline_base64: Option<String>,
}

/// Durable before the start frame is sent: a command is never run twice.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CommandStarted {
    /// The command.
    pub command_id: CommandId,
    /// Which service instance runs it.
    pub instance_id: InstanceId,
    /// Time spent waiting behind other foreground commands, in ms.
    pub queued_ms: u64,
}

/// Somebody asked for the command's end.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CommandKillRequested {
    /// The command.
    pub command_id: CommandId,
    /// What the kill will be called.
    pub reason: KillReason,
}

/// Why a command was killed. A program's own exit is never one of these.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
#[expect(missing_docs, reason = "the names are the product's vocabulary; Evidence documents each")]
pub enum KillReason {
    Timeout,
    Memory,
    Pids,
    Disk,
    OutputLimit,
    Cancelled,
    Expired,
    ServiceShutdown,
}

impl KillReason {
    /// The name in JSON and SQL.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Timeout => "TIMEOUT",
            Self::Memory => "MEMORY",
            Self::Pids => "PIDS",
            Self::Disk => "DISK",
            Self::OutputLimit => "OUTPUT_LIMIT",
            Self::Cancelled => "CANCELLED",
            Self::Expired => "EXPIRED",
            Self::ServiceShutdown => "SERVICE_SHUTDOWN",
        }
    }
}

/// What proves the end of a command: the keys that apply are set, the others are null (design: kills and evidence).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Evidence {
    /// TIMEOUT: the limit in ms.
    pub limit_ms: Option<u64>,
    /// TIMEOUT: the time that had passed in ms.
    pub elapsed_ms: Option<u64>,
    /// MEMORY, OUTPUT_LIMIT: the limit in bytes.
    pub limit_bytes: Option<u64>,
    /// MEMORY: the largest use in bytes.
    pub peak_bytes: Option<u64>,
    /// MEMORY: kills by the kernel counted in the command's window; with source `engine_event` how often the engine told of one.
    pub oom_kills: Option<u64>,
    /// PIDS, DISK: the limit as a count (or bytes).
    pub limit: Option<u64>,
    /// PIDS: the largest count.
    pub peak: Option<u64>,
    /// PIDS: forks refused in the command's window.
    pub refused_forks: Option<u64>,
    /// DISK: `bytes` or `inodes`.
    pub resource: Option<String>,
    /// DISK: the use that proves it. A look ends when it has found too much, so there may be more.
    pub measured: Option<u64>,
    /// MEMORY, PIDS: which observation it rests on. DISK: `cannot_measure` instead of a measured use.
    pub source: Option<String>,
    /// OUTPUT_LIMIT: bytes produced until the kill.
    pub produced_bytes: Option<u64>,
    /// CANCELLED: who asked (`client`), or what ended it (`lease_ended`, `environment_lost`).
    pub by: Option<String>,
    /// CANCELLED: the foreground command whose kill stopped the container.
    pub stopped_with: Option<CommandId>,
    /// EXPIRED: the end of the lease.
    pub expires_at: Option<Timestamp>,
    /// SERVICE_SHUTDOWN: the drain deadline in ms.
    pub deadline_ms: Option<u64>,
    /// The program could not be started: why, bounded.
    pub start_error: Option<String>,
    /// Bytes of standard input that its pipe did not take before the program closed its end; what the pipe holds, nobody may have read.
    pub stdin_undelivered_bytes: Option<u64>,
}

/// A limit was enforced; recorded with the command's outcome in one append.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct KillEnforced {
    /// The command.
    pub command_id: CommandId,
    /// Why.
    pub reason: KillReason,
    /// The proof.
    pub evidence: Evidence,
}

/// The command has ended and its outcome is known.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CommandFinished {
    /// The command.
    pub command_id: CommandId,
    /// The program's own exit code (128 + n for a signal of its own); `None` exactly when it was killed by us.
    pub exit_code: Option<i32>,
    /// Why it was killed.
    pub killed_by: Option<KillReason>,
    /// What proves it.
    pub evidence: Option<Evidence>,
    /// Standard output.
    pub stdout: OutputRecord,
    /// Standard error.
    pub stderr: OutputRecord,
    /// Processes left behind by the main process and killed.
    pub stragglers: u32,
    /// Files that the command created, modified or deleted.
    pub files_changed: Vec<FileChange>,
    /// The list was cut.
    pub files_changed_truncated: bool,
    /// What it used.
    pub usage: Usage,
    /// Time from start to end in ms.
    pub duration_ms: u64,
}

/// One output stream as the record keeps it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct OutputRecord {
    /// The view: all bytes, or head, elision marker and tail; in base64 when the bytes are not UTF-8.
    pub text: String,
    /// How `text` is encoded.
    pub encoding: TextEncoding,
    /// All bytes produced.
    pub bytes_total: u64,
    /// SHA-256 of all bytes produced, lower-case hex.
    pub sha256: String,
    /// The view does not hold all bytes.
    pub truncated: bool,
}

impl OutputRecord {
    /// From the bytes of a view: as text when they are UTF-8 and their JSON escapes are not larger than base64, else exactly,
    /// in base64. More than [`VIEW_BYTES_MAX`] bytes are cut and flagged.
    #[must_use]
    pub fn from_view(view: &[u8], bytes_total: u64, sha256: String, truncated: bool) -> Self {
        let kept = match std::str::from_utf8(view) {
            Ok(text) => cut_text(text, VIEW_BYTES_MAX).as_bytes(),
            Err(_) => &view[..view.len().min(VIEW_BYTES_MAX)],
        };
        let (text, encoding) = match std::str::from_utf8(kept) {
            Ok(text) if json_text_bytes(text) <= VIEW_ENCODED_BYTES_MAX => {
                (text.to_owned(), TextEncoding::Utf8)
            }
            _ => (STANDARD.encode(kept), TextEncoding::Base64),
        };
        Self { text, encoding, bytes_total, sha256, truncated: truncated || kept.len() < view.len() }
    }

    /// The bytes of the view.
    ///
    /// # Errors
    /// When the text says that it is base64 and is not.
    pub fn view_bytes(&self) -> Result<Vec<u8>, base64::DecodeError> {
        match self.encoding {
            TextEncoding::Utf8 => Ok(self.text.as_bytes().to_vec()),
            TextEncoding::Base64 => STANDARD.decode(&self.text),
        }
    }

    /// The same output within the bounds of an event. A digest that is none becomes empty.
    #[must_use]
    pub fn bounded(&self) -> Self {
        let view = self.view_bytes().unwrap_or_else(|_| self.text.as_bytes().to_vec());
        let sha256 = if is_sha256_hex(&self.sha256) { self.sha256.clone() } else { String::new() };
        Self::from_view(&view, self.bytes_total.min(INTEGER_MAX), sha256, self.truncated)
    }
}

/// How bytes are written into JSON.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum TextEncoding {
    /// The bytes are UTF-8.
    #[serde(rename = "utf-8")]
    Utf8,
    /// The bytes are not UTF-8; kept exactly.
    #[serde(rename = "base64")]
    Base64,
}

/// What happened to one file between the snapshots before and after a command.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileChange {
    /// Which file.
    #[serde(flatten)]
    pub path: PathText,
    /// What happened.
    pub change: ChangeKind,
    /// Its size now; `None` when deleted.
    pub size_bytes: Option<u64>,
    /// SHA-256 of its bytes now, lower-case hex; `None` when deleted or not a regular file.
    pub sha256: Option<String>,
}

impl FileChange {
    /// An upper bound of this entry's bytes in a JSON list, separator included, for a digest of at most 64 digits.
    #[must_use]
    pub fn json_bytes_max(&self) -> usize {
        const KEYS_AND_OTHER_VALUES: usize = 160;
        KEYS_AND_OTHER_VALUES + self.path.json_value_bytes()
    }
}

/// Kinds of change.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
#[expect(missing_docs, reason = "the names say it")]
pub enum ChangeKind {
    Created,
    Modified,
    Deleted,
}

/// What a command used, as far as it was seen: a kill can end whoever counts together with what is counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Usage {
    /// CPU time in ms.
    pub cpu_ms: Option<u64>,
    /// Resident memory of its largest process in bytes.
    pub peak_memory_bytes: Option<u64>,
}

/// The command had no known outcome: it is never run again.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CommandInterrupted {
    /// The command.
    pub command_id: CommandId,
    /// What was lost.
    pub cause: InterruptCause,
    /// Whether the program may have run.
    pub may_have_run: bool,
}

/// What was lost when a command was interrupted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum InterruptCause {
    /// The sandbox died or disappeared.
    SandboxLost,
    /// The channel into the sandbox broke.
    ChannelLost,
    /// The files container died.
    FilesLost,
    /// The spawn process died inside a living sandbox.
    SupervisorLost,
    /// The service instance that ran it is gone.
    ServiceLost,
    /// Its input was not kept, so it cannot be run after a restart.
    InputLost,
}

impl InterruptCause {
    /// The name in JSON and SQL.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::SandboxLost => "sandbox_lost",
            Self::ChannelLost => "channel_lost",
            Self::FilesLost => "files_lost",
            Self::SupervisorLost => "supervisor_lost",
            Self::ServiceLost => "service_lost",
            Self::InputLost => "input_lost",
        }
    }
}
