//! Why the tool cannot say anything about a log.

use std::path::PathBuf;

use events::{Position, Timestamp};

/// Nothing can be said about the log, or not what was asked for.
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
    /// Keys of several logs were given.
    #[error("the keys are of different logs: {first} and {other}")]
    Keys {
        /// Name of the first key.
        first: String,
        /// Name of another.
        other: String,
    },
    /// No connection, or a query failed.
    #[error("the database did not answer")]
    Database(#[from] tokio_postgres::Error),
    /// The log's own reader failed.
    #[error("the log cannot be read")]
    Log(#[from] event_log::LogError),
    /// The signed head or a proof cannot be read.
    #[error("what is sealed cannot be read")]
    Proofs(#[from] event_log::seal::ProofsError),
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
    /// Several tenants have a run of that id.
    #[error("{tenants} tenants have a run {run_id}: name one with --tenant")]
    AmbiguousRun {
        /// As given.
        run_id: events::RunId,
        /// How many.
        tenants: usize,
    },
    /// The log holds no event of that tenant.
    #[error("the log holds no event of tenant {tenant}")]
    NoSuchTenant {
        /// As given.
        tenant: events::TenantId,
    },
    /// Up to that position the log holds no event of what was asked for.
    #[error("up to position {position} the log holds no event of what was asked for")]
    NotYet {
        /// The last one that counts.
        position: Position,
    },
    /// No event was selected.
    #[error("no event is in the selection")]
    NothingSelected,
    /// The log begins later.
    #[error("the log holds no event that was recorded at {time} or before")]
    BeforeLog {
        /// As given.
        time: Timestamp,
    },
    /// The log ends earlier.
    #[error("the log does not reach position {position}: it ends at {end}")]
    BehindLog {
        /// As given.
        position: Position,
        /// The last one that is there, or the first one that is not yet.
        end: Position,
    },
    /// A watched log is not the one that it was.
    #[error("before position {position} the database holds another log than before")]
    Exchanged {
        /// Where the watch stopped.
        position: Position,
    },
    /// Events came out of order.
    #[error("the log cannot be folded")]
    Order(#[from] projections::NotContiguous),
    /// A file cannot be read or written.
    #[error("{path} cannot be used")]
    File {
        /// As given.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// A file is not one that an export has written.
    #[error("{path} is not the export of a run: {detail}")]
    Bundle {
        /// As given.
        path: PathBuf,
        /// Where and why.
        detail: String,
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
