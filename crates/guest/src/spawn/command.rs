//! Spawn's side of one running command: its pipes, its credit, its link to the shim.
//!
//! Spawn keeps both ends of the outputs' pipes: an output that its program closes says nothing, because the end, which is proven
//! otherwise, is what the host waits for; nobody is woken for less.

use std::collections::VecDeque;
use std::os::fd::OwnedFd;

use guest::protocol::spawn::{Counters, Output, ToHost};
use guest::protocol::{CREDIT_WINDOW_BYTES, Decoder, MAX_DATA_BYTES};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::process::Pid;

use super::writer::Writer;
use crate::sys::close_together;

/// The host broke the protocol: the channel ends.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub(super) struct Violation(pub(super) &'static str);

/// Stdin credit is returned in portions of at least this, or when everything was delivered.
const GRANT_BYTES: u32 = 64 * 1024;

pub(super) struct Command {
    pub(super) stream: u32,
    pub(super) background: bool,
    pub(super) uid: u32,
    /// Its user's limit of processes, where the limit is one of the user.
    pub(super) processes_max: Option<u64>,
    pub(super) shim: Pid,
    /// To the shim; gone once it has reported the end.
    pub(super) link: Option<OwnedFd>,
    pub(super) reports: Decoder<ToHost>,
    /// The host knows, or will know before anything else, that its program runs.
    pub(super) started: bool,
    pub(super) stdin: Stdin,
    pub(super) outputs: [OutputPipe; 2],
    /// What the shim was given for want of a standard input.
    pub(super) null: OwnedFd,
    /// Counters when it started.
    pub(super) before: Counters,
}

impl Command {
    /// The shim has reported the end and every output byte was handed over.
    pub(super) fn is_over(&self) -> bool {
        self.link.is_none() && self.outputs.iter().all(|output| !output.is_open)
    }

    /// Lets go of everything it still holds.
    pub(super) fn close(self) {
        let pipes = self.outputs.into_iter().flat_map(|output| [output.pipe.read, output.pipe.write]);
        close_together(pipes.chain([self.null]).chain(self.stdin.pipe).chain(self.link));
    }

    /// Reads what one output has, within its credit: one piece while the command runs, everything once it has
    /// ended. After the end an empty pipe is a finished one: its writers are proven dead, or given up.
    pub(super) fn pump(&mut self, which: Output, writer: &mut Writer) {
        let ended = self.link.is_none();
        let stream = self.stream;
        let output = &mut self.outputs[usize::from(which == Output::Stderr)];
        let mut buffer = [0; MAX_DATA_BYTES];
        while output.is_open {
            let length = buffer.len().min(usize::try_from(output.credit_bytes).unwrap_or(usize::MAX));
            if length == 0 {
                return;
            }
            match rustix::io::read(&output.pipe.read, &mut buffer[..length]) {
                Ok(length) if length > 0 => {
                    // At most the credit, a u32.
                    output.credit_bytes -= u32::try_from(length).unwrap_or(u32::MAX);
                    output.total_bytes += length as u64;
                    writer.data(&ToHost::Data { stream, output: which, bytes: buffer[..length].to_vec() });
                    if !ended {
                        return;
                    }
                }
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) if !ended => return,
                Ok(_) | Err(_) => output.close(stream, which, writer),
            }
        }
    }

    /// The command has ended: hands over what is left, as far as there is credit.
    pub(super) fn finish(&mut self, writer: &mut Writer) {
        let mut fds = [0, 1].map(|index| PollFd::new(&self.outputs[index].pipe.read, PollFlags::IN));
        // One question for both, and none more for one that holds nothing.
        let is_known = poll(&mut fds, Some(&Timespec { tv_sec: 0, tv_nsec: 0 })).is_ok();
        let is_empty = fds.map(|fd| is_known && !fd.revents().contains(PollFlags::IN));
        for (which, is_empty) in [Output::Stdout, Output::Stderr].into_iter().zip(is_empty) {
            if is_empty {
                self.outputs[usize::from(which == Output::Stderr)].close(self.stream, which, writer);
            } else {
                self.pump(which, writer);
            }
        }
    }

    /// Takes more credit for an output.
    pub(super) fn grant(&mut self, which: Output, bytes: u32, writer: &mut Writer) -> Result<(), Violation> {
        let output = &mut self.outputs[usize::from(which == Output::Stderr)];
        let credit = output.credit_bytes.checked_add(bytes).filter(|sum| *sum <= CREDIT_WINDOW_BYTES);
        output.credit_bytes = credit.ok_or(Violation("output credit over the window"))?;
        if self.link.is_none() {
            self.pump(which, writer);
        }
        Ok(())
    }
}

