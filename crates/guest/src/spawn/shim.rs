//! The process that watches commands, one at a time: a subreaper of its own, forked from spawn, running no other code.
//!
//! It waits for an order, starts the process that becomes the command, waits for the main process, and then proves that nothing
//! is left: `waitpid(-1)` answering ECHILD. Only then does it take the next order; with anything left it ends. That a command
//! has started it tells spawn only when the end does not follow soon: each report wakes two processes. Its link to spawn is a socket: orders come down with a command's streams beside them, reports go up, and a kill or
//! the link's end means "kill the tree". So when spawn dies in whatever way, every command's tree dies too.
//!
//! ```text
//! Waiting -> Starting -> Running -> Grace (leftovers may end by themselves) -> Waiting
//!    ^          |           +-- kill or lost link -----------------------------> Waiting, or the end
//!    +----------+-- StartFailed
//! ```
//!
//! The new process shares the shim's memory until its exec ([`run_beside`]): a copy of the memory, however small, is most of
//! what a start costs where every page fault is dear (gVisor).

use std::cell::Cell;
use std::collections::HashSet;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use guest::protocol::encode;
use guest::protocol::spawn::{ExitStatus, Exited, STRAGGLER_GRACE_MS, StartCommand, ToHost};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use rustix::process::{
    DumpableBehavior, Pid, WaitOptions, getpid, set_child_subreaper, set_dumpable_behavior, waitpid,
};

use super::child::{Ground, Plan, Refusal, from_nix, refuse};
use super::children::{Children, Left, timespec};
use super::orders::{Order, Orders};
use super::tree;
use crate::sys::{End, Ended, Stack, close_together, run_beside};

/// How long a start that nothing waits for may wait for the end, to be told with it.
const START_DELAY: Duration = Duration::from_millis(20);

/// Runs in the forked process and never returns. Of what the caller had open the link is left, and nothing that outlives an exec.
pub(super) fn run(workspace: &Path, link: OwnedFd) -> ! {
    let mut orders = Orders::new(link);
    // What stands in its way is the answer to every order.
    let mut shim = Shim::prepare(workspace);
    loop {
        let (stream, command, streams) = match orders.wait() {
            Ok(Order::Start { stream, command, streams }) => (stream, command, streams),
            // Of a command that had ended by itself.
            Ok(Order::Kill { .. }) => continue,
            Err(_) => crate::sys::exit_now(0),
        };
        let mut streams = Some(streams);
        let ended = match &mut shim {
            Ok(shim) => shim.run(stream, command, &mut streams, &mut orders),
            Err(refusal) => Err(*refusal),
        };
        match ended {
            Ok(exited) => {
                send(orders.link(), &ToHost::Exited { stream, exited });
                if !exited.clean {
                    crate::sys::exit_now(0);
                }
            }
            Err(Refusal { exit_code, errno, message }) => {
                let message = message.to_owned();
                send(orders.link(), &ToHost::StartFailed { stream, exit_code, errno, message });
            }
        }
        // What is left to do before the next order keeps nobody waiting.
        close_together(streams.into_iter().flatten());
        match &shim {
            Ok(shim) => shim.children.take_news(),
            // What stood in its way may have been want of a descriptor for a moment.
            Err(_) => shim = Shim::prepare(workspace),
        }
    }
}

/// What a shim has and its commands have not.
struct Shim {
    ground: Ground,
    children: Children,
    stack: Stack,
}

impl Shim {
    fn prepare(workspace: &Path) -> Result<Self, Refusal> {
        let system = refuse("no process or descriptor left to start the program");
        set_child_subreaper(Some(getpid())).map_err(&system)?;
        set_dumpable_behavior(DumpableBehavior::NotDumpable).map_err(&system)?;
        let ground = Ground::prepare(workspace)?;
        let children = Children::watch().map_err(from_nix).map_err(&system)?;
        // Where a command's streams arrive: the lowest numbers that are free. So no command has to move them.
        crate::sys::close_standard_streams();
        Ok(Self { ground, children, stack: Stack::new() })
    }

    /// One command, to the end of everything it leaves. Its streams are let go of when its start is told.
    fn run(
        &mut self,
        stream: u32,
        command: StartCommand,
        streams: &mut Option<Vec<OwnedFd>>,
        orders: &mut Orders,
    ) -> Result<Exited, Refusal> {
        let numbers = streams.iter().flatten().map(AsRawFd::as_raw_fd);
        if !numbers.eq(0..3) {
            return Err(refuse("cannot set up standard streams")(Errno::BADF));
        }
        // The next command, for which another shim must be made, waits for the start of one behind it.
        let delay = if command.background { Duration::ZERO } else { START_DELAY };
        let main = self.start(command)?;
        Ok(watch(&self.children, main, stream, orders, streams, delay))
    }

