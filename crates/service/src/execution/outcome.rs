//! What the end of a command becomes: pure.

use events::CommandId;
use events::event::command::{CommandFinished, CommandInterrupted, InterruptCause, Usage};
use events::run::RunCommand;
use runtime_adapter::ports::{CancelRequest, ExecuteError, ExecutionResult, PortError};

use super::view;

/// The outcome of an execution, and what it says about the environment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Outcome {
    /// To be recorded for the command.
    pub(crate) command: RunCommand,
    /// The environment cannot be used any more, and why.
    pub(crate) lost: Option<PortError>,
}

/// Refusals that say that the environment is no more.
const GONE: [&str; 3] = ["environment_gone", "expired", "wrong_tenant"];

/// From what the port answered.
pub(crate) fn of(command_id: CommandId, answer: Result<ExecutionResult, ExecuteError>) -> Outcome {
    match answer {
        Ok(result) => Outcome { command: finished(command_id, result), lost: None },
        Err(ExecuteError::Cancelled { partial }) => {
            Outcome { command: finished(command_id, *partial), lost: None }
        }
        Err(ExecuteError::Port(error)) => failed(command_id, error),
    }
}

fn failed(command_id: CommandId, error: PortError) -> Outcome {
    let (cause, may_have_run, gone) = match &error {
        // The adapter brings a sandbox back whose channel or supervisor alone has died.
        PortError::Lost { cause } => {
            (*cause, true, matches!(cause, InterruptCause::SandboxLost | InterruptCause::FilesLost))
        }
        PortError::EscapeSuspected { .. } => (InterruptCause::ChannelLost, true, true),
        PortError::Rejected { code } if GONE.contains(code) => (InterruptCause::SandboxLost, false, true),
        // The command was refused before it ran; the environment has nothing to do with it.
        PortError::Rejected { .. } => (InterruptCause::ChannelLost, false, false),
        PortError::Unavailable { effect_possible, .. } => {
            (InterruptCause::ChannelLost, *effect_possible, false)
        }
    };
    Outcome { command: interrupted(command_id, cause, may_have_run), lost: gone.then_some(error) }
}

/// A command without a known result.
pub(crate) fn interrupted(command_id: CommandId, cause: InterruptCause, may_have_run: bool) -> RunCommand {
    RunCommand::RecordInterrupted(CommandInterrupted { command_id, cause, may_have_run })
}

/// A command that was killed while it waited.
pub(crate) fn never_ran(command_id: CommandId, kill: CancelRequest) -> RunCommand {
    RunCommand::RecordFinished(Box::new(CommandFinished {
        command_id,
        exit_code: None,
        killed_by: Some(kill.reason),
        evidence: Some(kill.evidence),
        stdout: view::empty(),
        stderr: view::empty(),
        stragglers: 0,
        files_changed: Vec::new(),
        files_changed_truncated: false,
        usage: Usage::default(),
        duration_ms: 0,
    }))
}

fn finished(command_id: CommandId, result: ExecutionResult) -> RunCommand {
    RunCommand::RecordFinished(Box::new(CommandFinished {
        command_id,
        exit_code: result.exit_code,
        killed_by: result.killed_by,
        evidence: result.evidence,
        stdout: view::record(&result.stdout),
        stderr: view::record(&result.stderr),
        stragglers: result.stragglers,
        files_changed: result.files_changed,
        files_changed_truncated: result.files_changed_truncated,
        usage: result.usage,
        duration_ms: result.duration_ms,
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cause_of(outcome: &Outcome) -> (InterruptCause, bool) {
        match &outcome.command {
            RunCommand::RecordInterrupted(fact) => (fact.cause, fact.may_have_run),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn failures_of_the_port_interrupt_and_say_whether_the_environment_is_gone() {
        use InterruptCause::{ChannelLost, FilesLost, InputLost, SandboxLost, SupervisorLost};
        let table = [
            (PortError::Lost { cause: SandboxLost }, (SandboxLost, true), true),
            (PortError::Lost { cause: FilesLost }, (FilesLost, true), true),
            (PortError::Lost { cause: SupervisorLost }, (SupervisorLost, true), false),
            (PortError::Lost { cause: ChannelLost }, (ChannelLost, true), false),
            (PortError::EscapeSuspected { code: "unknown_stream" }, (ChannelLost, true), true),
            (PortError::Rejected { code: "environment_gone" }, (SandboxLost, false), true),
            (PortError::Rejected { code: "busy" }, (ChannelLost, false), false),
            (PortError::Rejected { code: "env_too_large" }, (ChannelLost, false), false),
            (PortError::Lost { cause: InputLost }, (InputLost, true), false),
            (PortError::Unavailable { code: "timeout", effect_possible: true }, (ChannelLost, true), false),
            (PortError::Unavailable { code: "engine", effect_possible: false }, (ChannelLost, false), false),
        ];
        let id = CommandId(uuid::Uuid::from_u128(1));
        for (error, cause, lost) in table {
            let outcome = of(id, Err(ExecuteError::Port(error.clone())));
            assert_eq!((cause_of(&outcome), outcome.lost.is_some()), (cause, lost), "{error:?}");
        }
    }
}
