//! Everything about sandboxes that the rest of the house may know: three narrow ports, and the adapters behind them.
//!
//! - [`ports`]: execution, workspace, inventory; their values carry no host path, container id or runtime text.
//! - [`container`]: the adapter over a container engine's command line (mechanism `docker`).
//! - [`fake`]: the same ports in memory, for evaluation and for tests of everything above.
//! - `contract` (feature `contract`): the suite that every adapter passes.
//!
//! This crate never sees the log or a projection.

pub mod container;
#[cfg(feature = "contract")]
#[expect(clippy::expect_used, clippy::panic, reason = "a suite of tests: a panic is how a case fails")]
pub mod contract;
pub mod crash;
pub mod fake;
pub mod ports;

mod admission;
mod capture;
mod changes;
mod naming;
mod quota;
mod supervise;

use std::sync::Arc;

use events::time::Timestamp;

/// What time it is, as the log says; adapters never ask the wall clock.
pub type Clock = Arc<dyn Fn() -> Timestamp + Send + Sync>;
