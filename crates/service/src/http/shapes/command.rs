//! Command: what was asked, where it stands, how it ended.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use events::Timestamp;
use events::event::command::{ChangeKind, Evidence, FileChange, OutputRecord, TextEncoding, Usage};
use projections::{CommandRow, CommandStatus};
use serde::Serialize;
use utoipa::ToSchema;
use uuid::Uuid;

use super::words;

words! {
    /// Where a command stands.
    CommandState from CommandStatus {
        /// Recorded, not started.
        Accepted = "accepted",
        /// Its start is durable; it may run.
        Running = "running",
        /// It has a result.
        Finished = "finished",
        /// It has no known result and is never run again.
        Interrupted = "interrupted",
    }
}

words! {
    /// Why a command was killed.
    KilledBy from events::event::command::KillReason {
        /// Its time limit passed.
        Timeout = "TIMEOUT",
        /// It went over its memory.
        Memory = "MEMORY",
        /// It went over its output bound.
        OutputLimit = "OUTPUT_LIMIT",
        /// It went over its processes.
        Pids = "PIDS",
        /// The workspace went over its bytes or inodes.
        Disk = "DISK",
        /// Somebody asked for it.
        Cancelled = "CANCELLED",
        /// Its lease ended.
        Expired = "EXPIRED",
        /// The service stopped.
        ServiceShutdown = "SERVICE_SHUTDOWN",
    }
}

words! {
    /// What was lost when a command was interrupted.
    #[expect(clippy::enum_variant_names, reason = "the names of the record")]
    InterruptedBy from events::event::command::InterruptCause {
        /// The sandbox died or disappeared.
        SandboxLost = "sandbox_lost",
        /// The channel into the sandbox broke.
        ChannelLost = "channel_lost",
        /// The files container died.
        FilesLost = "files_lost",
        /// The process that supervises commands died.
        SupervisorLost = "supervisor_lost",
        /// The service instance that ran it is gone.
        ServiceLost = "service_lost",
        /// Its input was not kept.
        InputLost = "input_lost",
    }
}

words! {
    /// How `text` is written.
    ViewEncoding from TextEncoding {
        /// The bytes are UTF-8 and stand as they are.
        Utf8 = "utf-8",
        /// The bytes are not UTF-8.
        Base64 = "base64",
    }
}

words! {
    /// What happened to a file.
    Change from ChangeKind {
        /// It is new.
        Created = "CREATED",
        /// Its bytes changed.
        Modified = "MODIFIED",
        /// It is gone.
        Deleted = "DELETED",
    }
}

/// One command. Fields of its result are null until it is finished, and stay null when it was interrupted.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub(in crate::http) struct Command {
    /// The command.
    pub command_id: Uuid,
    /// Under which lease.
    pub lease_id: Uuid,
    /// Of which run.
    pub run_id: Uuid,
    /// The lease's generation.
    pub epoch: u64,
    /// Where it stands.
    pub state: CommandState,
    /// Program and arguments.
    pub argv: Vec<String>,
    /// Working directory relative to `/workspace`.
    pub cwd: String,
    /// Runs beside the foreground command.
    pub background: bool,
    /// The program's own exit code (128 + n for a signal of its own, 126 or 127 when it could not start); null when it was
    /// killed by the service.
    #[schema(required)]
    pub exit_code: Option<i32>,
    /// Why it was killed by the service.
    #[schema(required)]
    pub killed_by: Option<KilledBy>,
    /// Killed because its time limit passed.
    pub timed_out: bool,
    /// What proves the end.
    #[schema(value_type = Option<EvidenceKeys>, required)]
    pub evidence: Option<Evidence>,
    /// What was lost, when it was interrupted.
    #[schema(required)]
    pub cause: Option<InterruptedBy>,
    /// Processes left behind by the main process and killed.
    #[schema(required)]
    pub stragglers: Option<u32>,
    /// Standard output.
    #[schema(required)]
    pub stdout: Option<OutputView>,
    /// Standard error.
    #[schema(required)]
    pub stderr: Option<OutputView>,
    /// Files created, modified or deleted, seen from outside the sandbox.
    #[schema(required)]
    pub files_changed: Option<Vec<ChangedFile>>,
    /// The list was cut.
    #[schema(required)]
    pub files_changed_truncated: Option<bool>,
    /// What it used.
    #[schema(required)]
    pub usage: Option<CommandUsage>,
    /// Time it waited behind other commands, once started.
    #[schema(required)]
    pub queued_ms: Option<u64>,
    /// Time from start to end.
    #[schema(required)]
    pub duration_ms: Option<u64>,
    /// When it was accepted.
    #[schema(value_type = String, format = DateTime)]
    pub accepted_at: Timestamp,
    /// When its start was recorded.
    #[schema(value_type = Option<String>, format = DateTime, required)]
    pub started_at: Option<Timestamp>,
    /// When its outcome was recorded.
    #[schema(value_type = Option<String>, format = DateTime, required)]
    pub finished_at: Option<Timestamp>,
    /// Its bridge session; always null, as commands have none.
    #[schema(value_type = Option<Object>, required)]
    pub bridge: Option<()>,
    /// Of the last event that changed any of this.
    pub position: u64,
}

