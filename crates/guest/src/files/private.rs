//! The private directory `.leasehold/`: the nonce, unfinished writes, trees on their way out.
//!
//! It belongs to root with mode 0700 in a root-owned sticky workspace: commands can neither look into it nor
//! rename or remove it.

use std::collections::VecDeque;
use std::ffi::CString;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicU64, Ordering};

use guest::protocol::files::FilesErrorCode;
use guest::protocol::{MAX_NONCE_BYTES, NONCE_FILE};
use policy::PRIVATE_DIRECTORY;
use rustix::fs::{
    AtFlags, Dir, FileType, Gid, Mode, OFlags, RenameFlags, Uid, fchmod, fchown, mkdirat, openat, renameat,
    renameat_with, statat, unlinkat,
};
use rustix::io::Errno;

use super::failure::Failure;
use super::workspace::{Workspace, subdirectory};

/// How often a directory that keeps filling is emptied before giving up.
const EMPTY_TRIES: u32 = 100;

pub(super) struct Private {
    directory: OwnedFd,
    next: AtomicU64,
}

impl Private {
    /// Makes the workspace ours: root, its mode, the private directory.
    pub(super) fn create(workspace: &Workspace) -> Result<Self, Failure> {
        let root = workspace.root();
        fchown(root, Some(Uid::ROOT), Some(Gid::ROOT))?;
        fchmod(root, Mode::from_raw_mode(0o1777))?;
        match mkdirat(root, PRIVATE_DIRECTORY, Mode::from_raw_mode(0o700)) {
            Ok(()) | Err(Errno::EXIST) => {}
            Err(errno) => return Err(errno.into()),
        }
        let private = Self::open(workspace)?;
        fchown(&private.directory, Some(Uid::ROOT), Some(Gid::ROOT))?;
        fchmod(&private.directory, Mode::from_raw_mode(0o700))?;
        Ok(private)
    }

    /// Opens what an earlier process made; a workspace without it was lost.
    pub(super) fn open(workspace: &Workspace) -> Result<Self, Failure> {
        let directory = workspace.directory(PRIVATE_DIRECTORY).map_err(|failure| match failure.code {
            FilesErrorCode::NotFound => FilesErrorCode::NonceMismatch.into(),
            _ => failure,
        })?;
        Ok(Self { directory, next: AtomicU64::new(0) })
    }

    fn fresh_name(&self, prefix: &str) -> String {
        format!("{prefix}-{}-{}", std::process::id(), self.next.fetch_add(1, Ordering::SeqCst))
    }

    pub(super) fn nonce(&self) -> Result<Option<Vec<u8>>, Failure> {
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let file = match openat(&self.directory, nonce_name(), flags, Mode::empty()) {
            Ok(file) => file,
            Err(Errno::NOENT) => return Ok(None),
            Err(errno) => return Err(errno.into()),
        };
        let mut buffer = [0; MAX_NONCE_BYTES + 1];
        let length = rustix::io::read(&file, &mut buffer)?;
        Ok(Some(buffer[..length].to_vec()))
    }

    pub(super) fn check_nonce(&self, expected: &[u8]) -> Result<(), Failure> {
        match self.nonce()? {
            Some(nonce) if nonce == expected => Ok(()),
            _ => Err(FilesErrorCode::NonceMismatch.into()),
        }
    }

    /// Puts the nonce in place, whole. Not flushed: a host that loses power loses the environment anyway, and a
    /// missing nonce says exactly that.
    pub(super) fn write_nonce(&self, nonce: &[u8]) -> Result<(), Failure> {
        let mut unfinished = self.unfinished()?;
        let mut rest = nonce;
        while !rest.is_empty() {
            rest = &rest[rustix::io::write(&unfinished.file, rest)?..];
        }
        Ok(unfinished.place(self.directory.as_fd(), nonce_name().as_bytes(), true)?)
    }

