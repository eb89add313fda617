//! The commands that wait or run in this process.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use events::{CommandId, EnvironmentId, Position};
use runtime_adapter::ports::{Cancel, CancelHandle, CancelRequest, cancel_pair};
use tokio::sync::watch;

/// One of them, as the reconciler sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ActiveCommand {
    /// The command.
    pub command_id: CommandId,
    /// Where it runs or will run.
    pub environment_id: EnvironmentId,
    /// It has been handed to the runtime.
    pub running: bool,
}

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Actives(Mutex<HashMap<CommandId, Active>>);

#[derive(Debug)]
struct Active {
    command: ActiveCommand,
    /// Of the request that made it, when it had a key.
    digest: Option<[u8; 32]>,
    cancel: CancelHandle,
    ended: watch::Receiver<Option<Ended>>,
}

/// A command is active no longer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Ended {
    /// Positions of its acceptance, its start and its outcome, as far as they came on record here.
    pub(super) positions: Vec<Position>,
}

/// What the task of a command holds; the command stays active until it is dropped.
pub(super) struct Entry<'a> {
    actives: &'a Actives,
    pub(super) command_id: CommandId,
    pub(super) cancel: Cancel,
    ended: watch::Sender<Option<Ended>>,
    positions: Vec<Position>,
}

/// Why a command cannot become active.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Taken {
    /// The same request is under way.
    SameRequest,
    /// Another request is under way under the same key.
    OtherRequest,
}

impl Actives {
    /// Makes a command active before it is recorded, so that a kill finds it from the first moment on.
    pub(super) fn enter(
        &self,
        command_id: CommandId,
        environment_id: EnvironmentId,
        digest: Option<[u8; 32]>,
    ) -> Result<Entry<'_>, Taken> {
        let mut actives = self.lock();
        if let Some(other) = actives.get(&command_id) {
            return Err(if other.digest == digest { Taken::SameRequest } else { Taken::OtherRequest });
        }
        let (handle, cancel) = cancel_pair();
        let (ended, receiver) = watch::channel(None);
        let command = ActiveCommand { command_id, environment_id, running: false };
        actives.insert(command_id, Active { command, digest, cancel: handle, ended: receiver });
        Ok(Entry { actives: self, command_id, cancel, ended, positions: Vec::new() })
    }

    pub(super) fn contains(&self, command_id: CommandId) -> bool {
        self.lock().contains_key(&command_id)
    }

    pub(super) fn list(&self) -> Vec<ActiveCommand> {
        self.lock().values().map(|active| active.command).collect()
    }

    pub(super) fn cancel(&self, command_id: CommandId, request: CancelRequest) {
        if let Some(active) = self.lock().get(&command_id) {
            active.cancel.cancel(request);
        }
    }

    pub(super) fn ended(&self, command_id: CommandId) -> Option<watch::Receiver<Option<Ended>>> {
        self.lock().get(&command_id).map(|active| active.ended.clone())
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<CommandId, Active>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Entry<'_> {
    /// Its acceptance, its start or its outcome is on record.
    pub(super) fn recorded_at(&mut self, position: Position) {
        self.positions.push(position);
    }

    /// It is about to be handed to the runtime.
    pub(super) fn running(&self) {
        if let Some(active) = self.actives.lock().get_mut(&self.command_id) {
            active.command.running = true;
        }
    }
}

impl Drop for Entry<'_> {
    fn drop(&mut self) {
        self.actives.lock().remove(&self.command_id);
        let positions = std::mem::take(&mut self.positions);
        self.ended.send_replace(Some(Ended { positions }));
    }
}

#[cfg(test)]
mod tests {
    use uuid::Uuid;

    use super::*;

    #[test]
    fn a_command_is_active_once_and_until_its_entry_goes() {
        let actives = Actives::default();
        let (command, environment) = (CommandId(Uuid::from_u128(1)), EnvironmentId(Uuid::from_u128(2)));
        let mut entry = actives.enter(command, environment, Some([1; 32])).map_err(drop).unwrap();
        assert_eq!(actives.enter(command, environment, Some([1; 32])).err(), Some(Taken::SameRequest));
        assert_eq!(actives.enter(command, environment, Some([2; 32])).err(), Some(Taken::OtherRequest));
        entry.running();
        assert!(actives.list()[0].running);
        let ended = actives.ended(command).unwrap();
        entry.recorded_at(Position(7));
        drop(entry);
        assert_eq!(*ended.borrow(), Some(Ended { positions: vec![Position(7)] }));
        assert!(!actives.contains(command));
    }
}
