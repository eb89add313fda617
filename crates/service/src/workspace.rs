//! Files of a lease's workspace: through the port, under the lease, with what was changed on record.

use std::sync::Arc;

use events::event::workspace::PathText;
use events::run::{FileRemoved, FileWritten, LeasePhase, RunCommand};
use events::{LeaseId, Position};
use futures::StreamExt as _;
use policy::WorkspacePath;
use runtime_adapter::ports::{ByteStream, ListPage, PortError, ReadFile, WorkspaceEntry, WorkspaceError};

use crate::api::{FileWrite, ListFiles, ServiceError};
use crate::environments::{Environment, Environments};
use crate::runs::{RunRef, Runs};

/// Most entries of one page of a listing.
const LIST_ENTRIES_MAX: usize = 1_000;

/// See the module. Cheap to clone.
#[derive(Clone)]
pub struct WorkspaceService {
    runs: Arc<Runs>,
    environments: Environments,
}

impl WorkspaceService {
    /// Over the environments of this process.
    #[must_use]
    pub fn new(runs: Arc<Runs>, environments: Environments) -> Self {
        Self { runs, environments }
    }

    /// Opens a file of at most the workspace's own size.
    ///
    /// # Errors
    /// The path, the file or the environment is not usable.
    pub async fn read(&self, run: RunRef, lease_id: LeaseId, path: &[u8]) -> Result<ReadFile, ServiceError> {
        let path = workspace_path(path)?;
        let environment = self.environments.ensure(run, lease_id).await?;
        let in_use = environment.stream();
        let max_bytes = self.workspace_bytes(run, lease_id).await?;
        let read = self.environments.ports().workspace.read(&environment.handle, &path, max_bytes).await;
        let file = self.checked(&environment, read).await?;
        let bytes = file.bytes.map(move |piece| {
            // The stream is in use until it is dropped.
            let _ = &in_use;
            piece
        });
        Ok(ReadFile { size_bytes: file.size_bytes, bytes: Box::pin(bytes) })
    }

    /// Writes a file and records it. A body that is still arriving when the lease ends is given up, except after a release,
    /// which lets what is under way finish.
    ///
    /// # Errors
    /// As for reading; after `Unavailable` the file may have been written.
    pub async fn write(
        &self,
        run: RunRef,
        lease_id: LeaseId,
        path: &[u8],
        actor: &str,
        body: ByteStream,
    ) -> Result<FileWrite, ServiceError> {
        let path = workspace_path(path)?;
        let environment = self.environments.ensure(run, lease_id).await?;
        let _in_use = environment.stream();
        let max_bytes = self.workspace_bytes(run, lease_id).await?;
        let port = &self.environments.ports().workspace;
        let body = self.under_the_lease(run, lease_id, body);
        let written = port.write(&environment.handle, &path, body, max_bytes).await;
        let written = self.checked(&environment, written).await?;
        let text = PathText::from_bytes(path.as_bytes());
        let sha256 = hex::encode(written.sha256);
        let fact = RunCommand::RecordFileWritten(FileWritten {
            environment_id: environment.handle.environment_id,
            path: text.clone(),
            size_bytes: written.size_bytes,
            sha256: sha256.clone(),
            created: written.created,
        });
        let position = self.runs.submit(run, actor, None, &fact).await?.position();
        Ok(FileWrite {
            path: text,
            size_bytes: written.size_bytes,
            sha256,
            created: written.created,
            position,
        })
    }

    /// Removes a file and records it.
    ///
    /// # Errors
    /// As for writing.
    pub async fn remove(
        &self,
        run: RunRef,
        lease_id: LeaseId,
        path: &[u8],
        actor: &str,
    ) -> Result<Position, ServiceError> {
        let path = workspace_path(path)?;
        let environment = self.environments.ensure(run, lease_id).await?;
        let _in_use = environment.stream();
        let removed = self.environments.ports().workspace.remove(&environment.handle, &path).await;
        self.checked(&environment, removed).await?;
        let fact = RunCommand::RecordFileRemoved(FileRemoved {
            environment_id: environment.handle.environment_id,
            path: PathText::from_bytes(path.as_bytes()),
        });
        Ok(self.runs.submit(run, actor, None, &fact).await?.position())
    }

    /// Lists a directory.
    ///
    /// # Errors
    /// As for reading.
    pub async fn list(
        &self,
        run: RunRef,
        lease_id: LeaseId,
        request: ListFiles,
    ) -> Result<ListPage, ServiceError> {
        let path = match request.path.as_deref() {
            None | Some([]) => None,
            Some(path) => Some(workspace_path(path)?),
        };
        let environment = self.environments.ensure(run, lease_id).await?;
        let _in_use = environment.stream();
        let limit = request.limit.clamp(1, LIST_ENTRIES_MAX);
        let port = &self.environments.ports().workspace;
        let listed =
            port.list(&environment.handle, path.as_ref(), request.recursive, request.after, limit).await;
        self.checked(&environment, listed).await
    }

    /// Describes one entry.
    ///
    /// # Errors
    /// As for reading.
    pub async fn stat(
        &self,
        run: RunRef,
        lease_id: LeaseId,
        path: &[u8],
    ) -> Result<WorkspaceEntry, ServiceError> {
        let path = workspace_path(path)?;
        let environment = self.environments.ensure(run, lease_id).await?;
        let _in_use = environment.stream();
        let entry = self.environments.ports().workspace.stat(&environment.handle, &path).await;
        self.checked(&environment, entry).await
    }

    /// A lost or suspected environment is recorded as such before its caller is told.
    async fn checked<T>(
        &self,
        environment: &Environment,
        answer: Result<T, WorkspaceError>,
    ) -> Result<T, ServiceError> {
        if let Err(WorkspaceError::Port(
            error @ (PortError::Lost { .. } | PortError::EscapeSuspected { .. }),
        )) = &answer
        {
            let environment_id = environment.handle.environment_id;
            self.environments.lost(environment.run, environment_id, error).await?;
        }
        Ok(answer?)
    }

    /// A body whose end counts only while its lease may still write: the client decides how long it takes to send it.
    fn under_the_lease(&self, run: RunRef, lease_id: LeaseId, body: ByteStream) -> ByteStream {
        let runs = Arc::clone(&self.runs);
        let end = futures::stream::once(async move {
            let writable = runs.look(run, |state, now| {
                let lease = state.leases.get(&lease_id);
                lease.is_some_and(|lease| lease.is_live(now) || lease.phase == LeasePhase::Released)
            });
            match writable.await {
                Ok(true) => None,
                Ok(false) => Some(Err(WorkspaceError::Port(PortError::Rejected { code: "lease_ended" }))),
                Err(_) => Some(Err(WorkspaceError::Port(PortError::Unavailable {
                    code: "log",
                    effect_possible: false,
                }))),
            }
        });
        body.chain(end.filter_map(std::future::ready)).boxed()
    }

    async fn workspace_bytes(&self, run: RunRef, lease_id: LeaseId) -> Result<u64, ServiceError> {
        let bytes = self
            .runs
            .look(run, |state, _| {
                state.leases.get(&lease_id).map(|lease| lease.acquired.limits.workspace_bytes)
            })
            .await?;
        bytes.ok_or(ServiceError::NotFound { what: "lease" })
    }
}

fn workspace_path(bytes: &[u8]) -> Result<WorkspacePath, ServiceError> {
    WorkspacePath::try_new(bytes).map_err(|refusal| ServiceError::PathRefused { reason: refusal.to_string() })
}
