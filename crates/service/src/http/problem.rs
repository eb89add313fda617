//! Problem details (RFC 9457) and the closed list of public error codes. Nothing else in the house knows a status code.
//!
//! A handler answers a [`Problem`]; the outermost layer ([`super::envelope`]) writes it as JSON, because only there the
//! request's id is known. The text is public: it never repeats a message of the database or of the runtime.

use axum::body::Body;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde::Serialize;
use utoipa::ToSchema;

use crate::api::ServiceError;

macro_rules! codes {
    ($($(#[doc = $doc:literal])+ $variant:ident = $code:literal, $status:ident, $title:literal, $retry:ident, $effect:ident;)+) => {
        /// Every public error code. One page each in `docs/errors`.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum Code { $($(#[doc = $doc])+ $variant),+ }

        impl Code {
            /// All codes, in the order of their status.
            pub const ALL: &'static [Self] = &[$(Self::$variant),+];

            /// The code as clients see it; never renamed.
            #[must_use]
            pub const fn as_str(self) -> &'static str {
                match self { $(Self::$variant => $code),+ }
            }

            /// The status it is answered with.
            #[must_use]
            pub const fn status(self) -> StatusCode {
                match self { $(Self::$variant => StatusCode::$status),+ }
            }

            /// One line that does not depend on the occurrence.
            #[must_use]
            pub const fn title(self) -> &'static str {
                match self { $(Self::$variant => $title),+ }
            }

            /// The same request, sent again later and unchanged, may succeed.
            #[must_use]
            pub const fn retryable(self) -> bool {
                match self { $(Self::$variant => codes!(@ $retry)),+ }
            }

            /// It is certain that the request changed nothing.
            #[must_use]
            pub const fn no_side_effect(self) -> bool {
                match self { $(Self::$variant => codes!(@ $effect)),+ }
            }
        }
    };
    (@ retry) => { true };
    (@ give_up) => { false };
    (@ unchanged) => { true };
    (@ unknown) => { false };
}

