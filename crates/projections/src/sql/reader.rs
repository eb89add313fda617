//! From columns to values, with view and column in every error.

use std::fmt;

use events::Timestamp;
use serde::de::DeserializeOwned;
use serde::de::value::{Error as NameError, StrDeserializer};
use tokio_postgres::types::FromSql;
use uuid::Uuid;

use super::{SqlTime, Table};
use crate::error::ViewsError;

/// Reads the columns of a row one after another.
pub(crate) struct Reader<'a> {
    row: &'a tokio_postgres::Row,
    next: usize,
}

impl<'a> Reader<'a> {
    pub(crate) fn new(row: &'a tokio_postgres::Row) -> Self {
        Self { row, next: 0 }
    }

    /// Whether the next column, an id, is null: the row of an outer join is absent.
    pub(crate) fn next_is_null_id(&self) -> bool {
        self.row.try_get::<_, Option<Uuid>>(self.next).is_ok_and(|value| value.is_none())
    }

    fn get<T: FromSql<'a>>(&mut self) -> Result<T, tokio_postgres::Error> {
        let value = self.row.try_get(self.next);
        self.next += 1;
        value
    }

    /// For reads of one view: every error names view and column.
    pub(crate) fn of<R: Table>(&mut self) -> ViewReader<'_, 'a> {
        ViewReader { start: self.next, reader: self, view: R::NAME, columns: R::COLUMNS }
    }
}

/// A [`Reader`] that knows which view it reads.
pub(crate) struct ViewReader<'r, 'a> {
    reader: &'r mut Reader<'a>,
    start: usize,
    view: &'static str,
    columns: &'static [&'static str],
}

impl<'a> ViewReader<'_, 'a> {
    fn stored(&self, detail: &dyn fmt::Display) -> ViewsError {
        let index = (self.reader.next - 1).saturating_sub(self.start);
        let column = self.columns.get(index).copied().unwrap_or("?");
        ViewsError::Stored { view: self.view, column, detail: detail.to_string() }
    }

    /// A value as the driver reads it.
    pub(crate) fn value<T: FromSql<'a>>(&mut self) -> Result<T, ViewsError> {
        let value = self.reader.get();
        value.map_err(|error| self.stored(&error))
    }

    /// An id.
    pub(crate) fn id<T: From<Uuid>>(&mut self) -> Result<T, ViewsError> {
        self.value::<Uuid>().map(T::from)
    }

    /// An id that may be absent.
    pub(crate) fn optional_id<T: From<Uuid>>(&mut self) -> Result<Option<T>, ViewsError> {
        Ok(self.value::<Option<Uuid>>()?.map(T::from))
    }

    /// A count, stored as bigint.
    pub(crate) fn count(&mut self) -> Result<u64, ViewsError> {
        let value = self.value::<i64>()?;
        u64::try_from(value).map_err(|error| self.stored(&error))
    }

    /// A count of at most 32 bits, stored as bigint.
    pub(crate) fn small_count(&mut self) -> Result<u32, ViewsError> {
        let value = self.value::<i64>()?;
        u32::try_from(value).map_err(|error| self.stored(&error))
    }

    /// A registered number, stored as smallint.
    pub(crate) fn number_of<T>(&mut self, known: impl Fn(i16) -> Option<T>) -> Result<T, ViewsError> {
        let value = self.value::<i16>()?;
        known(value).ok_or_else(|| self.stored(&"not a registered number"))
    }

    /// A count that may be absent.
    pub(crate) fn optional_count(&mut self) -> Result<Option<u64>, ViewsError> {
        let value = self.value::<Option<i64>>()?;
        value.map(u64::try_from).transpose().map_err(|error| self.stored(&error))
    }

    /// A time, stored as timestamptz.
    pub(crate) fn time(&mut self) -> Result<Timestamp, ViewsError> {
        self.optional_time()?.ok_or_else(|| self.stored(&"null"))
    }

    /// A time that may be absent.
    pub(crate) fn optional_time(&mut self) -> Result<Option<Timestamp>, ViewsError> {
        Ok(self.value::<Option<SqlTime>>()?.map(|time| time.0))
    }

    /// Canonical JSON text.
    pub(crate) fn json<T: DeserializeOwned>(&mut self) -> Result<T, ViewsError> {
        let text = self.value::<&str>()?;
        serde_json::from_str(text).map_err(|error| self.stored(&error))
    }

    /// Canonical JSON text that may be absent.
    pub(crate) fn optional_json<T: DeserializeOwned>(&mut self) -> Result<Option<T>, ViewsError> {
        let text = self.value::<Option<&str>>()?;
        text.map(serde_json::from_str).transpose().map_err(|error| self.stored(&error))
    }

    /// A name out of a closed list, as its JSON form spells it.
    pub(crate) fn name<T: DeserializeOwned>(&mut self) -> Result<T, ViewsError> {
        self.optional_name()?.ok_or_else(|| self.stored(&"null"))
    }

    /// A name out of a closed list that may be absent.
    pub(crate) fn optional_name<T: DeserializeOwned>(&mut self) -> Result<Option<T>, ViewsError> {
        let text = self.value::<Option<&str>>()?;
        let parse = |text| T::deserialize(StrDeserializer::<NameError>::new(text));
        text.map(parse).transpose().map_err(|error| self.stored(&error))
    }

    /// A name out of a list of ours.
    pub(crate) fn one_of<T: Copy>(
        &mut self,
        all: &[T],
        as_str: impl Fn(T) -> &'static str,
    ) -> Result<T, ViewsError> {
        let text = self.value::<&str>()?;
        let found = all.iter().copied().find(|value| as_str(*value) == text);
        found.ok_or_else(|| self.stored(&"not a name of the list"))
    }
}
