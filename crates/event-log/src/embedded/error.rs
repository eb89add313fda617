//! Why the embedded server could not be used.

use std::path::PathBuf;

/// The embedded server could not be started or stopped.
#[derive(Debug, thiserror::Error)]
pub enum EmbeddedError {
    /// No usable server on this machine.
    #[error("no PostgreSQL server {} is installed (looked in /usr/lib/postgresql and PATH)", major.map_or_else(|| "14 or newer".to_owned(), |m| format!("of major version {m}, which made this data directory,")))]
    NotInstalled {
        /// The major version that the existing cluster needs.
        major: Option<u32>,
    },
    /// We are root, and the server refuses root.
    #[error(
        "running as root needs an operating system account `postgres` for the database server, and there is none"
    )]
    NoAccount,
    /// Another process owns the directory.
    #[error("{} is in use by another running process", data_dir.display())]
    InUse {
        /// The data directory.
        data_dir: PathBuf,
    },
    /// A directory that must be private belongs to someone else.
    #[error("{} exists and is not a directory of the database server's account", path.display())]
    ForeignDirectory {
        /// The directory.
        path: PathBuf,
    },
    /// The file system refused.
    #[error("could not {what} ({})", path.display())]
    Io {
        /// What was tried.
        what: &'static str,
        /// On what.
        path: PathBuf,
        /// What the system says.
        source: std::io::Error,
    },
    /// A program of the server failed.
    #[error("{program} failed: {detail}")]
    Program {
        /// Which one.
        program: &'static str,
        /// The end of what it said.
        detail: String,
    },
    /// The server stopped or stayed silent.
    #[error("the database server did not come up; the end of its log:\n{log_tail}")]
    NotReady {
        /// Last lines of the server's log.
        log_tail: String,
    },
    /// The server is there but refused the set-up.
    #[error("the database server refused the set-up")]
    Setup(#[from] tokio_postgres::Error),
}
