//! The service over a real PostgreSQL and the runtime in memory: flows, retries, ends of leases, crashes.

mod crash;
mod ends;
mod harness;
mod main_flow;
mod orphans;
mod retries;
mod streams;
