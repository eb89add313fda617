//! The binary on real databases.

#![expect(clippy::unwrap_used, clippy::panic, reason = "a test ends at the first surprise")]

mod bundle;
mod diff;
mod help;
mod log;
mod read_only;
mod sealed;
mod sealed_bundle;
mod sealing;
mod state;
mod timeline;
mod verify;
mod watch;
