//! One environment in memory.

use std::sync::atomic::AtomicU32;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use events::event::command::{FileChange, InterruptCause};
use events::ids::CommandId;
use tokio::sync::watch;

use super::tree::Tree;
use crate::changes::ChangeTracker;
use crate::ports::{EnvironmentHandle, EnvironmentSpec};
use crate::quota::Used;

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
    pub(super) foreground: Arc<tokio::sync::Mutex<()>>,
    changes: Mutex<ChangeTracker>,
    /// Kills in a row that left the workspace over its limit (count).
    pub(super) strikes: AtomicU32,
    /// Counts the halts; the value is the last one.
    pub(super) halts: watch::Sender<(u64, Option<Halt>)>,
}

impl Environment {
    pub(super) fn new(spec: EnvironmentSpec, handle: EnvironmentHandle) -> Self {
        Self {
            spec,
            handle,
            shared: Shared::default(),
            foreground: Arc::default(),
            changes: Mutex::default(),
            strikes: AtomicU32::new(0),
            halts: watch::Sender::new((0, None)),
        }
    }

    /// What its workspace may hold.
    pub(super) fn limit(&self) -> Used {
        let limits = &self.spec.limits;
        Used { bytes: limits.workspace_bytes, inodes: limits.inodes_max }
    }

    /// Ends everything that runs in it.
    pub(super) fn halt(&self, halt: Halt) {
        self.halts.send_modify(|(count, last)| {
            *count += 1;
            *last = Some(halt);
        });
    }

    /// A command starts: whatever changed before is not its doing.
    pub(super) fn begin_changes(&self, command_id: CommandId) {
        let mut tracker = self.changes.lock().unwrap_or_else(PoisonError::into_inner);
        if tracker.begin(command_id) {
            tracker.report(&self.shared.tree().take_changes(), false);
            tracker.restart(command_id);
        }
    }

    /// A command is over: what changed since it began, and whether the list was cut.
    pub(super) fn finish_changes(&self, command_id: CommandId) -> (Vec<FileChange>, bool) {
        let mut tracker = self.changes.lock().unwrap_or_else(PoisonError::into_inner);
        tracker.report(&self.shared.tree().take_changes(), false);
        tracker.finish(command_id, self.spec.files_changed_max)
    }

    /// Lost for good, if it is.
    pub(super) fn lost(&self) -> Option<InterruptCause> {
        match self.halts.borrow().1 {
            Some(Halt::Lost(cause)) => Some(cause),
            _ => None,
        }
    }
}
