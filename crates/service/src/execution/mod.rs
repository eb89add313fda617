//! Commands, from acceptance to outcome.

pub mod queue;
pub mod view;
