//! The guest binary: one static executable, the trusted processes of both containers.
//!
//! - `guest init sandbox|files`: PID 1 of either container; starts its first channel, `spawn` or `files`.
//! - `guest spawn [--workspace DIR]`: starts commands, over the spawn channel on stdin and stdout.
//! - `guest files [--workspace DIR]`: the file service, over the files channel on stdin and stdout.
//! - `guest protocol`: prints the protocol's version; images carry it as a label.
//! - `guest empty [--workspace DIR]`: takes everything out of a workspace that is to be removed, and ends.
//!
//! Images use the default workspace; tests name another one.

mod files;
mod init;
mod spawn;
mod sys;

use std::ffi::CString;
use std::path::PathBuf;
use std::process::ExitCode;

/// Where the workspace volume is mounted in every container.
const WORKSPACE: &str = "/workspace";

fn main() -> ExitCode {
    let mut args = std::env::args_os();
    let program = args.next().unwrap_or_default();
    let command = args.next().unwrap_or_default();
    let options: Vec<_> = args.collect();
    if command == "init" {
        let channel = match options.as_slice() {
            [role] if role == "sandbox" => c"spawn",
            [role] if role == "files" => c"files",
            _ => return usage(),
        };
        // No argument of a process has a NUL byte.
        let program = CString::new(program.into_encoded_bytes()).unwrap_or_default();
        return init::run(program, channel.to_owned());
    }
    let workspace = match options.as_slice() {
        [] => PathBuf::from(WORKSPACE),
        [name, value] if name == "--workspace" => PathBuf::from(value),
        _ => return usage(),
    };
    match command.to_str() {
        Some("protocol") if options.is_empty() => {
            println!("{}", guest::protocol::PROTOCOL_VERSION);
            ExitCode::SUCCESS
        }
        Some("spawn") => spawn::run(&workspace),
        Some("files") => files::run(&workspace),
        Some("empty") => files::empty(&workspace),
        _ => usage(),
    }
}

fn usage() -> ExitCode {
    eprintln!(
        "usage: guest init sandbox|files | guest protocol | guest spawn [--workspace DIR] | guest files [--workspace DIR] | guest empty [--workspace DIR]"
    );
    ExitCode::from(2)
}
