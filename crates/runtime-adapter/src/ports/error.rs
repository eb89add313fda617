//! Failures as they cross the ports: a stable code, whether to retry, whether the effect may have happened; never the
//! runtime's own text.

/// A failed call on a port.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PortError {
    /// The runtime is down, slow or out of something; trying again later may work.
    #[error("the sandbox runtime is unavailable ({code})")]
    Unavailable {
        /// Stable code, for example `engine_unreachable`, `timeout`, `no_space`.
        code: &'static str,
        /// The effect may have happened.
        effect_possible: bool,
    },
    /// The caller asked for something that can never work: unknown digest, busy, dead handle, wrong tenant.
    #[error("the sandbox refused the request ({code})")]
    Rejected {
        /// Stable code, for example `unknown_image`, `busy`, `environment_gone`, `wrong_tenant`, `expired`.
        code: &'static str,
    },
    /// The sandbox of this environment died or disappeared.
    #[error("the environment was lost ({cause:?})")]
    Lost {
        /// What was lost.
        cause: events::event::command::InterruptCause,
    },
    /// An invariant of the isolation broke; the environment is destroyed, recorded and alerted.
    #[error("the isolation of the environment is in doubt ({code})")]
    EscapeSuspected {
        /// Stable code, for example `unknown_stream`, `oversize_frame`, `credit_overrun`.
        code: &'static str,
    },
}

/// A failed call on the workspace port; the same on every adapter (decision D13).
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum WorkspaceError {
    /// The path is not a workspace path (policy).
    #[error("the path is refused: {reason}")]
    PathRefused {
        /// Why, without the path.
        reason: &'static str,
    },
    /// Nothing is there.
    #[error("no such file or directory")]
    NotFound,
    /// A component, or the thing to list, is not a directory.
    #[error("not a directory")]
    NotADirectory,
    /// The thing to read or write is a directory.
    #[error("is a directory")]
    IsADirectory,
    /// A FIFO, socket or device.
    #[error("not a regular file")]
    NotRegular,
    /// A component or the file itself is a symbolic link; links are never followed.
    #[error("a symbolic link is in the path")]
    Symlink,
    /// Larger than the bound of this call.
    #[error("larger than {limit_bytes} bytes")]
    TooLarge {
        /// The bound.
        limit_bytes: u64,
    },
    /// The file changed while it was read.
    #[error("the file changed while it was read")]
    ChangedDuringRead,
    /// The workspace is full.
    #[error("no space left in the workspace")]
    NoSpace,
    /// One stream's 60 s deadline passed (decision D15).
    #[error("the 60 s deadline of the stream passed")]
    DeadlineExceeded,
    /// The port itself failed.
    #[error(transparent)]
    Port(#[from] PortError),
}