/// One output stream: the whole of it, or its head and tail around a marker.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub(in crate::http) struct OutputView {
    /// The view; base64 when the bytes are not UTF-8.
    pub text: String,
    /// How `text` is written.
    pub encoding: ViewEncoding,
    /// The view with replacement characters, when `text` is base64.
    #[schema(required)]
    pub text_lossy: Option<String>,
    /// All bytes produced.
    pub bytes_total: u64,
    /// SHA-256 of all bytes produced, lower-case hex.
    pub sha256: String,
    /// The view does not hold all bytes.
    pub truncated: bool,
    /// The artifact that holds all bytes; always null, as nothing stores them.
    #[schema(required)]
    pub artifact_id: Option<Uuid>,
}

/// What happened to one file between the snapshots before and after a command.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub(in crate::http) struct ChangedFile {
    /// Relative to `/workspace`; with replacement characters when it is not UTF-8.
    pub path: String,
    /// The exact bytes of a path that is not UTF-8.
    #[schema(required)]
    pub path_base64: Option<String>,
    /// What happened.
    pub change: Change,
    /// Its size now; null when deleted.
    #[schema(required)]
    pub size_bytes: Option<u64>,
    /// SHA-256 of its bytes now, lower-case hex; null when deleted or not a regular file.
    #[schema(required)]
    pub sha256: Option<String>,
}

/// What a command used.
#[derive(Clone, Copy, Debug, Serialize, ToSchema)]
pub(in crate::http) struct CommandUsage {
    /// CPU time; null when it was not counted, as after some kills or when no program ran.
    #[schema(required)]
    pub cpu_ms: Option<u64>,
    /// Resident memory of its largest process; null when it was not counted.
    #[schema(required)]
    pub peak_memory_bytes: Option<u64>,
}

