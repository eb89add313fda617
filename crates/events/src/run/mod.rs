//! The run stream `run/{tenant}/{run_id}`: leases of all epochs, environments, commands, files written, closing.
//!
//! ```text
//! lease        live ──> released | expired | revoked | fenced
//! environment  requested ──> ready ──> tearing_down ──> destroyed
//!                  └──> failed (torn down as well, then destroyed)
//! command      accepted ──> running ──> finished | interrupted
//!                  └────────────────────> interrupted, or finished by a kill that was asked for while it waited
//! run          open ──> closing ──> closed
//! ```
//! [`decide`] turns one [`RunCommand`] into events or a [`Rejection`]; [`RunState::apply`] folds events. Facts from the runtime
//! (`Record…`) are always accepted for an open command or environment, also under a dead epoch: an outcome can always be
//! recorded.

mod command;
mod decide;
mod evolve;
mod rejection;
mod state;

pub use command::{
    AcceptCommand, AcquireLease, FileRemoved, FileWritten, LeaseEnd, LeaseEndCause, RequestEnvironment,
    RunCommand,
};
pub use decide::{Decision, check_request, decide};
pub use rejection::Rejection;
pub use state::{
    CommandOutcome, CommandPhase, CommandState, EnvironmentPhase, EnvironmentState, LeasePhase, LeaseState,
    RunPhase, RunState,
};
