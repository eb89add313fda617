//! Outgoing frames of the spawn channel: control before data, never blocking, and no more writes than needed: each one wakes
//! every process on the way to the host.

use std::collections::VecDeque;
use std::os::fd::BorrowedFd;
use std::time::{Duration, Instant};

use guest::protocol::{encode, spawn::ToHost};
use rustix::io::Errno;

/// How long a frame that nothing waits for may wait for another to go with it.
const DELAY: Duration = Duration::from_millis(20);

/// Most bytes put together into one write.
const BATCH_BYTES: usize = 64 * 1024;

/// Two queues of encoded frames. A write on its way is finished first; then control goes before data.
#[derive(Default)]
pub(super) struct Writer {
    control: VecDeque<Vec<u8>>,
    data: VecDeque<Vec<u8>>,
    current: Vec<u8>,
    sent: usize,
    /// When what is queued must be written.
    due: Option<Instant>,
}

impl Writer {
    /// Queues a frame that must not wait behind data.
    pub(super) fn control(&mut self, frame: &ToHost) {
        self.control.push_back(bytes(frame));
        self.due = Some(Instant::now());
    }

    /// The same for a frame that nothing waits for: it goes with the next one, or a little later.
    pub(super) fn control_later(&mut self, frame: &ToHost) {
        self.control.push_back(bytes(frame));
        self.due.get_or_insert_with(|| Instant::now() + DELAY);
    }

    /// Queues a frame in the order of its stream's data. Bounded by the credit the host gave.
    pub(super) fn data(&mut self, frame: &ToHost) {
        self.data.push_back(bytes(frame));
        self.due = Some(Instant::now());
    }

    /// A write is due now.
    pub(super) fn has_work(&self) -> bool {
        self.sent < self.current.len() || self.due.is_some_and(|due| due <= Instant::now())
    }

    /// When the next write is due.
    pub(super) fn due(&self) -> Option<Instant> {
        self.due
    }

    /// Writes as much of what is due as the descriptor takes.
    ///
    /// # Errors
    /// The host's end is gone.
    pub(super) fn flush(&mut self, fd: BorrowedFd<'_>) -> Result<(), Errno> {
        while self.has_work() {
            if self.sent == self.current.len() {
                self.fill();
            }
            match rustix::io::write(fd, &self.current[self.sent..]) {
                Ok(written) => self.sent += written,
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => return Ok(()),
                Err(errno) => return Err(errno),
            }
        }
        Ok(())
    }

    fn fill(&mut self) {
        self.current.clear();
        self.sent = 0;
        while self.current.len() < BATCH_BYTES {
            let Some(next) = self.control.pop_front().or_else(|| self.data.pop_front()) else {
                self.due = None;
                break;
            };
            self.current.extend_from_slice(&next);
        }
    }
}

fn bytes(frame: &ToHost) -> Vec<u8> {
    let mut out = Vec::new();
    encode(frame, &mut out);
    out
}
