//! `/v1/leases` and `/v1/runs/{run_id}/leases`.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;
use events::{LeaseId, RunId};
use projections::LeaseFilter;
use serde::Deserialize;
use utoipa::IntoParams;
use uuid::Uuid;

use super::super::context::Caller;
use super::super::json_body::Write;
use super::super::openapi::{IdempotencyKey, MinPosition};
use super::super::problem::Problem;
use super::super::query::{Params, page};
use super::super::requests::{AcquireBody, EmptyBody, RenewBody, RevokeBody};
use super::super::shapes::{Lease, LeaseState, Page};
use super::{Id, located, written};
use crate::App;

/// Takes a lease of a new epoch on a run.
///
/// The run comes into being with its first lease.
#[utoipa::path(
    post, path = "/v1/runs/{run_id}/leases", tag = "leases", request_body = AcquireBody,
    params(("run_id" = Uuid, Path, description = "Any UUID of the client's choice"), IdempotencyKey),
    responses((status = 201, description = "The lease", body = Lease, headers(("Leasehold-Position" = u64))), Problem),
)]
pub(in crate::http) async fn acquire_lease(
    State(app): State<Arc<App>>,
    Id(run_id): Id<RunId>,
    write: Write<AcquireBody>,
) -> Result<Response, Problem> {
    let lease = Lease::from(app.acquire_lease(&write.ctx, run_id, write.body).await?);
    let location = format!("/v1/leases/{}", lease.lease_id);
    Ok(located(written(StatusCode::CREATED, lease.position, lease), &location))
}

/// Which leases.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(in crate::http) struct LeaseQuery {
    /// Of one run.
    run_id: Option<Uuid>,
    /// In one recorded state.
    #[param(inline)]
    state: Option<LeaseState>,
    /// `next_cursor` of the page before.
    cursor: Option<String>,
    /// Entries wanted.
    #[param(minimum = 1, maximum = 1000, default = 100)]
    limit: Option<u64>,
}

/// Leases, newest first.
#[utoipa::path(
    get, path = "/v1/leases", tag = "leases",
    params(LeaseQuery, MinPosition),
    responses((status = 200, description = "A page", body = Page<Lease>), Problem),
)]
pub(in crate::http) async fn list_leases(
    State(app): State<Arc<App>>,
    Caller(ctx): Caller,
    Params(query): Params<LeaseQuery>,
) -> Result<Json<Page<Lease>>, Problem> {
    let page = page(query.cursor, query.limit)?;
    let filter =
        LeaseFilter { run_id: query.run_id.map(RunId::from), state: query.state.map(LeaseState::into) };
    Ok(Json(Page::of(app.list_leases(&ctx, filter, page).await?, Lease::from)))
}

/// One lease.
#[utoipa::path(
    get, path = "/v1/leases/{lease_id}", tag = "leases",
    params(("lease_id" = Uuid, Path), MinPosition),
    responses((status = 200, description = "The lease", body = Lease), Problem),
)]
pub(in crate::http) async fn get_lease(
    State(app): State<Arc<App>>,
    Caller(ctx): Caller,
    Id(lease_id): Id<LeaseId>,
) -> Result<Json<Lease>, Problem> {
    Ok(Json(app.get_lease(&ctx, lease_id).await?.into()))
}

/// Moves the end of a live lease to now and `ttl_seconds`.
#[utoipa::path(
    post, path = "/v1/leases/{lease_id}/renew", tag = "leases", request_body = RenewBody,
    params(("lease_id" = Uuid, Path), IdempotencyKey),
    responses((status = 200, description = "The lease", body = Lease, headers(("Leasehold-Position" = u64))), Problem),
)]
pub(in crate::http) async fn renew_lease(
    State(app): State<Arc<App>>,
    Id(lease_id): Id<LeaseId>,
    write: Write<RenewBody>,
) -> Result<Response, Problem> {
    let lease = Lease::from(app.renew_lease(&write.ctx, lease_id, write.body).await?);
    Ok(written(StatusCode::OK, lease.position, lease))
}

/// Gives a lease back; its environment is torn down.
///
/// Repeating it is fine.
#[utoipa::path(
    post, path = "/v1/leases/{lease_id}/release", tag = "leases", request_body = Option<EmptyBody>,
    params(("lease_id" = Uuid, Path), IdempotencyKey),
    responses((status = 200, description = "The lease", body = Lease, headers(("Leasehold-Position" = u64))), Problem),
)]
pub(in crate::http) async fn release_lease(
    State(app): State<Arc<App>>,
    Id(lease_id): Id<LeaseId>,
    write: Write<EmptyBody>,
) -> Result<Response, Problem> {
    let lease = Lease::from(app.release_lease(&write.ctx, lease_id).await?);
    Ok(written(StatusCode::OK, lease.position, lease))
}

/// Ends a lease by an operator's word; its commands are killed.
#[utoipa::path(
    post, path = "/v1/leases/{lease_id}/revoke", tag = "leases", request_body = Option<RevokeBody>,
    params(("lease_id" = Uuid, Path), IdempotencyKey),
    responses((status = 200, description = "The lease", body = Lease, headers(("Leasehold-Position" = u64))), Problem),
)]
pub(in crate::http) async fn revoke_lease(
    State(app): State<Arc<App>>,
    Id(lease_id): Id<LeaseId>,
    write: Write<RevokeBody>,
) -> Result<Response, Problem> {
    let lease = Lease::from(app.revoke_lease(&write.ctx, lease_id, write.body).await?);
    Ok(written(StatusCode::OK, lease.position, lease))
}
