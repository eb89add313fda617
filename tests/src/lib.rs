//! What the end-to-end tests share: the real process as an operator runs it, and a client of its interface.

#![expect(clippy::expect_used, clippy::panic, reason = "a harness fails by panicking")]

pub mod api;
pub mod cycles;
pub mod process;