codes! {
    /// Not HTTP, JSON, UUID, cursor or header as the interface defines them.
    MalformedRequest = "malformed_request", BAD_REQUEST, "The request is malformed", give_up, unchanged;
    /// No bearer token, or one that is not valid.
    Unauthenticated = "unauthenticated", UNAUTHORIZED, "A valid bearer token is needed", give_up, unchanged;
    /// The token lacks the scope.
    Forbidden = "forbidden", FORBIDDEN, "The token does not allow this", give_up, unchanged;
    /// No such route, lease, command or run for this tenant.
    NotFound = "not_found", NOT_FOUND, "There is no such object", give_up, unchanged;
    /// The workspace has nothing at the path.
    FileNotFound = "file_not_found", NOT_FOUND, "There is no such file", give_up, unchanged;
    /// The route exists, the method on it does not.
    MethodNotAllowed = "method_not_allowed", METHOD_NOT_ALLOWED, "The method is not allowed here", give_up, unchanged;
    /// The body did not arrive in time.
    RequestTimeout = "request_timeout", REQUEST_TIMEOUT, "The request took too long to arrive", retry, unchanged;
    /// Another lease on the run is live.
    LeaseHeld = "lease_held", CONFLICT, "The run has a live lease", retry, unchanged;
    /// The lease has ended.
    LeaseLost = "lease_lost", CONFLICT, "The lease has ended", give_up, unchanged;
    /// Under five seconds of the lease are left.
    LeaseTooShort = "lease_too_short", CONFLICT, "Too little of the lease is left", give_up, unchanged;
    /// The run is closing or closed.
    RunClosed = "run_closed", CONFLICT, "The run is closed", give_up, unchanged;
    /// A renewal past the environment's hard cap.
    EnvironmentCap = "environment_cap", CONFLICT, "A lease cannot outlive its environment", give_up, unchanged;
    /// The lease's environment is gone and is not replaced in its epoch.
    EnvironmentLost = "environment_lost", CONFLICT, "The environment of the lease is lost", give_up, unchanged;
    /// Other writers of the run were faster, five times in a row.
    Conflict = "conflict", CONFLICT, "The run changed meanwhile", retry, unchanged;
    /// A component of the path, or the thing to list, is not a directory.
    NotADirectory = "not_a_directory", CONFLICT, "Not a directory", give_up, unchanged;
    /// The thing to read, write or remove is a directory.
    IsADirectory = "is_a_directory", CONFLICT, "Is a directory", give_up, unchanged;
    /// A FIFO, socket or device.
    NotRegularFile = "not_regular_file", CONFLICT, "Not a regular file", give_up, unchanged;
    /// A symbolic link is in the path; links are never followed.
    SymlinkRefused = "symlink_refused", CONFLICT, "A symbolic link is in the path", give_up, unchanged;
    /// The file changed while it was read.
    FileChanged = "file_changed", CONFLICT, "The file changed while it was read", retry, unchanged;
    /// The output at the cursor is not held any more.
    CursorGone = "cursor_gone", GONE, "The output at the cursor is gone", give_up, unchanged;
    /// A body, an argument list or an environment over its bound.
    PayloadTooLarge = "payload_too_large", PAYLOAD_TOO_LARGE, "The request is too large", give_up, unchanged;
    /// The file is larger than the interface moves.
    FileTooLarge = "file_too_large", PAYLOAD_TOO_LARGE, "The file is too large", give_up, unchanged;
    /// A JSON body that does not say so.
    UnsupportedMediaType = "unsupported_media_type", UNSUPPORTED_MEDIA_TYPE, "The content type is not supported", give_up, unchanged;
    /// The Host header names another service.
    MisdirectedRequest = "misdirected_request", MISDIRECTED_REQUEST, "The request is for another host", give_up, unchanged;
    /// Well-formed, but with values that cannot work; `errors` names each.
    InvalidRequest = "invalid_request", UNPROCESSABLE_ENTITY, "The request has values that cannot work", give_up, unchanged;
    /// A variable that no request may set.
    EnvRefused = "env_refused", UNPROCESSABLE_ENTITY, "An environment variable is refused", give_up, unchanged;
    /// Not a path inside the workspace.
    PathRefused = "path_refused", UNPROCESSABLE_ENTITY, "The path is refused", give_up, unchanged;
    /// The key came before with another request.
    IdempotencyKeyReused = "idempotency_key_reused", UNPROCESSABLE_ENTITY, "The idempotency key was used for another request", give_up, unchanged;
    /// Too many commands wait on the environment.
    QueueFull = "queue_full", TOO_MANY_REQUESTS, "Too many commands are waiting", retry, unchanged;
    /// A fault of the service.
    Internal = "internal", INTERNAL_SERVER_ERROR, "The service failed", give_up, unknown;
    /// The log, or another part that every request needs, did not answer; a write may have happened.
    Unavailable = "unavailable", SERVICE_UNAVAILABLE, "The service cannot do this now", retry, unknown;
    /// The environment could not be made, or the runtime does not answer; no command was accepted.
    EnvironmentUnavailable = "environment_unavailable", SERVICE_UNAVAILABLE, "The environment could not be provisioned", retry, unchanged;
    /// The read model did not get there in time; never answered once something was written.
    ProjectionBehind = "projection_behind", SERVICE_UNAVAILABLE, "The read model is behind", retry, unchanged;
    /// A file transfer took longer than its deadline.
    TransferTimeout = "transfer_timeout", GATEWAY_TIMEOUT, "The transfer took too long", retry, unknown;
    /// The workspace has no space left.
    WorkspaceFull = "workspace_full", INSUFFICIENT_STORAGE, "The workspace is full", give_up, unchanged;
}

/// One value of a request that cannot work.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
pub(super) struct FieldError {
    /// JSON pointer (RFC 6901) into the body (`""` is all of it), or the name of a query parameter.
    #[schema(example = "/timeout_seconds")]
    pub pointer: String,
    /// What is wrong with it, without the value.
    pub detail: String,
}

impl FieldError {
    /// At `pointer`, `detail`.
    pub(super) fn new(pointer: impl Into<String>, detail: impl Into<String>) -> Self {
        Self { pointer: pointer.into(), detail: detail.into() }
    }
}

