//! The process: configuration, composition, run handling, reconciliation, the interfaces and the command line.

pub mod api;
pub mod app;
pub mod config;
pub mod execution;
pub mod output;
pub mod supervise;
pub mod tokens;

pub use app::App;
