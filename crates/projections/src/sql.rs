//! Rows between Rust and SQL: one list of columns per view makes its select, its upsert and its scan.
//!
//! Foreign text is stored as canonical JSON text: PostgreSQL's `text` cannot hold U+0000, JSON escapes it, and no input may
//! stop the line.

use bytes::BytesMut;
use events::{Position, Timestamp};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde::de::value::{Error as NameError, StrDeserializer};
use tokio_postgres::types::{FromSql, IsNull, ToSql, Type, to_sql_checked};
use uuid::Uuid;

use crate::error::ViewsError;
use crate::rows::Row;

/// Owned parameters of one statement.
pub(crate) type Params = Vec<Box<dyn ToSql + Sync + Send>>;

/// A view that is stored as a table in schema `views`.
pub(crate) trait Table: Row {
    /// Name of the table.
    const NAME: &'static str;
    /// Columns of the primary key.
    const KEY: &'static [&'static str];
    /// All columns, in the order of [`Table::params`] and [`Table::read`].
    const COLUMNS: &'static [&'static str];

    /// Values in the order of the columns.
    fn params(&self) -> Result<Params, ViewsError>;

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
    fn stored(&self, detail: impl ToString) -> ViewsError {
        let index = (self.reader.next - 1).saturating_sub(self.start);
        let column = self.columns.get(index).copied().unwrap_or("?");
        ViewsError::Stored { view: self.view, column, detail: detail.to_string() }
    }

    /// A value as the driver reads it.
    pub(crate) fn value<T: FromSql<'a>>(&mut self) -> Result<T, ViewsError> {
        let value = self.reader.get();
        value.map_err(|error| self.stored(error))
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
        u64::try_from(value).map_err(|error| self.stored(error))
    }

    /// A count of at most 32 bits, stored as bigint.
    pub(crate) fn small_count(&mut self) -> Result<u32, ViewsError> {
        let value = self.value::<i64>()?;
        u32::try_from(value).map_err(|error| self.stored(error))
    }

    /// A registered number, stored as smallint.
    pub(crate) fn number_of<T>(&mut self, known: impl Fn(i16) -> Option<T>) -> Result<T, ViewsError> {
        let value = self.value::<i16>()?;
        known(value).ok_or_else(|| self.stored("not a registered number"))
    }

    /// A count that may be absent.
    pub(crate) fn optional_count(&mut self) -> Result<Option<u64>, ViewsError> {
        let value = self.value::<Option<i64>>()?;
        value.map(u64::try_from).transpose().map_err(|error| self.stored(error))
    }

    /// A time, stored as timestamptz.
    pub(crate) fn time(&mut self) -> Result<Timestamp, ViewsError> {
        self.optional_time()?.ok_or_else(|| self.stored("null"))
    }

    /// A time that may be absent.
    pub(crate) fn optional_time(&mut self) -> Result<Option<Timestamp>, ViewsError> {
        Ok(self.value::<Option<SqlTime>>()?.map(|time| time.0))
    }

    /// Canonical JSON text.
    pub(crate) fn json<T: DeserializeOwned>(&mut self) -> Result<T, ViewsError> {
        let text = self.value::<&str>()?;
        serde_json::from_str(text).map_err(|error| self.stored(error))
    }

    /// Canonical JSON text that may be absent.
    pub(crate) fn optional_json<T: DeserializeOwned>(&mut self) -> Result<Option<T>, ViewsError> {
        let text = self.value::<Option<&str>>()?;
        text.map(serde_json::from_str).transpose().map_err(|error| self.stored(error))
    }

    /// A name out of a closed list, as its JSON form spells it.
    pub(crate) fn name<T: DeserializeOwned>(&mut self) -> Result<T, ViewsError> {
        self.optional_name()?.ok_or_else(|| self.stored("null"))
    }

    /// A name out of a closed list that may be absent.
    pub(crate) fn optional_name<T: DeserializeOwned>(&mut self) -> Result<Option<T>, ViewsError> {
        let text = self.value::<Option<&str>>()?;
        let parse = |text| T::deserialize(StrDeserializer::<NameError>::new(text));
        text.map(parse).transpose().map_err(|error| self.stored(error))
    }

    /// A name out of a list of ours.
    pub(crate) fn one_of<T: Copy>(
        &mut self,
        all: &[T],
        as_str: impl Fn(T) -> &'static str,
    ) -> Result<T, ViewsError> {
        let text = self.value::<&str>()?;
        let found = all.iter().copied().find(|value| as_str(*value) == text);
        found.ok_or_else(|| self.stored("not a name of the list"))
    }
}

/// Collects the parameters of one row, in the order of its columns.
pub(crate) struct Writer {
    params: Params,
    view: &'static str,
    columns: &'static [&'static str],
}

impl Writer {
    pub(crate) fn of<R: Table>() -> Self {
        Self { params: Vec::with_capacity(R::COLUMNS.len()), view: R::NAME, columns: R::COLUMNS }
    }

