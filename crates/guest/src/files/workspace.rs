//! Paths of the workspace as descriptors: no link is followed, nothing outside is reached.
//!
//! A path's parent is opened beneath the root, by `openat2` where the kernel has it, else one component at a
//! time. The last component is then only ever used relative to that descriptor, without following.

use std::ffi::CStr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;

use guest::protocol::files::FilesErrorCode;
use policy::WorkspacePath;
use rustix::fs::{
    AtFlags, CWD, FileType, Gid, Mode, OFlags, ResolveFlags, Stat, StatVfs, Uid, fchmod, fchown, fstat,
    fstatfs, fstatvfs, fsync, mkdirat, openat, openat2, statat, statvfs,
};
use rustix::io::Errno;

use super::failure::Failure;

/// How every directory is opened.
const DIRECTORY: OFlags =
    OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::NONBLOCK).union(OFlags::CLOEXEC);

/// Longest path `openat2` takes in one call.
const OPENAT2_MAX_BYTES: usize = 4095;

/// What a file system in memory calls itself (`TMPFS_MAGIC`, statfs(2)).
const TMPFS: i64 = 0x0102_1994;

/// Tries when the tree is being renamed under `openat2`.
const OPENAT2_TRIES: u32 = 16;

/// Who owns what the API writes.
#[derive(Debug, Clone, Copy)]
pub(super) struct Owner {
    pub(super) uid: u32,
    pub(super) gid: u32,
}

impl Owner {
    /// Hands an open file or directory over; the kernel drops set-id bits.
    pub(super) fn take(self, fd: impl AsFd) -> Result<(), Errno> {
        fchown(fd, Some(Uid::from_raw(self.uid)), Some(Gid::from_raw(self.gid)))
    }
}

/// The mounted workspace.
pub(super) struct Workspace {
    root: OwnedFd,
    device: u64,
    has_openat2: bool,
}

impl Workspace {
    /// Opens the root and finds out whether `openat2` works on it.
    pub(super) fn open(root: &Path) -> Result<Self, Errno> {
        let root = openat(CWD, root, DIRECTORY, Mode::empty())?;
        let device = fstat(&root)?.st_dev;
        let mut workspace = Self { root, device, has_openat2: true };
        workspace.has_openat2 = workspace.beneath(b".").is_ok();
        Ok(workspace)
    }

    pub(super) fn has_openat2(&self) -> bool {
        self.has_openat2
    }