/// The end to read and the end to write.
pub(super) struct Pipe {
    pub(super) read: OwnedFd,
    pub(super) write: OwnedFd,
}

/// An output as spawn reads it. The pipe is closed with the command, when the host has its end.
pub(super) struct OutputPipe {
    pub(super) pipe: Pipe,
    /// More may come.
    is_open: bool,
    pub(super) credit_bytes: u32,
    total_bytes: u64,
}

impl OutputPipe {
    pub(super) fn new(pipe: Pipe) -> Self {
        Self { pipe, is_open: true, credit_bytes: CREDIT_WINDOW_BYTES, total_bytes: 0 }
    }

    /// Where to wait for output that may be read.
    pub(super) fn wanted(&self) -> Option<&OwnedFd> {
        (self.is_open && self.credit_bytes > 0).then_some(&self.pipe.read)
    }

    fn close(&mut self, stream: u32, output: Output, writer: &mut Writer) {
        if std::mem::take(&mut self.is_open) {
            writer.data(&ToHost::OutputClosed { stream, output, total_bytes: self.total_bytes });
        }
    }
}

/// The end spawn writes, and what waits for it.
pub(super) struct Stdin {
    pipe: Option<OwnedFd>,
    pending: VecDeque<Vec<u8>>,
    /// Bytes of the first pending piece already written.
    offset: usize,
    credit_bytes: u32,
    ungranted_bytes: u32,
    delivered_bytes: u64,
    closing: bool,
    broken: bool,
}

impl Stdin {
    /// `None`: the command reads `/dev/null`.
    pub(super) fn new(pipe: Option<OwnedFd>) -> Self {
        Self {
            pipe,
            pending: VecDeque::new(),
            offset: 0,
            credit_bytes: CREDIT_WINDOW_BYTES,
            ungranted_bytes: 0,
            delivered_bytes: 0,
            closing: false,
            broken: false,
        }
    }

    pub(super) fn delivered_bytes(&self) -> u64 {
        self.delivered_bytes
    }

    /// The pipe, while something waits for it.
    pub(super) fn wants(&self) -> Option<&OwnedFd> {
        self.pipe.as_ref().filter(|_| !self.pending.is_empty())
    }

    pub(super) fn push(&mut self, stream: u32, bytes: Vec<u8>, writer: &mut Writer) -> Result<(), Violation> {
        if self.broken {
            return Ok(());
        }
        if self.pipe.is_none() || self.closing {
            return Err(Violation("stdin data for a closed stdin"));
        }
        let credit = u32::try_from(bytes.len()).ok().and_then(|length| self.credit_bytes.checked_sub(length));
        self.credit_bytes = credit.ok_or(Violation("stdin data without credit"))?;
        self.pending.push_back(bytes);
        self.write(stream, writer);
        Ok(())
    }

    pub(super) fn close(&mut self) {
        self.closing = true;
        if self.pending.is_empty() {
            self.pipe = None;
        }
    }

    /// Writes as much as the pipe takes.
    pub(super) fn write(&mut self, stream: u32, writer: &mut Writer) {
        while let (Some(pipe), Some(first)) = (&self.pipe, self.pending.front()) {
            match rustix::io::write(pipe, &first[self.offset..]) {
                Ok(written) => {
                    self.offset += written;
                    self.delivered_bytes += written as u64;
                    self.ungranted_bytes += u32::try_from(written).unwrap_or(u32::MAX);
                    if self.offset == first.len() {
                        self.pending.pop_front();
                        self.offset = 0;
                    }
                }
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => break,
                Err(_) => return self.give_up(stream, writer),
            }
        }
        let all_delivered = self.pending.is_empty();
        if self.closing {
            if all_delivered {
                self.pipe = None;
            }
        } else if self.ungranted_bytes >= GRANT_BYTES || (all_delivered && self.ungranted_bytes > 0) {
            let bytes = std::mem::take(&mut self.ungranted_bytes);
            self.credit_bytes += bytes;
            writer.control(&ToHost::StdinCredit { stream, bytes });
        }
    }

    /// The command has ended. Unless the host had closed stdin and all of it was delivered, something was never
    /// read, or is on its way and never will be.
    pub(super) fn end(&mut self, stream: u32, writer: &mut Writer) {
        if self.pipe.is_some() {
            self.give_up(stream, writer);
        }
    }

    fn give_up(&mut self, stream: u32, writer: &mut Writer) {
        self.pipe = None;
        self.broken = true;
        self.pending.clear();
        writer.control(&ToHost::StdinBroken { stream, delivered_bytes: self.delivered_bytes });
    }
}
