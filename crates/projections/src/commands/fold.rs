//! What each event does to the rows of commands.

use events::event::command::CommandFinished;
use events::stored::Recorded;
use events::{CommandId, Event, RunId};

use super::{CommandResult, CommandRow, CommandStatus};
use crate::rows::Rows;

/// The command whose life an event is about.
pub(crate) fn key(event: &Event) -> Option<CommandId> {
    match event {
        Event::CommandAccepted(body) => Some(body.command_id),
        Event::CommandStarted(body) => Some(body.command_id),
        Event::CommandKillRequested(body) => Some(body.command_id),
        Event::CommandFinished(body) => Some(body.command_id),
        Event::CommandInterrupted(body) => Some(body.command_id),
        _ => None,
    }
}

/// Applies one event of a run. `KillEnforced` changes nothing here: its reason and evidence come again with the outcome, in
/// the same append.
pub(crate) fn fold(rows: &mut Rows<CommandRow>, run_id: RunId, recorded: &Recorded, event: &Event) {
    let at = recorded.header.recorded_at;
    if let Event::CommandAccepted(body) = event {
        rows.put(CommandRow {
            command_id: body.command_id,
            tenant: recorded.header.tenant,
            run_id,
            lease_id: body.lease_id,
            epoch: body.epoch,
            environment_id: body.environment_id,
            state: CommandStatus::Accepted,
            argv: body.argv.clone(),
            cwd: body.cwd.clone(),
            background: body.background,
            started_by: None,
            kill_requested: None,
            queued_ms: None,
            cause: None,
            may_have_run: None,
            result: None,
            accepted_at: at,
            started_at: None,
            finished_at: None,
            created_position: recorded.position,
            position: recorded.position,
        });
        return;
    }
    let Some(command_id) = key(event) else { return };
    // The first start and the first outcome count; nothing changes a command after its outcome.
    let counts = |row: &CommandRow| match event {
        Event::CommandStarted(_) => row.state == CommandStatus::Accepted,
        _ => !row.state.is_ended(),
    };
    if !rows.get(command_id).is_some_and(counts) {
        return;
    }
    rows.change(command_id, |row| {
        row.position = recorded.position;
        match event {
            Event::CommandStarted(body) => {
                row.state = CommandStatus::Running;
                row.started_by = Some(body.instance_id);
                row.started_at = Some(at);
                row.queued_ms = Some(body.queued_ms);
            }
            Event::CommandKillRequested(body) => {
                row.kill_requested.get_or_insert(body.reason);
            }
            Event::CommandFinished(body) => {
                row.state = CommandStatus::Finished;
                row.finished_at = Some(at);
                row.result = Some(result(body));
            }
            Event::CommandInterrupted(body) => {
                row.state = CommandStatus::Interrupted;
                row.finished_at = Some(at);
                row.cause = Some(body.cause);
                row.may_have_run = Some(body.may_have_run);
            }
            _ => {}
        }
    });
}

fn result(body: &CommandFinished) -> CommandResult {
    CommandResult {
        exit_code: body.exit_code,
        killed_by: body.killed_by,
        evidence: body.evidence.clone(),
        stragglers: body.stragglers,
        stdout: body.stdout.clone(),
        stderr: body.stderr.clone(),
        files_changed: body.files_changed.clone(),
        files_changed_truncated: body.files_changed_truncated,
        usage: body.usage,
        duration_ms: body.duration_ms,
    }
}
