//! The view of commands: what was asked, where it stands, how it ended. Rows are heavy (two views of up to 88 KiB), but each
//! is written in full only once, at its end.

pub(crate) mod fold;
pub(crate) mod queries;
pub(crate) mod table;

use events::event::command::{Evidence, FileChange, InterruptCause, KillReason, OutputRecord, Usage};
use events::{CommandId, EnvironmentId, Epoch, InstanceId, LeaseId, Position, RunId, TenantId, Timestamp};

use crate::rows::Row;

/// A command as the log tells it. Every text in it is foreign: escape before showing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CommandRow {
    /// The command.
    pub command_id: CommandId,
    /// Whose it is.
    pub tenant: TenantId,
    /// Of which run.
    pub run_id: RunId,
    /// Under which lease.
    pub lease_id: LeaseId,
    /// The lease's generation.
    pub epoch: Epoch,
    /// Where it runs.
    pub environment_id: EnvironmentId,
    /// Where it stands.
    pub state: CommandStatus,
    /// Program and arguments.
    pub argv: Vec<String>,
    /// Working directory relative to `/workspace`.
    pub cwd: String,
    /// Runs beside the foreground command.
    pub background: bool,
    /// The instance that started it.
    pub started_by: Option<InstanceId>,
    /// A kill that was asked for.
    pub kill_requested: Option<KillReason>,
    /// Time it waited behind other commands in ms, once started.
    pub queued_ms: Option<u64>,
    /// What was lost, when it was interrupted.
    pub cause: Option<InterruptCause>,
    /// Whether the program may have run, when it was interrupted.
    pub may_have_run: Option<bool>,
    /// Its result, once finished.
    pub result: Option<CommandResult>,
    /// When it was accepted.
    pub accepted_at: Timestamp,
    /// When its start was recorded.
    pub started_at: Option<Timestamp>,
    /// When its outcome was recorded.
    pub finished_at: Option<Timestamp>,
    /// Position of `CommandAccepted`: the order of lists.
    pub created_position: Position,
    /// Position of the last event that changed the row.
    pub position: Position,
}

/// How a finished command ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CommandResult {
    /// The program's own exit code; `None` exactly when it was killed by us.
    pub exit_code: Option<i32>,
    /// Why it was killed.
    pub killed_by: Option<KillReason>,
    /// What proves it.
    pub evidence: Option<Evidence>,
    /// Processes left behind and killed.
    pub stragglers: u32,
    /// Standard output.
    pub stdout: OutputRecord,
    /// Standard error.
    pub stderr: OutputRecord,
    /// Files created, modified or deleted.
    pub files_changed: Vec<FileChange>,
    /// The list was cut.
    pub files_changed_truncated: bool,
    /// What it used.
    pub usage: Usage,
    /// Time from start to end in ms.
    pub duration_ms: u64,
}

/// Where a command stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[expect(missing_docs, reason = "the names say it")]
pub enum CommandStatus {
    Accepted,
    Running,
    Finished,
    Interrupted,
}

impl CommandStatus {
    /// Every state, in the order of a command's life.
    pub const ALL: [Self; 4] = [Self::Accepted, Self::Running, Self::Finished, Self::Interrupted];

    /// The name in JSON and SQL.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Accepted => "accepted",
            Self::Running => "running",
            Self::Finished => "finished",
            Self::Interrupted => "interrupted",
        }
    }

    /// It has its one outcome.
    #[must_use]
    pub const fn is_ended(self) -> bool {
        matches!(self, Self::Finished | Self::Interrupted)
    }
}

impl CommandRow {
    /// Killed because its time limit passed.
    #[must_use]
    pub fn timed_out(&self) -> bool {
        self.result.as_ref().is_some_and(|result| result.killed_by == Some(KillReason::Timeout))
    }
}

/// Which commands to list; `None` means any.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CommandFilter {
    /// Of one run.
    pub run_id: Option<RunId>,
    /// Of one lease.
    pub lease_id: Option<LeaseId>,
    /// In one state.
    pub state: Option<CommandStatus>,
}

impl Row for CommandRow {
    type Key = CommandId;

    fn key(&self) -> CommandId {
        self.command_id
    }

    fn key_name(key: Self::Key) -> String {
        key.to_string()
    }
}
