//! Rows for whoever looks at them: every column by its name, as JSON writes it. The live tables and a fold are shown alike.

use std::fmt;
use std::str::FromStr;

use futures::StreamExt as _;
use futures::stream::BoxStream;
use serde::ser::{Serialize, SerializeMap as _, Serializer};
use serde_json::Value;
use tokio_postgres::GenericClient;
use tokio_postgres::types::ToSql;

use crate::commands::CommandRow;
use crate::environments::EnvironmentRow;
use crate::error::ViewsError;
use crate::fold::Folded;
use crate::leases::LeaseRow;
use crate::rows::Rows;
use crate::run_events::RunEventRow;
use crate::runs::RunRow;
use crate::sql::Table;

/// A view.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[expect(missing_docs, reason = "the names say it")]
pub enum View {
    Leases,
    Environments,
    Commands,
    Runs,
    RunEvents,
}

/// The text is not the name of a view.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not a view: leases, environments, commands, runs or run_events")]
pub struct InvalidView;

impl View {
    /// Every view, in the order in which they are shown.
    pub const ALL: [Self; 5] =
        [Self::Runs, Self::Leases, Self::Environments, Self::Commands, Self::RunEvents];

    /// The name of its table.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Leases => LeaseRow::NAME,
            Self::Environments => EnvironmentRow::NAME,
            Self::Commands => CommandRow::NAME,
            Self::Runs => RunRow::NAME,
            Self::RunEvents => RunEventRow::NAME,
        }
    }
}

impl fmt::Display for View {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl FromStr for View {
    type Err = InvalidView;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Self::ALL.into_iter().find(|view| view.as_str() == text).ok_or(InvalidView)
    }
}

/// A row with its values. Serialises as one object, in the order of the columns. Texts are foreign: escape before showing.
#[derive(Clone, Debug, PartialEq)]
pub struct ShownRow {
    /// The row's key, as a comparison names it.
    pub key: String,
    /// Columns and values; a number that stands for a name is followed by the name.
    pub columns: Vec<(&'static str, Value)>,
}

impl ShownRow {
    fn of<R: Table>(row: &R) -> Result<Self, ViewsError> {
        let cells = row.cells()?;
        let values = R::COLUMNS.iter().zip(&cells).map(|(name, cell)| (*name, cell.to_json()));
        let columns = values.chain(row.meaning().map(|(name, word)| (name, word.into()))).collect();
        Ok(Self { key: R::key_name(row.key()), columns })
    }

    /// The value of a column; `None` when the view has no such column.
    #[must_use]
    pub fn get(&self, column: &str) -> Option<&Value> {
        self.columns.iter().find(|(name, _)| *name == column).map(|(_, value)| value)
    }
}

impl Serialize for ShownRow {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(Some(self.columns.len()))?;
        for (name, value) in &self.columns {
            map.serialize_entry(name, value)?;
        }
        map.end()
    }
}

impl Folded {
    /// The rows of one view, by key. Commands that were sealed are not among them.
    pub fn shown(&self, view: View) -> Box<dyn Iterator<Item = Result<ShownRow, ViewsError>> + '_> {
        fn all<R: Table>(rows: &Rows<R>) -> Box<dyn Iterator<Item = Result<ShownRow, ViewsError>> + '_> {
            Box::new(rows.iter().map(ShownRow::of))
        }
        match view {
            View::Leases => all(&self.leases),
            View::Environments => all(&self.environments),
            View::Commands => all(&self.commands),
            View::Runs => all(&self.runs),
            View::RunEvents => all(&self.run_events),
        }
    }
}

/// Rows as they arrive.
pub type ShownRows = BoxStream<'static, Result<ShownRow, ViewsError>>;

/// The rows of one live view, by key, as they arrive. A row that cannot be read is an error of its own; others follow.
///
/// # Errors
/// When the database does not answer; in the stream also for a row that this version cannot read.
pub async fn live(client: &impl GenericClient, view: View) -> Result<ShownRows, ViewsError> {
    match view {
        View::Leases => live_rows::<LeaseRow>(client).await,
        View::Environments => live_rows::<EnvironmentRow>(client).await,
        View::Commands => live_rows::<CommandRow>(client).await,
        View::Runs => live_rows::<RunRow>(client).await,
        View::RunEvents => live_rows::<RunEventRow>(client).await,
    }
}

async fn live_rows<R: Table>(client: &impl GenericClient) -> Result<ShownRows, ViewsError> {
    let sql = format!("SELECT {} FROM views.{} ORDER BY {}", R::select_list(""), R::NAME, R::KEY.join(", "));
    let none: [&(dyn ToSql + Sync); 0] = [];
    let rows = client.query_raw(&sql, none).await?;
    Ok(rows.map(|row| ShownRow::of(&R::from_sql(&row?)?)).boxed())
}
