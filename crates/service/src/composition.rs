//! Putting the parts together over a log and an adapter, in the order in which they need each other, and taking them apart.

use std::sync::Arc;
use std::time::{Duration, Instant};

use event_log::{AppendRequest, EventLog, Expected, InstanceLock, LogConfig};
use events::event::command::{Evidence, KillReason};
use events::event::environment::TeardownCause;
use events::event::service::ServiceStarted;
use events::run::RunCommand;
use events::spec::{ImageDigest, Mechanism};
use events::stored::{NewEvent, StreamName};
use events::{Event, EventId, InstanceId, NodeId, Position, TenantId};
use projections::{Runner, RunnerStatus, Views};
use runtime_adapter::crash::CrashPoints;
use runtime_adapter::ports::CancelRequest;
use uuid::Uuid;

use crate::app::{App, AppParts};
use crate::config::Config;
use crate::environments::{Environments, Identity, Ports};
use crate::execution::{Execution, ExecutionConfig};
use crate::output::OutputHub;
use crate::reads::Reads;
use crate::reconcile::{Parts, ReconcileConfig, Reconciler, Wake};
use crate::runs::{RunRef, Runs};
use crate::sealing::{Sealing, SealingConfig};
use crate::supervise::Supervisor;
use crate::tokens::Tokens;
use crate::workspace::WorkspaceService;

/// Longest time without progress while the views come up to what the log held at start.
const CATCH_UP_MAX: Duration = Duration::from_secs(60);
/// Longest wait for a predecessor on this node to let go of its lock.
const LOCK_MAX: Duration = Duration::from_secs(15);
/// Pause between two tries to take the lock.
const LOCK_PAUSE: Duration = Duration::from_millis(100);
/// Longest wait for outcomes after commands were killed at the end.
const OUTCOMES_MAX: Duration = Duration::from_secs(60);
/// Longest wait for environments to be removed at the end.
const REMOVALS_MAX: Duration = Duration::from_secs(90);
/// Longest wait for tasks to end.
const JOIN_MAX: Duration = Duration::from_secs(20);
/// Longest wait for the last events to be sealed.
const SEAL_MAX: Duration = Duration::from_secs(5);

/// Connection strings of one database.
#[derive(Clone, Debug)]
pub struct Database {
    /// Role `leasehold_append`.
    pub append_url: String,
    /// Role `leasehold_project`.
    pub project_url: String,
    /// Role `leasehold_seal`, its keys, and where the head is kept.
    pub sealing: SealingConfig,
}

/// A log that this process is the node's owner of.
pub struct Foundation {
    /// The log.
    pub log: EventLog,
    /// This life of the service.
    pub instance_id: InstanceId,
    /// Whose runtime it uses.
    pub node_id: NodeId,
    database: Database,
    lock: InstanceLock,
}

/// What the adapter brings.
#[derive(Clone)]
pub struct Runtime {
    /// Its three ports.
    pub ports: Ports,
    /// Its mechanism.
    pub mechanism: Mechanism,
    /// The execution image.
    pub image_digest: ImageDigest,
}

