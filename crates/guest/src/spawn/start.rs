//! Starting a command: its pipes, and the order to the shim that waits for one.

use std::os::fd::OwnedFd;

use guest::protocol::spawn::{Counters, StartCommand, ToGuest};
use guest::protocol::{Decoder, Frame};
use rustix::fs::{OFlags, fcntl_setfl};
use rustix::io::Errno;
use rustix::pipe::{PipeFlags, pipe_with};
use rustix::process::Uid;
use rustix::thread::set_thread_res_uid;

use super::command::{Command, OutputPipe, Stdin};
use super::standby::Standby;

/// Gives `standby` the order to become the command that `frame` holds.
///
/// # Errors
/// EMFILE, ENOMEM, or EPIPE and the like when the shim is gone: nothing was started.
pub(super) fn start(
    standby: Standby,
    frame: &ToGuest,
    command: &StartCommand,
    before: Counters,
) -> Result<Command, Errno> {
    let ([stdout, stderr], stdin) = pipes_of(command.uid, command.stdin)?;
    let mut streams = vec![stdout.1, stderr.1];
    let mut stdin_ours = None;
    if let Some((read, write)) = stdin {
        streams.push(read);
        stdin_ours = Some(nonblocking(write)?);
    }
    let outputs = [OutputPipe::new(nonblocking(stdout.0)?), OutputPipe::new(nonblocking(stderr.0)?)];
    let shim = standby.shim;
    let link = standby.start(frame, &streams)?;
    Ok(Command {
        stream: frame.stream(),
        background: command.background,
        processes_max: command.rlimits.nproc.map(|limit| (command.uid, limit)),
        shim,
        link: Some(link),
        reports: Decoder::new(),
        started: false,
        stdin: Stdin::new(stdin_ours),
        outputs,
        before,
    })
}

/// The end to read and the end to write.
type Pipe = (OwnedFd, OwnedFd);

/// Pipes of both outputs and, if wanted, of standard input, owned by the command's user, so that a program may open
/// `/dev/stdout` and its like again: the owner is the creator's effective user, and changing it later would need a capability.
fn pipes_of(uid: u32, with_stdin: bool) -> Result<([Pipe; 2], Option<Pipe>), Errno> {
    set_thread_res_uid(None, Uid::from_raw(uid), None)?;
    let pipe = || pipe_with(PipeFlags::CLOEXEC);
    let pipes = pipe().and_then(|stdout| {
        let stderr = pipe()?;
        let stdin = with_stdin.then(pipe).transpose()?;
        Ok(([stdout, stderr], stdin))
    });
    if set_thread_res_uid(None, Uid::ROOT, None).is_err() {
        // Going on as the command's user would be wrong in every later step; the host sees a lost spawn.
        crate::sys::exit_now(70);
    }
    pipes
}

fn nonblocking(fd: OwnedFd) -> Result<OwnedFd, Errno> {
    fcntl_setfl(&fd, OFlags::NONBLOCK)?;
    Ok(fd)
}