    fn unstorable(&self, detail: impl ToString) -> ViewsError {
        let column = self.columns.get(self.params.len()).copied().unwrap_or("?");
        ViewsError::Unstorable { view: self.view, column, detail: detail.to_string() }
    }

    /// A value that the driver writes as it is.
    pub(crate) fn value(&mut self, value: impl ToSql + Sync + Send + 'static) -> &mut Self {
        self.params.push(Box::new(value));
        self
    }

    /// A count, as bigint.
    pub(crate) fn count(&mut self, count: u64) -> Result<&mut Self, ViewsError> {
        let value = i64::try_from(count).map_err(|error| self.unstorable(error))?;
        Ok(self.value(value))
    }

    /// A count that may be absent.
    pub(crate) fn optional_count(&mut self, count: Option<u64>) -> Result<&mut Self, ViewsError> {
        let value = count.map(i64::try_from).transpose().map_err(|error| self.unstorable(error))?;
        Ok(self.value(value))
    }

    /// Canonical JSON text.
    pub(crate) fn json<T: Serialize>(&mut self, value: &T) -> Result<&mut Self, ViewsError> {
        let text = serde_json_canonicalizer::to_string(value).map_err(|error| self.unstorable(error))?;
        Ok(self.value(text))
    }

    /// Canonical JSON text, or null.
    pub(crate) fn optional_json<T: Serialize>(&mut self, value: Option<&T>) -> Result<&mut Self, ViewsError> {
        match value {
            Some(value) => self.json(value),
            None => Ok(self.value(None::<String>)),
        }
    }

    /// A name out of a closed list, as its JSON form spells it, or null.
    pub(crate) fn optional_name<T: Serialize>(&mut self, value: Option<&T>) -> Result<&mut Self, ViewsError> {
        let Some(value) = value else { return Ok(self.value(None::<String>)) };
        match serde_json::to_value(value) {
            Ok(serde_json::Value::String(name)) => Ok(self.value(name)),
            Ok(_) => Err(self.unstorable("not a plain name")),
            Err(error) => Err(self.unstorable(error)),
        }
    }

    /// The parameters.
    pub(crate) fn finish(&mut self) -> Params {
        debug_assert_eq!(self.params.len(), self.columns.len(), "one value per column of {}", self.view);
        std::mem::take(&mut self.params)
    }
}

/// `timestamptz` in microseconds, without a detour over another time type.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SqlTime(pub(crate) Timestamp);

/// Microseconds from the Unix epoch to PostgreSQL's (2000-01-01T00:00:00Z).
const POSTGRES_EPOCH_UNIX_MICROS: i64 = 946_684_800_000_000;

impl ToSql for SqlTime {
    fn to_sql(
        &self,
        _: &Type,
        out: &mut BytesMut,
    ) -> Result<IsNull, Box<dyn std::error::Error + Sync + Send>> {
        out.extend_from_slice(&(self.0.unix_micros() - POSTGRES_EPOCH_UNIX_MICROS).to_be_bytes());
        Ok(IsNull::No)
    }

    fn accepts(ty: &Type) -> bool {
        *ty == Type::TIMESTAMPTZ
    }

    to_sql_checked!();
}

impl FromSql<'_> for SqlTime {
    fn from_sql(_: &Type, raw: &[u8]) -> Result<Self, Box<dyn std::error::Error + Sync + Send>> {
        let micros = i64::from_be_bytes(raw.try_into()?);
        let unix = micros.checked_add(POSTGRES_EPOCH_UNIX_MICROS).ok_or("a time out of range")?;
        Ok(Self(Timestamp::try_from_unix_micros(unix)?))
    }

    fn accepts(ty: &Type) -> bool {
        *ty == Type::TIMESTAMPTZ
    }
}

/// A position as a parameter; positions stay below 2^53.
pub(crate) fn position_param(position: Position) -> i64 {
    i64::try_from(position.get()).unwrap_or(i64::MAX)
}

/// Conditions of a query, joined by AND; each value becomes a numbered parameter.
#[derive(Default)]
pub(crate) struct Conditions {
    terms: Vec<String>,
    params: Params,
}

impl Conditions {
    /// A condition without a value.
    pub(crate) fn fixed(mut self, term: &str) -> Self {
        self.terms.push(term.to_owned());
        self
    }

    /// `term` holds one `?` for the value; no value, no condition.
    pub(crate) fn with<T: ToSql + Sync + Send + 'static>(mut self, term: &str, value: Option<T>) -> Self {
        if let Some(value) = value {
            self.params.push(Box::new(value));
            self.terms.push(term.replacen('?', &format!("${}", self.params.len()), 1));
        }
        self
    }

    /// ` WHERE …`, or nothing.
    pub(crate) fn sql(&self) -> String {
        if self.terms.is_empty() { String::new() } else { format!(" WHERE {}", self.terms.join(" AND ")) }
    }

    /// The values as the driver takes them.
    pub(crate) fn params(&self) -> Vec<&(dyn ToSql + Sync)> {
        self.params.iter().map(|param| &**param as &(dyn ToSql + Sync)).collect()
    }
}