/// What proves the end of a command: the keys of its kill reason are set, the others are null.
#[derive(ToSchema)]
#[schema(as = Evidence)]
#[expect(dead_code, reason = "documents the keys of `Evidence`, whose crate knows nothing of OpenAPI")]
pub(in crate::http) struct EvidenceKeys {
    /// TIMEOUT: the limit.
    #[schema(required)]
    limit_ms: Option<u64>,
    /// TIMEOUT: the time that had passed.
    #[schema(required)]
    elapsed_ms: Option<u64>,
    /// MEMORY, OUTPUT_LIMIT: the limit.
    #[schema(required)]
    limit_bytes: Option<u64>,
    /// MEMORY: the largest use.
    #[schema(required)]
    peak_bytes: Option<u64>,
    /// MEMORY: kills by the kernel in the command's window; with source `engine_event` how often the engine told of one.
    #[schema(required)]
    oom_kills: Option<u64>,
    /// PIDS, DISK: the limit as a count or bytes.
    #[schema(required)]
    limit: Option<u64>,
    /// PIDS: the largest count.
    #[schema(required)]
    peak: Option<u64>,
    /// PIDS: forks refused in the command's window.
    #[schema(required)]
    refused_forks: Option<u64>,
    /// DISK: `bytes` or `inodes`.
    #[schema(required)]
    resource: Option<String>,
    /// DISK: the use that proves it. A look ends when it has found too much, so there may be more.
    #[schema(required)]
    measured: Option<u64>,
    /// MEMORY, PIDS: which observation it rests on. DISK: `cannot_measure` instead of a measured use.
    #[schema(required)]
    source: Option<String>,
    /// OUTPUT_LIMIT: bytes produced until the kill.
    #[schema(required)]
    produced_bytes: Option<u64>,
    /// CANCELLED: who asked.
    #[schema(required)]
    by: Option<String>,
    /// CANCELLED: the foreground command whose kill stopped the container.
    #[schema(required)]
    stopped_with: Option<Uuid>,
    /// EXPIRED: the end of the lease.
    #[schema(value_type = Option<String>, format = DateTime, required)]
    expires_at: Option<Timestamp>,
    /// SERVICE_SHUTDOWN: the drain deadline.
    #[schema(required)]
    deadline_ms: Option<u64>,
    /// The program could not be started: why.
    #[schema(required)]
    start_error: Option<String>,
    /// Bytes of standard input that the pipe to the program did not take; what it took may still not have been read.
    #[schema(required)]
    stdin_undelivered_bytes: Option<u64>,
}

impl From<CommandRow> for Command {
    fn from(row: CommandRow) -> Self {
        let timed_out = row.timed_out();
        let result = row.result;
        let (exit_code, killed_by) = result.as_ref().map_or((None, None), |r| (r.exit_code, r.killed_by));
        let stragglers = result.as_ref().map(|r| r.stragglers);
        let files_changed_truncated = result.as_ref().map(|r| r.files_changed_truncated);
        let usage = result.as_ref().map(|r| r.usage.into());
        let duration_ms = result.as_ref().map(|r| r.duration_ms);
        let (stdout, stderr, evidence, files_changed) = match result {
            Some(r) => (Some(r.stdout), Some(r.stderr), r.evidence, Some(r.files_changed)),
            None => (None, None, None, None),
        };
        Self {
            command_id: row.command_id.as_uuid(),
            lease_id: row.lease_id.as_uuid(),
            run_id: row.run_id.as_uuid(),
            epoch: row.epoch.get(),
            state: row.state.into(),
            argv: row.argv,
            cwd: row.cwd,
            background: row.background,
            exit_code,
            killed_by: killed_by.map(KilledBy::from),
            timed_out,
            evidence,
            cause: row.cause.map(InterruptedBy::from),
            stragglers,
            stdout: stdout.map(OutputView::from),
            stderr: stderr.map(OutputView::from),
            files_changed: files_changed.map(|files| files.into_iter().map(ChangedFile::from).collect()),
            files_changed_truncated,
            usage,
            queued_ms: row.queued_ms,
            duration_ms,
            accepted_at: row.accepted_at,
            started_at: row.started_at,
            finished_at: row.finished_at,
            bridge: None,
            position: row.position.get(),
        }
    }
}

impl From<OutputRecord> for OutputView {
    fn from(record: OutputRecord) -> Self {
        let text_lossy = match record.encoding {
            TextEncoding::Utf8 => None,
            TextEncoding::Base64 => {
                STANDARD.decode(&record.text).ok().map(|bytes| String::from_utf8_lossy(&bytes).into_owned())
            }
        };
        Self {
            text: record.text,
            encoding: record.encoding.into(),
            text_lossy,
            bytes_total: record.bytes_total,
            sha256: record.sha256,
            truncated: record.truncated,
            artifact_id: None,
        }
    }
}

impl From<FileChange> for ChangedFile {
    fn from(change: FileChange) -> Self {
        Self {
            path: change.path.path,
            path_base64: change.path.path_base64,
            change: change.change.into(),
            size_bytes: change.size_bytes,
            sha256: change.sha256,
        }
    }
}

impl From<Usage> for CommandUsage {
    fn from(usage: Usage) -> Self {
        Self { cpu_ms: usage.cpu_ms, peak_memory_bytes: usage.peak_memory_bytes }
    }
}
