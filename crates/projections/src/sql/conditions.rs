//! The conditions of a query, put together from what was asked.

use events::Position;
use tokio_postgres::types::ToSql;

use super::Params;

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
