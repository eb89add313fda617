//! The log on real PostgreSQL. Rows of the list of faults a log must survive are named by their number (t..).
#![cfg(test)]

mod append;
mod batches;
mod embedded;
mod faults;
mod guards;
mod instance;
mod order;
mod payload;
mod proxy;
mod seal;
mod support;
mod verify;
