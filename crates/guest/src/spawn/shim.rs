//! The process that watches one command: a subreaper of its own, forked from spawn, running no other code.
//!
//! It forks the process that becomes the command, tells spawn when it has, waits for the main process, and then proves that
//! nothing is left: `waitpid(-1)` answering ECHILD. Its link to spawn is a socket: frames go up; any byte, or its end, means
//! "kill the tree". So when spawn dies in whatever way, every command's tree dies too.
//!
//! ```text
//! Starting -> Running -> Grace (leftovers may end by themselves) -> Done
//!    |           +-- kill or lost link --------------------------> Done
//!    +-- StartFailed
//! ```

use std::collections::HashSet;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::time::{Duration, Instant};

use guest::protocol::encode;
use guest::protocol::spawn::{ExitStatus, Exited, STRAGGLER_GRACE_MS, ToHost};
use nix::sys::resource::{UsageWho, getrusage};
use nix::sys::time::TimeValLike;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use rustix::pipe::{PipeFlags, pipe_with};
use rustix::process::{
    DumpableBehavior, Pid, WaitStatus, getpid, set_child_subreaper, set_dumpable_behavior,
};

use super::child::{Refusal, from_nix, refuse};
use super::children::{Children, Left, timespec};
use super::recruit;
use super::tree;

/// Stream of the frames on a link: whose they are is for spawn to say, a shim is made before its command is known.
pub(super) const LINK_STREAM: u32 = 1;

/// Runs in the forked process and never returns. Every descriptor but these was closed by the caller.
pub(super) fn run(workspace: &Path, order: OwnedFd, link: &OwnedFd) -> ! {
    let stream = LINK_STREAM;
    match start(workspace, order) {
        Ok((children, main)) => {
            send(link, &ToHost::Started { stream, pid: main.as_raw_nonzero().get().unsigned_abs() });
            let exited = watch(&children, main, link);
            send(link, &ToHost::Exited { stream, exited });
        }
        Err(refusal) => send(
            link,
            &ToHost::StartFailed {
                stream,
                exit_code: refusal.exit_code,
                errno: refusal.errno,
                message: refusal.message.into_owned(),
            },
        ),
    }
    crate::sys::exit_now(0)
}

/// Forks the recruit and waits until it runs its program, or says why not. A recruit that dies before its order looks like
/// one that runs: spawn, which has given none, drops the pair.
fn start(workspace: &Path, order: OwnedFd) -> Result<(Children, Pid), Refusal> {
    let system = refuse("no process or descriptor left to start the program");
    set_child_subreaper(Some(getpid())).map_err(&system)?;
    set_dumpable_behavior(DumpableBehavior::NotDumpable).map_err(&system)?;
    let children = Children::watch().map_err(from_nix).map_err(&system)?;
    // Closed by a successful exec: end of file is the good answer.
    let (answer, report) = pipe_with(PipeFlags::CLOEXEC).map_err(&system)?;
    let shim = getpid();
    let Some(main) = crate::sys::fork().map_err(from_nix).map_err(&system)? else {
        drop(answer);
        let Err(refusal) = recruit::serve(workspace, &order, shim);
        let mut bytes = Vec::new();
        bytes.extend_from_slice(&refusal.exit_code.to_le_bytes());
        bytes.extend_from_slice(&refusal.errno.to_le_bytes());
        bytes.extend_from_slice(refusal.message.as_bytes());
        let _ = rustix::io::write(&report, &bytes);
        crate::sys::exit_now(126);
    };
    drop((report, order));
    let main = Pid::from_raw(main.as_raw()).ok_or_else(|| system(Errno::SRCH))?;
    let mut bytes = [0; 256];
    let length = loop {
        match rustix::io::read(&answer, &mut bytes) {
            Ok(length) => break length,
            Err(Errno::INTR) => {}
            Err(errno) => return Err(system(errno)),
        }
    };
    match bytes[..length].split_first_chunk::<8>() {
        None => Ok((children, main)),
        Some((numbers, message)) => {
            let [c0, c1, c2, c3, e0, e1, e2, e3] = *numbers;
            Err(Refusal {
                exit_code: i32::from_le_bytes([c0, c1, c2, c3]),
                errno: i32::from_le_bytes([e0, e1, e2, e3]),
                message: String::from_utf8_lossy(message).into_owned().into(),
            })
        }
    }
}

/// Waits for the main process, then for, or after the grace against, everything it left behind.
fn watch(children: &Children, main: Pid, link: &OwnedFd) -> Exited {
    let mut status = None;
    let mut deadline: Option<Instant> = None;
    loop {
        let left = children.reap(|pid, ended| {
            if pid == main {
                status = Some(ended);
            }
        });
        if left == Left::None {
            return exited(status, &HashSet::new(), true);
        }
        if status.is_some() && deadline.is_none() {
            deadline = Some(Instant::now() + Duration::from_millis(STRAGGLER_GRACE_MS));
        }
        let timeout = deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
        let grace_is_over = timeout.is_some_and(|left| left.is_zero());
        let mut fds =
            [PollFd::from_borrowed_fd(children.fd(), PollFlags::IN), PollFd::new(link, PollFlags::IN)];
        if !grace_is_over {
            // An interrupted wait looks again.
            let _ = poll(&mut fds, timeout.map(timespec).as_ref());
        }
        if grace_is_over || !fds[1].revents().is_empty() {
            let mut sweep = tree::kill(children, &[], |pid, ended| {
                if pid == main {
                    status = Some(ended);
                }
            });
            sweep.killed.remove(&main);
            return exited(status, &sweep.killed, sweep.clean);
        }
    }
}

/// The report, with the resources of everything waited for. Cgroup deltas and stdin are spawn's to fill in.
fn exited(status: Option<WaitStatus>, stragglers: &HashSet<Pid>, clean: bool) -> Exited {
    let status = status.and_then(|status| {
        status.exit_status().map(ExitStatus::Code).or(status.terminating_signal().map(ExitStatus::Signal))
    });
    let usage = getrusage(UsageWho::RUSAGE_CHILDREN).ok();
    let cpu_ms = usage.map_or(0, |usage| (usage.user_time() + usage.system_time()).num_milliseconds());
    let max_rss_kib = usage.map_or(0, |usage| usage.max_rss());
    Exited {
        status: status.unwrap_or(ExitStatus::Lost),
        cpu_ms: u64::try_from(cpu_ms).unwrap_or(0),
        max_rss_bytes: u64::try_from(max_rss_kib).unwrap_or(0).saturating_mul(1024),
        stragglers: u32::try_from(stragglers.len()).unwrap_or(u32::MAX),
        oom_kills: 0,
        refused_forks: 0,
        memory_peak_bytes: 0,
        cgroup_cpu_ms: 0,
        stdin_bytes: 0,
        clean: clean && status.is_some(),
    }
}

/// Sends a frame to spawn. Nobody there means there is nobody to tell.
fn send(link: &OwnedFd, frame: &ToHost) {
    let mut bytes = Vec::new();
    encode(frame, &mut bytes);
    let mut rest = bytes.as_slice();
    while !rest.is_empty() {
        match rustix::net::send(link, rest, rustix::net::SendFlags::NOSIGNAL) {
            Ok(sent) => rest = &rest[sent..],
            Err(Errno::INTR) => {}
            Err(_) => return,
        }
    }
}
