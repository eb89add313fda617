//! The service as its interfaces see it: one method per thing that can be asked.

use std::time::Duration;

use events::{CommandId, LeaseId, Position, RunId};
use projections::{CommandFilter, CommandRow, Lease, LeaseFilter};
use runtime_adapter::ports::{ByteStream, ListPage, ReadFile, WorkspaceEntry};

use crate::api::{
    AcquireRequest, CloseAnswer, CommandRequest, EventPage, FileWrite, ListFiles, OutputCursor, OutputItems,
    Page, PageRequest, Principal, Readiness, RequestCtx, ServiceError, TailItems,
};

/// The composed service; shared by every interface as `Arc<App>`.
pub struct App {}

impl App {
    /// Who a bearer token stands for; constant time over the secret.
    pub fn authenticate(&self, bearer: &str) -> Result<Principal, ServiceError> {
        Err(ServiceError::Unavailable { reason_code: "starting" })
    }

    /// Whether everything that a request needs answers.
    pub async fn readiness(&self) -> Readiness {
        Readiness { ready: false, checks: Vec::new() }
    }

    /// Takes a lease of a new epoch. A repeat under the same key answers the lease as it is now.
    pub async fn acquire_lease(
        &self,
        ctx: &RequestCtx,
        run_id: RunId,
        request: AcquireRequest,
    ) -> Result<Lease, ServiceError> {
        Err(ServiceError::Unavailable { reason_code: "starting" })
    }

    /// Moves a live lease's end to now + `ttl_ms`.
    pub async fn renew_lease(
        &self,
        ctx: &RequestCtx,
        lease_id: LeaseId,
        ttl_ms: u64,
    ) -> Result<Lease, ServiceError> {
        Err(ServiceError::Unavailable { reason_code: "starting" })
    }

    /// Gives a lease back; repeating it is fine.
    pub async fn release_lease(&self, ctx: &RequestCtx, lease_id: LeaseId) -> Result<Lease, ServiceError> {
        Err(ServiceError::Unavailable { reason_code: "starting" })
    }

    /// Ends a lease by an operator's word (scope operator).
    pub async fn revoke_lease(
        &self,
        ctx: &RequestCtx,
        lease_id: LeaseId,
        reason: Option<String>,
    ) -> Result<Lease, ServiceError> {
        Err(ServiceError::Unavailable { reason_code: "starting" })
    }

    /// One lease.
    pub async fn get_lease(&self, ctx: &RequestCtx, lease_id: LeaseId) -> Result<Lease, ServiceError> {
        Err(ServiceError::Unavailable { reason_code: "starting" })
    }

    /// Leases of the tenant, newest first.
    pub async fn list_leases(
        &self,
        ctx: &RequestCtx,
        filter: LeaseFilter,
        page: PageRequest,
    ) -> Result<Page<Lease>, ServiceError> {
        Err(ServiceError::Unavailable { reason_code: "starting" })
    }

    /// Accepts a command and waits at most `wait` for its end; the row's `state` says whether it has ended.
    /// What was accepted goes on when the caller goes away.
    pub async fn execute(
        &self,
        ctx: &RequestCtx,
        lease_id: LeaseId,
        request: CommandRequest,
        wait: Duration,
    ) -> Result<CommandRow, ServiceError> {
        Err(ServiceError::Unavailable { reason_code: "starting" })
    }

    /// Asks for a command's end; the row may still say `running`.
    pub async fn kill_command(
        &self,
        ctx: &RequestCtx,
        command_id: CommandId,
    ) -> Result<CommandRow, ServiceError> {
        Err(ServiceError::Unavailable { reason_code: "starting" })
    }

    /// One command.
    pub async fn get_command(
        &self,
        ctx: &RequestCtx,
        command_id: CommandId,
    ) -> Result<CommandRow, ServiceError> {
        Err(ServiceError::Unavailable { reason_code: "starting" })
    }

    /// Commands of the tenant, newest first.
    pub async fn list_commands(
        &self,
        ctx: &RequestCtx,
        filter: CommandFilter,
        page: PageRequest,
    ) -> Result<Page<CommandRow>, ServiceError> {
        Err(ServiceError::Unavailable { reason_code: "starting" })
    }

    /// A command's output from `cursor` on, each byte once; ends with `Exit`. Keep-alives come every 15 s.
    pub async fn output(
        &self,
        ctx: &RequestCtx,
        command_id: CommandId,
        cursor: OutputCursor,
    ) -> Result<OutputItems, ServiceError> {
        Err(ServiceError::Unavailable { reason_code: "starting" })
    }

    /// Opens a file. `path` is raw bytes relative to the workspace, here and below.
    pub async fn read_file(
        &self,
        ctx: &RequestCtx,
        lease_id: LeaseId,
        path: &[u8],
    ) -> Result<ReadFile, ServiceError> {
        Err(ServiceError::Unavailable { reason_code: "starting" })
    }

    /// Writes a file, durably.
    pub async fn write_file(
        &self,
        ctx: &RequestCtx,
        lease_id: LeaseId,
        path: &[u8],
        body: ByteStream,
    ) -> Result<FileWrite, ServiceError> {
        Err(ServiceError::Unavailable { reason_code: "starting" })
    }

    /// Removes a file; answers the position of the recorded event.
    pub async fn remove_file(
        &self,
        ctx: &RequestCtx,
        lease_id: LeaseId,
        path: &[u8],
    ) -> Result<Position, ServiceError> {
        Err(ServiceError::Unavailable { reason_code: "starting" })
    }

    /// Lists a directory.
    pub async fn list_files(
        &self,
        ctx: &RequestCtx,
        lease_id: LeaseId,
        request: ListFiles,
    ) -> Result<ListPage, ServiceError> {
        Err(ServiceError::Unavailable { reason_code: "starting" })
    }

    /// Describes one entry; links are not followed.
    pub async fn stat_file(
        &self,
        ctx: &RequestCtx,
        lease_id: LeaseId,
        path: &[u8],
    ) -> Result<WorkspaceEntry, ServiceError> {
        Err(ServiceError::Unavailable { reason_code: "starting" })
    }

    /// Closes a run and waits at most `wait` until it is complete.
    pub async fn close_run(
        &self,
        ctx: &RequestCtx,
        run_id: RunId,
        wait: Duration,
    ) -> Result<CloseAnswer, ServiceError> {
        Err(ServiceError::Unavailable { reason_code: "starting" })
    }

    /// A page of the run's events after position `page.cursor`.
    pub async fn run_events(
        &self,
        ctx: &RequestCtx,
        run_id: RunId,
        page: PageRequest,
    ) -> Result<EventPage, ServiceError> {
        Err(ServiceError::Unavailable { reason_code: "starting" })
    }

    /// The run's events after `after` (from the first when `None`), then as they happen.
    pub async fn tail_run(
        &self,
        ctx: &RequestCtx,
        run_id: RunId,
        after: Option<Position>,
    ) -> Result<TailItems, ServiceError> {
        Err(ServiceError::Unavailable { reason_code: "starting" })
    }
}
