//! Reads of commands. A row may hold 370 KB (two views, changed files, argv), so a page is cut by bytes as well as by items.

use events::{CommandId, EnvironmentId, LeaseId, Position, RunId, TenantId};

use super::{CommandFilter, CommandRow, CommandStatus};
use crate::error::ViewsError;
use crate::page::{Cursor, Page, PageRequest};
use crate::sql::{Conditions, position_param};
use crate::views::Views;

/// Stored bytes of a page's rows, unless its first row alone is larger.
const PAGE_BYTES_MAX: i64 = 4 * 1024 * 1024;
/// The columns of a row whose size depends on what a client or a command made of them.
const ROW_BYTES: &str = "octet_length(argv) + octet_length(cwd) + coalesce(octet_length(stdout), 0) \
                         + coalesce(octet_length(stderr), 0) + coalesce(octet_length(files_changed), 0)";

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

    /// Commands, newest first. A page may be shorter than asked for when its rows are large; only a page without a cursor is
    /// the last.
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
        let limit = page.limit();
        let places = self.places(&conditions, limit + 1).await?;
        let fitting = places.iter().take(limit).take_while(|place| place.fits).count();
        let Some(last) = places[..fitting.max(1).min(places.len())].last() else {
            return Ok(Page { items: Vec::new(), next_cursor: None });
        };
        let next_cursor = (places.len() > fitting.max(1)).then_some(Cursor(last.position));
        let conditions = conditions.with("created_position >= ?", Some(position_param(last.position)));
        let items = self.select(&conditions, "ORDER BY created_position DESC").await?;
        Ok(Page { items, next_cursor })
    }

    /// Where the rows of a page are, newest first, without their contents.
    async fn places(&self, conditions: &Conditions, rows_max: usize) -> Result<Vec<Place>, ViewsError> {
        let sql = format!(
            "SELECT created_position, (sum({ROW_BYTES}) OVER (ORDER BY created_position DESC))::bigint \
             FROM views.commands{} ORDER BY created_position DESC LIMIT {rows_max}",
            conditions.sql()
        );
        let rows = self.query(&sql, conditions).await?;
        let place = |row: &tokio_postgres::Row| {
            let position: i64 = row.try_get(0)?;
            let bytes_so_far: i64 = row.try_get(1)?;
            Ok(Place {
                position: Position(u64::try_from(position).unwrap_or(0)),
                fits: bytes_so_far <= PAGE_BYTES_MAX,
            })
        };
        rows.iter().map(place).collect()
    }

    /// Every command without an outcome, oldest first.
    ///
    /// # Errors
    /// As [`Views::command`].
    pub async fn open_commands(&self) -> Result<Vec<OpenCommand>, ViewsError> {
        let sql = "SELECT command_id, tenant, run_id, environment_id, state = 'running', kill_requested IS NOT NULL \
                   FROM views.commands WHERE state IN ('accepted', 'running') ORDER BY created_position";
        let rows = self.query(sql, &Conditions::default()).await?;
        let open = |row: &tokio_postgres::Row| {
            Ok(OpenCommand {
                command_id: CommandId(row.try_get(0)?),
                tenant: TenantId(row.try_get(1)?),
                run_id: RunId(row.try_get(2)?),
                environment_id: EnvironmentId(row.try_get(3)?),
                started: row.try_get(4)?,
                kill_requested: row.try_get(5)?,
            })
        };
        rows.iter().map(open).collect()
    }
}

/// A command without an outcome, as far as the reconciler needs it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OpenCommand {
    /// Which.
    pub command_id: CommandId,
    /// Whose.
    pub tenant: TenantId,
    /// Of which run.
    pub run_id: RunId,
    /// Where.
    pub environment_id: EnvironmentId,
    /// Its start is on record.
    pub started: bool,
    /// Its end was asked for.
    pub kill_requested: bool,
}

/// A row's place in its list.
struct Place {
    position: Position,
    /// It and all rows before it on the page are within the page's bytes.
    fits: bool,
}
