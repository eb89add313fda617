//! Every refusal and failure that a caller can meet. The list is closed: an interface maps each variant to its own terms.

use events::Timestamp;

/// Why a request was not carried out. `Display` is for the caller; internal causes are logged where they are met and never
/// part of it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ServiceError {
    /// The request cannot be read at all.
    #[error("{detail}")]
    Malformed {
        /// JSON pointer of the place, when there is one.
        pointer: Option<String>,
        /// What is wrong.
        detail: String,
    },
    /// The request can be read, but a value cannot be accepted.
    #[error("{detail}")]
    Invalid {
        /// JSON pointer of the value.
        pointer: String,
        /// What is wrong.
        detail: String,
    },
    /// No token, or an unknown one.
    #[error("a valid bearer token is required")]
    Unauthorized,
    /// The token lacks a scope.
    #[error("the token does not have the scope {scope}")]
    Forbidden {
        /// The missing scope.
        scope: &'static str,
    },
    /// There is no such object for this tenant.
    #[error("no such {what}")]
    NotFound {
        /// `lease`, `command`, `run`, `file`, `route`.
        what: &'static str,
    },
    /// argv and environment, one argument, or standard input are larger than a command may have.
    #[error("{what} is larger than {limit_bytes} bytes; pass large data through standard input or a file")]
    CommandTooLarge {
        /// `argv`, `argv and env`, `an argument`, `stdin`.
        what: &'static str,
        /// The bound.
        limit_bytes: u64,
    },
    /// The run has a live lease.
    #[error("the run has a live lease until {expires_at}")]
    LeaseHeld {
        /// When it ends unless renewed.
        expires_at: Timestamp,
    },
    /// The lease has ended; nothing happens under it any more.
    #[error("the lease has ended")]
    LeaseLost,
    /// Too little of the lease is left for a command.
    #[error("less than 5 s of the lease are left; renew it first")]
    LeaseTooShort,
    /// The run is closing or closed.
    #[error("the run is closed")]
    RunClosed,
    /// Other writers were faster, several times.
    #[error("the run changed at the same time; try again")]
    Conflict,
    /// A lease cannot outlive its environment.
    #[error("the environment ends at {expires_at}; a lease cannot outlive it")]
    EnvironmentCap {
        /// The hard cap.
        expires_at: Timestamp,
    },
    /// The environment was lost or suspected; it is never replaced under its lease.
    #[error("the environment of this lease is lost; acquire a new lease")]
    EnvironmentLost,
    /// The environment could not be made, or the runtime does not answer; a later call tries again.
    #[error("no environment can be provided at the moment ({reason_code})")]
    EnvironmentUnavailable {
        /// Stable code of the cause.
        reason_code: String,
    },
    /// Too many commands wait in this environment.
    #[error("{waiting} commands are already waiting in this environment")]
    QueueFull {
        /// How many wait.
        waiting: usize,
    },
    /// A variable of the request is not allowed.
    #[error("the variable {name} is refused: {reason}")]
    EnvRefused {
        /// Its name, bounded.
        name: String,
        /// Why.
        reason: String,
    },
    /// A path is not a workspace path.
    #[error("the path is refused: {reason}")]
    PathRefused {
        /// Why.
        reason: String,
    },
    /// A component of the path, or the thing to list, is not a directory.
    #[error("not a directory")]
    NotADirectory,
    /// The thing to read, write or remove is a directory.
    #[error("is a directory")]
    IsADirectory,
    /// A FIFO, socket or device.
    #[error("not a regular file")]
    NotRegular,
    /// A symbolic link is in the path; links are never followed.
    #[error("a symbolic link is in the path")]
    SymlinkRefused,
    /// The file is larger than the interface takes.
    #[error("the file is larger than {limit_bytes} bytes")]
    FileTooLarge {
        /// The bound.
        limit_bytes: u64,
    },
    /// The file changed while it was read.
    #[error("the file changed while it was read")]
    FileChanged,
    /// The workspace is full.
    #[error("no space left in the workspace")]
    WorkspaceFull,
    /// The transfer took longer than its 60 s.
    #[error("the transfer took longer than 60 s")]
    TransferTimeout,
    /// The key was used for another request.
    #[error("this idempotency key was used for another request")]
    IdempotencyKeyReused,
    /// The cursor points at output that is held nowhere.
    #[error("the cursor is past the end of the output")]
    CursorGone,
    /// The views have not folded the wanted position in time.
    #[error("the views are behind the wanted position; try again")]
    ProjectionBehind,
    /// The log or another part of the service does not answer.
    #[error("the service cannot do this at the moment ({reason_code})")]
    Unavailable {
        /// Stable code: `log_unavailable`, `shutting_down`, …
        reason_code: &'static str,
    },
    /// A fault of ours; logged where it was met.
    #[error("an internal fault; it was logged")]
    Internal,
}
