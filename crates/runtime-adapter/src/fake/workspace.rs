//! The workspace port over the tree in memory.

use async_trait::async_trait;
use bytes::Bytes;
use futures::StreamExt as _;
use policy::WorkspacePath;
use sha2::{Digest, Sha256};

use super::FakeAdapter;
use crate::ports::{
    ByteStream, EnvironmentHandle, ListPage, ReadFile, STREAM_DEADLINE, Workspace, WorkspaceEntry,
    WorkspaceError, WriteOutcome,
};

/// Size of one piece of a file that is read.
const PIECE_BYTES: usize = 32 * 1024;

#[async_trait]
impl Workspace for FakeAdapter {
    async fn read(
        &self,
        handle: &EnvironmentHandle,
        path: &WorkspacePath,
        max_bytes: u64,
    ) -> Result<ReadFile, WorkspaceError> {
        let environment = self.admitted(handle)?;
        let bytes = environment.shared.tree().read(path.as_bytes())?.to_vec();
        if bytes.len() as u64 > max_bytes {
            return Err(WorkspaceError::TooLarge { limit_bytes: max_bytes });
        }
        let size_bytes = bytes.len() as u64;
        let pieces: Vec<_> =
            bytes.chunks(PIECE_BYTES).map(|piece| Ok(Bytes::copy_from_slice(piece))).collect();
        Ok(ReadFile { size_bytes, bytes: Box::pin(futures::stream::iter(pieces)) })
    }

    async fn write(
        &self,
        handle: &EnvironmentHandle,
        path: &WorkspacePath,
        bytes: ByteStream,
        max_bytes: u64,
    ) -> Result<WriteOutcome, WorkspaceError> {
        let environment = self.admitted(handle)?;
        self.faults.check_disk()?;
        let content = tokio::time::timeout(STREAM_DEADLINE, collect(bytes, max_bytes))
            .await
            .map_err(|_| WorkspaceError::DeadlineExceeded)??;
        let sha256 = Sha256::digest(&content).into();
        let size_bytes = content.len() as u64;
        let now = (self.clock)();
        let mut tree = environment.shared.tree();
        match tree.stat(path.as_bytes()) {
            Ok(_) | Err(WorkspaceError::NotFound) => {}
            Err(error) => return Err(error),
        }
        if !tree.has_room(path.as_bytes(), size_bytes, environment.limit()) {
            return Err(WorkspaceError::NoSpace);
        }
        tree.make_parents(path.as_bytes(), now)?;
        let created = tree.write(path.as_bytes(), content, true, now)?;
        Ok(WriteOutcome { size_bytes, sha256, created })
    }

    async fn list(
        &self,
        handle: &EnvironmentHandle,
        path: Option<&WorkspacePath>,
        recursive: bool,
        after: Option<Vec<u8>>,
        limit: usize,
    ) -> Result<ListPage, WorkspaceError> {
        let environment = self.admitted(handle)?;
        let directory = path.map_or(&b""[..], WorkspacePath::as_bytes);
        let mut entries = environment.shared.tree().list(directory, recursive)?;
        if let Some(after) = after {
            entries.retain(|entry| entry.path > after);
        }
        let more = entries.len() > limit;
        entries.truncate(limit);
        let next_after = entries.last().filter(|_| more).map(|entry| entry.path.clone());
        Ok(ListPage { entries, next_after })
    }

    async fn stat(
        &self,
        handle: &EnvironmentHandle,
        path: &WorkspacePath,
    ) -> Result<WorkspaceEntry, WorkspaceError> {
        self.admitted(handle)?.shared.tree().stat(path.as_bytes())
    }

    async fn remove(&self, handle: &EnvironmentHandle, path: &WorkspacePath) -> Result<(), WorkspaceError> {
        let environment = self.admitted(handle)?;
        let mut tree = environment.shared.tree();
        tree.remove(path.as_bytes())?;
        tree.accept(path.as_bytes());
        Ok(())
    }
}

async fn collect(mut bytes: ByteStream, max_bytes: u64) -> Result<Vec<u8>, WorkspaceError> {
    let mut content = Vec::new();
    while let Some(piece) = bytes.next().await {
        content.extend_from_slice(&piece?);
        if content.len() as u64 > max_bytes {
            return Err(WorkspaceError::TooLarge { limit_bytes: max_bytes });
        }
    }
    Ok(content)
}
