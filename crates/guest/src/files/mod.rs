//! `guest files`: the workspace's only door besides the commands themselves.
//!
//! It runs in a container of its own, without network, with the volume at `/workspace`, as uid 0 with exactly
//! DAC_OVERRIDE, CHOWN and FOWNER: it reads trees that their owner locked, and hands over what it writes. No
//! path it opens follows a link, and special files are never opened.
//!
//! ```text
//! server    frames in, one thread per request        reply     frames out, credit, cancel
//! workspace paths to descriptors                     private   .leasehold/: nonce, unfinished writes, removals
//! walk      one pass over a hostile tree             snapshot  baseline, differences, usage
//! content   digests, within a walk's budget          meter    what a tree holds; one walk without contents
//! account   what the API's writes may still take
//! read, write, list, remove                          one request each
//! ```

mod account;
mod content;
mod empty;
mod failure;
mod list;
mod metadata;
mod meter;
mod private;
mod read;
mod remove;
mod reply;
mod server;
mod snapshot;
mod walk;
mod workspace;
mod write;

use std::path::Path;
use std::process::ExitCode;

use rustix::fs::Mode;
use rustix::io::Errno;
use rustix::process::{DumpableBehavior, set_dumpable_behavior, umask};

use self::server::{Ended, Server};
use self::workspace::Workspace;

/// Serves the files channel on stdin and stdout until the host is gone.
pub(crate) fn run(root: &Path) -> ExitCode {
    let ended = prepare(root).map(|workspace| Server::new(workspace).serve());
    match ended {
        Ok(Ended::HostGone) => ExitCode::SUCCESS,
        Ok(ended) => {
            eprintln!("guest files: {ended}");
            ExitCode::from(3)
        }
        Err(errno) => {
            eprintln!("guest files: {errno}");
            ExitCode::FAILURE
        }
    }
}

/// Empties a workspace, then ends.
pub(crate) fn empty(root: &Path) -> ExitCode {
    match prepare(root).map_err(Into::into).and_then(|workspace| empty::empty(&workspace)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            eprintln!("guest empty: {failure:?}");
            ExitCode::FAILURE
        }
    }
}

fn prepare(root: &Path) -> Result<Workspace, Errno> {
    set_dumpable_behavior(DumpableBehavior::NotDumpable)?;
    // Modes are set by name where it matters.
    umask(Mode::from_raw_mode(0o022));
    Workspace::open(root)
}
