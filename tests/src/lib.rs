//! What the end-to-end tests share: the real process as an operator runs it.

pub mod process;
