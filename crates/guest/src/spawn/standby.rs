//! A shim that waits for a command: made before there is one, and taken back when its command has left nothing, so that no fork
//! is on a command's way.
//!
//! ```text
//! spawn <---link---> shim      down: the start frame with the standard streams beside it, kill; up: reports; its end: kill
//! ```
//!
//! It is ours and stays so: uid 0, non-dumpable, without any descriptor of a command, and what it starts has no way back into
//! it. At most one waits, so a sandbox holds one process more than what runs in it. When it dies the next start makes a new one.

use std::io::IoSlice;
use std::mem::MaybeUninit;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::path::Path;

use guest::protocol::encode;
use guest::protocol::spawn::ToGuest;
use rustix::fs::{CWD, Mode, OFlags, openat};
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, SendAncillaryBuffer, SendAncillaryMessage, SendFlags, SocketFlags, SocketType, send,
    sendmsg, socketpair,
};
use rustix::process::Pid;

use super::child::from_nix;
use super::shim;

/// A shim that waits.
pub(super) struct Standby {
    pub(super) shim: Pid,
    link: OwnedFd,
}

impl Standby {
    /// Forks a shim. `detach` runs in the forked process first and lets go of everything that is spawn's own.
    ///
    /// # Errors
    /// EMFILE, EAGAIN, ENOMEM: nothing was started.
    pub(super) fn fork(workspace: &Path, detach: impl FnOnce()) -> Result<Self, Errno> {
        let (link, shim_link) =
            socketpair(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
        let Some(shim) = crate::sys::fork().map_err(from_nix)? else {
            drop(link);
            detach();
            leave_channel();
            shim::run(workspace, shim_link);
        };
        Ok(Self { shim: Pid::from_raw(shim.as_raw()).ok_or(Errno::SRCH)?, link })
    }

    /// Takes a shim back whose command has ended and left nothing.
    pub(super) fn again(shim: Pid, link: OwnedFd) -> Self {
        Self { shim, link }
    }

    /// Silent until the order: whatever shows there before is the shim's end.
    pub(super) fn link(&self) -> &OwnedFd {
        &self.link
    }

    /// Gives the order, a start frame, and hands over the link. The streams are standard input, output and error. Waits while the
    /// socket is full: the shim does nothing but read.
    ///
    /// # Errors
    /// EPIPE and the like when the shim is gone: no program was started.
    pub(super) fn start(self, frame: &ToGuest, streams: [BorrowedFd<'_>; 3]) -> Result<OwnedFd, Errno> {
        let mut bytes = Vec::new();
        encode(frame, &mut bytes);
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(3))];
        let mut ancillary = SendAncillaryBuffer::new(&mut space);
        if !ancillary.push(SendAncillaryMessage::ScmRights(&streams)) {
            return Err(Errno::INVAL);
        }
        let mut rest = bytes.as_slice();
        while !rest.is_empty() {
            match sendmsg(&self.link, &[IoSlice::new(rest)], &mut ancillary, SendFlags::NOSIGNAL) {
                Ok(sent) => {
                    rest = &rest[sent..];
                    ancillary.clear();
                }
                Err(Errno::INTR) => {}
                Err(errno) => return Err(errno),
            }
        }
        Ok(self.link)
    }
}

/// Tells a shim to kill its command. One that takes nothing more was told before, or stands still: then the container is what
/// ends it.
pub(super) fn kill(link: &OwnedFd, kill: &ToGuest) {
    let mut bytes = Vec::new();
    encode(kill, &mut bytes);
    let _ = send(link, &bytes, SendFlags::NOSIGNAL | SendFlags::DONTWAIT);
}

/// The shim must hold neither end of the channel: the host learns of spawn's death by their closing.
fn leave_channel() {
    let null = openat(CWD, "/dev/null", OFlags::RDWR | OFlags::CLOEXEC, Mode::empty());
    let left = null.and_then(|null| {
        rustix::stdio::dup2_stdin(&null)?;
        rustix::stdio::dup2_stdout(&null)?;
        rustix::stdio::dup2_stderr(&null)
    });
    if left.is_err() {
        crate::sys::exit_now(70);
    }
}
