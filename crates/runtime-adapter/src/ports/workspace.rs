//! Files of an environment: descriptor-relative, no link followed, regular files only, bounded (decision D13).

use std::pin::Pin;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use events::time::Timestamp;
use futures::Stream;
use policy::WorkspacePath;

use super::error::WorkspaceError;
use super::execution::EnvironmentHandle;

/// How long one stream of a file may take, whoever is slow (decision D15).
pub const STREAM_DEADLINE: Duration = Duration::from_secs(60);

/// Bytes in either direction.
pub type ByteStream = Pin<Box<dyn Stream<Item = Result<Bytes, WorkspaceError>> + Send>>;

/// A regular file opened for reading.
pub struct ReadFile {
    /// Its size when opened.
    pub size_bytes: u64,
    /// Its bytes; ends with an error when the file changed meanwhile.
    pub bytes: ByteStream,
}

/// A file was written, durably.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WriteOutcome {
    /// Bytes written.
    pub size_bytes: u64,
    /// SHA-256 of them.
    pub sha256: [u8; 32],
    /// The file did not exist before.
    pub created: bool,
}

/// What an entry is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[expect(missing_docs, reason = "the names say it")]
pub enum WorkspaceEntryKind {
    File,
    Directory,
    Symlink,
    Other,
}

/// Who wrote a file last.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Provenance {
    /// Nobody can say: not a file, or it was there before this process looked, or more was changed than was told one by one.
    Unknown,
    /// Through this port, and no code has changed it since.
    ToolWritten,
    /// Code in the sandbox.
    SandboxWritten,
}

/// One entry of a listing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WorkspaceEntry {
    /// Relative to the workspace, raw bytes.
    pub path: Vec<u8>,
    /// What it is.
    pub kind: WorkspaceEntryKind,
    /// Its size (0 for anything but files).
    pub size_bytes: u64,
    /// Its modification time; `None` outside what RFC 3339 can write.
    pub modified_at: Option<Timestamp>,
    /// Permission bits.
    pub mode: u32,
    /// Whose its bytes are.
    pub provenance: Provenance,
}

/// A bounded part of a listing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListPage {
    /// Sorted by path bytes.
    pub entries: Vec<WorkspaceEntry>,
    /// Path to continue after, when there is more.
    pub next_after: Option<Vec<u8>>,
}

/// Files of an environment. A holder of this port cannot run anything.
#[async_trait]
pub trait Workspace: Send + Sync {
    /// Opens a regular file of at most `max_bytes`.
    async fn read(
        &self,
        handle: &EnvironmentHandle,
        path: &WorkspacePath,
        max_bytes: u64,
    ) -> Result<ReadFile, WorkspaceError>;

    /// Writes a file from a stream of at most `max_bytes`; missing parent directories are made. Success is durable.
    async fn write(
        &self,
        handle: &EnvironmentHandle,
        path: &WorkspacePath,
        bytes: ByteStream,
        max_bytes: u64,
    ) -> Result<WriteOutcome, WorkspaceError>;

    /// Lists a directory (`None` is the workspace itself), sorted, at most `limit` entries after `after`.
    async fn list(
        &self,
        handle: &EnvironmentHandle,
        path: Option<&WorkspacePath>,
        recursive: bool,
        after: Option<Vec<u8>>,
        limit: usize,
    ) -> Result<ListPage, WorkspaceError>;

    /// One entry; links are described, not followed.
    async fn stat(
        &self,
        handle: &EnvironmentHandle,
        path: &WorkspacePath,
    ) -> Result<WorkspaceEntry, WorkspaceError>;

    /// Removes a file or link (not a directory with entries).
    async fn remove(&self, handle: &EnvironmentHandle, path: &WorkspacePath) -> Result<(), WorkspaceError>;
}
