//! Why the tool cannot say anything about a log.

use std::path::PathBuf;

/// The log cannot be read: exit code 4.
#[derive(Debug, thiserror::Error)]
pub enum ReplayError {
    /// Nothing was named.
    #[error("name the log: --database-url URL, or --data DIR of an embedded database")]
    NoSource,
    /// The embedded database of that directory is not running.
    #[error("no database is running on {data_dir}; start it with `leasehold serve --dev --data {data_dir}`")]
    NotRunning {
        /// As given.
        data_dir: PathBuf,
    },
    /// The URL is malformed.
    #[error("the database URL cannot be used")]
    Url(#[source] tokio_postgres::Error),
    /// No connection, or a query failed.
    #[error("the database did not answer")]
    Database(#[from] tokio_postgres::Error),
    /// The log's own reader failed.
    #[error("the log cannot be read")]
    Log(#[from] event_log::LogError),
    /// The projections cannot be read.
    #[error("the projections cannot be read")]
    Views(#[from] projections::ViewsError),
    /// The log holds no event.
    #[error("the log holds no event")]
    Empty,
    /// The log holds no event of that run.
    #[error("the log holds no event of run {run_id}")]
    NoSuchRun {
        /// As given.
        run_id: events::RunId,
    },
    /// Standard output is closed or full.
    #[error("the output cannot be written")]
    Output(#[from] std::io::Error),
    /// An event's body is not JSON.
    #[error("an event cannot be written as JSON")]
    Json(#[source] serde_json::Error),
    /// An event's body cannot be encoded again.
    #[error("an event cannot be written")]
    Encode(#[from] events::stored::EncodeError),
    /// The session is gone.
    #[error("the session with the database ended")]
    ConnectionEnded,
}

impl From<serde_json::Error> for ReplayError {
    /// A writer that fails shows as an error of JSON; what is meant is the output.
    fn from(error: serde_json::Error) -> Self {
        if error.is_io() { Self::Output(error.into()) } else { Self::Json(error) }
    }
}

impl ReplayError {
    /// The error and what caused it, on one line.
    #[must_use]
    pub fn with_causes(&self) -> String {
        let mut text = self.to_string();
        let mut cause = std::error::Error::source(self);
        while let Some(error) = cause {
            text.push_str(": ");
            text.push_str(&error.to_string());
            cause = error.source();
        }
        text
    }
}