    pub(super) fn root(&self) -> BorrowedFd<'_> {
        self.root.as_fd()
    }

    /// It is a file system in memory, with limits of its own.
    pub(super) fn is_in_memory(&self) -> Result<bool, Errno> {
        Ok(fstatfs(&self.root)?.f_type == TMPFS)
    }

    /// What anybody may still write to the engine's disk, in bytes. A container's own root lies on it, and so does a workspace
    /// unless it is in memory; where they are two, the fuller one counts.
    pub(super) fn free_bytes(&self) -> Result<u64, Errno> {
        let (own, workspace) = (statvfs(c"/")?, fstatvfs(&self.root)?);
        let free = |of: &StatVfs| of.f_bavail.saturating_mul(of.f_frsize);
        Ok(if self.is_in_memory()? { free(&own) } else { free(&own).min(free(&workspace)) })
    }

    /// Opens a directory; the empty path is the root.
    pub(super) fn directory(&self, path: &[u8]) -> Result<OwnedFd, Failure> {
        if path.is_empty() {
            return Ok(openat(&self.root, c".", DIRECTORY, Mode::empty())?);
        }
        if self.has_openat2 && path.len() <= OPENAT2_MAX_BYTES {
            return Ok(self.beneath(path)?);
        }
        let mut directory = openat(&self.root, c".", DIRECTORY, Mode::empty())?;
        for component in path.split(|byte| *byte == b'/') {
            directory = self.child_directory(directory.as_fd(), component)?;
        }
        Ok(directory)
    }

    fn beneath(&self, path: &[u8]) -> Result<OwnedFd, Errno> {
        let resolve = ResolveFlags::BENEATH
            | ResolveFlags::NO_SYMLINKS
            | ResolveFlags::NO_MAGICLINKS
            | ResolveFlags::NO_XDEV;
        for _ in 0..OPENAT2_TRIES {
            match openat2(&self.root, path, DIRECTORY, Mode::empty(), resolve) {
                Err(Errno::AGAIN | Errno::INTR) => {}
                result => return result,
            }
        }
        Err(Errno::AGAIN)
    }

    /// Opens one component. The type is checked on a descriptor that opens nothing, then the directory itself
    /// is opened through it.
    fn child_directory(&self, parent: BorrowedFd<'_>, name: &[u8]) -> Result<OwnedFd, Failure> {
        let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let child = openat(parent, name, flags, Mode::empty())?;
        let stat = fstat(&child)?;
        match FileType::from_raw_mode(stat.st_mode) {
            FileType::Symlink => return Err(FilesErrorCode::Symlink.into()),
            FileType::Directory if stat.st_dev == self.device => {}
            FileType::Directory => return Err(FilesErrorCode::PathRefused.into()),
            _ => return Err(FilesErrorCode::NotADirectory.into()),
        }
        Ok(openat(&child, c".", DIRECTORY, Mode::empty())?)
    }

    /// The parent of a path and its last component.
    pub(super) fn parent<'p>(&self, path: &'p WorkspacePath) -> Result<(OwnedFd, &'p [u8]), Failure> {
        let (parent, name) = split(path);
        Ok((self.directory(parent)?, name))
    }

    /// How many directories above a path are missing (count); 0 when something else is in the way.
    pub(super) fn missing_parents(&self, path: &WorkspacePath) -> Result<u64, Failure> {
        let (mut parent, _) = split(path);
        let mut missing = 0;
        loop {
            match self.directory(parent) {
                Err(failure) if failure.code == FilesErrorCode::NotFound => missing += 1,
                Ok(_) => return Ok(missing),
                Err(_) => return Ok(0),
            }
            let end = parent.iter().rposition(|byte| *byte == b'/').unwrap_or(0);
            parent = &parent[..end];
        }
    }

    /// The same, making what is missing on the way, for the owner.
    pub(super) fn parent_or_create<'p>(
        &self,
        path: &'p WorkspacePath,
        owner: Owner,
    ) -> Result<(OwnedFd, &'p [u8]), Failure> {
        let (parent, name) = split(path);
        match self.directory(parent) {
            Err(failure) if failure.code == FilesErrorCode::NotFound => {}
            result => return result.map(|parent| (parent, name)),
        }
        let mut directory = self.directory(b"")?;
        for component in parent.split(|byte| *byte == b'/') {
            directory = match self.child_directory(directory.as_fd(), component) {
                Err(failure) if failure.code == FilesErrorCode::NotFound => {
                    let made = match mkdirat(&directory, component, Mode::from_raw_mode(0o755)) {
                        Ok(()) => true,
                        Err(Errno::EXIST) => false,
                        Err(errno) => return Err(errno.into()),
                    };
                    let child = self.child_directory(directory.as_fd(), component)?;
                    if made {
                        owner.take(&child)?;
                        fchmod(&child, Mode::from_raw_mode(0o755))?;
                        fsync(&directory)?;
                    }
                    child
                }
                result => result?,
            };
        }
        Ok((directory, name))
    }

    /// Status of the thing itself.
    pub(super) fn stat(&self, parent: impl AsFd, name: &[u8]) -> Result<Stat, Failure> {
        let stat = statat(parent, name, AtFlags::SYMLINK_NOFOLLOW)?;
        if stat.st_dev == self.device { Ok(stat) } else { Err(FilesErrorCode::PathRefused.into()) }
    }

    /// Opens a regular file for reading. Nothing else is even opened: opening a FIFO would wake its writer.
    pub(super) fn regular(&self, parent: impl AsFd, name: &[u8]) -> Result<(OwnedFd, Stat), Failure> {
        must_be_regular(&self.stat(&parent, name)?)?;
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
        let file = openat(parent, name, flags, Mode::empty())?;
        let stat = fstat(&file)?;
        must_be_regular(&stat)?;
        Ok((file, stat))
    }
}

/// Opens a subdirectory found while reading a directory.
pub(super) fn subdirectory(parent: impl AsFd, name: &CStr) -> Result<OwnedFd, Errno> {
    openat(parent, name, DIRECTORY | OFlags::NOFOLLOW, Mode::empty())
}

/// Anything but a regular file, told apart.
pub(super) fn must_be_regular(stat: &Stat) -> Result<(), FilesErrorCode> {
    match FileType::from_raw_mode(stat.st_mode) {
        FileType::RegularFile => Ok(()),
        FileType::Directory => Err(FilesErrorCode::IsADirectory),
        FileType::Symlink => Err(FilesErrorCode::Symlink),
        _ => Err(FilesErrorCode::NotRegular),
    }
}

/// Checks a path the host sent; it has checked it before.
pub(super) fn checked(path: &[u8]) -> Result<WorkspacePath, Failure> {
    WorkspacePath::try_new(path).map_err(|_| FilesErrorCode::PathRefused.into())
}

fn split(path: &WorkspacePath) -> (&[u8], &[u8]) {
    let bytes = path.as_bytes();
    match bytes.iter().rposition(|byte| *byte == b'/') {
        Some(slash) => (&bytes[..slash], &bytes[slash + 1..]),
        None => (&[], bytes),
    }
}
