//! Why a run refuses a command. Nothing was changed.

use crate::time::Timestamp;

/// A refusal by the rules; each maps to one public error code in the HTTP layer.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Rejection {
    /// The run has no lease, environment or command of that id.
    #[error("no such {what}")]
    NotFound {
        /// `lease`, `environment` or `command`.
        what: &'static str,
    },
    /// Another lease is live; `takeover` would fence it.
    #[error("the run has a live lease until {expires_at}")]
    LeaseHeld {
        /// When it ends unless renewed.
        expires_at: Timestamp,
    },
    /// The lease has ended (or its end has passed): nothing happens under a dead epoch.
    #[error("the lease has ended")]
    LeaseLost,
    /// The run is closing or closed.
    #[error("the run is closed")]
    RunClosed,
    /// Renewing would pass the environment's hard cap.
    #[error("the environment ends at {expires_at}; a lease cannot outlive it")]
    EnvironmentCap {
        /// The hard cap.
        expires_at: Timestamp,
    },
    /// The lease's environment was lost or is being torn down; it is never replaced in its epoch.
    #[error("the environment of this lease is lost")]
    EnvironmentLost,
    /// The lease already has an environment.
    #[error("the lease already has an environment")]
    EnvironmentExists,
    /// The environment is not ready for this.
    #[error("the environment is not ready")]
    EnvironmentNotReady,
    /// Less than five seconds of the lease are left.
    #[error("less than 5 s of the lease are left; renew it first")]
    LeaseTooShort,
    /// The lease's end has not passed yet.
    #[error("the lease is live until {expires_at}")]
    NotExpired {
        /// When it ends unless renewed.
        expires_at: Timestamp,
    },
    /// Commands or environments of the run are still open.
    #[error("{commands} commands and {environments} environments are still open")]
    StillOpen {
        /// Commands without an outcome.
        commands: usize,
        /// Environments not yet destroyed.
        environments: usize,
    },
    /// A value is out of its range.
    #[error("{field}: {detail}")]
    Invalid {
        /// JSON pointer of the request's field, or the name of a fact's field.
        field: &'static str,
        /// What is wrong, without the value.
        detail: &'static str,
    },
    /// A value is well formed but takes more bytes than the log takes; public code 413.
    #[error("{field}: more than {bytes_max} bytes")]
    TooLarge {
        /// JSON pointer of the request's field.
        field: &'static str,
        /// The bound.
        bytes_max: usize,
    },
    /// The command has not been started, so it cannot have finished.
    #[error("the command has not started")]
    NotStarted,
}
