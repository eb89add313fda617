//! The audit tool: proofs and accounts of a log it never writes to.
//!
//! It connects as the audit role, opens one read-only snapshot, and trusts nothing but stored bytes.
//! - [`cli`]: options, exit codes and output ([`output`]: nothing of it can forge a line).
//! - [`source`]: the database, by URL or by the data directory of an embedded one. [`select`]: which events are meant.
//! - [`verify`]: every leaf, chain and column, what is signed, and the projections against a fresh fold; [`verdict`]: the outcome.
//! - [`timeline`]: events for people, or as JSON lines ([`shape`]). [`watch`]: the same, as they are appended.
//! - [`state`]: every view as of one place in the log. [`diff`]: the live views against the log, column by column.
//! - [`bundle`]: a run's history as a file, and what the file proves by itself.

pub mod bundle;
pub mod cli;
pub mod diff;
mod error;
pub mod output;
pub mod select;
pub mod shape;
pub mod source;
pub mod state;
pub mod timeline;
pub mod verdict;
pub mod verify;
pub mod watch;

pub use error::ReplayError;
