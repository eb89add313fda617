//! `guest init sandbox|files`: PID 1 of either container.
//!
//! It reaps whatever is orphaned onto it, forever. Besides, it hands the container's own standard streams over, once:
//!
//! ```text
//! waits --- first byte on stdin ---> channel runs --- it ends ---> none     (channel: `guest spawn` or `guest files`)
//!   |                                                               ^
//!   +------ end of stdin without a byte ----------------------------+
//! ```
//! The first byte is the host's hello, which is left to the channel. A container that is started again has nobody at
//! its stdin: nothing is started in it, and its channel is an exec of the engine's, while init keeps its streams, at which nobody is.
//! From a hand-over on init has nothing open but the null device and stderr, on which it says when the channel has ended: an engine tells the client of
//! the container's own streams no such thing before the container ends.
//!
//! As PID 1 it would ignore a signal whose disposition is the default, so SIGTERM and SIGINT are taken explicitly: the
//! container ends at once. All it asks of the kernel is what the files container's seccomp profile allows.

use std::ffi::CString;
use std::fs::File;
use std::process::ExitCode;

use guest::protocol::CHANNEL_ENDED;
use nix::poll::{PollFd, PollFlags, ppoll};
use nix::sys::signal::{SigSet, Signal};
use rustix::fs::{OFlags, fcntl_setfl};
use rustix::io::Errno;
use rustix::process::{DumpableBehavior, Pid, WaitOptions, set_dumpable_behavior, setsid, wait};
use rustix::stdio::{dup2_stderr, dup2_stdin, dup2_stdout, stderr, stdin};

use crate::sys;

/// What becomes of the container's own standard streams.
enum Streams {
    /// The host may still say hello.
    Waiting,
    /// They are the channel's.
    Channel(Pid),
    /// Nobody's any more.
    Over,
}

/// Runs until SIGTERM or SIGINT. `channel` is the guest's command that the first byte on stdin starts.
pub(crate) fn run(program: CString, channel: CString) -> ExitCode {
    match Init::prepare(program, channel).and_then(Init::serve) {
        Ok(()) => ExitCode::SUCCESS,
        Err(errno) => {
            eprintln!("guest init: {errno}");
            ExitCode::FAILURE
        }
    }
}

struct Init {
    program: CString,
    argv: sys::Strings,
    /// What trusted processes hold: nothing.
    env: sys::Strings,
    null: File,
    streams: Streams,
}

impl Init {
    fn prepare(program: CString, channel: CString) -> Result<Self, Errno> {
        set_dumpable_behavior(DumpableBehavior::NotDumpable)?;
        // Taken while it waits, and only then.
        let mut mask = SigSet::empty();
        for signal in [Signal::SIGCHLD, Signal::SIGTERM, Signal::SIGINT] {
            mask.add(signal);
        }
        mask.thread_block().map_err(from_nix)?;
        sys::take_init_signals().map_err(from_nix)?;
        let null = File::options().read(true).write(true).open("/dev/null");
        Ok(Self {
            argv: vec![program.clone(), channel].into(),
            program,
            env: Vec::new().into(),
            null: null.map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::IO))?,
            streams: Streams::Waiting,
        })
    }

    fn serve(mut self) -> Result<(), Errno> {
        loop {
            // A child that ended before the signals were blocked is found here too.
            self.reap()?;
            if sys::is_stop_asked() {
                return Ok(());
            }
            let news = self.wait()?;
            if news.contains(PollFlags::POLLIN) {
                self.hand_over()?;
            } else if !news.is_empty() {
                self.streams = Streams::Over;
                self.let_go()?;
                dup2_stderr(&self.null)?;
            }
        }
    }

    /// Waits for a signal, and for stdin while that can bring the hello; gives what stdin has.
    fn wait(&self) -> Result<PollFlags, Errno> {
        let input = stdin();
        let mut fds = Vec::new();
        if matches!(self.streams, Streams::Waiting) {
            fds.push(PollFd::new(input, PollFlags::POLLIN));
        }
        match ppoll(&mut fds, None, Some(SigSet::empty())) {
            Ok(_) => Ok(fds.first().and_then(PollFd::revents).unwrap_or(PollFlags::empty())),
            Err(nix::errno::Errno::EINTR) => Ok(PollFlags::empty()),
            Err(errno) => Err(from_nix(errno)),
        }
    }

    /// Starts the channel's process.
    fn hand_over(&mut self) -> Result<(), Errno> {
        let Some(child) = sys::fork().map_err(from_nix)? else {
            // In a session of its own, as an exec of the engine's is. The files container's profile has no such call.
            let _ = setsid();
            if sys::unblock_signals().is_ok() {
                sys::execve(&self.program, &self.argv, &self.env);
            }
            sys::exit_now(127)
        };
        self.streams = Streams::Channel(Pid::from_raw(child.as_raw()).ok_or(Errno::SRCH)?);
        self.let_go()
    }

    /// Stdin and stdout are somebody else's, or nobody's.
    fn let_go(&self) -> Result<(), Errno> {
        dup2_stdin(&self.null)?;
        dup2_stdout(&self.null)
    }

    fn reap(&mut self) -> Result<(), Errno> {
        while let Ok(Some((pid, _))) = wait(WaitOptions::NOHANG) {
            if matches!(self.streams, Streams::Channel(channel) if channel == pid) {
                self.streams = Streams::Over;
                // Nobody may be left to read it, and PID 1 waits for nobody.
                let said = fcntl_setfl(stderr(), OFlags::NONBLOCK);
                let _ = said.and_then(|()| rustix::io::write(stderr(), CHANNEL_ENDED.as_bytes()));
                dup2_stderr(&self.null)?;
            }
        }
        Ok(())
    }
}

fn from_nix(errno: nix::errno::Errno) -> Errno {
    Errno::from_raw_os_error(errno as i32)
}
