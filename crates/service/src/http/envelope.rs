//! The outermost layer: every request gets an id, a task of its own and, when it fails, its problem document.
//!
//! The task is why a client that disconnects aborts nothing: the connection drops its answer, the handler runs to its end.
//! It is also why a fault in a handler is a 500 with an id to look for in the log, not a torn connection.

use std::time::Instant;

use axum::body::Body;
use axum::extract::{MatchedPath, Request, State};
use axum::http::{HeaderName, HeaderValue};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use tracing::Instrument as _;
use uuid::Uuid;

use super::problem::{Code, Problem};
use super::{host, unread};
use crate::api::ServiceError;
use crate::supervise::{Supervisor, TaskLost};

const X_REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");
const X_CONTENT_TYPE_OPTIONS: HeaderName = HeaderName::from_static("x-content-type-options");

/// Wraps every route and the fallbacks.
pub(super) async fn envelope(State(supervisor): State<Supervisor>, request: Request, next: Next) -> Response {
    let request_id = Uuid::new_v4().to_string();
    let method = request.method().clone();
    // The route, never the path: names of files are the tenant's own.
    let route = request.extensions().get::<MatchedPath>().map_or("-", MatchedPath::as_str).to_owned();
    let span = tracing::info_span!("http_request", request_id, %method, route);
    let start = Instant::now();
    let (request, rest) = unread::watched(request);
    let handled = async move {
        match host::check(&request) {
            Ok(()) => next.run(request).await,
            Err(problem) => problem.into_response(),
        }
    };
    let mut response = supervisor
        .run("http_request", handled.instrument(span.clone()))
        .await
        .unwrap_or_else(|TaskLost| Problem::from(ServiceError::Internal).into_response());
    let elapsed_ms = u64::try_from(start.elapsed().as_millis()).unwrap_or(u64::MAX);
    let status = response.status().as_u16();
    let code = response.extensions().get::<Problem>().map(|problem| problem.code().as_str());
    span.in_scope(|| tracing::debug!(status, code, elapsed_ms, "answered"));
    if let Some(problem) = response.extensions_mut().remove::<Problem>() {
        rest.drop_it().await;
        let document = serde_json::to_vec(&problem.document(&request_id)).unwrap_or_default();
        *response.body_mut() = Body::from(document);
    }
    let headers = response.headers_mut();
    headers.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    if let Ok(value) = HeaderValue::from_str(&request_id) {
        headers.insert(X_REQUEST_ID, value);
    }
    response
}

/// Answers what no route answers.
pub(super) async fn no_route() -> Problem {
    Problem::new(Code::NotFound, "there is no such route")
}

/// Answers a method that its route does not have; axum adds the `Allow` header.
pub(super) async fn no_method() -> Problem {
    Problem::new(Code::MethodNotAllowed, "the route does not have this method; see the Allow header")
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::Duration;

    use axum::Router;
    use axum::body::to_bytes;
    use axum::http::{StatusCode, header};
    use axum::middleware::from_fn_with_state;
    use axum::routing::get;
    use serde_json::{Value, json};
    use tokio::sync::{Notify, oneshot};
    use tower::ServiceExt as _;

    use super::*;

    fn routes(router: Router) -> Router {
        router
            .fallback(no_route)
            .method_not_allowed_fallback(no_method)
            .layer(from_fn_with_state(Supervisor::default(), envelope))
    }

    fn request(method: &str, path: &str, host: &str) -> Request {
        let request = Request::builder().method(method).uri(path).header(header::HOST, host);
        request.body(Body::empty()).unwrap()
    }

    async fn document(response: Response) -> Value {
        assert_eq!(response.headers()[header::CONTENT_TYPE], "application/problem+json");
        let id = response.headers()[X_REQUEST_ID].to_str().unwrap().to_owned();
        let document: Value =
            serde_json::from_slice(&to_bytes(response.into_body(), 65_536).await.unwrap()).unwrap();
        assert_eq!(document["request_id"], id);
        document
    }

    #[tokio::test]
    async fn a_failure_is_a_whole_document() {
        let app = routes(Router::new().route("/known", get(|| async { "x" })));
        let response = app.clone().oneshot(request("GET", "/unknown", "localhost")).await.unwrap();
        assert_eq!(response.status(), StatusCode::NOT_FOUND);
        let mut problem = document(response).await;
        problem["request_id"] = json!("-");
        assert_eq!(
            problem,
            json!({
                "type": "/errors/not_found", "title": "There is no such object", "status": 404,
                "detail": "there is no such route", "code": "not_found", "retryable": false,
                "no_side_effect": true, "request_id": "-",
            })
        );
        let response = app.clone().oneshot(request("POST", "/known", "localhost")).await.unwrap();
        assert_eq!(
            (response.status(), &response.headers()[header::ALLOW]),
            (StatusCode::METHOD_NOT_ALLOWED, &"GET,HEAD".parse().unwrap())
        );
        assert_eq!(document(response).await["code"], "method_not_allowed");
        let response = app.oneshot(request("GET", "/known", "example.com")).await.unwrap();
        assert_eq!(response.status(), StatusCode::MISDIRECTED_REQUEST);
        assert_eq!(document(response).await["code"], "misdirected_request");
    }

    #[tokio::test]
    async fn a_fault_in_a_handler_is_an_answer() {
        async fn faulty() -> &'static str {
            panic!("on purpose")
        }
        let app = routes(Router::new().route("/", get(faulty)));
        let response = app.oneshot(request("GET", "/", "127.0.0.1:1")).await.unwrap();
        assert_eq!(response.status(), StatusCode::INTERNAL_SERVER_ERROR);
        let problem = document(response).await;
        assert_eq!((&problem["code"], &problem["no_side_effect"]), (&json!("internal"), &json!(false)));
    }

    #[tokio::test]
    async fn a_client_that_goes_away_aborts_nothing() {
        let (entered, go_on) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
        let (done, finished) = oneshot::channel();
        let done = Arc::new(std::sync::Mutex::new(Some(done)));
        let handler = {
            let (entered, go_on) = (Arc::clone(&entered), Arc::clone(&go_on));
            move || async move {
                entered.notify_one();
                go_on.notified().await;
                if let Some(done) = done.lock().unwrap().take() {
                    done.send(()).unwrap();
                }
            }
        };
        let app = routes(Router::new().route("/", get(handler)));
        let call = app.oneshot(request("GET", "/", "localhost"));
        tokio::select! {
            _ = call => panic!("the handler waits"),
            () = entered.notified() => {}
        }
        go_on.notify_one();
        tokio::time::timeout(Duration::from_secs(10), finished).await.unwrap().unwrap();
    }
}
