//! The folds without a database, then tables, claims and runners on a real one.

mod folds;
mod pages;
mod runner;
pub(crate) mod samples;
mod session;
mod timeline;
