//! Commands, from acceptance to outcome.
//!
//! ```text
//! accept   environment ready, place in the queue, CommandAccepted (+ CommandStarted) durable
//! run      turn, CommandStarted durable, port, outcome durable
//! ```
//! Everything after the caller's request runs in a supervised task: a client that goes away aborts nothing. [`queue`] is the
//! foreground queue, [`view`] what goes on record of the output, [`outcome`] what a result becomes.

mod accept;
mod active;
pub(crate) mod outcome;
pub mod queue;
mod run;
pub mod view;

use std::sync::Arc;

use events::event::command::{Evidence, KillReason};
use events::{CommandId, Position};
use policy::Tier1Config;
use runtime_adapter::crash::CrashPoints;
use runtime_adapter::ports::CancelRequest;

use crate::environments::Environments;
use crate::output::OutputHub;
use crate::reads::Reads;
use crate::runs::Runs;
use crate::supervise::Supervisor;

use active::Actives;

pub use accept::Accepted;
pub(crate) use accept::{keyed_id, request_key};
pub use active::ActiveCommand;

/// What execution needs of the configuration.
#[derive(Clone, Debug)]
pub struct ExecutionConfig {
    /// Hard ceiling of one command's output in bytes.
    pub output_bytes_max: u64,
    /// Variables of the service that commands see.
    pub tier1: Tier1Config,
}

/// See the module. Cheap to clone.
#[derive(Clone)]
pub struct Execution {
    shared: Arc<Shared>,
}

struct Shared {
    runs: Arc<Runs>,
    reads: Arc<Reads>,
    environments: Environments,
    output: Arc<OutputHub>,
    supervisor: Supervisor,
    crash: CrashPoints,
    config: ExecutionConfig,
    actives: Actives,
}

impl Execution {
    /// Over the environments of this process.
    #[must_use]
    pub fn new(
        runs: Arc<Runs>,
        reads: Arc<Reads>,
        environments: Environments,
        output: Arc<OutputHub>,
        supervisor: Supervisor,
        crash: CrashPoints,
        config: ExecutionConfig,
    ) -> Self {
        let actives = Actives::default();
        Self {
            shared: Arc::new(Shared {
                runs,
                reads,
                environments,
                output,
                supervisor,
                crash,
                config,
                actives,
            }),
        }
    }

    /// The commands that wait or run in this process.
    #[must_use]
    pub fn active(&self) -> Vec<ActiveCommand> {
        self.shared.actives.list()
    }

    /// Whether the command waits or runs in this process.
    #[must_use]
    pub fn is_active(&self, command_id: CommandId) -> bool {
        self.shared.actives.contains(command_id)
    }

    /// Ends a command of this process; the first request wins, one that is not here is left alone.
    pub fn cancel(&self, command_id: CommandId, request: CancelRequest) {
        self.shared.actives.cancel(command_id, request);
    }

    /// Waits until the command is active no longer; answers the positions of its acceptance, start and outcome. `None` at once
    /// when it is not of this process.
    pub async fn ended(&self, command_id: CommandId) -> Option<Vec<Position>> {
        let mut ended = self.shared.actives.ended(command_id)?;
        let end = ended.wait_for(Option::is_some).await.ok()?;
        end.as_ref().map(|end| end.positions.clone())
    }
}

/// Somebody with the right to it asked for the command's end.
#[must_use]
pub fn cancelled_by(by: &str) -> CancelRequest {
    let evidence = Evidence { by: Some(by.to_owned()), ..Evidence::default() };
    CancelRequest { reason: KillReason::Cancelled, evidence }
}
