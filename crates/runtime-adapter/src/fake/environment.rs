//! One environment in memory.

use std::sync::{Mutex, MutexGuard, PoisonError};

use events::event::command::InterruptCause;
use events::ids::CommandId;
use tokio::sync::watch;

use super::tree::Tree;
use crate::ports::{EnvironmentHandle, EnvironmentSpec};

/// What the programs of one environment share.
#[derive(Debug, Default)]
pub(super) struct Shared {
    tree: Mutex<Tree>,
}

impl Shared {
    pub(super) fn tree(&self) -> MutexGuard<'_, Tree> {
        self.tree.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Why everything that runs in an environment ends at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Halt {
    /// A foreground command was killed, which stops the sandbox.
    StoppedWith(CommandId),
    /// The environment is gone.
    Lost(InterruptCause),
}

/// One environment.
#[derive(Debug)]
pub(super) struct Environment {
    pub(super) spec: EnvironmentSpec,
    pub(super) handle: EnvironmentHandle,
    pub(super) shared: Shared,
    pub(super) foreground: tokio::sync::Mutex<()>,
    /// Counts the halts; the value is the last one.
    pub(super) halts: watch::Sender<(u64, Option<Halt>)>,
}

impl Environment {
    pub(super) fn new(spec: EnvironmentSpec, handle: EnvironmentHandle) -> Self {
        Self {
            spec,
            handle,
            shared: Shared::default(),
            foreground: tokio::sync::Mutex::default(),
            halts: watch::Sender::new((0, None)),
        }
    }

    /// Ends everything that runs in it.
    pub(super) fn halt(&self, halt: Halt) {
        self.halts.send_modify(|(count, last)| {
            *count += 1;
            *last = Some(halt);
        });
    }

    /// Lost for good, if it is.
    pub(super) fn lost(&self) -> Option<InterruptCause> {
        match self.halts.borrow().1 {
            Some(Halt::Lost(cause)) => Some(cause),
            _ => None,
        }
    }
}
