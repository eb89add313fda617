//! The audit tool: verify and timeline over a log it never writes to.
//!
//! It connects as the audit role, opens one read-only snapshot, and trusts nothing but stored bytes.
//! - [`cli`]: options, exit codes and output.
//! - [`source`]: the database, by URL or by the data directory of an embedded one.
//! - [`verify`]: every leaf, chain and column, and the projections against a fresh fold.
//! - [`timeline`]: events for people, or as JSON lines ([`shape`]).

pub mod cli;
mod error;
pub mod shape;
pub mod source;
pub mod timeline;
pub mod verify;

pub use error::ReplayError;
