//! One file per resource. A handler reads the request, asks the service, writes the answer; it decides nothing.

pub(super) mod commands;
pub(super) mod files;
pub(super) mod leases;
pub(super) mod log;
pub(super) mod runs;
pub(super) mod service;

use axum::extract::rejection::PathRejection;
use axum::extract::{FromRequestParts, Path};
use axum::http::request::Parts;
use axum::http::{HeaderName, HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use axum::{Json, http};
use serde::Serialize;
use uuid::Uuid;

use super::context::LEASEHOLD_POSITION;
use super::problem::Problem;

/// The id in a route with one.
pub(super) struct Id<T>(pub T);

impl<T: From<Uuid>, S: Send + Sync> FromRequestParts<S> for Id<T> {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Problem> {
        let id: Result<Path<Uuid>, PathRejection> = Path::from_request_parts(parts, state).await;
        match id {
            Ok(Path(id)) => Ok(Self(T::from(id))),
            Err(_) => Err(Problem::malformed("the id in the path is not a UUID")),
        }
    }
}

/// The answer of a write: the resource as it is now, and the position from which on reads see it.
fn written<T: Serialize>(status: StatusCode, position: u64, body: T) -> Response {
    ([(LEASEHOLD_POSITION, HeaderValue::from(position))], (status, Json(body))).into_response()
}

/// Adds a `Location` of our own making: ids only.
fn located(mut response: Response, location: &str) -> Response {
    if let Ok(value) = HeaderValue::from_str(location) {
        response.headers_mut().insert(http::header::LOCATION, value);
    }
    response
}

/// Says that the preference not to wait was honoured (RFC 7240, 3).
const PREFERENCE_APPLIED: HeaderName = HeaderName::from_static("preference-applied");

fn preference_applied(mut response: Response, respond_async: bool) -> Response {
    if respond_async {
        response.headers_mut().insert(PREFERENCE_APPLIED, HeaderValue::from_static("respond-async"));
    }
    response
}
