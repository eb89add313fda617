//! What the end-to-end tests share: the real process as an operator runs it, and a client of its interface.

pub mod api;
pub mod process;
