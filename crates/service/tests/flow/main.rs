//! The service over a real PostgreSQL and the runtime in memory: flows, retries, ends of leases, crashes.

#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test ends where it goes wrong"
)]

mod crash;
mod ends;
mod harness;
mod main_flow;
mod orphans;
mod resilience;
mod retries;
mod streams;