/// A failed request, before its request id is known.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Problem {
    code: Code,
    detail: String,
    errors: Vec<FieldError>,
}

/// Seconds after which a retryable 429 or 503 is worth a retry.
const RETRY_AFTER_SECONDS: HeaderValue = HeaderValue::from_static("1");

impl Problem {
    /// `code`, and what happened here in one public sentence.
    pub(super) fn new(code: Code, detail: impl Into<String>) -> Self {
        Self { code, detail: detail.into(), errors: Vec::new() }
    }

    /// 400 `malformed_request`.
    pub(super) fn malformed(detail: impl Into<String>) -> Self {
        Self::new(Code::MalformedRequest, detail)
    }

    /// 422 `invalid_request` with every value that cannot work.
    #[must_use]
    pub(super) fn invalid(errors: Vec<FieldError>) -> Self {
        Self {
            code: Code::InvalidRequest,
            detail: "the values named in errors cannot work; nothing was changed".to_owned(),
            errors,
        }
    }

    /// With the places in the request that it is about.
    #[must_use]
    pub(super) fn with_errors(self, errors: Vec<FieldError>) -> Self {
        Self { errors, ..self }
    }

    /// The code.
    #[must_use]
    pub(super) const fn code(&self) -> Code {
        self.code
    }

    /// The document of RFC 9457, for the request of that id.
    #[must_use]
    pub(super) fn document(&self, request_id: &str) -> ProblemDocument {
        ProblemDocument {
            r#type: format!("/errors/{}", self.code.as_str()),
            title: self.code.title(),
            status: self.code.status().as_u16(),
            detail: self.detail.clone(),
            code: self.code.as_str(),
            retryable: self.code.retryable(),
            no_side_effect: self.code.no_side_effect(),
            request_id: request_id.to_owned(),
            errors: (!self.errors.is_empty()).then(|| self.errors.clone()),
        }
    }
}

impl From<ServiceError> for Problem {
    /// The one place where a refusal or failure gets its code. Exhaustive: a new variant does not compile until it has one.
    fn from(error: ServiceError) -> Self {
        let detail = error.to_string();
        let code = match error {
            ServiceError::Malformed { pointer: Some(pointer), detail } => {
                let errors = vec![FieldError::new(pointer, detail.clone())];
                return Self::malformed(detail).with_errors(errors);
            }
            ServiceError::Malformed { pointer: None, .. } => Code::MalformedRequest,
            ServiceError::Invalid { pointer, detail } => {
                return Self::invalid(vec![FieldError::new(pointer, detail)]);
            }
            ServiceError::Unauthorized => Code::Unauthenticated,
            ServiceError::Forbidden { .. } => Code::Forbidden,
            ServiceError::NotFound { what: "file" } => Code::FileNotFound,
            ServiceError::NotFound { .. } => Code::NotFound,
            ServiceError::CommandTooLarge { .. } => Code::PayloadTooLarge,
            ServiceError::LeaseHeld { .. } => Code::LeaseHeld,
            ServiceError::LeaseLost => Code::LeaseLost,
            ServiceError::LeaseTooShort => Code::LeaseTooShort,
            ServiceError::RunClosed => Code::RunClosed,
            ServiceError::Conflict => Code::Conflict,
            ServiceError::EnvironmentCap { .. } => Code::EnvironmentCap,
            ServiceError::EnvironmentLost => Code::EnvironmentLost,
            ServiceError::EnvironmentUnavailable { .. } => Code::EnvironmentUnavailable,
            ServiceError::QueueFull { .. } => Code::QueueFull,
            ServiceError::EnvRefused { .. } => Code::EnvRefused,
            ServiceError::PathRefused { .. } => Code::PathRefused,
            ServiceError::NotADirectory => Code::NotADirectory,
            ServiceError::IsADirectory => Code::IsADirectory,
            ServiceError::NotRegular => Code::NotRegularFile,
            ServiceError::SymlinkRefused => Code::SymlinkRefused,
            ServiceError::FileTooLarge { .. } => Code::FileTooLarge,
            ServiceError::FileChanged => Code::FileChanged,
            ServiceError::WorkspaceFull => Code::WorkspaceFull,
            ServiceError::TransferTimeout => Code::TransferTimeout,
            ServiceError::IdempotencyKeyReused => Code::IdempotencyKeyReused,
            ServiceError::CursorGone => Code::CursorGone,
            ServiceError::ProjectionBehind => Code::ProjectionBehind,
            ServiceError::Unavailable { .. } => Code::Unavailable,
            ServiceError::Internal => Code::Internal,
        };
        Self::new(code, detail)
    }
}

