//! `guest spawn`: starts the sandbox's commands, one process per environment.
//!
//! ```text
//! host --frames--> spawn (uid 0, non-dumpable, subreaper, one poll loop)
//!                    +-- shim (uid 0, non-dumpable, subreaper) -- command (own uid, no capability) -- ...
//!                    +-- shim -- background command -- ...
//!                    +-- shim                          (waits for the next command)
//! ```
//!
//! Pipes of a command end in spawn itself, which makes them while no command waits for them; the shim only watches processes, one
//! command after another. Both are forked copies
//! of this binary without a second exec. When the host's end closes, or three heartbeats are missed, or spawn dies,
//! every tree is killed.

mod census;
mod child;
mod children;
mod command;
mod counters;
mod deleted;
mod identity;
mod orders;
mod server;
mod shim;
mod standby;
mod start;
mod tree;
mod writer;

use std::path::Path;
use std::process::ExitCode;

use rustix::fs::{OFlags, fcntl_setfl};
use rustix::io::Errno;
use rustix::process::{DumpableBehavior, getpid, set_child_subreaper, set_dumpable_behavior};

use self::child::from_nix;
use self::children::Children;
use self::server::{Ended, Server};

/// Serves the spawn channel on stdin and stdout until the host is gone.
pub(crate) fn run(workspace: &Path) -> ExitCode {
    let ended = prepare().map(|children| Server::new(workspace.to_owned(), children).serve());
    match ended {
        Ok(Ended::HostGone) => ExitCode::SUCCESS,
        Ok(ended) => {
            eprintln!("guest spawn: {ended}");
            ExitCode::from(3)
        }
        Err(errno) => {
            eprintln!("guest spawn: {errno}");
            ExitCode::FAILURE
        }
    }
}

fn prepare() -> Result<Children, Errno> {
    set_dumpable_behavior(DumpableBehavior::NotDumpable)?;
    set_child_subreaper(Some(getpid()))?;
    crate::sys::close_on_exec_from(3);
    for end in [rustix::stdio::stdin(), rustix::stdio::stdout()] {
        fcntl_setfl(end, OFlags::NONBLOCK)?;
    }
    Children::watch().map_err(from_nix)
}
