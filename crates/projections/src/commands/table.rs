//! The table `views.commands`. The columns of the result are null together, until the command has finished.

use events::{Epoch, Position};

use super::{CommandResult, CommandRow, CommandStatus};
use crate::error::ViewsError;
use crate::sql::{Cells, Reader, SqlTime, Table, ViewReader, Writer};

impl Table for CommandRow {
    const NAME: &'static str = "commands";
    const KEY: &'static [&'static str] = &["command_id"];
    const COLUMNS: &'static [&'static str] = &[
        "command_id",
        "tenant",
        "run_id",
        "lease_id",
        "epoch",
        "environment_id",
        "state",
        "argv",
        "cwd",
        "background",
        "started_by",
        "kill_requested",
        "queued_ms",
        "cause",
        "may_have_run",
        "accepted_at",
        "started_at",
        "finished_at",
        "created_position",
        "position",
        "exit_code",
        "killed_by",
        "evidence",
        "stragglers",
        "stdout",
        "stderr",
        "files_changed",
        "files_changed_truncated",
        "usage",
        "duration_ms",
    ];

    fn cells(&self) -> Result<Cells, ViewsError> {
        let mut row = Writer::of::<Self>();
        row.value(self.command_id.as_uuid()).value(self.tenant.as_uuid()).value(self.run_id.as_uuid());
        row.value(self.lease_id.as_uuid()).count(self.epoch.get())?.value(self.environment_id.as_uuid());
        row.value(self.state.as_str()).json(&self.argv)?.json(&self.cwd)?.value(self.background);
        row.value(self.started_by.map(events::InstanceId::as_uuid));
        row.optional_name(self.kill_requested.as_ref())?.optional_count(self.queued_ms)?;
        row.optional_name(self.cause.as_ref())?.value(self.may_have_run);
        row.value(SqlTime(self.accepted_at)).value(self.started_at.map(SqlTime));
        row.value(self.finished_at.map(SqlTime));
        row.count(self.created_position.get())?.count(self.position.get())?;
        let result = self.result.as_ref();
        row.value(result.and_then(|result| result.exit_code));
        row.optional_name(result.and_then(|result| result.killed_by.as_ref()))?;
        row.optional_json(result.and_then(|result| result.evidence.as_ref()))?;
        row.optional_count(result.map(|result| result.stragglers.into()))?;
        row.optional_json(result.map(|result| &result.stdout))?;
        row.optional_json(result.map(|result| &result.stderr))?;
        row.optional_json(result.map(|result| &result.files_changed))?;
        row.value(result.map(|result| result.files_changed_truncated));
        row.optional_json(result.map(|result| &result.usage))?;
        row.optional_count(result.map(|result| result.duration_ms))?;
        Ok(row.finish())
    }

    fn read(columns: &mut Reader<'_>) -> Result<Self, ViewsError> {
        let mut row = columns.of::<Self>();
        let mut command = Self {
            command_id: row.id()?,
            tenant: row.id()?,
            run_id: row.id()?,
            lease_id: row.id()?,
            epoch: Epoch(row.count()?),
            environment_id: row.id()?,
            state: row.one_of(&CommandStatus::ALL, CommandStatus::as_str)?,
            argv: row.json()?,
            cwd: row.json()?,
            background: row.value()?,
            started_by: row.optional_id()?,
            kill_requested: row.optional_name()?,
            queued_ms: row.optional_count()?,
            cause: row.optional_name()?,
            may_have_run: row.value()?,
            accepted_at: row.time()?,
            started_at: row.optional_time()?,
            finished_at: row.optional_time()?,
            created_position: Position(row.count()?),
            position: Position(row.count()?),
            result: None,
        };
        if command.state == CommandStatus::Finished {
            command.result = Some(read_result(&mut row)?);
        }
        Ok(command)
    }
}

fn read_result(row: &mut ViewReader<'_, '_>) -> Result<CommandResult, ViewsError> {
    Ok(CommandResult {
        exit_code: row.value()?,
        killed_by: row.optional_name()?,
        evidence: row.optional_json()?,
        stragglers: row.small_count()?,
        stdout: row.json()?,
        stderr: row.json()?,
        files_changed: row.json()?,
        files_changed_truncated: row.value()?,
        usage: row.json()?,
        duration_ms: row.count()?,
    })
}
