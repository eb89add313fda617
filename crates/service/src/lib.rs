//! The process: configuration, composition, run handling, reconciliation, the interfaces and the command line.

pub mod api;
pub mod app;
pub mod cli;
pub mod composition;
pub mod config;
pub mod environments;
pub mod execution;
mod faults;
pub mod http;
pub mod output;
pub mod reads;
pub mod reconcile;
pub mod runs;
pub mod sealing;
pub mod supervise;
pub mod tokens;
pub mod workspace;

pub use app::App;
