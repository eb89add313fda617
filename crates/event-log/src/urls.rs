//! One connection string per role of the log (design: security, log). Nothing in the service connects as an administrator.

use std::path::{Path, PathBuf};

/// Connection strings of one database, by role. Both drivers in the house read them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DatabaseUrls {
    socket_dir: PathBuf,
    database: String,
}

impl DatabaseUrls {
    /// A database behind a Unix socket directory with trust inside it.
    pub(crate) fn new(socket_dir: &Path, database: &str) -> Self {
        Self { socket_dir: socket_dir.to_owned(), database: database.to_owned() }
    }

    /// As any role of the server.
    #[must_use]
    pub(crate) fn role(&self, role: &str) -> String {
        // Our own socket directories hold no character that a URL would need to escape.
        format!("postgresql:///{}?host={}&user={role}", self.database, self.socket_dir.display())
    }

    /// The role that runs migrations (member of the owner).
    #[must_use]
    pub fn migrate_url(&self) -> String {
        self.role("leasehold_migrate")
    }

    /// The role that appends and reads: the service's own.
    #[must_use]
    pub fn append_url(&self) -> String {
        self.role("leasehold_append")
    }

    /// The role that owns the read models and reads the log.
    #[must_use]
    pub fn project_url(&self) -> String {
        self.role("leasehold_project")
    }

    /// The role that seals: it reads headers, and adds tiles and signed heads.
    #[must_use]
    pub fn seal_url(&self) -> String {
        self.role("leasehold_seal")
    }

    /// The role that only reads: the audit tool's.
    #[must_use]
    pub fn audit_url(&self) -> String {
        self.role("leasehold_audit")
    }

    /// The directory that holds the server's socket.
    #[must_use]
    pub fn socket_dir(&self) -> &Path {
        &self.socket_dir
    }
}
