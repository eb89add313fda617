//! The end-to-end tests, one binary.

#![expect(clippy::expect_used, clippy::panic, reason = "tests fail by panicking, in helpers too")]

mod architecture;
mod faults;
mod flow;
mod http;
mod inputs;
mod isolation;
mod openapi;
mod reconcile;
