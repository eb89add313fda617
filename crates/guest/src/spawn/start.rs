//! Starting a command: its pipes, its link, the fork of its shim.

use std::os::fd::OwnedFd;
use std::path::Path;

use guest::protocol::Decoder;
use guest::protocol::spawn::{Counters, StartCommand};
use rustix::fs::{CWD, Mode, OFlags, fcntl_setfl, openat};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};
use rustix::pipe::{PipeFlags, pipe_with};
use rustix::process::{Pid, Uid};
use rustix::thread::set_thread_res_uid;

use super::child::from_nix;
use super::command::{Command, OutputPipe, Stdin};
use super::shim;

/// Starts the shim. `detach` runs in the forked process first and lets go of everything that is not the
/// new command's.
///
/// # Errors
/// EMFILE, EAGAIN, ENOMEM: nothing was started.
pub(super) fn start(
    stream: u32,
    command: &StartCommand,
    workspace: &Path,
    before: Counters,
    detach: impl FnOnce(),
) -> Result<Command, Errno> {
    let null = || openat(CWD, "/dev/null", OFlags::RDWR | OFlags::CLOEXEC, Mode::empty());
    let (stdin_child, stdin_ours) = if command.stdin {
        let (read, write) = pipe_of(command.uid)?;
        (read, Some(nonblocking(write)?))
    } else {
        (null()?, None)
    };
    let (stdout_ours, stdout_child) = pipe_of(command.uid)?;
    let (stderr_ours, stderr_child) = pipe_of(command.uid)?;
    let outputs = [OutputPipe::new(nonblocking(stdout_ours)?), OutputPipe::new(nonblocking(stderr_ours)?)];
    let (link, shim_link) = socketpair(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
    let stdio = [stdin_child, stdout_child, stderr_child];
    let Some(shim) = crate::sys::fork().map_err(from_nix)? else {
        drop((stdin_ours, outputs, link));
        detach();
        leave_channel();
        shim::run(stream, command, workspace, stdio, &shim_link);
    };
    Ok(Command {
        stream,
        background: command.background,
        processes_max: command.rlimits.nproc.map(|limit| (command.uid, limit)),
        shim: Pid::from_raw(shim.as_raw()).ok_or(Errno::SRCH)?,
        link: Some(nonblocking(link)?),
        reports: Decoder::new(),
        started: false,
        stdin: Stdin::new(stdin_ours),
        outputs,
        before,
    })
}

/// A pipe owned by the command's user, so that a program may open `/dev/stdout` and its like again: the
/// owner is the creator's effective user, and changing it later would need a capability.
fn pipe_of(uid: u32) -> Result<(OwnedFd, OwnedFd), Errno> {
    set_thread_res_uid(None, Uid::from_raw(uid), None)?;
    let pipe = pipe_with(PipeFlags::CLOEXEC);
    if set_thread_res_uid(None, Uid::ROOT, None).is_err() {
        // Going on as the command's user would be wrong in every later step; the host sees a lost spawn.
        crate::sys::exit_now(70);
    }
    pipe
}

fn nonblocking(fd: OwnedFd) -> Result<OwnedFd, Errno> {
    fcntl_setfl(&fd, OFlags::NONBLOCK)?;
    Ok(fd)
}

/// The shim must hold neither end of the channel: the host learns of spawn's death by their closing.
fn leave_channel() {
    let null = openat(CWD, "/dev/null", OFlags::RDWR | OFlags::CLOEXEC, Mode::empty());
    let left = null.and_then(|null| {
        rustix::stdio::dup2_stdin(&null)?;
        rustix::stdio::dup2_stdout(&null)?;
        rustix::stdio::dup2_stderr(&null)
    });
    if left.is_err() {
        crate::sys::exit_now(70);
    }
}
