//! News about children as a descriptor: SIGCHLD is blocked and read from a signalfd.

use std::os::fd::{AsFd, BorrowedFd};
use std::time::{Duration, Instant};

use nix::sys::signal::{SigSet, Signal};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use crate::sys::{Ended, wait_any};

/// Whether children are left.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Left {
    /// The kernel answered ECHILD.
    None,
    /// At least one child has not ended.
    Some,
}

/// The calling process's children.
pub(super) struct Children {
    signals: SignalFd,
}

impl Children {
    /// Blocks SIGCHLD and opens the descriptor. A forked process needs its own: a signalfd reports the
    /// signals of the process that reads it, but the blocked mask is what keeps them pending.
    ///
    /// # Errors
    /// EMFILE, ENOMEM.
    pub(super) fn watch() -> nix::Result<Self> {
        let mut mask = SigSet::empty();
        mask.add(Signal::SIGCHLD);
        mask.thread_block()?;
        let signals = SignalFd::with_flags(&mask, SfdFlags::SFD_NONBLOCK | SfdFlags::SFD_CLOEXEC)?;
        Ok(Self { signals })
    }

    pub(super) fn fd(&self) -> BorrowedFd<'_> {
        self.signals.as_fd()
    }

    /// Lets the descriptor fall silent until the next news. Whoever does so looks for children that have ended afterwards, unless
    /// none is left.
    pub(super) fn take_news(&self) {
        // The kernel keeps one pending signal of a number: one read takes all there is.
        let _ = self.signals.read_signal();
    }

    /// Reaps every child that has ended.
    #[expect(clippy::unused_self, reason = "only who watches its children may reap them")]
    pub(super) fn reap(&self, mut ended: impl FnMut(Ended)) -> Left {
        loop {
            match wait_any() {
                Ok(Some(child)) => ended(child),
                Ok(None) => return Left::Some,
                Err(nix::errno::Errno::EINTR) => {}
                Err(_) => return Left::None,
            }
        }
    }

    /// Waits until a child changed or the deadline passed.
    pub(super) fn wait_for_news(&self, deadline: Instant) {
        let left = deadline.saturating_duration_since(Instant::now());
        let mut fds = [PollFd::new(&self.signals, PollFlags::IN)];
        // An interrupted wait is news enough: callers look again.
        let _ = poll(&mut fds, Some(&timespec(left)));
    }
}

/// A poll timeout; absurdly long ones are cut.
pub(super) fn timespec(duration: Duration) -> Timespec {
    Timespec {
        tv_sec: i64::try_from(duration.as_secs()).unwrap_or(i64::MAX),
        tv_nsec: i64::from(duration.subsec_nanos()),
    }
}
