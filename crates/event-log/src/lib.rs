//! The append-only event log on PostgreSQL: append, read, tail, verify, and the embedded server for development.
pub mod embedded;
mod schema;
mod supervise;
#[cfg(any(test, feature = "test-support"))]
pub mod testing;
mod urls;
pub use schema::{MigrateError, migrate};
pub use urls::DatabaseUrls;