/// What a client receives as `application/problem+json`.
#[derive(Clone, Debug, Serialize, ToSchema)]
#[schema(as = Problem)]
pub(super) struct ProblemDocument {
    /// `/errors/{code}`: the page of the code.
    #[schema(example = "/errors/lease_lost")]
    pub r#type: String,
    /// One line that does not depend on the occurrence.
    pub title: &'static str,
    /// The HTTP status.
    pub status: u16,
    /// What happened here.
    pub detail: String,
    /// Stable code from a closed list.
    #[schema(schema_with = super::openapi::code_schema)]
    pub code: &'static str,
    /// The same request, sent again later and unchanged, may succeed.
    pub retryable: bool,
    /// It is certain that the request changed nothing.
    pub no_side_effect: bool,
    /// The request, as in the `X-Request-Id` header.
    pub request_id: String,
    /// Every value that cannot work; absent when the failure is about none.
    #[schema(nullable = false)]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub errors: Option<Vec<FieldError>>,
}

impl IntoResponse for Problem {
    /// Status and headers; the body is written by [`super::envelope`], which finds the problem in the extensions.
    fn into_response(self) -> Response {
        let mut response = Response::new(Body::empty());
        *response.status_mut() = self.code.status();
        let headers = response.headers_mut();
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/problem+json"));
        match self.code.status() {
            StatusCode::UNAUTHORIZED => {
                headers
                    .insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer realm=\"leasehold\""));
            }
            StatusCode::TOO_MANY_REQUESTS | StatusCode::SERVICE_UNAVAILABLE => {
                headers.insert(header::RETRY_AFTER, RETRY_AFTER_SECONDS);
            }
            _ => {}
        }
        response.extensions_mut().insert(self);
        response
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_of_the_service_keeps_its_words() {
        let refused = |pointer: &str| ServiceError::Invalid {
            pointer: pointer.to_owned(),
            detail: "is above the ceiling".to_owned(),
        };
        let problem = Problem::from(refused("/limits/pids_max"));
        assert_eq!(problem.code(), Code::InvalidRequest);
        assert_eq!(problem.errors, [FieldError::new("/limits/pids_max", "is above the ceiling")]);
        let problem = Problem::from(ServiceError::QueueFull { waiting: 64 });
        let document = problem.document("id");
        assert_eq!((document.status, document.code, document.retryable), (429, "queue_full", true));
        assert_eq!(document.detail, "64 commands are already waiting in this environment");
        assert_eq!(document.request_id, "id");
        for (what, code) in [("file", Code::FileNotFound), ("lease", Code::NotFound), ("run", Code::NotFound)]
        {
            assert_eq!(Problem::from(ServiceError::NotFound { what }).code(), code, "{what}");
        }
    }

    #[test]
    fn headers_follow_the_status() {
        for code in Code::ALL {
            let response = Problem::new(*code, "x").into_response();
            assert_eq!(response.status(), code.status());
            let has = |name| response.headers().contains_key(name);
            assert_eq!(has(header::WWW_AUTHENTICATE), code.status() == StatusCode::UNAUTHORIZED);
            let later = [StatusCode::TOO_MANY_REQUESTS, StatusCode::SERVICE_UNAVAILABLE];
            assert_eq!(has(header::RETRY_AFTER), later.contains(&code.status()), "{code:?}");
            // A client may always repeat what it is told to repeat later.
            assert!(code.retryable() || !has(header::RETRY_AFTER), "{code:?}");
        }
    }
}
