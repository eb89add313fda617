//! Read models: one pure fold per view, the runner that keeps them live, and their queries.
//!
//! ```text
//! log ──page──> fold ──changed rows + checkpoint, one transaction──> schema views ──> queries
//! ```
//! - [`leases`], [`environments`], [`commands`], [`runs`], [`run_events`]: one view each: row, fold, table, queries.
//! - [`Folded`]: all folds together, over any stretch of the log.
//! - [`Runner`]: the live fold. [`compare()`]: the tables against a fresh fold.
//! - [`View`], [`ShownRow`]: rows for whoever looks at them, folded or [`live()`].
//! - [`Views`]: the queries. [`Page`], [`Cursor`]: parts of lists.

pub mod commands;
mod compare;
mod connect;
pub mod environments;
mod error;
mod fold;
pub mod leases;
mod page;
mod rows;
pub mod run_events;
mod runner;
pub mod runs;
mod sealed;
mod session;
mod shown;
mod sql;
mod supervise;
#[cfg(test)]
mod tests;
pub mod timeline;
mod views;

pub use commands::queries::OpenCommand;
pub use commands::{CommandFilter, CommandResult, CommandRow, CommandStatus};
pub use compare::{Checkpoint, Comparison, Difference, DifferenceKind, checkpoint, compare};
pub use environments::{EnvironmentRow, OpenEnvironment};
pub use error::{Behind, ViewsError};
pub use fold::{Folded, NotContiguous};
pub use leases::{Lease, LeaseFilter, LeaseRow};
pub use page::{Cursor, InvalidCursor, PAGE_ITEMS_DEFAULT, PAGE_ITEMS_MAX, Page, PageRequest};
pub use rows::{Row, Rows};
pub use run_events::{RunEventFilter, RunEventRow};
pub use runner::{Lag, Runner, RunnerStatus, StopReason};
pub use runs::RunRow;
pub use session::CONSUMER;
pub use shown::{InvalidView, ShownRow, ShownRows, View, live};
pub use views::Views;
