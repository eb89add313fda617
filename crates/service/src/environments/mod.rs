//! Environments as this process holds them: made lazily by the first command or file call of a lease, once however many callers
//! wait, taken over after a restart, known until the reconciler has destroyed them.
//!
//! What an environment *is* stands in the log; what is here is only the way to it: handle, queue, streams in use.

pub(crate) mod make;

use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use events::run::{EnvironmentPhase, RunCommand, RunState};
use events::spec::{ImageDigest, Mechanism};
use events::{EnvironmentId, InstanceId, LeaseId, NodeId, Timestamp};
use runtime_adapter::crash::CrashPoints;
use runtime_adapter::ports::{EnvironmentHandle, ExecutionEnvironment, Inventory, Workspace};
use tokio::sync::watch;

use crate::api::ServiceError;
use crate::execution::queue::Queue;
use crate::reconcile::Wake;
use crate::runs::{RunRef, Runs, SubmitError};
use crate::supervise::Supervisor;

/// How often a caller finds the world changed under it before it is told to try again.
const ROUNDS_MAX: usize = 8;

/// The three ports of one adapter.
#[derive(Clone)]
pub struct Ports {
    /// Provision, execute, destroy.
    pub execution: Arc<dyn ExecutionEnvironment>,
    /// Files.
    pub workspace: Arc<dyn Workspace>,
    /// What exists.
    pub inventory: Arc<dyn Inventory>,
}

/// What this process is and how it makes environments.
#[derive(Clone, Debug)]
pub struct Identity {
    /// This life of the service.
    pub instance_id: InstanceId,
    /// Whose runtime it uses; held by one process at a time.
    pub node_id: NodeId,
    /// How environments are isolated.
    pub mechanism: Mechanism,
    /// The execution image, resolved at start.
    pub image_digest: ImageDigest,
    /// Longest time to make one.
    pub provision_budget: Duration,
    /// Entries in one command's `files_changed`.
    pub files_changed_max: u64,
    /// Commands that may wait in one environment.
    pub queue_waiting_max: usize,
}

/// One environment that can be used.
#[derive(Debug)]
pub struct Environment {
    /// For the ports.
    pub handle: EnvironmentHandle,
    /// Of which run.
    pub run: RunRef,
    /// Of which lease.
    pub lease_id: LeaseId,
    /// The foreground queue.
    pub queue: Arc<Queue>,
    streams: AtomicUsize,
}

/// A workspace stream is in use; teardown waits a little for it.
#[derive(Debug)]
pub struct StreamInUse(Arc<Environment>);

impl Environment {
    /// Counts a workspace stream until the guard is dropped.
    #[must_use]
    pub fn stream(self: &Arc<Self>) -> StreamInUse {
        self.streams.fetch_add(1, Ordering::AcqRel);
        StreamInUse(Arc::clone(self))
    }

    /// Workspace streams in use.
    #[must_use]
    pub fn streams(&self) -> usize {
        self.streams.load(Ordering::Acquire)
    }
}

impl Drop for StreamInUse {
    fn drop(&mut self) {
        self.0.streams.fetch_sub(1, Ordering::AcqRel);
    }
}

type Made = Result<Arc<Environment>, ServiceError>;

/// See the module. Cheap to clone.
#[derive(Clone)]
pub struct Environments {
    shared: Arc<Shared>,
}

struct Shared {
    runs: Arc<Runs>,
    ports: Ports,
    identity: Identity,
    supervisor: Supervisor,
    crash: CrashPoints,
    wake: Wake,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    ready: HashMap<EnvironmentId, Arc<Environment>>,
    /// Leases whose environment is being made or taken over, with where the result will be.
    making: HashMap<LeaseId, watch::Receiver<Option<Made>>>,
    /// The environments of `making`: whatever the runtime shows of them has an owner.
    in_flight: HashSet<EnvironmentId>,
}

/// What a lease's state allows.
enum Standing {
    Refused(ServiceError),
    Ready(EnvironmentId),
    Requested(EnvironmentId),
    Absent,
}

impl Environments {
    /// Over the ports of one adapter.
    #[must_use]
    pub fn new(
        runs: Arc<Runs>,
        ports: Ports,
        identity: Identity,
        supervisor: Supervisor,
        crash: CrashPoints,
        wake: Wake,
    ) -> Self {
        let state = Mutex::default();
        Self { shared: Arc::new(Shared { runs, ports, identity, supervisor, crash, wake, state }) }
    }

    /// The ports.
    #[must_use]
    pub fn ports(&self) -> &Ports {
        &self.shared.ports
    }

    /// What this process is.
    #[must_use]
    pub fn identity(&self) -> &Identity {
        &self.shared.identity
    }

    /// The lease's environment, ready to use; makes it when there is none, joins whoever makes it already.
    ///
    /// # Errors
    /// `LeaseLost`, `EnvironmentLost`, `EnvironmentUnavailable`, or that the log does not answer.
    pub async fn ensure(&self, run: RunRef, lease_id: LeaseId) -> Made {
        for _ in 0..ROUNDS_MAX {
            let made = match self.standing(run, lease_id).await? {
                Standing::Refused(error) => return Err(error),
                Standing::Ready(environment_id) => match self.get(environment_id) {
                    Some(environment) => return Ok(environment),
                    None => self.join(run, lease_id, Some(environment_id)).await,
                },
                Standing::Requested(environment_id) if !self.is_being_made(lease_id) => {
                    self.abandon(run, environment_id).await?;
                    continue;
                }
                Standing::Requested(_) | Standing::Absent => self.join(run, lease_id, None).await,
            };
            match made {
                // Somebody else's request came first, or the state was read a moment too early.
                Err(ServiceError::Conflict) => {}
                made => return made,
            }
        }
        Err(ServiceError::Conflict)
    }

