//! Starting a command: its streams, made before there is one where that is possible, and the order to the shim that waits.

use std::os::fd::{AsFd, OwnedFd};

use guest::protocol::spawn::{Counters, StartCommand, ToGuest};
use guest::protocol::{Decoder, Frame};
use rustix::fs::{CWD, Mode, OFlags, fcntl_setfl, openat};
use rustix::io::Errno;
use rustix::pipe::{PipeFlags, pipe_with};
use rustix::process::Uid;
use rustix::thread::set_thread_res_uid;

use super::command::{Command, OutputPipe, Pipe, Stdin};
use super::standby::Standby;

/// The standard streams of one command without standard input, owned by its user: what a command needs of spawn beside the order,
/// and can be made while none waits for it.
pub(super) struct Streams {
    uid: u32,
    /// One of its own: what a command sets on an open file reaches nobody else.
    null: OwnedFd,
    outputs: [Pipe; 2],
}

impl Streams {
    /// # Errors
    /// EMFILE, ENFILE.
    pub(super) fn new(uid: u32) -> Result<Self, Errno> {
        let null = openat(CWD, "/dev/null", OFlags::RDWR | OFlags::CLOEXEC, Mode::empty())?;
        let outputs = owned_by(uid, || Ok([Pipe::new()?, Pipe::new()?]))?;
        for output in &outputs {
            fcntl_setfl(&output.read, OFlags::NONBLOCK)?;
        }
        Ok(Self { uid, null, outputs })
    }

    pub(super) fn is_for(&self, uid: u32) -> bool {
        self.uid == uid
    }
}

/// Gives `standby` the order to become the command that `frame` holds.
///
/// # Errors
/// EMFILE, ENOMEM, or EPIPE and the like when the shim is gone: nothing was started, the streams are still the next one's.
pub(super) fn start(
    standby: Standby,
    frame: &ToGuest,
    command: &StartCommand,
    before: Counters,
    streams: &mut Option<Streams>,
) -> Result<Command, Errno> {
    let uid = command.uid;
    let made = match streams.take().filter(|streams| streams.is_for(uid)) {
        Some(made) => made,
        None => Streams::new(uid)?,
    };
    let stdin = command.stdin.then(|| owned_by(uid, Pipe::new)).transpose()?;
    if let Some(stdin) = &stdin {
        fcntl_setfl(&stdin.write, OFlags::NONBLOCK)?;
    }
    let shim = standby.shim;
    let [stdout, stderr] = &made.outputs;
    let input = stdin.as_ref().map_or(&made.null, |stdin| &stdin.read);
    let link = match standby.start(frame, [input.as_fd(), stdout.write.as_fd(), stderr.write.as_fd()]) {
        Ok(link) => link,
        Err(errno) => {
            *streams = Some(made);
            return Err(errno);
        }
    };
    Ok(Command {
        stream: frame.stream(),
        background: command.background,
        uid,
        processes_max: command.rlimits.nproc,
        shim,
        link: Some(link),
        reports: Decoder::new(),
        started: false,
        stdin: Stdin::new(stdin.map(|stdin| stdin.write)),
        outputs: made.outputs.map(OutputPipe::new),
        null: made.null,
        before,
    })
}

/// Runs `make` as a command's user towards the file system, so that a program may open `/dev/stdout` and its like again: a pipe's
/// owner is its creator's effective user, and changing it later would need a capability.
fn owned_by<T>(uid: u32, make: impl FnOnce() -> Result<T, Errno>) -> Result<T, Errno> {
    set_thread_res_uid(None, Uid::from_raw(uid), None)?;
    let made = make();
    if set_thread_res_uid(None, Uid::ROOT, None).is_err() {
        // Going on as the command's user would be wrong in every later step; the host sees a lost spawn.
        crate::sys::exit_now(70);
    }
    made
}

impl Pipe {
    fn new() -> Result<Self, Errno> {
        let (read, write) = pipe_with(PipeFlags::CLOEXEC)?;
        Ok(Self { read, write })
    }
}
