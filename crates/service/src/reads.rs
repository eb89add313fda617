//! Reads of the views as requests need them: as fresh as asked for, and a miss counts only when the views have folded everything
//! that the log held when the look-up began.

use std::num::NonZeroUsize;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use event_log::EventLog;
use events::stored::StreamName;
use events::{CommandId, Event, LeaseId, Position, TenantId, Version};
use lru::LruCache;
use projections::{CommandRow, Folded, Lease, Runner, Views};

use crate::api::ServiceError;
use crate::runs::RunRef;

/// Longest wait for the views to catch up.
const PATIENCE: Duration = Duration::from_secs(2);
/// Longest wait for the views before a write is answered from the log.
const WRITE_PATIENCE: Duration = Duration::from_millis(500);
/// Events read at a time; no append of ours has more.
const APPEND_EVENTS: usize = 512;
/// Leases and commands of which the run is remembered.
const REMEMBERED: NonZeroUsize = NonZeroUsize::new(16_384).unwrap();

/// See the module.
pub struct Reads {
    log: EventLog,
    views: Views,
    runner: Runner,
    leases: Mutex<LruCache<LeaseId, RunRef>>,
    commands: Mutex<LruCache<CommandId, RunRef>>,
}

impl Reads {
    /// Over the live views of a log.
    #[must_use]
    pub fn new(log: EventLog, views: Views, runner: Runner) -> Self {
        Self {
            log,
            views,
            runner,
            leases: Mutex::new(LruCache::new(REMEMBERED)),
            commands: Mutex::new(LruCache::new(REMEMBERED)),
        }
    }

    /// The queries.
    #[must_use]
    pub const fn views(&self) -> &Views {
        &self.views
    }

    /// The live fold.
    #[must_use]
    pub const fn runner(&self) -> &Runner {
        &self.runner
    }

    /// Waits until the event at `position` is folded.
    ///
    /// # Errors
    /// `ProjectionBehind` after two seconds.
    pub async fn see(&self, position: Option<Position>) -> Result<(), ServiceError> {
        match position {
            None => Ok(()),
            Some(position) => {
                self.runner.wait_for(position, PATIENCE).await.map_err(|_| ServiceError::ProjectionBehind)
            }
        }
    }

    /// Waits until everything that the log holds now is folded.
    ///
    /// # Errors
    /// `ProjectionBehind` after two seconds, or that the log does not answer.
    pub async fn see_all(&self) -> Result<(), ServiceError> {
        let head = self.log.head().await.map_err(|error| log_fault(&error))?;
        self.runner.wait_until(head, PATIENCE).await.map_err(|_| ServiceError::ProjectionBehind)
    }

    /// A lease of the tenant, at least as of `position`.
    ///
    /// # Errors
    /// `NotFound`, `ProjectionBehind`, or that the views cannot be read.
    pub async fn lease(
        &self,
        tenant: TenantId,
        lease_id: LeaseId,
        position: Option<Position>,
    ) -> Result<Lease, ServiceError> {
        self.see(position).await?;
        if let Some(lease) = self.views.lease(Some(tenant), lease_id).await? {
            return Ok(lease);
        }
        self.see_all().await?;
        self.views.lease(Some(tenant), lease_id).await?.ok_or(ServiceError::NotFound { what: "lease" })
    }

    /// A command of the tenant, at least as of `position`.
    ///
    /// # Errors
    /// As [`Reads::lease`].
    pub async fn command(
        &self,
        tenant: TenantId,
        command_id: CommandId,
        position: Option<Position>,
    ) -> Result<CommandRow, ServiceError> {
        self.see(position).await?;
        if let Some(command) = self.views.command(Some(tenant), command_id).await? {
            return Ok(command);
        }
        self.see_all().await?;
        self.views.command(Some(tenant), command_id).await?.ok_or(ServiceError::NotFound { what: "command" })
    }

    /// A command folded from its own events, by the fold of the views and without waiting for them. `None` when the events at
    /// these positions do not tell its whole life.
    ///
    /// # Errors
    /// When the log does not answer.
    pub async fn ended_command(
        &self,
        command_id: CommandId,
        positions: &[Position],
    ) -> Result<Option<CommandRow>, ServiceError> {
        let recorded = self.log.read_positions(positions).await.map_err(|error| log_fault(&error))?;
        let mut folded = Folded::default();
        for event in &recorded {
            folded.next = event.position;
            folded.apply(event).map_err(|_| ServiceError::Internal)?;
        }
        Ok(folded.commands.get(command_id).filter(|command| command.state.is_ended()).cloned())
    }

    /// The command whose acceptance is at `position`.
    ///
    /// # Errors
    /// When the log does not answer.
    pub async fn accepted_at(&self, position: Position) -> Result<Option<CommandId>, ServiceError> {
        let recorded = self.log.read_positions(&[position]).await.map_err(|error| log_fault(&error))?;
        Ok(recorded.into_iter().find_map(|recorded| match recorded.event {
            Some(Event::CommandAccepted(accepted)) => Some(accepted.command_id),
            _ => None,
        }))
    }

