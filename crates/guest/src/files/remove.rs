//! Removing: one step out of sight, then the deleting.

use guest::protocol::files::{EntryKind, Response};
use rustix::fs::{AtFlags, unlinkat};

use super::failure::Failure;
use super::metadata::kind;
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
    let is_directory = kind(&workspace.stat(&parent, name)?) == EntryKind::Directory;
    let entries = if is_directory && recursive {
        let taken = ready.private.take(&parent, name)?;
        snapshot.forget(path.as_bytes());
        drop(snapshot);
        ready.private.remove(taken, cancelled)?
    } else {
        let flags = if is_directory { AtFlags::REMOVEDIR } else { AtFlags::empty() };
        unlinkat(&parent, name, flags)?;
        snapshot.forget(path.as_bytes());
        1
    };
    Ok(Response::Removed { id, entries })
}