    /// Starts a process and waits until it runs its program, or says why not. One that is killed before looks like one that
    /// runs.
    fn start(&mut self, command: StartCommand) -> Result<Pid, Refusal> {
        let system = refuse("no process or descriptor left to start the program");
        let plan = Plan::new(command, &self.ground)?;
        // A kill may come between any two steps: what was said counts only once it was said whole.
        let (refusal, is_said) = (Cell::new(None), AtomicBool::new(false));
        let child = || {
            let Err(why) = plan.carry_out();
            refusal.set(Some(why));
            is_said.store(true, Ordering::Release);
        };
        let main = run_beside(&mut self.stack, &child).map_err(from_nix).map_err(&system)?;
        let main = Pid::from_raw(main.as_raw()).ok_or_else(|| system(Errno::SRCH))?;
        let refusal = is_said.load(Ordering::Acquire).then(|| refusal.get()).flatten();
        let Some(refusal) = refusal else { return Ok(main) };
        // It is ending, and must not be taken for something that a command left.
        while waitpid(Some(main), WaitOptions::empty()).is_err_and(|errno| errno == Errno::INTR) {}
        Err(refusal)
    }
}

/// Waits for the main process, then for, or after the grace against, everything it left behind. After `delay` its start is told,
/// and its streams are let go of.
fn watch(
    children: &Children,
    main: Pid,
    stream: u32,
    orders: &mut Orders,
    streams: &mut Option<Vec<OwnedFd>>,
    delay: Duration,
) -> Exited {
    let mut ends = Ends { main: main.as_raw_nonzero().get(), ..Ends::default() };
    let mut deadline: Option<Instant> = None;
    let mut untold = Some(Instant::now() + delay);
    let mut is_readable = false;
    loop {
        let now = Instant::now();
        if untold.is_some_and(|until| until <= now) {
            untold = None;
            close_together(streams.take().into_iter().flatten());
            send(orders.link(), &ToHost::Started { stream });
        }
        if deadline.is_some_and(|deadline| deadline <= now) || orders.want_killed(stream, is_readable) {
            let mut sweep = tree::kill(children, &[], |child| ends.add(&child));
            sweep.killed.remove(&main);
            return ends.exited(&sweep.killed, sweep.clean);
        }
        let mut fds = [
            PollFd::from_borrowed_fd(children.fd(), PollFlags::IN),
            PollFd::new(orders.link(), PollFlags::IN),
        ];
        let until = [deadline, untold].into_iter().flatten().min();
        let timeout = until.map(|until| timespec(until.saturating_duration_since(now)));
        // An interrupted wait looks again.
        let _ = poll(&mut fds, timeout.as_ref());
        is_readable = !fds[1].revents().is_empty();
        let mut left = children.reap(|child| ends.add(&child));
        if left == Left::Some {
            children.take_news();
            left = children.reap(|child| ends.add(&child));
        }
        if left == Left::None {
            return ends.exited(&HashSet::new(), true);
        }
        if ends.status.is_some() && deadline.is_none() {
            deadline = Some(Instant::now() + Duration::from_millis(STRAGGLER_GRACE_MS));
        }
    }
}

/// The ends of one command's processes. Each one's use holds that of the children it had waited for.
#[derive(Default)]
struct Ends {
    main: i32,
    status: Option<ExitStatus>,
    cpu_us: u64,
    max_rss_bytes: u64,
}

impl Ends {
    fn add(&mut self, child: &Ended) {
        if child.pid == self.main {
            self.status = Some(match child.end {
                End::Code(code) => ExitStatus::Code(code),
                End::Signal(signal) => ExitStatus::Signal(signal),
            });
        }
        self.cpu_us = self.cpu_us.saturating_add(child.cpu_us);
        self.max_rss_bytes = self.max_rss_bytes.max(child.max_rss_bytes);
    }

    /// The report. Cgroup deltas and stdin are spawn's to fill in.
    fn exited(&self, stragglers: &HashSet<Pid>, clean: bool) -> Exited {
        Exited {
            status: self.status.unwrap_or(ExitStatus::Lost),
            cpu_ms: self.cpu_us / 1000,
            max_rss_bytes: self.max_rss_bytes,
            stragglers: u32::try_from(stragglers.len()).unwrap_or(u32::MAX),
            oom_kills: 0,
            refused_forks: 0,
            memory_peak_bytes: 0,
            cgroup_cpu_ms: 0,
            stdin_bytes: 0,
            clean: clean && self.status.is_some(),
        }
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