    /// A new file of a write, unlinked when it is dropped before it was placed.
    pub(super) fn unfinished(&self) -> Result<Unfinished<'_>, Failure> {
        let name = self.fresh_name("write");
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let file = openat(&self.directory, name.as_str(), flags, Mode::from_raw_mode(0o600))?;
        Ok(Unfinished { private: self, name: Some(name), file })
    }

    /// Removes what an earlier process left unfinished.
    pub(super) fn clean(&self, cancelled: &dyn Fn() -> bool) -> Result<(), Failure> {
        let entries: Vec<CString> = Dir::read_from(&self.directory)?
            .map(|entry| entry.map(|entry| entry.file_name().to_owned()))
            .collect::<Result<_, _>>()?;
        for name in entries {
            if !matches!(name.as_bytes(), b"." | b"..") && name.as_bytes() != nonce_name().as_bytes() {
                self.remove(name, cancelled)?;
            }
        }
        Ok(())
    }

    /// Takes a directory out of the workspace in one step; then it only has to be deleted.
    pub(super) fn take(&self, parent: impl AsFd, name: &[u8]) -> Result<CString, Failure> {
        let taken = CString::new(self.fresh_name("removed")).unwrap_or_default();
        renameat(parent, name, &self.directory, &taken)?;
        Ok(taken)
    }

    /// Deletes something of the private directory, with everything below it: entries deleted. Nested directories
    /// are moved up first, so depth does not matter. What a cancel leaves behind is found by the next `clean`.
    pub(super) fn remove(&self, name: CString, cancelled: &dyn Fn() -> bool) -> Result<u64, Failure> {
        let stat = statat(&self.directory, &name, AtFlags::SYMLINK_NOFOLLOW)?;
        if FileType::from_raw_mode(stat.st_mode) != FileType::Directory {
            unlinkat(&self.directory, &name, AtFlags::empty())?;
            return Ok(1);
        }
        let mut removed = 0;
        let mut pending = VecDeque::from([name]);
        while let Some(name) = pending.pop_front() {
            let directory = subdirectory(&self.directory, &name)?;
            let mut tries = 0;
            loop {
                removed += self.empty(&directory, &mut pending, cancelled)?;
                match unlinkat(&self.directory, &name, AtFlags::REMOVEDIR) {
                    Ok(()) => break,
                    // A process that still has it open keeps filling it.
                    Err(Errno::NOTEMPTY) if tries < EMPTY_TRIES => tries += 1,
                    Err(errno) => return Err(errno.into()),
                }
            }
            removed += 1;
        }
        Ok(removed)
    }

    fn empty(
        &self,
        directory: &OwnedFd,
        pending: &mut VecDeque<CString>,
        cancelled: &dyn Fn() -> bool,
    ) -> Result<u64, Failure> {
        let mut removed = 0;
        for entry in Dir::read_from(directory)? {
            if cancelled() {
                return Err(FilesErrorCode::Cancelled.into());
            }
            let entry = entry?;
            let name = entry.file_name();
            if matches!(name.to_bytes(), b"." | b"..") {
                continue;
            }
            match unlinkat(directory, name, AtFlags::empty()) {
                Ok(()) => removed += 1,
                Err(Errno::NOENT) => {}
                Err(Errno::ISDIR | Errno::PERM) => match unlinkat(directory, name, AtFlags::REMOVEDIR) {
                    Ok(()) => removed += 1,
                    Err(Errno::NOTEMPTY) => {
                        pending.push_back(self.take(directory, name.to_bytes())?);
                    }
                    Err(Errno::NOENT) => {}
                    Err(errno) => return Err(errno.into()),
                },
                Err(errno) => return Err(errno.into()),
            }
        }
        Ok(removed)
    }
}

/// A file being written, not yet where it belongs.
pub(super) struct Unfinished<'a> {
    private: &'a Private,
    name: Option<String>,
    pub(super) file: OwnedFd,
}

impl Unfinished<'_> {
    /// Moves it to its place. `replace: false` fails with EEXIST when something is there.
    pub(super) fn place(&mut self, parent: impl AsFd, name: &[u8], replace: bool) -> Result<(), Errno> {
        if let Some(own) = &self.name {
            let flags = if replace { RenameFlags::empty() } else { RenameFlags::NOREPLACE };
            renameat_with(&self.private.directory, own.as_str(), parent, name, flags)?;
        }
        self.name = None;
        Ok(())
    }
}

impl Drop for Unfinished<'_> {
    fn drop(&mut self) {
        if let Some(name) = &self.name {
            // What cannot be unlinked now is found by the next `clean`.
            let _ = unlinkat(&self.private.directory, name.as_str(), AtFlags::empty());
        }
    }
}

fn nonce_name() -> CString {
    let name = NONCE_FILE.rsplit('/').next().unwrap_or_default();
    CString::new(name).unwrap_or_default()
}
