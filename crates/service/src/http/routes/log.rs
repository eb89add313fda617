//! `/v1/log`: signed heads of the log and proofs, for whoever does not want to believe this service.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use events::Position;
use serde::Deserialize;
use utoipa::IntoParams;

use super::super::context::Caller;
use super::super::problem::{FieldError, Problem};
use super::super::query::Params;
use super::super::shapes::{ConsistencyProof, InclusionProof};
use crate::App;

/// The last signed head of the log.
///
/// A C2SP tlog-checkpoint: origin, number of events, root hash, and one signature per key of the log.
#[utoipa::path(
    get, path = "/v1/log/checkpoint", tag = "log",
    responses((status = 200, description = "The note", body = String, content_type = "text/plain; charset=utf-8"), Problem),
)]
pub(in crate::http) async fn log_checkpoint(
    State(app): State<Arc<App>>,
    Caller(ctx): Caller,
) -> Result<Response, Problem> {
    Ok(app.last_checkpoint(&ctx).await?.into_response())
}

/// Which event, in which tree.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(in crate::http) struct InclusionQuery {
    /// The event's position.
    position: u64,
    /// Size of the tree in events; by default that of the first signed head that has the event.
    size: Option<u64>,
}

/// Proves that an event is the one at its position.
#[utoipa::path(
    get, path = "/v1/log/proof", tag = "log", params(InclusionQuery),
    responses((status = 200, description = "The proof", body = InclusionProof), Problem),
)]
pub(in crate::http) async fn log_proof(
    State(app): State<Arc<App>>,
    Caller(ctx): Caller,
    Params(query): Params<InclusionQuery>,
) -> Result<Json<InclusionProof>, Problem> {
    bounded([("position", Some(query.position)), ("size", query.size)])?;
    Ok(Json(app.inclusion(&ctx, Position(query.position), query.size).await?.into()))
}

/// Which trees.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(in crate::http) struct ConsistencyQuery {
    /// Size of the older tree in events, at least 1.
    from: u64,
    /// Size of the newer tree; by default that of the last signed head.
    to: Option<u64>,
}

/// Proves that the log has only grown from one size to another.
#[utoipa::path(
    get, path = "/v1/log/consistency", tag = "log", params(ConsistencyQuery),
    responses((status = 200, description = "The proof", body = ConsistencyProof), Problem),
)]
pub(in crate::http) async fn log_consistency(
    State(app): State<Arc<App>>,
    Caller(ctx): Caller,
    Params(query): Params<ConsistencyQuery>,
) -> Result<Json<ConsistencyProof>, Problem> {
    bounded([("from", Some(query.from)), ("to", query.to)])?;
    Ok(Json(app.consistency(&ctx, query.from, query.to).await?.into()))
}

/// Positions and sizes are below 2^53.
fn bounded<const N: usize>(values: [(&str, Option<u64>); N]) -> Result<(), Problem> {
    let large = values.iter().filter(|(_, value)| value.is_some_and(|value| value >= 1 << 53));
    let faults: Vec<_> = large.map(|(name, _)| FieldError::new(*name, "must be below 2^53")).collect();
    if faults.is_empty() { Ok(()) } else { Err(Problem::invalid(faults)) }
}
