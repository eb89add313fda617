//! Rows between Rust and SQL: one list of columns per view makes its select, its upsert and its scan.
//!
//! Foreign text is stored as canonical JSON text: PostgreSQL's `text` cannot hold U+0000, JSON escapes it, and no input may
//! stop the line.

mod cell;
mod conditions;
mod reader;
mod time;
mod writer;

use tokio_postgres::types::ToSql;

use crate::error::ViewsError;
use crate::rows::Row;

pub(crate) use cell::{Cell, Cells, JsonText};
pub(crate) use conditions::{Conditions, position_param};
pub(crate) use reader::{Reader, ViewReader};
pub(crate) use time::SqlTime;
pub(crate) use writer::Writer;

/// Owned parameters of one statement.
pub(crate) type Params = Vec<Box<dyn ToSql + Sync + Send>>;

/// A view that is stored as a table in schema `views`.
pub(crate) trait Table: Row {
    /// Name of the table.
    const NAME: &'static str;
    /// Columns of the primary key.
    const KEY: &'static [&'static str];
    /// All columns, in the order of [`Table::cells`] and [`Table::read`].
    const COLUMNS: &'static [&'static str];

    /// Values in the order of the columns.
    fn cells(&self) -> Result<Cells, ViewsError>;

    /// What a number of the row means, for people; it is no column.
    fn meaning(&self) -> Option<(&'static str, &'static str)> {
        None
    }

    /// Reads a row from the next columns of a reader.
    fn read(columns: &mut Reader<'_>) -> Result<Self, ViewsError>;

    /// `a, b, c`, each qualified by `alias` when there is one.
    fn select_list(alias: &str) -> String {
        let qualified = |column: &&str| {
            if alias.is_empty() { (*column).to_owned() } else { format!("{alias}.{column}") }
        };
        Self::COLUMNS.iter().map(qualified).collect::<Vec<_>>().join(", ")
    }

    /// Writes one whole row.
    fn upsert() -> String {
        let marks = (1..=Self::COLUMNS.len()).map(|n| format!("${n}")).collect::<Vec<_>>().join(", ");
        let changes = Self::COLUMNS
            .iter()
            .filter(|column| !Self::KEY.contains(column))
            .map(|column| format!("{column} = excluded.{column}"))
            .collect::<Vec<_>>()
            .join(", ");
        let columns = Self::select_list("");
        let key = Self::KEY.join(", ");
        format!(
            "INSERT INTO views.{} ({columns}) VALUES ({marks}) ON CONFLICT ({key}) DO UPDATE SET {changes}",
            Self::NAME
        )
    }

    /// Reads one row that was selected by [`Table::select_list`] alone.
    fn from_sql(row: &tokio_postgres::Row) -> Result<Self, ViewsError> {
        Self::read(&mut Reader::new(row))
    }
}
