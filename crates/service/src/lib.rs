//! The process: configuration, composition, run handling, reconciliation, the interfaces and the command line.

pub mod api;
pub mod app;

pub use app::App;
