//! `/v1/runs/{run_id}`: its events and its closing.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use axum::Json;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::sse::{Event, KeepAlive, Sse};
use axum::response::{IntoResponse, Response};
use events::event::EventType;
use events::stored::Recorded;
use events::{Position, RunId};
use futures::StreamExt as _;
use serde::Deserialize;
use utoipa::IntoParams;

use super::super::context::{Caller, last_event_id, position};
use super::super::json_body::Write;
use super::super::openapi::{IdempotencyKey, LastEventId, MinPosition, Prefer};
use super::super::problem::Problem;
use super::super::query::{Params, page};
use super::super::requests::EmptyBody;
use super::super::shapes::{EventJson, Page, RunClosing};
use super::commands::event_stream;
use super::{Id, preference_applied, written};
use crate::App;
use crate::api::{ClosedState, ServiceError, TailItems};

/// Longest wait for a run to be complete, below the minute after which proxies give up.
const CLOSE_WAIT: Duration = Duration::from_secs(55);
/// Between two signs of life of a tail.
const KEEP_ALIVE: Duration = Duration::from_secs(15);

/// Closes a run: its live lease ends, no lease may follow.
///
/// Answers 200 when everything has its outcome and every environment
/// is destroyed, 202 when that goes on after 55 s.
#[utoipa::path(
    post, path = "/v1/runs/{run_id}/close", tag = "runs", request_body = Option<EmptyBody>,
    params(("run_id" = Uuid, Path), IdempotencyKey, Prefer),
    responses(
        (status = 200, description = "Closed", body = RunClosing, headers(("Leasehold-Position" = u64))),
        (status = 202, description = "Closing", body = RunClosing, headers(("Leasehold-Position" = u64))),
        Problem,
    ),
)]
pub(in crate::http) async fn close_run(
    State(app): State<Arc<App>>,
    Id(run_id): Id<RunId>,
    write: Write<EmptyBody>,
) -> Result<Response, Problem> {
    let wait = if write.respond_async { Duration::ZERO } else { CLOSE_WAIT };
    let answer = app.close_run(&write.ctx, run_id, wait).await?;
    let status = match answer.state {
        ClosedState::Closed => StatusCode::OK,
        ClosedState::Closing => StatusCode::ACCEPTED,
    };
    let response = written(status, answer.position.get(), RunClosing::new(run_id, answer));
    Ok(preference_applied(response, write.respond_async))
}

/// Which events.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(in crate::http) struct EventQuery {
    /// Of one type, for example `CommandFinished`; pages only.
    r#type: Option<String>,
    /// `next_cursor` of the page before. For a tail: a position, the event after it comes first; the header `Last-Event-ID`
    /// says the same and comes first.
    cursor: Option<String>,
    /// Entries wanted; pages only.
    #[param(minimum = 1, maximum = 1000, default = 100)]
    limit: Option<u64>,
}

/// A run's events, ascending by position.
///
/// A page, or with `Accept: text/event-stream` all of them and then each as it happens
/// (`id` is the position, `data` the event).
#[utoipa::path(
    get, path = "/v1/runs/{run_id}/events", tag = "runs",
    params(("run_id" = Uuid, Path), EventQuery, LastEventId, MinPosition),
    responses(
        (status = 200, description = "A page, or events", content((Page<EventJson> = "application/json"), (String = "text/event-stream"))),
        Problem,
    ),
)]
pub(in crate::http) async fn run_events(
    State(app): State<Arc<App>>,
    Caller(ctx): Caller,
    Id(run_id): Id<RunId>,
    Params(query): Params<EventQuery>,
    headers: HeaderMap,
) -> Result<Response, Problem> {
    if wants_events(&headers) {
        if query.r#type.is_some() || query.limit.is_some() {
            return Err(Problem::malformed("a tail takes neither type nor limit"));
        }
        let after = tail_start(last_event_id(&headers)?.or(query.cursor.as_deref()))?;
        let items = app.tail_run(&ctx, run_id, after).await?;
        let sse = Sse::new(tail(items)).keep_alive(KeepAlive::new().interval(KEEP_ALIVE).text("keep-alive"));
        return Ok(event_stream(sse.into_response()));
    }
    let kind = query
        .r#type
        .map(|name| {
            EventType::from_name(&name)
                .ok_or_else(|| Problem::malformed("there is no event type of that name"))
        })
        .transpose()?;
    let events = app.run_events(&ctx, run_id, kind, page(query.cursor, query.limit)?).await?;
    let items = events.items.into_iter().map(event_json).collect::<Result<Vec<_>, ServiceError>>()?;
    Ok(Json(Page { items, next_cursor: events.next_cursor }).into_response())
}

fn wants_events(headers: &HeaderMap) -> bool {
    headers
        .get_all(header::ACCEPT)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(','))
        .any(|range| {
            range.split(';').next().unwrap_or_default().trim().eq_ignore_ascii_case("text/event-stream")
        })
}

fn tail_start(text: Option<&str>) -> Result<Option<Position>, Problem> {
    text.map(|text| position(text).ok_or_else(|| Problem::malformed("the cursor of a tail is a position")))
        .transpose()
}

fn event_json(recorded: Recorded) -> Result<EventJson, ServiceError> {
    EventJson::try_from(recorded).map_err(|error| {
        tracing::error!(%error, "a recorded event cannot be written as JSON");
        ServiceError::Internal
    })
}

/// A failure on the way ends the tail: the client resumes at its last id.
fn tail(items: TailItems) -> impl futures::Stream<Item = Result<Event, Infallible>> + Send + 'static {
    items.scan((), |(), item| {
        let event = item.and_then(event_json).and_then(|event| {
            let data = serde_json::to_string(&event).map_err(|_| ServiceError::Internal)?;
            Ok(Event::default().id(event.position.to_string()).data(data))
        });
        std::future::ready(match event {
            Ok(event) => Some(Ok(event)),
            Err(error) => {
                tracing::warn!(%error, "a tail of a run ended early");
                None
            }
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tail_is_asked_for_by_its_media_type() {
        let with = |value: &'static str| {
            let mut headers = HeaderMap::new();
            headers.insert(header::ACCEPT, value.parse().unwrap());
            wants_events(&headers)
        };
        assert!(with("text/event-stream"));
        assert!(with("application/json;q=0.1, Text/Event-Stream; q=1"));
        assert!(!with("*/*"));
        assert!(!wants_events(&HeaderMap::new()));
    }

    #[test]
    fn a_tail_starts_after_a_position() {
        assert_eq!(tail_start(None).unwrap(), None);
        assert_eq!(tail_start(Some("41")).unwrap(), Some(Position(41)));
        assert!(tail_start(Some("1.0")).is_err());
    }
}
