//! Writing a file: into the private directory, flushed, handed to the owner, then renamed into place. Nobody
//! ever sees half of it.

use guest::protocol::files::{FilesErrorCode, GRANT_BYTES, Response, WIDE_WINDOW_BYTES};
use policy::WorkspacePath;
use rustix::fs::{Mode, fchmod, fstat, fsync};
use rustix::io::Errno;
use sha2::{Digest, Sha256};

use super::failure::Failure;
use super::reply::{Conversation, Message};
use super::server::Ready;
use super::workspace::{Workspace, checked, must_be_regular};
use crate::sys::start_writeback;

/// Writing to the disk begins whenever so much has come: the flush at the end, which the answer waits for, then has little
/// left to do.
const WRITEBACK_BYTES: u64 = 8 << 20;

pub(super) fn write(
    workspace: &Workspace,
    ready: &Ready,
    conversation: &Conversation,
    path: &[u8],
    max_bytes: u64,
    create_only: bool,
) -> Result<Response, Failure> {
    let path = checked(path)?;
    let exists = check_target(workspace, &path, create_only)?;
    let directories = if exists { 0 } else { workspace.missing_parents(&path)? };
    let mut room = ready.account.take(u64::from(!exists) + directories, directories)?;
    let mut unfinished = ready.private.unfinished()?;
    let mut wide = None;
    let mut size_bytes = 0;
    let mut ungranted_bytes = 0;
    let mut on_its_way_bytes = 0;
    let mut hasher = Sha256::new();
    loop {
        match conversation.next()? {
            Message::Data(bytes) => {
                size_bytes += bytes.len() as u64;
                if size_bytes > max_bytes {
                    return Err(FilesErrorCode::TooLarge.into());
                }
                room.grow_to(size_bytes)?;
                hasher.update(&bytes);
                write_all(&unfinished.file, &bytes)?;
                if size_bytes - on_its_way_bytes >= WRITEBACK_BYTES {
                    start_writeback(&unfinished.file, on_its_way_bytes, size_bytes - on_its_way_bytes);
                    on_its_way_bytes = size_bytes;
                }
                ungranted_bytes += u32::try_from(bytes.len()).unwrap_or(u32::MAX);
                if ungranted_bytes >= GRANT_BYTES {
                    // What is short is not worth it.
                    if wide.is_none() {
                        wide = ready.wide_window();
                        ungranted_bytes += if wide.is_some() { WIDE_WINDOW_BYTES } else { 0 };
                    }
                    conversation.grant(std::mem::take(&mut ungranted_bytes));
                }
            }
            Message::End => break,
            Message::Credit(_) | Message::Cancel => {}
        }
    }
    let sha256: [u8; 32] = hasher.finalize().into();
    ready.owner.take(&unfinished.file)?;
    fchmod(&unfinished.file, Mode::from_raw_mode(0o644))?;
    fsync(&unfinished.file)?;

    // From here to the record no walk may run: it would take the write for a command's change.
    let mut snapshot = ready.snapshot();
    let (parent, name) = workspace.parent_or_create(&path, ready.owner)?;
    let replaced = match workspace.stat(&parent, name) {
        Ok(_) if create_only => return Err(FilesErrorCode::Exists.into()),
        Ok(stat) => {
            must_be_regular(&stat)?;
            Some(stat)
        }
        Err(failure) if failure.code == FilesErrorCode::NotFound => None,
        Err(failure) => return Err(failure),
    };
    unfinished.place(&parent, name, !create_only)?;
    let stat = fstat(&unfinished.file)?;
    snapshot.record_written(path.as_bytes(), &stat, sha256);
    let usage = ready.account.placed(&stat, replaced.as_ref(), directories);
    drop((snapshot, room));
    fsync(&parent)?;
    let created = replaced.is_none();
    Ok(Response::Written { id: conversation.id, size_bytes, sha256, created, usage })
}

/// Says no before the data comes, where that is already certain. True when there is a file to replace.
fn check_target(workspace: &Workspace, path: &WorkspacePath, create_only: bool) -> Result<bool, Failure> {
    let found = workspace.parent(path).and_then(|(parent, name)| workspace.stat(&parent, name));
    match found {
        Ok(_) if create_only => Err(FilesErrorCode::Exists.into()),
        Ok(stat) => {
            must_be_regular(&stat)?;
            Ok(true)
        }
        Err(failure) if failure.code == FilesErrorCode::NotFound => Ok(false),
        Err(failure) => Err(failure),
    }
}

fn write_all(file: &rustix::fd::OwnedFd, mut bytes: &[u8]) -> Result<(), Errno> {
    while !bytes.is_empty() {
        match rustix::io::write(file, bytes) {
            Ok(written) => bytes = &bytes[written..],
            Err(Errno::INTR) => {}
            Err(errno) => return Err(errno),
        }
    }
    Ok(())
}
