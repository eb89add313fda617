//! Reading a file and describing a path.

use guest::protocol::HEADER_BYTES;
use guest::protocol::files::{FilesErrorCode, MAX_DATA_BYTES, Response};
use rustix::fs::fstat;
use rustix::io::Errno;
use sha2::{Digest, Sha256};

use super::failure::Failure;
use super::metadata::{Stamp, entry, mtime_us, size_bytes};
use super::reply::Conversation;
use super::workspace::{Workspace, checked};

pub(super) fn stat(workspace: &Workspace, id: u32, path: &[u8]) -> Result<Response, Failure> {
    let path = checked(path)?;
    let (parent, name) = workspace.parent(&path)?;
    let stat = workspace.stat(&parent, name)?;
    Ok(Response::Stated { id, entry: entry(path.as_bytes(), &stat) })
}

/// Which bytes of which file.
pub(super) struct Wanted<'a> {
    pub(super) path: &'a [u8],
    pub(super) offset: u64,
    pub(super) max_bytes: u64,
    pub(super) allow_partial: bool,
}

pub(super) fn read(
    workspace: &Workspace,
    conversation: &mut Conversation,
    wanted: &Wanted<'_>,
) -> Result<Response, Failure> {
    let id = conversation.id;
    let path = checked(wanted.path)?;
    let (parent, name) = workspace.parent(&path)?;
    let (file, before) = workspace.regular(&parent, name)?;
    let available = size_bytes(&before).saturating_sub(wanted.offset);
    if available > wanted.max_bytes && !wanted.allow_partial {
        return Err(FilesErrorCode::TooLarge.into());
    }
    conversation.send(Response::ReadMeta {
        id,
        size_bytes: size_bytes(&before),
        mtime_us: mtime_us(&before),
        mode: before.st_mode & 0o7777,
    });
    let planned = available.min(wanted.max_bytes);
    let mut sent_bytes = 0;
    let mut hasher = Sha256::new();
    // One frame, made where the file is read to.
    let mut frame = vec![0; HEADER_BYTES + MAX_DATA_BYTES];
    while sent_bytes < planned {
        let credit = u64::from(conversation.wait_for_credit(1)?);
        let length = credit.min(planned - sent_bytes).min(MAX_DATA_BYTES as u64);
        let end = HEADER_BYTES + usize::try_from(length).unwrap_or(MAX_DATA_BYTES);
        let piece = &mut frame[HEADER_BYTES..end];
        let length = match rustix::io::pread(&file, piece, wanted.offset + sent_bytes) {
            Ok(0) => return Err(FilesErrorCode::ChangedDuringRead.into()),
            Ok(length) => length,
            Err(Errno::INTR) => continue,
            Err(errno) => return Err(errno.into()),
        };
        conversation.spend(u32::try_from(length).unwrap_or(u32::MAX));
        frame[..HEADER_BYTES].copy_from_slice(&Response::read_data_header(id, length));
        conversation.send_encoded(&frame[..HEADER_BYTES + length]);
        // While what was sent is on its way.
        hasher.update(&frame[HEADER_BYTES..HEADER_BYTES + length]);
        sent_bytes += length as u64;
    }
    if Stamp::of(&fstat(&file)?) != Stamp::of(&before) {
        return Err(FilesErrorCode::ChangedDuringRead.into());
    }
    let end_of_file = planned == available;
    Ok(Response::ReadEnd { id, sent_bytes, sha256: hasher.finalize().into(), end_of_file })
}
