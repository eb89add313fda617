//! Outgoing frames of the spawn channel: control before data, never blocking.

use std::collections::VecDeque;
use std::os::fd::BorrowedFd;

use guest::protocol::{encode, spawn::ToHost};
use rustix::io::Errno;

/// Two queues of encoded frames. A frame on its way is finished first; then control goes before data.
#[derive(Default)]
pub(super) struct Writer {
    control: VecDeque<Vec<u8>>,
    data: VecDeque<Vec<u8>>,
    current: Vec<u8>,
    sent: usize,
}

impl Writer {
    /// Queues a frame that must not wait behind data.
    pub(super) fn control(&mut self, frame: &ToHost) {
        self.control.push_back(bytes(frame));
    }

    /// Queues a frame in the order of its stream's data. Bounded by the credit the host gave.
    pub(super) fn data(&mut self, frame: &ToHost) {
        self.data.push_back(bytes(frame));
    }

    pub(super) fn has_work(&self) -> bool {
        self.sent < self.current.len() || !self.control.is_empty() || !self.data.is_empty()
    }

    /// Writes as much as the descriptor takes.
    ///
    /// # Errors
    /// The host's end is gone.
    pub(super) fn flush(&mut self, fd: BorrowedFd<'_>) -> Result<(), Errno> {
        loop {
            if self.sent == self.current.len() {
                let Some(next) = self.control.pop_front().or_else(|| self.data.pop_front()) else {
                    return Ok(());
                };
                self.current = next;
                self.sent = 0;
            }
            match rustix::io::write(fd, &self.current[self.sent..]) {
                Ok(written) => self.sent += written,
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => return Ok(()),
                Err(errno) => return Err(errno),
            }
        }
    }
}

fn bytes(frame: &ToHost) -> Vec<u8> {
    let mut out = Vec::new();
    encode(frame, &mut out);
    out
}
