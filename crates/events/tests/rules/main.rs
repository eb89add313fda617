//! The rules of a run: tables of given, when, then; and what holds for any sequence of commands.
#![expect(clippy::expect_used, clippy::panic, reason = "helpers of tests may fail a test")]
#![expect(clippy::needless_pass_by_value, reason = "tables read better without a & before every command")]

mod bounds;
mod close;
mod command;
mod environment;
mod history;
mod lease;
mod outcome;
mod properties;
mod reading;
mod story;
mod workspace;
