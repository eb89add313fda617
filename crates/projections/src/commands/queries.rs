//! Reads of commands.

use events::{CommandId, EnvironmentId, LeaseId, RunId, TenantId};

use super::{CommandFilter, CommandRow, CommandStatus};
use crate::error::ViewsError;
use crate::page::{Page, PageRequest};
use crate::sql::{Conditions, position_param};
use crate::views::Views;

impl Views {
    /// One command. `tenant` `None` sees every tenant's (operator).
    ///
    /// # Errors
    /// When the database does not answer or holds what this version cannot read.
    pub async fn command(
        &self,
        tenant: Option<TenantId>,
        command_id: CommandId,
    ) -> Result<Option<CommandRow>, ViewsError> {
        let conditions = Conditions::default()
            .with("command_id = ?", Some(command_id.as_uuid()))
            .with("tenant = ?", tenant.map(TenantId::as_uuid));
        Ok(self.select(&conditions, "").await?.pop())
    }

    /// Commands, newest first.
    ///
    /// # Errors
    /// As [`Views::command`].
    pub async fn commands(
        &self,
        tenant: Option<TenantId>,
        filter: &CommandFilter,
        page: &PageRequest,
    ) -> Result<Page<CommandRow>, ViewsError> {
        let conditions = Conditions::default()
            .with("tenant = ?", tenant.map(TenantId::as_uuid))
            .with("run_id = ?", filter.run_id.map(RunId::as_uuid))
            .with("lease_id = ?", filter.lease_id.map(LeaseId::as_uuid))
            .with("state = ?", filter.state.map(CommandStatus::as_str))
            .with("created_position < ?", page.cursor.map(|cursor| position_param(cursor.0)));
        let tail = format!("ORDER BY created_position DESC LIMIT {}", page.limit() + 1);
        let items = self.select(&conditions, &tail).await?;
        Ok(Page::cut(items, page.limit(), |row: &CommandRow| row.created_position))
    }

    /// Every command without an outcome, oldest first.
    ///
    /// # Errors
    /// As [`Views::command`].
    pub async fn open_commands(&self) -> Result<Vec<CommandRow>, ViewsError> {
        let conditions = Conditions::default().fixed("state IN ('accepted', 'running')");
        self.select(&conditions, "ORDER BY created_position").await
    }

    /// The commands of one environment that have no outcome, oldest first.
    ///
    /// # Errors
    /// As [`Views::command`].
    pub async fn open_commands_of(
        &self,
        environment_id: EnvironmentId,
    ) -> Result<Vec<CommandId>, ViewsError> {
        let conditions = Conditions::default()
            .fixed("state IN ('accepted', 'running')")
            .with("environment_id = ?", Some(environment_id.as_uuid()));
        let sql =
            format!("SELECT command_id FROM views.commands{} ORDER BY created_position", conditions.sql());
        let rows = self.query(&sql, &conditions).await?;
        rows.iter().map(|row| Ok(CommandId(row.try_get(0)?))).collect()
    }
}
