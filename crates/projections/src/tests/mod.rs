//! The folds without a database, then tables, claims and runners on a real one.

mod folds;
pub(crate) mod samples;
mod session;
