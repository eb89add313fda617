//! The sending side of a channel: frames are written by whoever sends them while the pipe takes them, which saves a command
//! two changes of task; what it does not take is written in turn, control before data, once it does.

use std::collections::VecDeque;
use std::io::{self, ErrorKind};
use std::os::fd::OwnedFd;
use std::sync::{Mutex, MutexGuard, PoisonError};

use guest::protocol::{Frame, encode};
use tokio::net::unix::pipe;
use tokio::sync::Notify;

/// Most bytes put together into one write.
const BATCH_BYTES: usize = 64 * 1024;

/// The pipe and what waits for it.
#[derive(Debug)]
pub(super) struct Outgoing {
    pipe: pipe::Sender,
    waiting: Mutex<Waiting>,
    /// Something waits for the pipe.
    rest: Notify,
}

/// Encoded frames. A write on its way is finished first. What waits is bounded by the credit of the channel's streams.
#[derive(Debug, Default)]
struct Waiting {
    control: VecDeque<Vec<u8>>,
    data: VecDeque<Vec<u8>>,
    current: Vec<u8>,
    sent: usize,
    /// Nobody reads any more: the other direction's end tells why.
    closed: bool,
}

impl Outgoing {
    /// Takes the writing end of a pipe over.
    ///
    /// # Errors
    /// It is no such thing, or the runtime cannot watch it.
    pub(super) fn new(pipe: OwnedFd) -> io::Result<Self> {
        let pipe = pipe::Sender::from_owned_fd(pipe)?;
        Ok(Self { pipe, waiting: Mutex::default(), rest: Notify::new() })
    }

    /// Sends a frame that waits behind no data.
    pub(super) fn control(&self, frame: &impl Frame) {
        self.send(frame, |waiting| &mut waiting.control);
    }

    /// Sends a frame in the order of the data.
    pub(super) fn data(&self, frame: &impl Frame) {
        self.send(frame, |waiting| &mut waiting.data);
    }

    fn send(&self, frame: &impl Frame, queue: impl FnOnce(&mut Waiting) -> &mut VecDeque<Vec<u8>>) {
        let mut bytes = Vec::new();
        encode(frame, &mut bytes);
        self.put(bytes, queue);
    }

    /// Sends an encoded frame in the order of the data.
    pub(super) fn encoded(&self, frame: Vec<u8>) {
        self.put(frame, |waiting| &mut waiting.data);
    }

    fn put(&self, frame: Vec<u8>, queue: impl FnOnce(&mut Waiting) -> &mut VecDeque<Vec<u8>>) {
        let mut waiting = self.waiting();
        queue(&mut waiting).push_back(frame);
        waiting.flush(&self.pipe);
        if waiting.has_some() {
            self.rest.notify_one();
        }
    }

    /// Writes what the senders could not, until nobody reads any more.
    pub(super) async fn write_rest(&self) {
        loop {
            self.rest.notified().await;
            while self.waiting().has_some() {
                if self.pipe.writable().await.is_err() {
                    return;
                }
                self.waiting().flush(&self.pipe);
            }
        }
    }

    fn waiting(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Waiting {
    fn has_some(&self) -> bool {
        self.sent < self.current.len() || !self.control.is_empty() || !self.data.is_empty()
    }

    /// Writes as much as the pipe takes.
    fn flush(&mut self, pipe: &pipe::Sender) {
        while self.has_some() && !self.closed {
            if self.sent == self.current.len() {
                self.fill();
            }
            match pipe.try_write(&self.current[self.sent..]) {
                Ok(written) => self.sent += written,
                Err(error) if error.kind() == ErrorKind::WouldBlock => return,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(_) => self.closed = true,
            }
        }
        if self.closed {
            *self = Self { closed: true, ..Self::default() };
        }
    }

    fn fill(&mut self) {
        self.current.clear();
        self.sent = 0;
        while self.current.len() < BATCH_BYTES {
            let Some(next) = self.control.pop_front().or_else(|| self.data.pop_front()) else { break };
            if self.current.is_empty() {
                self.current = next;
            } else {
                self.current.extend_from_slice(&next);
            }
        }
    }
}
