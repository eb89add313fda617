//! The shim's end of its link to spawn: orders as they come, a start's streams beside it.

use std::io::IoSliceMut;
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;

use guest::protocol::Decoder;
use guest::protocol::spawn::{StartCommand, ToGuest};
use rustix::io::Errno;
use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, recvmsg};

/// Size of one read.
const READ_BYTES: usize = 16 * 1024;

/// What spawn wants of a shim.
pub(super) enum Order {
    /// Start this. The streams are standard input, output and error.
    Start { stream: u32, command: StartCommand, streams: Vec<OwnedFd> },
    /// Kill that command's tree.
    Kill { stream: u32 },
}

/// The link, and what was read of an order. Streams arrive as they will be passed on, open across an exec: the shim executes
/// nothing else.
pub(super) struct Orders {
    link: OwnedFd,
    decoder: Decoder<ToGuest>,
    streams: Vec<OwnedFd>,
}

impl Orders {
    pub(super) fn new(link: OwnedFd) -> Self {
        Self { link, decoder: Decoder::new(), streams: Vec::new() }
    }

    pub(super) fn link(&self) -> &OwnedFd {
        &self.link
    }

    /// Waits for the next order.
    ///
    /// # Errors
    /// The link has ended, or brought what is no order: there is nothing left to do but to end.
    pub(super) fn wait(&mut self) -> Result<Order, Errno> {
        loop {
            if let Some(order) = self.next()? {
                return Ok(order);
            }
            self.read()?;
        }
    }

    /// Whether the command of `stream` is to be killed: it was asked for, or nobody is there who could ask. `is_readable`: the
    /// link has something to say.
    pub(super) fn want_killed(&mut self, stream: u32, is_readable: bool) -> bool {
        if is_readable && self.read().is_err() {
            return true;
        }
        loop {
            match self.next() {
                Ok(None) => return false,
                // Of a command before, which had ended by itself.
                Ok(Some(Order::Kill { stream: other })) if other != stream => {}
                Ok(Some(_)) | Err(_) => return true,
            }
        }
    }

    fn next(&mut self) -> Result<Option<Order>, Errno> {
        match self.decoder.next_frame() {
            Ok(None) => Ok(None),
            Ok(Some(ToGuest::Start { stream, command })) => {
                Ok(Some(Order::Start { stream, command, streams: std::mem::take(&mut self.streams) }))
            }
            Ok(Some(ToGuest::Kill { stream })) => Ok(Some(Order::Kill { stream })),
            Ok(Some(_)) | Err(_) => Err(Errno::PROTO),
        }
    }

    fn read(&mut self) -> Result<(), Errno> {
        let mut buffer = [0; READ_BYTES];
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(3))];
        let mut ancillary = RecvAncillaryBuffer::new(&mut space);
        let pieces = &mut [IoSliceMut::new(&mut buffer)];
        let received = match recvmsg(&self.link, pieces, &mut ancillary, RecvFlags::empty()) {
            Ok(received) if received.bytes > 0 => received.bytes,
            Ok(_) => return Err(Errno::PIPE),
            Err(Errno::INTR) => return Ok(()),
            Err(errno) => return Err(errno),
        };
        for message in ancillary.drain() {
            if let RecvAncillaryMessage::ScmRights(descriptors) = message {
                self.streams.extend(descriptors);
            }
        }
        self.decoder.feed(&buffer[..received]);
        Ok(())
    }
}
