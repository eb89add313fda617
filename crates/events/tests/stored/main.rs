//! The stored form: bytes that never change once they have landed.

#![expect(clippy::expect_used, clippy::panic, reason = "helpers of tests may fail a test")]

mod form;
mod golden;
mod image;
mod registry;
mod samples;
mod time;
