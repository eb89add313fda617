//! Removing: one step out of sight, then the deleting.

use guest::protocol::files::{EntryKind, Quota, Response};
use rustix::fs::{AtFlags, unlinkat};

use super::failure::Failure;
use super::metadata::kind;
use super::meter::measure;
use super::server::Ready;
use super::workspace::{Workspace, checked};

pub(super) fn remove(
    workspace: &Workspace,
    ready: &Ready,
    id: u32,
    path: &[u8],
    recursive: bool,
    cancelled: &dyn Fn() -> bool,
) -> Result<Response, Failure> {
    let path = checked(path)?;
    let (parent, name) = workspace.parent(&path)?;
    // From the removal to the note no walk may run: it would take it for a command's change.
    let mut snapshot = ready.snapshot();
    let stat = workspace.stat(&parent, name)?;
    let is_directory = kind(&stat) == EntryKind::Directory;
    let (entries, usage) = if is_directory && recursive {
        let taken = ready.private.take(&parent, name)?;
        snapshot.forget(path.as_bytes());
        drop(snapshot);
        let entries = ready.private.remove(taken, cancelled)?;
        let changes = ready.account.changes();
        // What cannot be measured now is found by the next look; the tree is gone either way.
        if let Ok((usage, _)) = measure(workspace, ready.account.quota(), Quota::UNBOUNDED, cancelled) {
            ready.account.set_unless_changed(usage, changes);
        }
        (entries, ready.account.usage())
    } else {
        let flags = if is_directory { AtFlags::REMOVEDIR } else { AtFlags::empty() };
        unlinkat(&parent, name, flags)?;
        snapshot.forget(path.as_bytes());
        (1, ready.account.removed(&stat))
    };
    Ok(Response::Removed { id, entries, usage })
}
