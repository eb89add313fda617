//! `guest init`: PID 1 of the sandbox container.
//!
//! It reaps whatever is orphaned onto it, forever, and does nothing else. As PID 1 it would ignore a signal
//! whose disposition is the default, so SIGTERM and SIGINT are taken explicitly: the container ends at once.

use std::process::ExitCode;

use nix::sys::signal::{SigSet, Signal};
use rustix::process::{DumpableBehavior, WaitOptions, set_dumpable_behavior, wait};

/// Runs until SIGTERM or SIGINT.
pub(crate) fn run() -> ExitCode {
    let mut signals = SigSet::empty();
    signals.add(Signal::SIGCHLD);
    signals.add(Signal::SIGTERM);
    signals.add(Signal::SIGINT);
    let ready = set_dumpable_behavior(DumpableBehavior::NotDumpable).map_err(nix_errno);
    if let Err(errno) = ready.and_then(|()| signals.thread_block()) {
        eprintln!("guest init: {errno}");
        return ExitCode::FAILURE;
    }
    loop {
        // A child that ended before the signals were blocked is found here too.
        while let Ok(Some(_)) = wait(WaitOptions::NOHANG) {}
        if let Ok(Signal::SIGTERM | Signal::SIGINT) = signals.wait() {
            return ExitCode::SUCCESS;
        }
    }
}

fn nix_errno(errno: rustix::io::Errno) -> nix::errno::Errno {
    nix::errno::Errno::from_raw(errno.raw_os_error())
}
