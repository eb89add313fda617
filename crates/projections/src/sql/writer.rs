//! From values to columns.

use std::fmt;

use serde::Serialize;

use super::{Cell, Cells, JsonText, Table};
use crate::error::ViewsError;

/// Collects the values of one row, in the order of its columns.
pub(crate) struct Writer {
    cells: Cells,
    view: &'static str,
    columns: &'static [&'static str],
}

impl Writer {
    pub(crate) fn of<R: Table>() -> Self {
        Self { cells: Vec::with_capacity(R::COLUMNS.len()), view: R::NAME, columns: R::COLUMNS }
    }

    fn unstorable(&self, detail: &dyn fmt::Display) -> ViewsError {
        let column = self.columns.get(self.cells.len()).copied().unwrap_or("?");
        ViewsError::Unstorable { view: self.view, column, detail: detail.to_string() }
    }

    /// A value that the driver writes as it is.
    pub(crate) fn value(&mut self, value: impl Cell + 'static) -> &mut Self {
        self.cells.push(Box::new(value));
        self
    }

    /// A count, as bigint.
    pub(crate) fn count(&mut self, count: u64) -> Result<&mut Self, ViewsError> {
        let value = i64::try_from(count).map_err(|error| self.unstorable(&error))?;
        Ok(self.value(value))
    }

    /// A count that may be absent.
    pub(crate) fn optional_count(&mut self, count: Option<u64>) -> Result<&mut Self, ViewsError> {
        let value = count.map(i64::try_from).transpose().map_err(|error| self.unstorable(&error))?;
        Ok(self.value(value))
    }

    /// Canonical JSON text.
    pub(crate) fn json<T: Serialize>(&mut self, value: &T) -> Result<&mut Self, ViewsError> {
        let text = serde_json_canonicalizer::to_string(value).map_err(|error| self.unstorable(&error))?;
        Ok(self.value(JsonText(text)))
    }

    /// Canonical JSON text, or null.
    pub(crate) fn optional_json<T: Serialize>(&mut self, value: Option<&T>) -> Result<&mut Self, ViewsError> {
        match value {
            Some(value) => self.json(value),
            None => Ok(self.value(None::<JsonText>)),
        }
    }

    /// A name out of a closed list, as its JSON form spells it, or null.
    pub(crate) fn optional_name<T: Serialize>(&mut self, value: Option<&T>) -> Result<&mut Self, ViewsError> {
        let Some(value) = value else { return Ok(self.value(None::<String>)) };
        match serde_json::to_value(value) {
            Ok(serde_json::Value::String(name)) => Ok(self.value(name)),
            Ok(_) => Err(self.unstorable(&"not a plain name")),
            Err(error) => Err(self.unstorable(&error)),
        }
    }

    /// The values.
    pub(crate) fn finish(&mut self) -> Cells {
        debug_assert_eq!(self.cells.len(), self.columns.len(), "one value per column of {}", self.view);
        std::mem::take(&mut self.cells)
    }
}
