//! What the workspace is known to hold, and the room that writes of the API take in it.
//!
//! The last walk says what is there; what the API writes and removes is added to that until the next one. A write
//! takes its room before its bytes: many at once cannot pass the quota together. It needs that room beside what it
//! replaces, because both exist until the end.

use std::sync::{Mutex, MutexGuard, PoisonError};

use guest::protocol::files::{FilesErrorCode, Quota, Usage};
use rustix::fs::Stat;

use super::failure::Failure;
use super::metadata::size_bytes;
use super::meter::allocated_bytes;

/// Room is taken in whole blocks.
const BLOCK_BYTES: u64 = 4096;

/// What is known, shared by all requests.
pub(super) struct Account {
    state: Mutex<State>,
}

struct State {
    quota: Quota,
    usage: Usage,
    taken_bytes: u64,
    taken_inodes: u64,
    /// Rises with every change that a walk under way may have missed.
    changes: u64,
}

impl Account {
    pub(super) fn new(quota: Quota) -> Self {
        let usage = Usage::default();
        Self { state: Mutex::new(State { quota, usage, taken_bytes: 0, taken_inodes: 0, changes: 0 }) }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn quota(&self) -> Quota {
        self.state().quota
    }

    pub(super) fn usage(&self) -> Usage {
        self.state().usage
    }

    /// A walk during which nothing was written or removed found this.
    pub(super) fn set(&self, usage: Usage) {
        self.state().usage = usage;
    }

    /// To be given to [`Self::set_unless_changed`] after a walk that kept nobody out.
    pub(super) fn changes(&self) -> u64 {
        self.state().changes
    }

    /// A walk that began at `changes` found this.
    pub(super) fn set_unless_changed(&self, usage: Usage, changes: u64) {
        let mut state = self.state();
        if state.changes == changes {
            state.usage = usage;
        }
    }

    /// Room for new inodes, directories among them, and as yet no bytes.
    ///
    /// # Errors
    /// `NoSpace`: the workspace is full.
    pub(super) fn take(&self, inodes: u64, directories: u64) -> Result<Room<'_>, Failure> {
        let mut room = Room { account: self, bytes: 0, file_bytes: 0, inodes: 0 };
        room.grow(directories.saturating_mul(BLOCK_BYTES), inodes)?;
        Ok(room)
    }

    /// A file was placed, new or over another one, in `directories` new directories.
    pub(super) fn placed(&self, new: &Stat, replaced: Option<&Stat>, directories: u64) -> Usage {
        let mut state = self.state();
        if let Some(old) = replaced {
            state.subtract(old);
        }
        let usage = &mut state.usage;
        usage.inodes = usage.inodes.saturating_add(1 + directories);
        let blocks = allocated_bytes(new).saturating_add(directories * BLOCK_BYTES);
        usage.allocated_bytes = usage.allocated_bytes.saturating_add(blocks);
        usage.apparent_bytes = usage.apparent_bytes.saturating_add(size_bytes(new));
        usage.largest_bytes = usage.largest_bytes.max(size_bytes(new));
        state.changes += 1;
        state.usage
    }

    /// Something was removed.
    pub(super) fn removed(&self, old: &Stat) -> Usage {
        let mut state = self.state();
        state.subtract(old);
        state.changes += 1;
        state.usage
    }
}

impl State {
    fn has_room(&self, bytes: u64, inodes: u64) -> bool {
        let used_bytes = self.usage.used_bytes().saturating_add(self.taken_bytes).saturating_add(bytes);
        let used_inodes = self.usage.inodes.saturating_add(self.taken_inodes).saturating_add(inodes);
        used_bytes <= self.quota.bytes_max && used_inodes <= self.quota.inodes_max
    }

    fn subtract(&mut self, old: &Stat) {
        let is_directory = super::metadata::kind(old) == guest::protocol::files::EntryKind::Directory;
        // With another name it is still there.
        if is_directory || old.st_nlink <= 1 {
            self.usage.inodes = self.usage.inodes.saturating_sub(1);
            self.usage.allocated_bytes = self.usage.allocated_bytes.saturating_sub(allocated_bytes(old));
            let size = if is_directory { 0 } else { size_bytes(old) };
            self.usage.apparent_bytes = self.usage.apparent_bytes.saturating_sub(size);
        }
    }
}

/// What one write may take; given back when it is dropped, after the file itself was counted.
pub(super) struct Room<'a> {
    account: &'a Account,
    bytes: u64,
    file_bytes: u64,
    inodes: u64,
}

impl Room<'_> {
    /// The file grows to `file_bytes`.
    ///
    /// # Errors
    /// `NoSpace`.
    pub(super) fn grow_to(&mut self, file_bytes: u64) -> Result<(), Failure> {
        let wanted = file_bytes.div_ceil(BLOCK_BYTES).saturating_mul(BLOCK_BYTES);
        let more = wanted.saturating_sub(self.file_bytes);
        if more > 0 {
            self.grow(more, 0)?;
            self.file_bytes = wanted;
        }
        Ok(())
    }

    fn grow(&mut self, bytes: u64, inodes: u64) -> Result<(), Failure> {
        let mut state = self.account.state();
        if !state.has_room(bytes, inodes) {
            return Err(FilesErrorCode::NoSpace.into());
        }
        state.taken_bytes = state.taken_bytes.saturating_add(bytes);
        state.taken_inodes = state.taken_inodes.saturating_add(inodes);
        drop(state);
        self.bytes = self.bytes.saturating_add(bytes);
        self.inodes = self.inodes.saturating_add(inodes);
        Ok(())
    }
}

impl Drop for Room<'_> {
    fn drop(&mut self) {
        let mut state = self.account.state();
        state.taken_bytes = state.taken_bytes.saturating_sub(self.bytes);
        state.taken_inodes = state.taken_inodes.saturating_sub(self.inodes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn account(bytes_max: u64, inodes_max: u64) -> Account {
        Account::new(Quota { bytes_max, inodes_max })
    }

    fn refused<T>(result: Result<T, Failure>) -> bool {
        result.err().is_some_and(|failure| failure.code == FilesErrorCode::NoSpace)
    }

    #[test]
    fn many_at_once_do_not_pass_the_quota_together() {
        let account = account(10 * BLOCK_BYTES, 2);
        let mut first = account.take(1, 0).unwrap();
        let mut second = account.take(1, 0).unwrap();
        assert!(refused(account.take(1, 0)), "no inode left");
        first.grow_to(6 * BLOCK_BYTES - 1).unwrap();
        first.grow_to(6 * BLOCK_BYTES).unwrap();
        assert!(refused(second.grow_to(5 * BLOCK_BYTES)));
        second.grow_to(4 * BLOCK_BYTES).unwrap();
        drop(first);
        second.grow_to(10 * BLOCK_BYTES).unwrap();
        drop(second);
        account.take(2, 0).unwrap();
        assert!(refused(account.take(2, 11)), "directories take blocks");
    }

    #[test]
    fn a_full_workspace_takes_nothing_at_all() {
        let account = account(BLOCK_BYTES, 10);
        account.set(Usage { allocated_bytes: 2 * BLOCK_BYTES, inodes: 1, ..Usage::default() });
        assert!(refused(account.take(0, 0)));
        account.set_unless_changed(Usage::default(), account.changes() + 1);
        assert!(refused(account.take(0, 0)), "that walk missed a change");
        account.set_unless_changed(Usage::default(), account.changes());
        assert!(account.take(1, 0).is_ok());
    }
}
