//! The append-only event log on PostgreSQL.
//!
//! One row, the head, is locked first by every append, so positions are contiguous and in commit order: a reader that has seen
//! position n has seen everything before it, and a missing number is damage, never a transaction in flight.
//!
//! - [`EventLog`]: append, read, tail; [`LogClock`]: the only source of `now`.
//! - [`InstanceLock`]: who is alive; [`verify`]: the audit of every stored byte.
//! - [`proof`]: the Merkle tree over the leaves and its signed heads, as plain values; [`seal`]: keeping and proving them.
//! - [`migrate`]: the schema; [`embedded`]: a server of our own for development.
//! - `testing` (feature `test-support`): a fresh database per test.

mod append;
mod clock;
pub mod embedded;
mod error;
mod instance;
mod log;
pub mod proof;
mod read;
mod schema;
pub mod seal;
mod session;
mod supervise;
mod tail;
#[cfg(any(test, feature = "test-support"))]
pub mod testing;
mod urls;
pub mod verify;

pub use append::{AppendRequest, Appended, Expected, REQUEST_BYTES_MAX, REQUEST_EVENTS_MAX, RequestKey, Tip};
pub use clock::LogClock;
pub use error::{AppendError, LogError};
pub use instance::InstanceLock;
pub use log::{EventLog, LogConfig, LogStatus};
pub use read::StoredKey;
pub use schema::{MigrateError, migrate};
pub use urls::DatabaseUrls;