/// Why the service does not start.
#[derive(Debug, thiserror::Error)]
pub enum ComposeError {
    /// The log cannot be opened.
    #[error("the log cannot be opened: {0}")]
    Log(#[from] event_log::LogError),
    /// Another process owns this node.
    #[error("another process serves on this data directory")]
    NodeInUse,
    /// The views cannot be connected.
    #[error("the views cannot be connected: {0}")]
    Views(#[from] projections::ViewsError),
    /// The views do not follow the log.
    #[error("the views do not follow the log: {0}")]
    Behind(RunnerStatus),
    /// The start cannot be recorded.
    #[error("the start cannot be recorded: {0}")]
    Append(#[from] event_log::AppendError),
}

impl Foundation {
    /// Opens the log and becomes the owner of the node.
    ///
    /// # Errors
    /// The database, or another process that owns the node.
    pub async fn lay(database: Database, node_id: NodeId) -> Result<Self, ComposeError> {
        let log = EventLog::open(LogConfig::new(&database.append_url)).await?;
        let lock = own_node(&database.append_url, node_id).await?;
        Ok(Self { log, instance_id: InstanceId(Uuid::now_v7()), node_id, database, lock })
    }
}

/// A predecessor that was killed may hold the lock until the database has seen its sockets close.
async fn own_node(url: &str, node_id: NodeId) -> Result<InstanceLock, ComposeError> {
    let deadline = Instant::now() + LOCK_MAX;
    loop {
        match InstanceLock::acquire(url, InstanceId(node_id.0)).await {
            Ok(lock) => return Ok(lock),
            Err(error) if Instant::now() >= deadline => {
                tracing::error!(error = %error, "the node's lock is not free");
                return Err(ComposeError::NodeInUse);
            }
            Err(_) => tokio::time::sleep(LOCK_PAUSE).await,
        }
    }
}

/// A running service.
pub struct Service {
    /// What interfaces talk to.
    pub app: Arc<App>,
    lock: InstanceLock,
}

impl Service {
    /// Composes the parts, records the start, settles what an earlier process left, and starts the loops.
    ///
    /// # Errors
    /// Any of it.
    pub async fn start(
        foundation: Foundation,
        runtime: Runtime,
        config: &Config,
        tokens: Tokens,
    ) -> Result<Self, ComposeError> {
        let Foundation { log, instance_id, node_id, database, lock } = foundation;
        let runner = Runner::start(log.clone(), &database.project_url)?;
        catch_up(&log, &runner).await?;
        let sealing = Sealing::start(&database.append_url, database.sealing, log.subscribe())?;
        let supervisor = Supervisor::default();
        let crash = CrashPoints::armed(config.crash_point.as_deref());
        let wake = Wake::default();
        let runs = Arc::new(Runs::new(log.clone(), instance_id));
        let reads = Arc::new(Reads::new(log.clone(), Views::connect(&database.project_url)?, runner));
        let output = Arc::new(OutputHub::default());
        let identity = Identity {
            instance_id,
            node_id,
            mechanism: runtime.mechanism,
            image_digest: runtime.image_digest,
            provision_budget: config.provision_budget,
            files_changed_max: config.files_changed_max,
            queue_waiting_max: config.queue_waiting_max,
        };
        record_start(&log, &runs, &identity).await?;
        let environments = Environments::new(
            Arc::clone(&runs),
            runtime.ports,
            identity,
            supervisor.clone(),
            crash.clone(),
            wake.clone(),
        );
        let execution = Execution::new(
            Arc::clone(&runs),
            Arc::clone(&reads),
            environments.clone(),
            Arc::clone(&output),
            supervisor.clone(),
            crash,
            ExecutionConfig {
                output_bytes_max: config.output_bytes_max,
                tier1: config.pass_environment.clone(),
            },
        );
        let reconciler = Reconciler::new(
            Parts {
                log: log.clone(),
                runs: Arc::clone(&runs),
                reads: Arc::clone(&reads),
                environments: environments.clone(),
                execution: execution.clone(),
                supervisor: supervisor.clone(),
                wake: wake.clone(),
                owner: lock.held(),
            },
            ReconcileConfig {
                interval: config.reconcile_interval,
                orphan_grace: config.orphan_grace,
                release_drain: config.release_drain,
            },
        );
        // What an earlier process left is settled before anything new comes. One thing that cannot be settled keeps nobody else
        // from being served: it shows on readiness, and every pass tries again.
        reconciler.pass().await;
        reconciler.start();
        let workspace = WorkspaceService::new(Arc::clone(&runs), environments.clone());
        let app = Arc::new(App::new(AppParts {
            log,
            runs,
            reads,
            environments,
            execution,
            workspace,
            output,
            reconciler,
            wake,
            supervisor,
            tokens,
            sealing,
            limits: config.limits,
            environment_cap: config.environment_cap,
            owner: lock.held(),
        }));
        Ok(Self { app, lock })
    }

    /// Ends the service: no new work, a wait for what runs, then kills with SERVICE_SHUTDOWN; with `release` every environment
    /// is removed as well, else they stay for the next process.
    pub async fn stop(self, drain: Duration, release: bool) {
        let parts = self.app.parts();
        self.app.refuse_new_work();
        let deadline_ms = u64::try_from(drain.as_millis()).unwrap_or(u64::MAX);
        if !until(drain, || parts.execution.active().is_empty()).await {
            let evidence = Evidence { deadline_ms: Some(deadline_ms), ..Evidence::default() };
            let kill = CancelRequest { reason: KillReason::ServiceShutdown, evidence };
            // Again and again: a request that was admitted just before may accept one more.
            let killed = || {
                let active = parts.execution.active();
                active.iter().for_each(|command| parts.execution.cancel(command.command_id, kill.clone()));
                active.is_empty()
            };
            if !until(OUTCOMES_MAX, killed).await {
                tracing::error!("commands are left without an outcome; the next start settles them");
            }
        }
        if release && !release_environments(parts).await {
            tracing::error!("environments are left; the next start removes them");
        }
        if let Err(left) = parts.supervisor.join(JOIN_MAX).await {
            tracing::error!(left, "tasks did not end in time");
        }
        if let Ok(head) = parts.log.head().await {
            parts.sealing.reach(head, SEAL_MAX).await;
        }
        drop(self.lock);
    }
}

/// Waits as long as the views make progress: a long log takes its time.
async fn catch_up(log: &EventLog, runner: &Runner) -> Result<(), ComposeError> {
    let head: Position = log.head().await?;
    let mut positions = runner.positions();
    let mut statuses = runner.statuses();
    loop {
        if *positions.borrow_and_update() >= head {
            return Ok(());
        }
        let progress = tokio::time::timeout(CATCH_UP_MAX, positions.changed());
        tokio::select! {
            progress = progress => match progress {
                Ok(Ok(())) => {}
                _ => return Err(ComposeError::Behind(runner.status())),
            },
            _ = statuses.wait_for(|status| matches!(status, RunnerStatus::Stopped { .. })) => {
                return Err(ComposeError::Behind(runner.status()));
            }
        }
    }
}

async fn record_start(log: &EventLog, runs: &Runs, identity: &Identity) -> Result<(), ComposeError> {
    let event = Event::ServiceStarted(ServiceStarted {
        instance_id: identity.instance_id,
        node_id: identity.node_id,
        version: env!("CARGO_PKG_VERSION").to_owned(),
        mechanism: identity.mechanism,
        image_digest: (identity.mechanism != Mechanism::Fake).then(|| identity.image_digest.clone()),
    });
    let request = AppendRequest {
        stream: StreamName::service(identity.instance_id),
        expected: Expected::None,
        guards: Vec::new(),
        key: None,
        events: vec![NewEvent {
            event_id: EventId(Uuid::now_v7()),
            tenant: TenantId::SYSTEM,
            recorded_at: log.clock().now(),
            actor: runs.service_actor(),
            correlation_id: None,
            causation_id: None,
            event,
        }],
    };
    log.append(request).await?;
    Ok(())
}

/// Asks for the teardown of everything of this node and waits until nothing is left.
async fn release_environments(parts: &AppParts) -> bool {
    let node_id = parts.environments.identity().node_id;
    let deadline = Instant::now() + REMOVALS_MAX;
    let mut folded = parts.reads.runner().positions();
    while Instant::now() < deadline {
        folded.mark_unchanged();
        let open = match parts.reads.see_all().await {
            Ok(()) => parts.reads.views().open_environments(Some(node_id)).await,
            Err(error) => {
                tracing::warn!(error = %error, "the views cannot be read");
                return false;
            }
        };
        let Ok(open) = open else { return false };
        if open.is_empty() {
            return true;
        }
        for environment in open {
            let run =
                RunRef { tenant: environment.environment.tenant, run_id: environment.environment.run_id };
            let environment_id = environment.environment.environment_id;
            let cause = TeardownCause::ServiceShutdown;
            let asked = parts.runs.record(run, &RunCommand::RequestTeardown { environment_id, cause }).await;
            if let Err(error) = asked {
                tracing::error!(%environment_id, error = %error, "its teardown cannot be asked for");
            }
        }
        parts.wake.now();
        // A removal shows as an event; the timeout covers one that only fails.
        let _ = tokio::time::timeout(Duration::from_secs(1), folded.changed()).await;
    }
    false
}

/// Waits until something holds; answers whether it came to.
async fn until(limit: Duration, holds: impl Fn() -> bool) -> bool {
    const LOOK: Duration = Duration::from_millis(20);
    let deadline = Instant::now() + limit;
    while !holds() {
        if Instant::now() >= deadline {
            return false;
        }
        tokio::time::sleep(LOOK).await;
    }
    true
}