    /// The lease of the run that was acquired in the append which begins at `position`.
    ///
    /// # Errors
    /// When the log does not answer.
    pub async fn acquired_at(
        &self,
        run: RunRef,
        position: Position,
    ) -> Result<Option<LeaseId>, ServiceError> {
        let recorded = self.log.read_all(position, APPEND_EVENTS).await.map_err(|error| log_fault(&error))?;
        Ok(recorded.into_iter().find_map(|recorded| match recorded.event {
            Some(Event::LeaseAcquired(acquired))
                if recorded.header.tenant == run.tenant
                    && recorded.header.correlation_id == Some(run.run_id) =>
            {
                Some(acquired.lease_id)
            }
            _ => None,
        }))
    }

    /// A lease after a write at `position`: from the views when they are there soon, else folded from the run itself. A write
    /// that is on record is never answered as if it were not.
    ///
    /// # Errors
    /// `NotFound`, or that the log does not answer.
    pub async fn lease_after(
        &self,
        run: RunRef,
        lease_id: LeaseId,
        position: Position,
    ) -> Result<Lease, ServiceError> {
        if self.runner.wait_for(position, WRITE_PATIENCE).await.is_ok()
            && let Ok(Some(lease)) = self.views.lease(Some(run.tenant), lease_id).await
        {
            return Ok(lease);
        }
        let folded = self.fold(run).await?;
        let lease = folded.leases.get(lease_id).cloned().ok_or(ServiceError::NotFound { what: "lease" })?;
        let of_lease = folded.environments.iter().filter(|known| known.lease_id == lease_id);
        let environment = of_lease.max_by_key(|known| known.created_position).cloned();
        Ok(Lease { lease, environment })
    }

    /// A command after a write at `position`, as [`Reads::lease_after`].
    ///
    /// # Errors
    /// `NotFound`, or that the log does not answer.
    pub async fn command_after(
        &self,
        run: RunRef,
        command_id: CommandId,
        position: Option<Position>,
    ) -> Result<CommandRow, ServiceError> {
        let seen = match position {
            Some(position) => self.runner.wait_for(position, WRITE_PATIENCE).await.is_ok(),
            None => true,
        };
        if seen && let Ok(Some(command)) = self.views.command(Some(run.tenant), command_id).await {
            return Ok(command);
        }
        let folded = self.fold(run).await?;
        folded.commands.get(command_id).cloned().ok_or(ServiceError::NotFound { what: "command" })
    }

    /// The rows of one run, folded from its stream by the fold of the views.
    async fn fold(&self, run: RunRef) -> Result<Folded, ServiceError> {
        let stream = StreamName::run(run.tenant, run.run_id);
        let mut folded = Folded::default();
        let mut from = Version(1);
        loop {
            let page = self
                .log
                .read_stream(&stream, from, APPEND_EVENTS)
                .await
                .map_err(|error| log_fault(&error))?;
            let Some(last) = page.last() else { return Ok(folded) };
            from = last.header.version.next();
            for recorded in &page {
                folded.next = recorded.position;
                folded.apply(recorded).map_err(|_| ServiceError::Internal)?;
            }
        }
    }

    /// The run of a lease.
    ///
    /// # Errors
    /// As [`Reads::lease`].
    pub async fn run_of_lease(&self, tenant: TenantId, lease_id: LeaseId) -> Result<RunRef, ServiceError> {
        if let Some(run) = get(&self.leases, &lease_id) {
            return owned(run, tenant, "lease");
        }
        let lease = self.lease(tenant, lease_id, None).await?;
        let run = RunRef { tenant, run_id: lease.lease.run_id };
        self.remember_lease(lease_id, run);
        Ok(run)
    }

    /// The run of a command.
    ///
    /// # Errors
    /// As [`Reads::lease`].
    pub async fn run_of_command(
        &self,
        tenant: TenantId,
        command_id: CommandId,
    ) -> Result<RunRef, ServiceError> {
        if let Some(run) = get(&self.commands, &command_id) {
            return owned(run, tenant, "command");
        }
        let command = self.command(tenant, command_id, None).await?;
        let run = RunRef { tenant, run_id: command.run_id };
        self.remember_command(command_id, run);
        Ok(run)
    }

    /// Notes the run of a lease that was just made.
    pub fn remember_lease(&self, lease_id: LeaseId, run: RunRef) {
        self.leases.lock().unwrap_or_else(PoisonError::into_inner).put(lease_id, run);
    }

    /// Notes the run of a command that was just accepted.
    pub fn remember_command(&self, command_id: CommandId, run: RunRef) {
        self.commands.lock().unwrap_or_else(PoisonError::into_inner).put(command_id, run);
    }
}

fn log_fault(error: &event_log::LogError) -> ServiceError {
    tracing::warn!(error = %error, "the log could not be read");
    if error.is_retryable() {
        ServiceError::Unavailable { reason_code: "log_unavailable" }
    } else {
        ServiceError::Internal
    }
}

fn get<K: std::hash::Hash + Eq>(cache: &Mutex<LruCache<K, RunRef>>, key: &K) -> Option<RunRef> {
    cache.lock().unwrap_or_else(PoisonError::into_inner).get(key).copied()
}

/// Another tenant's object is as if it did not exist.
fn owned(run: RunRef, tenant: TenantId, what: &'static str) -> Result<RunRef, ServiceError> {
    if run.tenant == tenant { Ok(run) } else { Err(ServiceError::NotFound { what }) }
}
