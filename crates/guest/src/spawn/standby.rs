//! The next command's processes, made before there is a command: a shim and, below it, the recruit that will become the
//! command, so that no fork is on a command's way.
//!
//! ```text
//! spawn --link---> shim         frames come up; any byte or its end means "kill the tree"
//!   |               +- recruit  waits for its order: the start frame, and the standard streams beside it
//!   +----order---------^
//! ```
//!
//! Both are ours until the order: uid 0, non-dumpable, without any descriptor of another command. There is at most one such
//! pair, so a sandbox holds two processes more than what runs in it. When one of them dies the other ends too, and the next
//! start makes a new pair.

use std::io::IoSlice;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;

use guest::protocol::encode;
use guest::protocol::spawn::ToGuest;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{CWD, Mode, OFlags, openat};
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, SendAncillaryBuffer, SendAncillaryMessage, SendFlags, SocketFlags, SocketType, sendmsg,
    socketpair,
};
use rustix::process::Pid;

use super::child::from_nix;
use super::shim;

/// A pair that waits.
pub(super) struct Standby {
    pub(super) shim: Pid,
    link: OwnedFd,
    order: OwnedFd,
}

impl Standby {
    /// Forks a pair. `detach` runs in the forked process first and lets go of everything that is spawn's own.
    ///
    /// # Errors
    /// EMFILE, EAGAIN, ENOMEM: nothing was started.
    pub(super) fn fork(workspace: &Path, detach: impl FnOnce()) -> Result<Self, Errno> {
        let pair = || socketpair(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None);
        let (link, shim_link) = pair()?;
        let (order, recruit_order) = pair()?;
        let Some(shim) = crate::sys::fork().map_err(from_nix)? else {
            drop((link, order));
            detach();
            leave_channel();
            shim::run(workspace, recruit_order, &shim_link);
        };
        Ok(Self { shim: Pid::from_raw(shim.as_raw()).ok_or(Errno::SRCH)?, link, order })
    }

    /// Silent until the order: whatever shows there before is the pair's end.
    pub(super) fn link(&self) -> &OwnedFd {
        &self.link
    }

    /// Both processes are there, as far as can be seen.
    pub(super) fn is_ready(&self) -> bool {
        poll(&mut [PollFd::new(&self.link, PollFlags::IN)], Some(&Timespec::default())) == Ok(0)
    }

    /// Gives the order, a start frame, and hands over the link. The streams are standard output, standard error and, unless it
    /// is to be `/dev/null`, standard input. Waits while the socket is full: the recruit does nothing but read.
    ///
    /// # Errors
    /// EPIPE and the like when the recruit is gone: no program was started.
    pub(super) fn start(self, frame: &ToGuest, streams: &[OwnedFd]) -> Result<OwnedFd, Errno> {
        let mut bytes = Vec::new();
        encode(frame, &mut bytes);
        let descriptors: Vec<_> = streams.iter().map(AsFd::as_fd).collect();
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(3))];
        let mut ancillary = SendAncillaryBuffer::new(&mut space);
        if !ancillary.push(SendAncillaryMessage::ScmRights(&descriptors)) {
            return Err(Errno::INVAL);
        }
        let mut rest = bytes.as_slice();
        while !rest.is_empty() {
            match sendmsg(&self.order, &[IoSlice::new(rest)], &mut ancillary, SendFlags::NOSIGNAL) {
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
