//! The binary on real databases.

#![expect(clippy::unwrap_used, clippy::panic, reason = "a test ends at the first surprise")]

mod log;
mod timeline;
mod verify;
