//! The interface as clients meet it: the real router on a real port, the real log on PostgreSQL, the fake runtime.
//!
//! Every file is one side of it. Inputs that must be refused are tables, and every refusal is checked for three things: the
//! status and code, the whole problem document, and that the log did not move.

mod commands;
mod document;
mod events;
mod files;
mod harness;
mod idempotency;
mod leases;
mod output;
mod proofs;
mod refusals;
