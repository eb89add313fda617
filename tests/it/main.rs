//! The end-to-end tests, one binary.

mod architecture;
mod faults;
mod flow;
mod http;
mod openapi;
mod reconcile;
