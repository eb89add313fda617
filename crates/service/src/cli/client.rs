//! A client of the service's HTTP interface.

use reqwest::{Method, RequestBuilder, Response, StatusCode};
use serde_json::Value;

use super::args::Server;
use super::exit::Failure;

/// Talks to one service with one token.
#[derive(Clone, Debug)]
pub(super) struct Client {
    http: reqwest::Client,
    url: String,
    token: String,
}

impl Client {
    pub(super) fn new(server: &Server) -> Result<Self, Failure> {
        let token = server.token.clone().filter(|token| !token.is_empty()).ok_or_else(|| {
            Failure::usage("no token: set LEASEHOLD_TOKEN to the one that `leasehold serve --dev` printed")
        })?;
        // A proxy of the environment would see the token.
        let http = reqwest::Client::builder()
            .no_proxy()
            .build()
            .map_err(|error| Failure::failed(format!("no HTTP client: {error}")))?;
        if !(server.url.starts_with("http://") || server.url.starts_with("https://")) {
            return Err(Failure::usage(format!(
                "{:?} is no address: it must begin with http:// or https://",
                server.url
            )));
        }
        let url = server.url.trim_end_matches('/').to_owned();
        Ok(Self { http, url, token })
    }

    /// A request with the token.
    pub(super) fn request(&self, method: Method, path: &str) -> RequestBuilder {
        self.http.request(method, format!("{}{path}", self.url)).bearer_auth(&self.token)
    }

    /// GET; the JSON of a success.
    pub(super) async fn get(&self, path: &str) -> Result<Value, Failure> {
        json(send(self.request(Method::GET, path)).await?).await
    }

    /// POST of a JSON body; the JSON of a success.
    pub(super) async fn post(&self, path: &str, body: &Value) -> Result<Value, Failure> {
        json(send(self.request(Method::POST, path).json(body)).await?).await
    }
}

/// Sends; a problem document becomes a failure in its own words.
pub(super) async fn send(request: RequestBuilder) -> Result<Response, Failure> {
    let response = request.send().await.map_err(|error| {
        let detail = if error.is_connect() {
            "nobody answers there; is the service running, and LEASEHOLD_URL right?"
        } else {
            "the connection broke"
        };
        let place = error.url().map(|url| url.origin().ascii_serialization()).unwrap_or_default();
        Failure::unavailable(format!("{place}: {detail}"))
    })?;
    if response.status().is_success() {
        return Ok(response);
    }
    let status = response.status();
    let problem: Value = response.json().await.unwrap_or_default();
    Err(problem_failure(status, &problem))
}

fn problem_failure(status: StatusCode, problem: &Value) -> Failure {
    let text = |key: &str| problem[key].as_str().unwrap_or_default();
    let mut message = format!("{} ({}): {}", status.as_u16(), text("code"), text("detail"));
    for error in problem["errors"].as_array().into_iter().flatten() {
        let part = |key: &str| error[key].as_str().unwrap_or_default();
        message.push_str(&format!("\n  {}: {}", part("pointer"), part("detail")));
    }
    if status == StatusCode::UNAUTHORIZED {
        message.push_str("; a service started with --dev prints its token, a new one at every start");
    }
    // A refusal is one, also where the same request may find another state later.
    let is_away = status.is_server_error() || status == StatusCode::TOO_MANY_REQUESTS;
    if is_away && problem["retryable"] == true {
        Failure::unavailable(message)
    } else {
        Failure::failed(message)
    }
}

async fn json(response: Response) -> Result<Value, Failure> {
    response.json().await.map_err(|_| Failure::unavailable("the answer broke off"))
}

/// The text of a field that every answer has.
pub(super) fn text(value: &Value, key: &str) -> Result<String, Failure> {
    value[key].as_str().map(str::to_owned).ok_or_else(|| Failure::failed(format!("the answer has no {key}")))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::cli::exit;

    #[test]
    fn problems_become_words_and_codes() {
        let problem = json!({
            "code": "invalid_request", "detail": "no", "retryable": false,
            "errors": [{ "pointer": "/argv", "detail": "empty" }],
        });
        let failure = problem_failure(StatusCode::UNPROCESSABLE_ENTITY, &problem);
        assert_eq!(failure.code, exit::FAILED);
        assert_eq!(failure.message, "422 (invalid_request): no\n  /argv: empty");
        let busy = json!({ "code": "queue_full", "detail": "wait", "retryable": true });
        assert_eq!(problem_failure(StatusCode::TOO_MANY_REQUESTS, &busy).code, exit::UNAVAILABLE);
        assert_eq!(problem_failure(StatusCode::SERVICE_UNAVAILABLE, &busy).code, exit::UNAVAILABLE);
        let held = json!({ "code": "lease_held", "detail": "held", "retryable": true });
        assert_eq!(problem_failure(StatusCode::CONFLICT, &held).code, exit::FAILED);
    }
}
