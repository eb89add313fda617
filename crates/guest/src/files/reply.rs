//! Answers of one request: frames out under credit, the request's later frames in.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc::{Receiver, TryRecvError};
use std::sync::{Arc, Mutex, PoisonError};

use guest::protocol::encode;
use guest::protocol::files::{CREDIT_WINDOW_BYTES, FilesErrorCode, Response};
use rustix::io::Errno;

use super::failure::Failure;

/// What reaches a running request.
pub(super) enum Message {
    Data(Vec<u8>),
    End,
    Credit(u32),
    Cancel,
}

/// The channel's output, shared by all requests; a frame is written whole.
#[derive(Default)]
pub(super) struct Output {
    lock: Mutex<()>,
}

impl Output {
    /// Writes frames back to back. When the host is gone there is nobody left to serve.
    pub(super) fn send(&self, frames: &[Response]) {
        let mut bytes = Vec::new();
        for frame in frames {
            encode(frame, &mut bytes);
        }
        self.send_encoded(&bytes);
    }

    /// Writes whole frames.
    fn send_encoded(&self, bytes: &[u8]) {
        let _guard = self.lock.lock().unwrap_or_else(PoisonError::into_inner);
        let mut rest = bytes;
        while !rest.is_empty() {
            match rustix::io::write(rustix::stdio::stdout(), rest) {
                Ok(written) => rest = &rest[written..],
                Err(Errno::INTR) => {}
                Err(_) => std::process::exit(0),
            }
        }
    }
}

/// One request's side of the channel.
pub(super) struct Conversation {
    pub(super) id: u32,
    output: Arc<Output>,
    inbox: Receiver<Message>,
    /// What the host may still send of a write; the reader of the channel takes from it.
    write_credit: Arc<AtomicU32>,
    credit_bytes: u32,
}

impl Conversation {
    pub(super) fn new(
        id: u32,
        output: Arc<Output>,
        inbox: Receiver<Message>,
        write_credit: Arc<AtomicU32>,
    ) -> Self {
        Self { id, output, inbox, write_credit, credit_bytes: CREDIT_WINDOW_BYTES }
    }

    pub(super) fn send(&self, frame: Response) {
        self.output.send(&[frame]);
    }

    pub(super) fn send_all(&self, frames: &[Response]) {
        self.output.send(frames);
    }

    /// Sends frames that are encoded already.
    pub(super) fn send_encoded(&self, frames: &[u8]) {
        self.output.send_encoded(frames);
    }

    /// Returns credit for a write.
    pub(super) fn grant(&self, bytes: u32) {
        self.write_credit.fetch_add(bytes, Ordering::SeqCst);
        self.send(Response::Credit { id: self.id, bytes });
    }

    /// The next frame of a write.
    pub(super) fn next(&self) -> Result<Message, Failure> {
        match self.inbox.recv() {
            Ok(Message::Cancel) | Err(_) => Err(FilesErrorCode::Cancelled.into()),
            Ok(message) => Ok(message),
        }
    }

    /// Looks for a cancel without waiting; credit that arrived is kept.
    pub(super) fn is_cancelled(&mut self) -> bool {
        loop {
            match self.inbox.try_recv() {
                Ok(Message::Credit(bytes)) => self.credit_bytes = self.credit_bytes.saturating_add(bytes),
                Ok(Message::Cancel) | Err(TryRecvError::Disconnected) => return true,
                Ok(Message::Data(_) | Message::End) => {}
                Err(TryRecvError::Empty) => return false,
            }
        }
    }

    /// Waits until at least `wanted` bytes of credit are there; gives what there is.
    pub(super) fn wait_for_credit(&mut self, wanted: u32) -> Result<u32, Failure> {
        while self.credit_bytes < wanted {
            match self.next()? {
                Message::Credit(bytes) => self.credit_bytes = self.credit_bytes.saturating_add(bytes),
                Message::Data(_) | Message::End | Message::Cancel => {}
            }
        }
        Ok(self.credit_bytes)
    }

    /// Uses credit that [`Self::wait_for_credit`] found.
    pub(super) fn spend(&mut self, bytes: u32) {
        self.credit_bytes = self.credit_bytes.saturating_sub(bytes);
    }
}
