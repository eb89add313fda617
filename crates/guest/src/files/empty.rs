//! `guest empty`: everything out of a workspace whose volume is to be removed.
//!
//! An engine removes a volume by going down its tree with an open descriptor for every level, so a tree deeper than its limit
//! of open files would stay for ever, and take that limit from everybody else at each try. Here depth does not matter.

use policy::PRIVATE_DIRECTORY;
use rustix::fs::Dir;

use super::failure::Failure;
use super::private::Private;
use super::workspace::Workspace;

/// Removes everything but the private directory and its nonce.
pub(super) fn empty(workspace: &Workspace) -> Result<(), Failure> {
    let private = Private::create(workspace)?;
    let never = || false;
    // An earlier try may have been ended half-way.
    private.clean(&never)?;
    loop {
        let mut found = false;
        for entry in Dir::read_from(workspace.root())? {
            let entry = entry?;
            let name = entry.file_name().to_bytes();
            if matches!(name, b"." | b"..") || name == PRIVATE_DIRECTORY {
                continue;
            }
            found = true;
            private.remove(private.take(workspace.root(), name)?, &never)?;
        }
        // A directory that shrinks while it is read may hide some of its names.
        if !found {
            return Ok(());
        }
    }
}
