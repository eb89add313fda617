//! The folds, without a database.

mod folds;
pub(crate) mod samples;
