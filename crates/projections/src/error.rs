//! What can go wrong when views are read.

use events::Position;

/// A view cannot be read or written.
#[derive(Debug, thiserror::Error)]
pub enum ViewsError {
    /// The database URL is not one.
    #[error("the database URL of the project role cannot be used")]
    Url(#[source] tokio_postgres::Error),
    /// No connection could be had.
    #[error("no connection to the database")]
    Pool(#[from] deadpool_postgres::PoolError),
    /// The pool could not be made.
    #[error("the connection pool cannot be built")]
    Build(#[from] deadpool_postgres::BuildError),
    /// The database refused or was lost.
    #[error("the database did not answer a query on a view")]
    Database(#[from] tokio_postgres::Error),
    /// The log could not be read.
    #[error("the log behind a view cannot be read")]
    Log(#[from] event_log::LogError),
    /// A stored row is not one that this version writes.
    #[error("column {column} of view {view} holds what this version cannot read: {detail}")]
    Stored {
        /// Which view.
        view: &'static str,
        /// Which column.
        column: &'static str,
        /// What is wrong with it, without the value.
        detail: String,
    },
    /// A value cannot be written into its column.
    #[error("column {column} of view {view} cannot take the value: {detail}")]
    Unstorable {
        /// Which view.
        view: &'static str,
        /// Which column.
        column: &'static str,
        /// What is wrong with it, without the value.
        detail: String,
    },
}

impl ViewsError {
    /// The same call may succeed later: the database was away, not wrong.
    #[must_use]
    pub fn is_retryable(&self) -> bool {
        match self {
            Self::Pool(_) => true,
            Self::Database(error) => !is_about_values(error),
            Self::Log(error) => error.is_retryable(),
            Self::Url(_) | Self::Build(_) | Self::Stored { .. } | Self::Unstorable { .. } => false,
        }
    }
}

/// The server refused the values themselves (SQLSTATE classes 22, data, and 23, constraints).
fn is_about_values(error: &tokio_postgres::Error) -> bool {
    error.code().is_some_and(|state| matches!(state.code().get(..2), Some("22" | "23")))
}

/// The views did not reach a position in time (503 `projection_behind`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the views are at position {reached}, not yet at {wanted}")]
pub struct Behind {
    /// Next position that must be applied at least.
    pub wanted: Position,
    /// Next position to be applied.
    pub reached: Position,
}
