//! Leases, and the closing of runs.

use std::time::Duration;

use event_log::RequestKey;
use events::run::{AcquireLease, LeaseEnd, LeaseEndCause, RunCommand, RunPhase};
use events::{LeaseId, Position, RunId};
use projections::{Lease, LeaseFilter};
use uuid::Uuid;

use super::{App, permit};
use crate::api::{
    AcquireRequest, CloseAnswer, ClosedState, Page, PageRequest, RequestCtx, Scope, ServiceError,
};
use crate::execution::{keyed_id, request_key};
use crate::runs::{RunRef, Submitted};

impl App {
    /// Takes a lease of a new epoch. A repeat under the same key answers the lease as it is now.
    ///
    /// # Errors
    /// `LeaseHeld`, `RunClosed`, `Invalid`, `IdempotencyKeyReused`, or that the log does not answer.
    pub async fn acquire_lease(
        &self,
        ctx: &RequestCtx,
        run_id: RunId,
        request: AcquireRequest,
    ) -> Result<Lease, ServiceError> {
        self.admit(ctx, Scope::Run)?;
        let tenant = ctx.principal.tenant;
        let run = RunRef { tenant, run_id };
        let key = request_key(ctx);
        if let Some(position) = self.repeated(key.as_ref()).await? {
            return self.acquired(run, position).await;
        }
        let lease_id = self.lease_id(run, key.as_ref()).await?;
        let limits = self.parts.limits.resolve(&request.limits)?;
        not_configured(request.network, "/network", "egress is not configured")?;
        not_configured(!request.tools.is_empty(), "/tools", "no tools are configured")?;
        let command = RunCommand::AcquireLease(AcquireLease {
            lease_id,
            ttl_ms: request.ttl_ms,
            environment_cap_ms: u64::try_from(self.parts.environment_cap.as_millis()).unwrap_or(u64::MAX),
            holder: request.holder,
            limits,
            network: request.network,
            tools: request.tools,
            labels: request.labels,
            takeover: request.takeover,
        });
        let actor = &ctx.principal.actor;
        let position = match self.parts.runs.submit(run, actor, key.as_ref(), &command).await? {
            Submitted::Repeated { position } => return self.acquired(run, position).await,
            Submitted::Appended { position, .. } => position,
            Submitted::AlreadyDone { .. } => return Err(ServiceError::Conflict),
        };
        self.parts.reads.remember_lease(lease_id, run);
        // A takeover, or an end that only now came on record, leaves something to remove.
        self.parts.wake.now();
        self.parts.reads.lease_after(run, lease_id, position).await
    }

    /// The lease that an earlier request under the key acquired, as it is now.
    async fn acquired(&self, run: RunRef, position: Position) -> Result<Lease, ServiceError> {
        let lease_id = self.parts.reads.acquired_at(run, position).await?.ok_or(ServiceError::Conflict)?;
        self.parts.reads.lease_after(run, lease_id, position).await
    }

    /// As for commands: a key that was forgotten after a day may have named a lease before.
    async fn lease_id(&self, run: RunRef, key: Option<&RequestKey>) -> Result<LeaseId, ServiceError> {
        let Some(key) = key else { return Ok(LeaseId(Uuid::now_v7())) };
        let lease_id = LeaseId(keyed_id(key, b"lease"));
        let used = self.parts.runs.look_fresh(run, |state, _| state.leases.contains_key(&lease_id)).await?;
        Ok(if used { LeaseId(Uuid::now_v7()) } else { lease_id })
    }

    /// Moves a live lease's end to now + `ttl_ms`.
    ///
    /// # Errors
    /// `LeaseLost`, `EnvironmentCap`, `Invalid`, or that the log does not answer.
    pub async fn renew_lease(
        &self,
        ctx: &RequestCtx,
        lease_id: LeaseId,
        ttl_ms: u64,
    ) -> Result<Lease, ServiceError> {
        self.admit(ctx, Scope::Run)?;
        self.change_lease(ctx, lease_id, RunCommand::RenewLease { lease_id, ttl_ms }).await
    }

    /// Gives a lease back; repeating it is fine.
    ///
    /// # Errors
    /// `LeaseLost` when it had ended otherwise, or that the log does not answer.
    pub async fn release_lease(&self, ctx: &RequestCtx, lease_id: LeaseId) -> Result<Lease, ServiceError> {
        permit(ctx, Scope::Run)?;
        let end = LeaseEnd { lease_id, cause: LeaseEndCause::Released };
        self.change_lease(ctx, lease_id, RunCommand::EndLease(end)).await
    }

