//! Workspace files under a lease. Paths are raw bytes relative to the workspace.

use events::{LeaseId, Position};
use runtime_adapter::ports::{ByteStream, ListPage, ReadFile, WorkspaceEntry};

use super::App;
use crate::api::{FileWrite, ListFiles, RequestCtx, Scope, ServiceError};

impl App {
    /// Opens a file.
    ///
    /// # Errors
    /// The path, the file, the lease or its environment is not usable.
    pub async fn read_file(
        &self,
        ctx: &RequestCtx,
        lease_id: LeaseId,
        path: &[u8],
    ) -> Result<ReadFile, ServiceError> {
        self.admit(ctx, Scope::Files)?;
        let run = self.parts.reads.run_of_lease(ctx.principal.tenant, lease_id).await?;
        self.parts.workspace.read(run, lease_id, path).await
    }

    /// Writes a file, durably.
    ///
    /// # Errors
    /// As [`App::read_file`].
    pub async fn write_file(
        &self,
        ctx: &RequestCtx,
        lease_id: LeaseId,
        path: &[u8],
        body: ByteStream,
    ) -> Result<FileWrite, ServiceError> {
        self.admit(ctx, Scope::Files)?;
        let run = self.parts.reads.run_of_lease(ctx.principal.tenant, lease_id).await?;
        self.parts.workspace.write(run, lease_id, path, &ctx.principal.actor, body).await
    }

    /// Removes a file; answers the position of the recorded event.
    ///
    /// # Errors
    /// As [`App::read_file`].
    pub async fn remove_file(
        &self,
        ctx: &RequestCtx,
        lease_id: LeaseId,
        path: &[u8],
    ) -> Result<Position, ServiceError> {
        self.admit(ctx, Scope::Files)?;
        let run = self.parts.reads.run_of_lease(ctx.principal.tenant, lease_id).await?;
        self.parts.workspace.remove(run, lease_id, path, &ctx.principal.actor).await
    }

    /// Lists a directory.
    ///
    /// # Errors
    /// As [`App::read_file`].
    pub async fn list_files(
        &self,
        ctx: &RequestCtx,
        lease_id: LeaseId,
        request: ListFiles,
    ) -> Result<ListPage, ServiceError> {
        self.admit(ctx, Scope::Files)?;
        let run = self.parts.reads.run_of_lease(ctx.principal.tenant, lease_id).await?;
        self.parts.workspace.list(run, lease_id, request).await
    }

    /// Describes one entry; links are not followed.
    ///
    /// # Errors
    /// As [`App::read_file`].
    pub async fn stat_file(
        &self,
        ctx: &RequestCtx,
        lease_id: LeaseId,
        path: &[u8],
    ) -> Result<WorkspaceEntry, ServiceError> {
        self.admit(ctx, Scope::Files)?;
        let run = self.parts.reads.run_of_lease(ctx.principal.tenant, lease_id).await?;
        self.parts.workspace.stat(run, lease_id, path).await
    }
}
