//! From the parts' own failures to [`ServiceError`], one function each. Internal causes are logged here, once, and go no further.

use event_log::LogError;
use events::run::Rejection;
use projections::ViewsError;
use runtime_adapter::ports::{PortError, WorkspaceError};

use crate::api::ServiceError;
use crate::runs::SubmitError;
use crate::supervise::TaskLost;

impl From<Rejection> for ServiceError {
    fn from(rejection: Rejection) -> Self {
        match rejection {
            Rejection::NotFound { what } => Self::NotFound { what },
            Rejection::LeaseHeld { expires_at } => Self::LeaseHeld { expires_at },
            Rejection::LeaseLost => Self::LeaseLost,
            Rejection::RunClosed => Self::RunClosed,
            Rejection::EnvironmentCap { expires_at } => Self::EnvironmentCap { expires_at },
            Rejection::EnvironmentLost => Self::EnvironmentLost,
            Rejection::LeaseTooShort => Self::LeaseTooShort,
            Rejection::Invalid { field, detail } => {
                Self::Invalid { pointer: field.to_owned(), detail: detail.to_owned() }
            }
            Rejection::TooLarge { field, bytes_max } => {
                Self::CommandTooLarge { what: too_large_name(field), limit_bytes: bytes_max as u64 }
            }
            // The world moved on between two steps of one request; the same request finds it settled.
            Rejection::EnvironmentExists
            | Rejection::EnvironmentNotReady
            | Rejection::NotExpired { .. }
            | Rejection::StillOpen { .. }
            | Rejection::NotStarted => Self::Conflict,
        }
    }
}

fn too_large_name(field: &str) -> &'static str {
    match field {
        "/argv" => "argv and env",
        "/stdin" => "stdin",
        _ => "a value",
    }
}

impl From<SubmitError> for ServiceError {
    fn from(error: SubmitError) -> Self {
        match error {
            SubmitError::Rejected(rejection) => rejection.into(),
            SubmitError::Conflict => Self::Conflict,
            SubmitError::KeyReused => Self::IdempotencyKeyReused,
            SubmitError::Unavailable => Self::Unavailable { reason_code: "log_unavailable" },
            SubmitError::Fault => Self::Internal,
        }
    }
}

impl From<LogError> for ServiceError {
    fn from(error: LogError) -> Self {
        tracing::warn!(error = %error, "the log could not be read");
        Self::Unavailable { reason_code: "log_unavailable" }
    }
}

impl From<ViewsError> for ServiceError {
    fn from(error: ViewsError) -> Self {
        if error.is_retryable() {
            tracing::warn!(error = %error, "a view could not be read");
            Self::Unavailable { reason_code: "views_unavailable" }
        } else {
            tracing::error!(error = %error, "a view could not be read");
            Self::Internal
        }
    }
}

impl From<TaskLost> for ServiceError {
    fn from(_: TaskLost) -> Self {
        Self::Internal
    }
}

impl From<PortError> for ServiceError {
    /// Of a call that found an environment. What may have had its effect is never told as if it had none.
    fn from(error: PortError) -> Self {
        match error {
            PortError::Unavailable { code, effect_possible: true } => Self::Unavailable { reason_code: code },
            PortError::Unavailable { code, effect_possible: false } => {
                Self::EnvironmentUnavailable { reason_code: code.to_owned() }
            }
            PortError::Rejected { code: "environment_gone" | "wrong_tenant" | "expired" }
            | PortError::Lost { .. }
            | PortError::EscapeSuspected { .. } => Self::EnvironmentLost,
            PortError::Rejected { code: "busy" } => Self::Conflict,
            PortError::Rejected { code: "lease_ended" } => Self::LeaseLost,
            PortError::Rejected { code: "upload_aborted" } => {
                Self::Malformed { pointer: None, detail: "the upload broke off".to_owned() }
            }
            PortError::Rejected { code } => {
                tracing::error!(code, "the runtime refused a request of ours");
                Self::Internal
            }
        }
    }
}

impl From<WorkspaceError> for ServiceError {
    fn from(error: WorkspaceError) -> Self {
        match error {
            WorkspaceError::PathRefused { reason } => Self::PathRefused { reason: reason.to_owned() },
            WorkspaceError::NotFound => Self::NotFound { what: "file" },
            WorkspaceError::NotADirectory => Self::NotADirectory,
            WorkspaceError::IsADirectory => Self::IsADirectory,
            WorkspaceError::NotRegular => Self::NotRegular,
            WorkspaceError::Symlink => Self::SymlinkRefused,
            WorkspaceError::TooLarge { limit_bytes } => Self::FileTooLarge { limit_bytes },
            WorkspaceError::ChangedDuringRead => Self::FileChanged,
            WorkspaceError::NoSpace => Self::WorkspaceFull,
            WorkspaceError::DeadlineExceeded => Self::TransferTimeout,
            WorkspaceError::Port(error) => error.into(),
        }
    }
}