    /// Ends a lease by an operator's word.
    ///
    /// # Errors
    /// `Forbidden`, or that the log does not answer.
    pub async fn revoke_lease(
        &self,
        ctx: &RequestCtx,
        lease_id: LeaseId,
        reason: Option<String>,
    ) -> Result<Lease, ServiceError> {
        permit(ctx, Scope::Operator)?;
        let end = LeaseEnd { lease_id, cause: LeaseEndCause::Revoked { reason } };
        self.change_lease(ctx, lease_id, RunCommand::EndLease(end)).await
    }

    /// One lease.
    ///
    /// # Errors
    /// `NotFound`, `ProjectionBehind`, or that the views cannot be read.
    pub async fn get_lease(&self, ctx: &RequestCtx, lease_id: LeaseId) -> Result<Lease, ServiceError> {
        permit(ctx, Scope::Run)?;
        self.parts.reads.lease(ctx.principal.tenant, lease_id, ctx.min_position).await
    }

    /// Leases of the tenant, newest first.
    ///
    /// # Errors
    /// As [`App::get_lease`]; `Malformed` for a cursor that is not one.
    pub async fn list_leases(
        &self,
        ctx: &RequestCtx,
        filter: LeaseFilter,
        page: PageRequest,
    ) -> Result<Page<Lease>, ServiceError> {
        permit(ctx, Scope::Run)?;
        self.parts.reads.see(ctx.min_position).await?;
        let page = view_page(&page)?;
        let listed = self.parts.reads.views().leases(Some(ctx.principal.tenant), &filter, &page).await?;
        Ok(api_page(listed))
    }

    /// Closes a run and waits at most `wait` until it is complete.
    ///
    /// # Errors
    /// `NotFound` for a run without any event, or that the log does not answer.
    pub async fn close_run(
        &self,
        ctx: &RequestCtx,
        run_id: RunId,
        wait: Duration,
    ) -> Result<CloseAnswer, ServiceError> {
        permit(ctx, Scope::Run)?;
        let run = RunRef { tenant: ctx.principal.tenant, run_id };
        let deadline = tokio::time::Instant::now() + wait;
        if !self.parts.runs.look_fresh(run, |state, _| state.last_epoch.get() > 0).await? {
            return Err(ServiceError::NotFound { what: "run" });
        }
        let key = request_key(ctx);
        let mut position = match self.repeated(key.as_ref()).await? {
            Some(position) => position,
            None => {
                let actor = &ctx.principal.actor;
                let command = RunCommand::RequestClose;
                self.parts.runs.submit(run, actor, key.as_ref(), &command).await?.position()
            }
        };
        self.parts.wake.now();
        let mut grown = self.parts.log.subscribe();
        loop {
            let (phase, last) = self.parts.runs.look_with_position(run, |state| state.phase).await?;
            position = position.max(last);
            if phase == RunPhase::Closed {
                return Ok(CloseAnswer { state: ClosedState::Closed, position });
            }
            match tokio::time::timeout_at(deadline, grown.changed()).await {
                Ok(Ok(())) => {}
                _ => return Ok(CloseAnswer { state: ClosedState::Closing, position }),
            }
        }
    }

    async fn change_lease(
        &self,
        ctx: &RequestCtx,
        lease_id: LeaseId,
        command: RunCommand,
    ) -> Result<Lease, ServiceError> {
        let tenant = ctx.principal.tenant;
        let run = self.parts.reads.run_of_lease(tenant, lease_id).await?;
        let key = request_key(ctx);
        let position = match self.repeated(key.as_ref()).await? {
            Some(position) => position,
            None => {
                let actor = &ctx.principal.actor;
                self.parts.runs.submit(run, actor, key.as_ref(), &command).await?.position()
            }
        };
        self.parts.wake.now();
        self.parts.reads.lease_after(run, lease_id, position).await
    }

    /// Where the first request under the key had its effect, if it had.
    pub(super) async fn repeated(&self, key: Option<&RequestKey>) -> Result<Option<Position>, ServiceError> {
        match key {
            None => Ok(None),
            Some(key) => Ok(self.parts.runs.find_key(key).await?),
        }
    }
}

fn not_configured(asked: bool, pointer: &str, detail: &str) -> Result<(), ServiceError> {
    if !asked {
        return Ok(());
    }
    Err(ServiceError::Invalid { pointer: pointer.to_owned(), detail: detail.to_owned() })
}

/// A page as the views take it.
pub(super) fn view_page(page: &PageRequest) -> Result<projections::PageRequest, ServiceError> {
    let cursor = page.cursor.as_deref().map(str::parse).transpose().map_err(|_| ServiceError::Malformed {
        pointer: None,
        detail: "the cursor is not one of ours".to_owned(),
    })?;
    Ok(projections::PageRequest { cursor, items_max: page.limit })
}

/// A page as callers get it.
pub(super) fn api_page<T>(page: projections::Page<T>) -> Page<T> {
    Page { items: page.items, next_cursor: page.next_cursor.map(|cursor| cursor.to_string()) }
}
