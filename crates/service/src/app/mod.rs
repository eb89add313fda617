//! The service as its interfaces see it: one method per thing that can be asked.
//!
//! - [`leases`]: acquire, renew, release, revoke, and the closing of runs.
//! - [`commands`]: execute, kill, look up.
//! - [`output`]: a command's output from a cursor on.
//! - [`files`]: the workspace.
//! - [`history`]: a run's events.
//! - [`proofs`]: signed heads of the log, and what they prove.

mod commands;
mod files;
mod history;
mod leases;
mod output;
mod proofs;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use event_log::EventLog;
use projections::RunnerStatus;
use tokio::sync::watch;

use crate::api::{Principal, Readiness, ReadinessCheck, RequestCtx, Scope, ServiceError};
use crate::config::LimitsConfig;
use crate::environments::Environments;
use crate::execution::Execution;
use crate::output::OutputHub;
use crate::reads::Reads;
use crate::reconcile::{Reconciler, Wake};
use crate::runs::Runs;
use crate::sealing::Sealing;
use crate::supervise::Supervisor;
use crate::tokens::Tokens;
use crate::workspace::WorkspaceService;

/// The database is unreachable when it has not answered for this long.
const LOG_SILENCE_MAX: Duration = Duration::from_secs(5);
/// The views are late when they are this far behind.
const LAG_MS_MAX: u64 = 5_000;
/// Longest wait for the runtime's answer when readiness is asked for.
const PING_MAX: Duration = Duration::from_secs(2);

/// The parts of a composed service.
pub struct AppParts {
    /// The log.
    pub log: EventLog,
    /// The one way in.
    pub runs: Arc<Runs>,
    /// Reads of the views.
    pub reads: Arc<Reads>,
    /// Environments of this process.
    pub environments: Environments,
    /// Commands of this process.
    pub execution: Execution,
    /// Files.
    pub workspace: WorkspaceService,
    /// Outputs of this process.
    pub output: Arc<OutputHub>,
    /// Desired against observed.
    pub reconciler: Reconciler,
    /// Its signal.
    pub wake: Wake,
    /// Tasks.
    pub supervisor: Supervisor,
    /// Who may ask.
    pub tokens: Tokens,
    /// Signed heads and proofs.
    pub sealing: Sealing,
    /// What a lease may use.
    pub limits: LimitsConfig,
    /// Longest life of an environment, and so of a lease.
    pub environment_cap: Duration,
    /// Whether this process owns the node now: without that nothing starts.
    pub owner: watch::Receiver<bool>,
}

/// The composed service; shared by every interface as `Arc<App>`.
pub struct App {
    parts: AppParts,
    closing: AtomicBool,
}

impl App {
    /// From its parts.
    #[must_use]
    pub const fn new(parts: AppParts) -> Self {
        Self { parts, closing: AtomicBool::new(false) }
    }

    /// The parts.
    #[must_use]
    pub const fn parts(&self) -> &AppParts {
        &self.parts
    }

    /// Where tasks are started.
    #[must_use]
    pub const fn supervisor(&self) -> &Supervisor {
        &self.parts.supervisor
    }

    /// Who a bearer token stands for; constant time over the secret.
    ///
    /// # Errors
    /// `Unauthorized`.
    pub fn authenticate(&self, bearer: &str) -> Result<Principal, ServiceError> {
        self.parts.tokens.authenticate(bearer).cloned().ok_or(ServiceError::Unauthorized)
    }

    /// Refuses new work from now on; what was accepted goes on.
    pub fn refuse_new_work(&self) {
        self.closing.store(true, Ordering::Release);
    }

    /// Whether everything that a request needs answers.
    pub async fn readiness(&self) -> Readiness {
        let status = self.parts.log.status();
        let log = match (status.appending, status.silent_for) {
            (false, _) => Some("nothing can be appended: restart the service".to_owned()),
            (true, silent) if silent > LOG_SILENCE_MAX => {
                Some(format!("no answer for {} s", silent.as_secs()))
            }
            (true, _) => None,
        };
        let projections = match self.parts.reads.runner().status() {
            RunnerStatus::Live { .. } | RunnerStatus::Following { .. } | RunnerStatus::CatchingUp { .. } => {
                let lag = self.parts.reads.runner().lag();
                (lag.ms > LAG_MS_MAX).then(|| format!("{} events and {} ms behind", lag.events, lag.ms))
            }
            other => Some(other.to_string()),
        };
        let ping = self.parts.environments.ports().execution.ping();
        let runtime = match tokio::time::timeout(PING_MAX, ping).await {
            Ok(Ok(())) => None,
            Ok(Err(error)) => Some(error.to_string()),
            Err(_) => Some("no answer in time".to_owned()),
        };
        let closing = self.closing.load(Ordering::Acquire).then(|| "the service is stopping".to_owned());
        let checks: Vec<ReadinessCheck> = [
            ("log", log),
            ("sealing", self.parts.sealing.fault()),
            ("projections", projections),
            ("runtime", runtime),
            ("reconciler", self.parts.reconciler.fault()),
            ("teardown", self.parts.reconciler.teardown_fault()),
            ("accepting", closing),
        ]
        .into_iter()
        .map(|(name, detail)| ReadinessCheck { name, ok: detail.is_none(), detail })
        .collect();
        Readiness { ready: checks.iter().all(|check| check.ok), checks }
    }

    /// New work needs its scope and a service that does not stop.
    fn admit(&self, ctx: &RequestCtx, scope: Scope) -> Result<(), ServiceError> {
        permit(ctx, scope)?;
        if !*self.parts.owner.borrow() {
            return Err(ServiceError::Unavailable { reason_code: "node_not_owned" });
        }
        if self.closing.load(Ordering::Acquire) {
            return Err(ServiceError::Unavailable { reason_code: "shutting_down" });
        }
        Ok(())
    }
}

/// Reads and everything that only ends something need their scope alone.
fn permit(ctx: &RequestCtx, scope: Scope) -> Result<(), ServiceError> {
    if ctx.principal.scopes.contains(&scope) {
        return Ok(());
    }
    let scope = match scope {
        Scope::Run => "run",
        Scope::Files => "files",
        Scope::Audit => "audit",
        Scope::Operator => "operator",
    };
    Err(ServiceError::Forbidden { scope })
}
