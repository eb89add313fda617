//! Files of a workspace.

use events::Timestamp;
use events::event::workspace::PathText;
use runtime_adapter::ports::{Provenance, WorkspaceEntry, WorkspaceEntryKind};
use serde::Serialize;
use utoipa::ToSchema;

use super::words;
use crate::api::FileWrite;

words! {
    /// What an entry is.
    FileKind from WorkspaceEntryKind {
        /// A regular file.
        File = "file",
        /// A directory.
        Directory = "directory",
        /// A symbolic link; never followed.
        Symlink = "symlink",
        /// A FIFO, socket or device.
        Other = "other",
    }
}

/// Who wrote an entry last.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub(in crate::http) enum FileProvenance {
    /// Not known.
    Unknown,
    /// Written through this interface.
    ToolWritten,
    /// Written by code in the sandbox.
    SandboxWritten,
}

/// One entry of a workspace.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub(in crate::http) struct FileEntry {
    /// Relative to `/workspace`; with replacement characters when it is not UTF-8.
    pub path: String,
    /// The exact bytes of a path that is not UTF-8.
    #[schema(required)]
    pub path_base64: Option<String>,
    /// What it is.
    pub kind: FileKind,
    /// Its size; 0 for anything but a file.
    pub size_bytes: u64,
    /// When its bytes changed last; null for times that RFC 3339 cannot write.
    #[schema(value_type = Option<String>, format = DateTime, required)]
    pub modified_at: Option<Timestamp>,
    /// Permission bits.
    pub mode: u32,
    /// Who wrote it last.
    pub provenance: FileProvenance,
}

impl From<WorkspaceEntry> for FileEntry {
    fn from(entry: WorkspaceEntry) -> Self {
        let PathText { path, path_base64 } = PathText::from_bytes(&entry.path);
        let provenance = match entry.provenance {
            Provenance::ToolWritten => FileProvenance::ToolWritten,
            Provenance::SandboxWritten => FileProvenance::SandboxWritten,
            Provenance::Unknown => FileProvenance::Unknown,
        };
        Self {
            path,
            path_base64,
            kind: entry.kind.into(),
            size_bytes: entry.size_bytes,
            modified_at: entry.modified_at,
            mode: entry.mode,
            provenance,
        }
    }
}

/// Answer to a write.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub(in crate::http) struct FileWritten {
    /// Relative to `/workspace`; with replacement characters when it is not UTF-8.
    pub path: String,
    /// The exact bytes of a path that is not UTF-8.
    #[schema(required)]
    pub path_base64: Option<String>,
    /// Bytes written.
    pub size_bytes: u64,
    /// SHA-256 of them, lower-case hex.
    pub sha256: String,
    /// It did not exist before.
    pub created: bool,
    /// Of the recorded event.
    pub position: u64,
}

impl From<FileWrite> for FileWritten {
    fn from(write: FileWrite) -> Self {
        Self {
            path: write.path.path,
            path_base64: write.path.path_base64,
            size_bytes: write.size_bytes,
            sha256: write.sha256,
            created: write.created,
            position: write.position.get(),
        }
    }
}
