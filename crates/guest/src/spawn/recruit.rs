//! The process that becomes a command: it has done what needs no command, and waits for its order.

use std::convert::Infallible;
use std::io::IoSliceMut;
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::path::Path;

use guest::protocol::Decoder;
use guest::protocol::spawn::{StartCommand, ToGuest};
use rustix::io::Errno;
use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, recvmsg};
use rustix::process::{Pid, Signal, getppid, set_parent_process_death_signal};

use super::child::{Refusal, become_command, prepare, refuse};

/// Size of one read of the order.
const ORDER_BYTES: usize = 16 * 1024;

/// Waits for the order and becomes its command; returns only when it cannot. Without an order it ends.
pub(super) fn serve(workspace: &Path, order: &OwnedFd, shim: Pid) -> Result<Infallible, Refusal> {
    // Nobody would watch it without its shim. The kernel forgets this when the process changes its user: from then on spawn,
    // the subreaper above, finds and kills it.
    set_parent_process_death_signal(Some(Signal::KILL)).map_err(refuse("cannot be tied to the shim"))?;
    if getppid() != Some(shim) {
        crate::sys::exit_now(126);
    }
    let oom_score = prepare()?;
    let (command, streams) = receive(order).map_err(refuse("the order was cut short"))?;
    become_command(&command, workspace, &streams, &oom_score)
}

/// The command, and the descriptors that came with it.
fn receive(order: &OwnedFd) -> Result<(StartCommand, Vec<OwnedFd>), Errno> {
    let mut decoder = Decoder::<ToGuest>::new();
    let mut streams = Vec::new();
    let mut buffer = [0; ORDER_BYTES];
    loop {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(3))];
        let mut ancillary = RecvAncillaryBuffer::new(&mut space);
        let pieces = &mut [IoSliceMut::new(&mut buffer)];
        let received = match recvmsg(order, pieces, &mut ancillary, RecvFlags::CMSG_CLOEXEC) {
            Ok(received) => received.bytes,
            Err(Errno::INTR) => continue,
            Err(errno) => return Err(errno),
        };
        for message in ancillary.drain() {
            if let RecvAncillaryMessage::ScmRights(descriptors) = message {
                streams.extend(descriptors);
            }
        }
        if received == 0 {
            // Spawn has let go of the pair.
            crate::sys::exit_now(126);
        }
        decoder.feed(&buffer[..received]);
        match decoder.next_frame() {
            Ok(Some(ToGuest::Start { command, .. })) => return Ok((command, streams)),
            Ok(None) => {}
            Ok(Some(_)) | Err(_) => return Err(Errno::PROTO),
        }
    }
}
