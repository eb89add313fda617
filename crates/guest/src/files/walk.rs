//! One pass over a tree, whatever hostile code made of it: any depth, any names, any modes, one status call
//! per entry, two open descriptors.
//!
//! Going down opens a child; going up opens `..` and checks that it is the directory the walk came from. When
//! the tree was moved meanwhile, the parent is found again from the start, or given up as gone.

use std::ffi::{CStr, CString};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use guest::protocol::files::FilesErrorCode;
use policy::PRIVATE_DIRECTORY;
use rustix::fs::{AtFlags, Dir, FileType, Stat, fstat, statat};
use rustix::io::Errno;

use super::failure::Failure;
use super::workspace::subdirectory;

/// Most memory of directory names remembered at once, in bytes.
const PENDING_MAX_BYTES: usize = 64 << 20;

/// What a remembered name costs besides its bytes: its place in a list that grows by doubling, its allocation.
const PENDING_NAME_BYTES: usize = 64;

/// One thing in the tree.
pub(super) struct Found<'a> {
    /// Relative to the workspace.
    pub(super) path: &'a [u8],
    pub(super) parent: BorrowedFd<'a>,
    pub(super) name: &'a CStr,
    pub(super) stat: Stat,
}

/// Whether to look below a directory.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Below {
    Enter,
    Skip,
}

struct Level {
    /// Length of the path up to and with this directory.
    path_bytes: usize,
    identity: (u64, u64),
    pending: Vec<Box<CStr>>,
}

/// Visits everything below `start`, whose path is `base` (empty for the workspace, where the private directory
/// is left out). What vanishes during the walk is left out too.
pub(super) fn walk(
    start: BorrowedFd<'_>,
    base: &[u8],
    mut visit: impl FnMut(&Found<'_>) -> Result<Below, Failure>,
) -> Result<(), Failure> {
    let mut path = base.to_vec();
    let mut pending_bytes = 0;
    let mut current: OwnedFd = subdirectory(start, c".")?;
    let first = read(&current, &mut path, &mut pending_bytes, base.is_empty(), &mut visit)?;
    let mut levels = vec![first];
    while let Some(level) = levels.last_mut() {
        path.truncate(level.path_bytes);
        if let Some(name) = level.pending.pop() {
            pending_bytes -= name.count_bytes() + PENDING_NAME_BYTES;
            let child = match subdirectory(&current, &name) {
                Ok(child) => child,
                // Gone, or something else by now.
                Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => continue,
                Err(errno) => return Err(errno.into()),
            };
            push_component(&mut path, &name);
            levels.push(read(&child, &mut path, &mut pending_bytes, false, &mut visit)?);
            current = child;
            continue;
        }
        levels.pop();
        let Some(above) = levels.last() else { break };
        let up = match subdirectory(&current, c"..") {
            Ok(up) => Some(up),
            // It was removed while the walk was in it: nothing is above it any more.
            Err(Errno::NOENT) => None,
            Err(errno) => return Err(errno.into()),
        };
        let expected = above.identity;
        let is_above = |up: &OwnedFd| fstat(up).is_ok_and(|stat| identity(&stat) == expected);
        current = match up.filter(is_above) {
            Some(up) => up,
            None => match find_again(start, base, &path, &mut levels)? {
                Some(directory) => directory,
                None => break,
            },
        };
    }
    Ok(())
}

/// Reads one directory: visits each entry, keeps the subdirectories to enter.
fn read(
    directory: &OwnedFd,
    path: &mut Vec<u8>,
    pending_bytes: &mut usize,
    is_workspace: bool,
    visit: &mut impl FnMut(&Found<'_>) -> Result<Below, Failure>,
) -> Result<Level, Failure> {
    let path_bytes = path.len();
    let mut level = Level { path_bytes, identity: identity(&fstat(directory)?), pending: Vec::new() };
    let entries = match Dir::read_from(directory) {
        Ok(entries) => entries,
        // Removed meanwhile, with all that was in it.
        Err(Errno::NOENT) => return Ok(level),
        Err(errno) => return Err(errno.into()),
    };
    for entry in entries {
        let entry = match entry {
            Ok(entry) => entry,
            // The directory itself was removed.
            Err(Errno::NOENT) => break,
            Err(errno) => return Err(errno.into()),
        };
        let name = entry.file_name();
        let is_private = is_workspace && name.to_bytes() == PRIVATE_DIRECTORY;
        if is_private || matches!(name.to_bytes(), b"." | b"..") {
            continue;
        }
        let stat = match statat(directory, name, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(stat) => stat,
            Err(Errno::NOENT) => continue,
            Err(errno) => return Err(errno.into()),
        };
        path.truncate(path_bytes);
        push_component(path, name);
        let is_directory = FileType::from_raw_mode(stat.st_mode) == FileType::Directory;
        let below = visit(&Found { path, parent: directory.as_fd(), name, stat })?;
        if is_directory && below == Below::Enter {
            *pending_bytes += name.count_bytes() + PENDING_NAME_BYTES;
            if *pending_bytes > PENDING_MAX_BYTES {
                return Err(FilesErrorCode::CannotMeasure.into());
            }
            level.pending.push(name.into());
        }
    }
    path.truncate(path_bytes);
    Ok(level)
}

/// Reopens the lowest level that is still where it was; levels that are not are dropped.
fn find_again(
    start: BorrowedFd<'_>,
    base: &[u8],
    path: &[u8],
    levels: &mut Vec<Level>,
) -> Result<Option<OwnedFd>, Failure> {
    while let Some(level) = levels.last() {
        let below = &path[base.len()..level.path_bytes];
        let mut directory = subdirectory(start, c".");
        for component in below.split(|byte| *byte == b'/').filter(|component| !component.is_empty()) {
            let Ok(name) = CString::new(component) else { return Ok(None) };
            directory = directory.and_then(|directory| subdirectory(directory, &name));
        }
        if let Ok(directory) = directory
            && identity(&fstat(&directory)?) == level.identity
        {
            return Ok(Some(directory));
        }
        levels.pop();
    }
    Ok(None)
}

fn push_component(path: &mut Vec<u8>, name: &CStr) {
    if !path.is_empty() {
        path.push(b'/');
    }
    path.extend_from_slice(name.to_bytes());
}

fn identity(stat: &Stat) -> (u64, u64) {
    (stat.st_dev, stat.st_ino)
}
