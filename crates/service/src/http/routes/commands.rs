//! `/v1/commands` and `/v1/leases/{lease_id}/commands`.

use std::sync::Arc;
use std::time::Duration;

use axum::Json;
use axum::extract::State;
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::sse::Sse;
use axum::response::{IntoResponse, Response};
use events::{CommandId, LeaseId, RunId};
use projections::CommandFilter;
use serde::Deserialize;
use utoipa::IntoParams;
use uuid::Uuid;

use super::super::context::{Caller, last_event_id};
use super::super::json_body::Write;
use super::super::openapi::{IdempotencyKey, LastEventId, MinPosition, Prefer};
use super::super::output_events;
use super::super::problem::Problem;
use super::super::query::{Params, page};
use super::super::requests::{CommandBody, EmptyBody};
use super::super::shapes::{Command, CommandState, Page};
use super::{Id, located, preference_applied, written};
use crate::App;
use crate::api::OutputCursor;

/// Executes a command and waits up to `wait_seconds` for its end.
///
/// Once it is accepted it goes on, whatever becomes of the connection.
#[utoipa::path(
    post, path = "/v1/leases/{lease_id}/commands", tag = "commands", request_body = CommandBody,
    params(("lease_id" = Uuid, Path), IdempotencyKey, Prefer),
    responses(
        (status = 200, description = "It has ended", body = Command, headers(("Leasehold-Position" = u64))),
        (status = 202, description = "It goes on", body = Command, headers(("Leasehold-Position" = u64))),
        Problem,
    ),
)]
pub(in crate::http) async fn execute_command(
    State(app): State<Arc<App>>,
    Id(lease_id): Id<LeaseId>,
    write: Write<CommandBody>,
) -> Result<Response, Problem> {
    let wait = if write.respond_async { Duration::ZERO } else { write.body.wait };
    let row = app.execute(&write.ctx, lease_id, write.body.request, wait).await?;
    let status = if row.state.is_ended() { StatusCode::OK } else { StatusCode::ACCEPTED };
    let command = Command::from(row);
    let location = format!("/v1/commands/{}", command.command_id);
    let response = located(written(status, command.position, command), &location);
    Ok(preference_applied(response, write.respond_async))
}

/// Which commands.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(in crate::http) struct CommandQuery {
    /// Of one run.
    run_id: Option<Uuid>,
    /// Of one lease.
    lease_id: Option<Uuid>,
    /// In one state.
    #[param(inline)]
    state: Option<CommandState>,
    /// `next_cursor` of the page before.
    cursor: Option<String>,
    /// Entries wanted.
    #[param(minimum = 1, maximum = 1000, default = 100)]
    limit: Option<u64>,
}

/// Commands, newest first.
#[utoipa::path(
    get, path = "/v1/commands", tag = "commands",
    params(CommandQuery, MinPosition),
    responses((status = 200, description = "A page", body = Page<Command>), Problem),
)]
pub(in crate::http) async fn list_commands(
    State(app): State<Arc<App>>,
    Caller(ctx): Caller,
    Params(query): Params<CommandQuery>,
) -> Result<Json<Page<Command>>, Problem> {
    let page = page(query.cursor, query.limit)?;
    let filter = CommandFilter {
        run_id: query.run_id.map(RunId::from),
        lease_id: query.lease_id.map(LeaseId::from),
        state: query.state.map(CommandState::into),
    };
    Ok(Json(Page::of(app.list_commands(&ctx, filter, page).await?, Command::from)))
}

/// One command.
#[utoipa::path(
    get, path = "/v1/commands/{command_id}", tag = "commands",
    params(("command_id" = Uuid, Path), MinPosition),
    responses((status = 200, description = "The command", body = Command), Problem),
)]
pub(in crate::http) async fn get_command(
    State(app): State<Arc<App>>,
    Caller(ctx): Caller,
    Id(command_id): Id<CommandId>,
) -> Result<Json<Command>, Problem> {
    Ok(Json(app.get_command(&ctx, command_id).await?.into()))
}

/// Asks for a command's end; killing one that has ended is fine.
#[utoipa::path(
    post, path = "/v1/commands/{command_id}/kill", tag = "commands", request_body = Option<EmptyBody>,
    params(("command_id" = Uuid, Path), IdempotencyKey),
    responses((status = 202, description = "The command", body = Command, headers(("Leasehold-Position" = u64))), Problem),
)]
pub(in crate::http) async fn kill_command(
    State(app): State<Arc<App>>,
    Id(command_id): Id<CommandId>,
    write: Write<EmptyBody>,
) -> Result<Response, Problem> {
    let command = Command::from(app.kill_command(&write.ctx, command_id).await?);
    Ok(written(StatusCode::ACCEPTED, command.position, command))
}

/// Where the output is read from.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(in crate::http) struct OutputQuery {
    /// `<stdout offset>.<stderr offset>`: the bytes that the client has already. The header `Last-Event-ID` says the same
    /// and comes first.
    #[param(example = "0.0", pattern = "^[0-9]+\\.[0-9]+$")]
    cursor: Option<String>,
}

/// A command's output as server-sent events, each byte once.
///
/// Events are `stdout` and `stderr` with `{offset, text | base64}`, `gap` with
/// `{stream, from, to, artifact_id}`, and at the end `exit` with the command.
#[utoipa::path(
    get, path = "/v1/commands/{command_id}/output", tag = "commands",
    params(("command_id" = Uuid, Path), OutputQuery, LastEventId),
    responses((status = 200, description = "Events", body = String, content_type = "text/event-stream"), Problem),
)]
pub(in crate::http) async fn command_output(
    State(app): State<Arc<App>>,
    Caller(ctx): Caller,
    Id(command_id): Id<CommandId>,
    Params(query): Params<OutputQuery>,
    headers: HeaderMap,
) -> Result<Response, Problem> {
    let text = last_event_id(&headers)?.or(query.cursor.as_deref());
    let cursor = text.map_or(Ok(OutputCursor::default()), str::parse).map_err(|_| {
        Problem::malformed("the cursor must be two byte counts joined by a dot: <stdout>.<stderr>")
    })?;
    let items = app.output(&ctx, command_id, cursor).await?;
    Ok(event_stream(Sse::new(output_events::events(items, cursor)).into_response()))
}

/// Events are for this reader, now: no cache and no proxy may keep or collect them.
pub(super) fn event_stream(mut response: Response) -> Response {
    let headers = response.headers_mut();
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    headers.insert("x-accel-buffering", HeaderValue::from_static("no"));
    response
}
