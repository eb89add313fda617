//! The ports, owned by their callers (decisions D1, D13, D15).

mod error;
mod execution;
mod inventory;
mod workspace;

pub use error::{PortError, WorkspaceError};
pub use execution::{
    Cancel, CancelHandle, CancelRequest, Captured, EnvironmentHandle, EnvironmentSpec, ExecuteError,
    ExecutionCommand, ExecutionEnvironment, ExecutionResult, OutputSink, OutputStream, StdinSource,
    cancel_pair,
};
pub use inventory::{Inventory, ObservedObject};
pub use workspace::{
    ByteStream, ListPage, Provenance, ReadFile, STREAM_DEADLINE, Workspace, WorkspaceEntry,
    WorkspaceEntryKind, WriteOutcome,
};
