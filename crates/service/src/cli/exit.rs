//! Exit codes. Scripts rely on them; they are never given another meaning.
//!
//! | code | meaning |
//! |---|---|
//! | 0 | done |
//! | 1 | refused or failed; the message says why |
//! | 2 | wrong usage or configuration |
//! | 69 | the service, the engine or the database does not answer; trying again may help |
//! | 124 | `run`: the command was killed by its time limit |
//! | 125 | `run`: the command has no result, for a reason that is not its own |
//! | 130 | `run`: interrupted at the keyboard; the command was killed |
//! | 126, 127 | `run`: the program could not be started |
//! | 137 | `run`: the command was killed for another reason |
//! | 141 | `run`: nobody reads the output any more; the command was killed |
//! | 143 | `run`: ended by SIGTERM; the command was killed |
//!
//! `run` answers the command's own exit code in every other case.

use std::io::Write as _;
use std::process::ExitCode;

/// Refused or failed.
pub const FAILED: u8 = 1;
/// Wrong usage or configuration.
pub const USAGE: u8 = 2;
/// Something that is needed does not answer.
pub const UNAVAILABLE: u8 = 69;
/// `run`: killed by its time limit.
pub const TIMED_OUT: u8 = 124;
/// `run`: no result.
pub const NO_RESULT: u8 = 125;
/// `run`: interrupted at the keyboard.
pub const INTERRUPTED: u8 = 130;
/// `run`: killed for another reason.
pub const KILLED: u8 = 137;
/// `run`: nobody reads the output any more.
pub const UNREAD: u8 = 141;
/// `run`: ended by SIGTERM.
pub const TERMINATED: u8 = 143;

/// Why a program ends otherwise than wished.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// The exit code.
    pub code: u8,
    /// For the person in front of it; empty where there is nothing to tell.
    pub message: String,
}

impl Failure {
    /// Refused or failed.
    pub fn failed(message: impl Into<String>) -> Self {
        Self { code: FAILED, message: message.into() }
    }

    /// Wrong usage or configuration.
    pub fn usage(message: impl Into<String>) -> Self {
        Self { code: USAGE, message: message.into() }
    }

    /// Something does not answer.
    pub fn unavailable(message: impl Into<String>) -> Self {
        Self { code: UNAVAILABLE, message: message.into() }
    }
}

/// An error and what led to it, on one line.
pub(super) fn with_causes(error: &dyn std::error::Error) -> String {
    let causes = std::iter::successors(Some(error), |error| error.source());
    causes.map(ToString::to_string).collect::<Vec<_>>().join(": ")
}

/// Standard output took no more. Whoever has closed it has read enough and wants no words about it: `unread` is the code.
pub(super) fn unwritten(error: &std::io::Error, unread: u8) -> Failure {
    if error.kind() == std::io::ErrorKind::BrokenPipe {
        return Failure { code: unread, message: String::new() };
    }
    Failure::failed(format!("output cannot be written: {error}"))
}

/// Tells the person and answers the code.
pub(super) fn report(failure: &Failure) -> ExitCode {
    if !failure.message.is_empty() {
        tell(&failure.message);
    }
    ExitCode::from(failure.code)
}

/// Words for people, on standard error. Whoever has closed it does not want them.
pub(super) fn tell(words: &str) {
    let _ = writeln!(std::io::stderr(), "leasehold: {words}");
}