    /// An environment that can be used now.
    #[must_use]
    pub fn get(&self, environment_id: EnvironmentId) -> Option<Arc<Environment>> {
        self.lock().ready.get(&environment_id).cloned()
    }

    /// It is being made or taken over: nobody may remove it meanwhile.
    #[must_use]
    pub fn is_in_flight(&self, environment_id: EnvironmentId) -> bool {
        self.lock().in_flight.contains(&environment_id)
    }

    /// It is destroyed.
    pub fn forget(&self, environment_id: EnvironmentId) {
        self.lock().ready.remove(&environment_id);
    }

    /// An intent of a process that is gone: nothing will come of it.
    async fn abandon(&self, run: RunRef, environment_id: EnvironmentId) -> Result<(), ServiceError> {
        let reason_code = "service_lost".to_owned();
        let failed = RunCommand::RecordProvisionFailed { environment_id, reason_code };
        match self.shared.runs.record(run, &failed).await {
            // It became ready between two looks.
            Ok(_) | Err(SubmitError::Rejected(_)) => {
                self.shared.wake.now();
                Ok(())
            }
            Err(error) => Err(error.into()),
        }
    }

    async fn standing(&self, run: RunRef, lease_id: LeaseId) -> Result<Standing, ServiceError> {
        let node_id = self.shared.identity.node_id;
        let read = |state: &RunState, now: Timestamp| standing(state, lease_id, node_id, now);
        match self.shared.runs.look(run, read).await? {
            // A refusal counts only on what the log holds by now.
            Standing::Refused(_) => Ok(self.shared.runs.look_fresh(run, read).await?),
            standing => Ok(standing),
        }
    }

    fn is_being_made(&self, lease_id: LeaseId) -> bool {
        self.lock().making.contains_key(&lease_id)
    }

    /// Waits for the environment that is being made for the lease, and starts making it when nobody does. `adopt` names one
    /// that exists already.
    async fn join(&self, run: RunRef, lease_id: LeaseId, adopt: Option<EnvironmentId>) -> Made {
        let mut receiver = {
            let mut state = self.lock();
            match state.making.get(&lease_id) {
                Some(receiver) => receiver.clone(),
                None => {
                    let (sender, receiver) = watch::channel(None);
                    state.making.insert(lease_id, receiver.clone());
                    let this = self.clone();
                    self.shared.supervisor.start("make environment", async move {
                        let done = Done { environments: this.clone(), lease_id };
                        let made = match adopt {
                            Some(environment_id) => this.adopt(run, lease_id, environment_id).await,
                            None => this.provision(run, lease_id).await,
                        };
                        drop(done);
                        sender.send_replace(Some(made));
                    });
                    receiver
                }
            }
        };
        let made = receiver.wait_for(Option::is_some).await.map_err(|_| ServiceError::Internal)?;
        made.clone().unwrap_or(Err(ServiceError::Internal))
    }

    fn insert(&self, handle: EnvironmentHandle, run: RunRef, lease_id: LeaseId) -> Arc<Environment> {
        let queue = Queue::new(self.shared.identity.queue_waiting_max);
        let environment_id = handle.environment_id;
        let environment =
            Arc::new(Environment { handle, run, lease_id, queue, streams: AtomicUsize::new(0) });
        self.lock().ready.insert(environment_id, Arc::clone(&environment));
        environment
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.shared.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Ends the making of a lease's environment, also when it panics.
struct Done {
    environments: Environments,
    lease_id: LeaseId,
}

impl Drop for Done {
    fn drop(&mut self) {
        self.environments.lock().making.remove(&self.lease_id);
    }
}

fn standing(state: &RunState, lease_id: LeaseId, node_id: NodeId, now: Timestamp) -> Standing {
    let Some(lease) = state.leases.get(&lease_id) else {
        return Standing::Refused(ServiceError::NotFound { what: "lease" });
    };
    if !lease.is_live(now) {
        return Standing::Refused(ServiceError::LeaseLost);
    }
    let Some(environment) = state.environment_of(lease_id) else { return Standing::Absent };
    let environment_id = environment.requested.environment_id;
    match environment.phase {
        EnvironmentPhase::Requested | EnvironmentPhase::Ready if environment.requested.node_id != node_id => {
            let reason_code = "other_node".to_owned();
            Standing::Refused(ServiceError::EnvironmentUnavailable { reason_code })
        }
        EnvironmentPhase::Ready => Standing::Ready(environment_id),
        EnvironmentPhase::Requested => Standing::Requested(environment_id),
        EnvironmentPhase::TearingDown | EnvironmentPhase::Failed | EnvironmentPhase::Destroyed => {
            if environment.may_be_replaced() {
                Standing::Absent
            } else {
                Standing::Refused(ServiceError::EnvironmentLost)
            }
        }
    }
}
