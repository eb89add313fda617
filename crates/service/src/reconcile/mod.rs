//! The reconciler: desired (the log, through the views) against observed (this process, and the runtime).
//!
//! Level-triggered: a pass takes no input, reads where things stand, and does one step about each thing that is not where it
//! should be. A signal only makes the next pass come sooner. Nothing is retried inside a pass, and a step that is done twice is
//! recorded once. [`plan`] decides about environments, [`orphans`] about what has no owner.

mod orphans;
mod pass;
mod plan;

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use event_log::EventLog;
use events::EnvironmentId;
use runtime_adapter::ports::ObservedObject;
use tokio::sync::{Notify, watch};

use crate::environments::Environments;
use crate::execution::Execution;
use crate::reads::Reads;
use crate::runs::Runs;
use crate::supervise::Supervisor;

/// How often idempotency keys are pruned.
const PRUNE_INTERVAL: Duration = Duration::from_secs(3_600);

/// Makes the next pass come now.
#[derive(Clone, Debug, Default)]
pub struct Wake(Arc<Notify>);

impl Wake {
    /// Something changed that a pass may care about.
    pub fn now(&self) {
        self.0.notify_one();
    }

    async fn woken(&self) {
        self.0.notified().await;
    }
}

/// What the reconciler needs of the configuration.
#[derive(Clone, Copy, Debug)]
pub struct ReconcileConfig {
    /// How often it runs without being woken.
    pub interval: Duration,
    /// How old an object without an owner must be before it is removed.
    pub orphan_grace: Duration,
    /// Longest wait for running commands when a lease is released.
    pub release_drain: Duration,
}

/// The parts it acts through.
#[derive(Clone)]
pub struct Parts {
    /// The log.
    pub log: EventLog,
    /// The one way in.
    pub runs: Arc<Runs>,
    /// Desired state.
    pub reads: Arc<Reads>,
    /// Environments of this process.
    pub environments: Environments,
    /// Commands of this process.
    pub execution: Execution,
    /// For removals, which take a while.
    pub supervisor: Supervisor,
    /// Its own signal.
    pub wake: Wake,
    /// Whether this process owns the node now: without that it removes nothing and ends nothing.
    pub owner: watch::Receiver<bool>,
}

/// See the module. Cheap to clone.
#[derive(Clone)]
pub struct Reconciler {
    parts: Parts,
    config: ReconcileConfig,
    memory: Arc<Mutex<Memory>>,
    /// Two sweeps at once would record a removal twice.
    sweeping: Arc<tokio::sync::Mutex<()>>,
}

/// What only this process knows, and may forget.
#[derive(Debug, Default)]
struct Memory {
    /// Removals that are under way.
    destroying: HashSet<EnvironmentId>,
    /// When the teardown of an environment was first seen.
    unwanted_since: HashMap<EnvironmentId, Instant>,
    /// When an attempt at removal may be made again.
    paused_until: HashMap<EnvironmentId, Instant>,
    /// When an object without an owner and without an age was first seen.
    strays: HashMap<String, Instant>,
    /// Orphans that were removed, and whose removal is not on record yet.
    unrecorded: Vec<ObservedObject>,
    /// Environments whose removal has failed several times.
    teardown_failing: usize,
    /// Why the last pass did not get through.
    fault: Option<String>,
}

impl Reconciler {
    /// Over the parts of this process.
    #[must_use]
    pub fn new(parts: Parts, config: ReconcileConfig) -> Self {
        Self { parts, config, memory: Arc::default(), sweeping: Arc::default() }
    }

    /// Starts the loops; they end when the service stops.
    pub fn start(&self) {
        let this = self.clone();
        self.parts.supervisor.start("reconciler", async move { this.pass_loop().await });
        let this = self.clone();
        self.parts.supervisor.start("orphan sweep", async move { this.orphan_loop().await });
        let this = self.clone();
        self.parts.supervisor.start("request key pruning", async move { this.prune_loop().await });
    }

    /// Why the last pass did not get through, if it did not.
    #[must_use]
    pub fn fault(&self) -> Option<String> {
        self.memory().fault.clone()
    }

    /// One pass; what kept it from getting through shows on readiness until a later one does.
    pub async fn pass(&self) {
        let fault = self.try_pass().await.err().map(|error| error.to_string());
        let known = std::mem::replace(&mut self.memory().fault, fault.clone());
        if fault != known {
            tracing::warn!(fault, "reconciliation does not get through, or does again");
        }
    }

    /// `teardown_failed`, when environments cannot be removed.
    #[must_use]
    pub fn teardown_fault(&self) -> Option<String> {
        let failing = self.memory().teardown_failing;
        (failing > 0).then(|| format!("teardown_failed: {failing} environments cannot be removed"))
    }

    async fn pass_loop(&self) {
        let stopping = self.parts.supervisor.stopping().clone();
        while !stopping.is_cancelled() {
            self.pass().await;
            tokio::select! {
                () = stopping.cancelled() => {}
                () = self.parts.wake.woken() => {}
                () = tokio::time::sleep(self.config.interval) => {}
            }
        }
    }

    async fn orphan_loop(&self) {
        let stopping = self.parts.supervisor.stopping().clone();
        // Often enough that an orphan goes soon after its grace, and the engine is not asked all the time.
        let interval =
            (self.config.orphan_grace / 4).clamp(Duration::from_millis(500), Duration::from_secs(15));
        while !stopping.is_cancelled() {
            if let Err(error) = self.sweep_orphans().await {
                tracing::warn!(error = %error, "an orphan sweep did not get through");
            }
            tokio::select! {
                () = stopping.cancelled() => {}
                () = tokio::time::sleep(interval) => {}
            }
        }
    }

    /// Idempotency keys are kept for 24 hours.
    async fn prune_loop(&self) {
        let stopping = self.parts.supervisor.stopping().clone();
        while !stopping.is_cancelled() {
            match self.parts.log.prune_request_keys().await {
                Ok(0) => {}
                Ok(keys) => tracing::debug!(keys, "idempotency keys were forgotten"),
                Err(error) => tracing::warn!(error = %error, "idempotency keys could not be pruned"),
            }
            tokio::select! {
                () = stopping.cancelled() => {}
                () = tokio::time::sleep(PRUNE_INTERVAL) => {}
            }
        }
    }

    /// This process owns the node now.
    fn owns(&self) -> bool {
        *self.parts.owner.borrow()
    }

    fn memory(&self) -> MutexGuard<'_, Memory> {
        self.memory.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
