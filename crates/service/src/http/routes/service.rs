//! Whether the process lives and can work. No token is needed, and nothing of a tenant is told.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde::Serialize;
use utoipa::ToSchema;

use crate::App;

/// The process lives.
#[derive(Debug, Serialize, ToSchema)]
pub(in crate::http) struct Health {
    /// `ok`.
    status: &'static str,
}

/// The process answers.
#[utoipa::path(
    get, path = "/healthz", tag = "service", security(),
    responses((status = 200, description = "It does", body = Health)),
)]
pub(in crate::http) async fn healthz() -> Json<Health> {
    Json(Health { status: "ok" })
}

/// Whether the service can do its work.
#[derive(Debug, Serialize, ToSchema)]
pub(in crate::http) struct ReadinessReport {
    /// All checks are good.
    ready: bool,
    /// Each of them.
    checks: Vec<Check>,
}

/// One thing that must work.
#[derive(Debug, Serialize, ToSchema)]
pub(in crate::http) struct Check {
    /// What: `log`, `sealing`, `projections`, `runtime`, `reconciler`, `teardown`, `accepting`.
    name: &'static str,
    /// It works.
    ok: bool,
    /// What is wrong.
    #[schema(required)]
    detail: Option<String>,
}

/// The service can do its work.
#[utoipa::path(
    get, path = "/readyz", tag = "service", security(),
    responses(
        (status = 200, description = "It can", body = ReadinessReport),
        (status = 503, description = "It cannot: see the checks", body = ReadinessReport),
    ),
)]
pub(in crate::http) async fn readyz(State(app): State<Arc<App>>) -> Response {
    let readiness = app.readiness().await;
    let checks = readiness
        .checks
        .into_iter()
        .map(|check| Check { name: check.name, ok: check.ok, detail: check.detail })
        .collect();
    let report = Json(ReadinessReport { ready: readiness.ready, checks });
    if readiness.ready {
        report.into_response()
    } else {
        (StatusCode::SERVICE_UNAVAILABLE, [(header::RETRY_AFTER, HeaderValue::from_static("1"))], report)
            .into_response()
    }
}
