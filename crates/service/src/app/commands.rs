//! Commands: execute, kill, look up.

use std::time::Duration;

use events::event::command::KillReason;
use events::run::RunCommand;
use events::{CommandId, LeaseId, Position};
use projections::{CommandFilter, CommandRow};
use tokio::time::Instant;

use super::leases::{api_page, view_page};
use super::{App, permit};
use crate::api::{CommandRequest, Page, PageRequest, RequestCtx, Scope, ServiceError};
use crate::execution::{cancelled_by, request_key};
use crate::runs::RunRef;

impl App {
    /// Accepts a command and waits at most `wait` for its end; the row's `state` says whether it has ended. What was accepted
    /// goes on when the caller goes away. A repeat under the same key waits for the same command.
    ///
    /// # Errors
    /// What is wrong with the request, or why nothing can run under the lease now; then nothing was accepted.
    pub async fn execute(
        &self,
        ctx: &RequestCtx,
        lease_id: LeaseId,
        request: CommandRequest,
        wait: Duration,
    ) -> Result<CommandRow, ServiceError> {
        self.admit(ctx, Scope::Run)?;
        let deadline = Instant::now() + wait;
        let tenant = ctx.principal.tenant;
        let run = self.parts.reads.run_of_lease(tenant, lease_id).await?;
        let accepted = self.parts.execution.accept(ctx, run, lease_id, request).await?;
        self.await_end(run, accepted.command_id, accepted.position, deadline).await
    }

    /// Asks for a command's end; the row may still say `running`. Asking again is fine.
    ///
    /// # Errors
    /// `NotFound`, or that the log does not answer.
    pub async fn kill_command(
        &self,
        ctx: &RequestCtx,
        command_id: CommandId,
    ) -> Result<CommandRow, ServiceError> {
        permit(ctx, Scope::Run)?;
        let tenant = ctx.principal.tenant;
        let run = self.parts.reads.run_of_command(tenant, command_id).await?;
        let key = request_key(ctx);
        let position = match self.repeated(key.as_ref()).await? {
            Some(position) => position,
            None => {
                let command = RunCommand::RequestKill { command_id, reason: KillReason::Cancelled };
                let actor = &ctx.principal.actor;
                self.parts.runs.submit(run, actor, key.as_ref(), &command).await?.position()
            }
        };
        self.parts.execution.cancel(command_id, cancelled_by("client"));
        self.parts.reads.command_after(run, command_id, Some(position)).await
    }

    /// One command.
    ///
    /// # Errors
    /// `NotFound`, `ProjectionBehind`, or that the views cannot be read.
    pub async fn get_command(
        &self,
        ctx: &RequestCtx,
        command_id: CommandId,
    ) -> Result<CommandRow, ServiceError> {
        permit(ctx, Scope::Run)?;
        self.parts.reads.command(ctx.principal.tenant, command_id, ctx.min_position).await
    }

    /// Commands of the tenant, newest first.
    ///
    /// # Errors
    /// As [`App::get_command`]; `Malformed` for a cursor that is not one.
    pub async fn list_commands(
        &self,
        ctx: &RequestCtx,
        filter: CommandFilter,
        page: PageRequest,
    ) -> Result<Page<CommandRow>, ServiceError> {
        permit(ctx, Scope::Run)?;
        self.parts.reads.see(ctx.min_position).await?;
        let page = view_page(&page)?;
        let listed = self.parts.reads.views().commands(Some(ctx.principal.tenant), &filter, &page).await?;
        Ok(api_page(listed))
    }

    /// The command once it has ended, or as it is at the deadline.
    pub(super) async fn await_end(
        &self,
        run: RunRef,
        command_id: CommandId,
        position: Option<Position>,
        deadline: Instant,
    ) -> Result<CommandRow, ServiceError> {
        let ended = tokio::time::timeout_at(deadline, self.parts.execution.ended(command_id)).await;
        if let Ok(Some(positions)) = ended
            && let Some(command) = self.parts.reads.ended_command(command_id, &positions).await?
        {
            return Ok(command);
        }
        // Ended before, not yet, or seen through by another process: it shows in the views.
        let mut folded = self.parts.reads.runner().positions();
        loop {
            folded.mark_unchanged();
            let command = self.parts.reads.command_after(run, command_id, position).await?;
            if command.state.is_ended() {
                return Ok(command);
            }
            if tokio::time::timeout_at(deadline, folded.changed()).await.is_err() {
                return Ok(command);
            }
        }
    }
}
