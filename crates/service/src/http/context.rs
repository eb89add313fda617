//! Who asks, under which key, and from which position on: the headers of a request as a `RequestCtx`.

use std::sync::Arc;

use axum::extract::{FromRequestParts, Request, State};
use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderName, header};
use axum::middleware::Next;
use axum::response::Response;
use events::Position;
use events::bounds::POSITION_END;

use super::problem::{Code, Problem};
use crate::App;
use crate::api::{Principal, RequestCtx, ServiceError};

/// Position of the log up to which the answer of a write is in effect.
pub(super) const LEASEHOLD_POSITION: HeaderName = HeaderName::from_static("leasehold-position");
/// A read waits until everything up to this position can be seen.
const LEASEHOLD_MIN_POSITION: HeaderName = HeaderName::from_static("leasehold-min-position");
/// See design: a repeat under the same key answers the same resource.
const IDEMPOTENCY_KEY: HeaderName = HeaderName::from_static("idempotency-key");
/// RFC 7240.
const PREFER: HeaderName = HeaderName::from_static("prefer");
/// Where a stream goes on (HTML, server-sent events).
const LAST_EVENT_ID: HeaderName = HeaderName::from_static("last-event-id");

/// Longest idempotency key in bytes.
const IDEMPOTENCY_KEY_BYTES_MAX: usize = 255;
/// Longest bearer token worth a look.
const BEARER_BYTES_MAX: usize = 512;

/// Lets only known callers through; what stands behind it finds the principal in the request's extensions.
pub(super) async fn authenticated(
    State(app): State<Arc<App>>,
    mut request: Request,
    next: Next,
) -> Result<Response, Problem> {
    let principal = authenticate(request.headers(), &app)?;
    request.extensions_mut().insert(principal);
    Ok(next.run(request).await)
}

/// Whom the bearer token (RFC 6750) stands for.
fn authenticate(headers: &HeaderMap, app: &App) -> Result<Principal, Problem> {
    let value = single(headers, &header::AUTHORIZATION)
        .map_err(|_| Problem::new(Code::Unauthenticated, "there is more than one Authorization header"))?;
    let token = value.and_then(bearer_token).ok_or_else(|| {
        Problem::new(Code::Unauthenticated, "the Authorization header must be: Bearer <token>")
    })?;
    Ok(app.authenticate(token)?)
}

/// A request of a known caller.
pub(super) struct Caller(pub RequestCtx);

impl<S: Sync> FromRequestParts<S> for Caller {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Problem> {
        let principal = parts.extensions.get::<Principal>().cloned().ok_or(ServiceError::Unauthorized)?;
        let min_position = min_position(&parts.headers)?;
        Ok(Self(RequestCtx { principal, idempotency: None, min_position }))
    }
}

fn bearer_token(value: &str) -> Option<&str> {
    let (scheme, token) = value.split_once(' ')?;
    let token = token.trim_start_matches(' ');
    let good = scheme.eq_ignore_ascii_case("bearer")
        && !token.is_empty()
        && token.len() <= BEARER_BYTES_MAX
        && token.bytes().all(|b| b.is_ascii_graphic());
    good.then_some(token)
}

fn min_position(headers: &HeaderMap) -> Result<Option<Position>, Problem> {
    single(headers, &LEASEHOLD_MIN_POSITION)?
        .map(|text| {
            position(text).ok_or_else(|| Problem::malformed("Leasehold-Min-Position is not a position"))
        })
        .transpose()
}

/// A position in decimal, nothing else around it.
pub(super) fn position(text: &str) -> Option<Position> {
    let digits = !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
    let number = digits.then(|| text.parse::<u64>().ok()).flatten()?;
    (number < POSITION_END).then_some(Position(number))
}

/// The idempotency key, bare or as a string of RFC 8941; both name the same key.
pub(super) fn idempotency_key(headers: &HeaderMap) -> Result<Option<String>, Problem> {
    let Some(value) = single(headers, &IDEMPOTENCY_KEY)? else { return Ok(None) };
    let key = unquoted(value.trim_matches([' ', '\t'])).ok_or_else(|| {
        Problem::malformed(
            "Idempotency-Key must be 1 to 255 visible ASCII characters, bare or as a quoted string",
        )
    })?;
    Ok(Some(key))
}

fn unquoted(value: &str) -> Option<String> {
    let key = match value.strip_prefix('"') {
        None => value.to_owned(),
        Some(rest) => {
            let inner = rest.strip_suffix('"')?;
            let mut key = String::with_capacity(inner.len());
            let mut chars = inner.chars();
            while let Some(c) = chars.next() {
                key.push(match c {
                    '\\' => chars.next().filter(|next| matches!(next, '"' | '\\'))?,
                    '"' => return None,
                    other => other,
                });
            }
            key
        }
    };
    let good = !key.is_empty()
        && key.len() <= IDEMPOTENCY_KEY_BYTES_MAX
        && key.bytes().all(|b| b.is_ascii_graphic());
    good.then_some(key)
}

/// `Prefer: respond-async` (RFC 7240, 4.1).
pub(super) fn responds_async(headers: &HeaderMap) -> bool {
    headers
        .get_all(PREFER)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(','))
        .any(|preference| {
            let name = preference.split([';', '=']).next().unwrap_or_default();
            name.trim().eq_ignore_ascii_case("respond-async")
        })
}

/// `Last-Event-ID`, when the client sent one.
pub(super) fn last_event_id(headers: &HeaderMap) -> Result<Option<&str>, Problem> {
    Ok(single(headers, &LAST_EVENT_ID)?.filter(|value| !value.is_empty()))
}

/// The value of a header that may be there at most once, in visible ASCII.
pub(super) fn single<'h>(headers: &'h HeaderMap, name: &HeaderName) -> Result<Option<&'h str>, Problem> {
    let mut values = headers.get_all(name).iter();
    let Some(value) = values.next() else { return Ok(None) };
    if values.next().is_some() {
        return Err(Problem::malformed(format!("the header {name} is there more than once")));
    }
    value.to_str().map(Some).map_err(|_| Problem::malformed(format!("the header {name} is not ASCII text")))
}

#[cfg(test)]
mod tests {
    use axum::http::HeaderValue;

    use super::*;

    fn key(value: &[u8]) -> Result<Option<String>, Problem> {
        let mut headers = HeaderMap::new();
        headers.insert(IDEMPOTENCY_KEY, HeaderValue::from_bytes(value).unwrap());
        idempotency_key(&headers)
    }

    #[test]
    fn a_key_is_the_same_bare_and_quoted() {
        for value in [&b"k-1"[..], b"\"k-1\"", b" k-1 "] {
            assert_eq!(key(value).unwrap().as_deref(), Some("k-1"));
        }
        assert_eq!(key(br#""a\"b\\c""#).unwrap().as_deref(), Some(r#"a"b\c"#));
        assert_eq!(key("x".repeat(255).as_bytes()).unwrap().unwrap().len(), 255);
        assert_eq!(idempotency_key(&HeaderMap::new()).unwrap(), None);
    }

    #[test]
    fn other_keys_are_malformed() {
        let long = "x".repeat(256);
        for value in
            [&b""[..], b"\"\"", b"\"open", b"\"a\\n\"", b"\"a\"b\"", b"two words", b"\xff", long.as_bytes()]
        {
            assert_eq!(key(value).unwrap_err().code(), Code::MalformedRequest);
        }
        let mut twice = HeaderMap::new();
        twice.append(IDEMPOTENCY_KEY, HeaderValue::from_static("a"));
        twice.append(IDEMPOTENCY_KEY, HeaderValue::from_static("a"));
        assert_eq!(idempotency_key(&twice).unwrap_err().code(), Code::MalformedRequest);
    }

    #[test]
    fn positions_are_plain_numbers_below_2_53() {
        assert_eq!(position("0"), Some(Position(0)));
        assert_eq!(position("9007199254740991"), Some(Position(9_007_199_254_740_991)));
        for bad in ["", "+1", "-1", "1.0", " 1", "9007199254740992", "99999999999999999999999"] {
            assert_eq!(position(bad), None, "{bad}");
        }
    }

    #[test]
    fn preferences_are_a_list() {
        let mut headers = HeaderMap::new();
        headers.append(PREFER, HeaderValue::from_static("return=minimal, Respond-Async; x=1"));
        assert!(responds_async(&headers));
        headers.insert(PREFER, HeaderValue::from_static("wait=10"));
        assert!(!responds_async(&headers));
    }

    #[test]
    fn bearer_is_the_only_scheme() {
        assert_eq!(bearer_token("Bearer lh_x"), Some("lh_x"));
        assert_eq!(bearer_token("bearer  lh_x"), Some("lh_x"));
        for bad in ["lh_x", "Basic lh_x", "Bearer ", "Bearer a b", "Bearer\tlh_x"] {
            assert_eq!(bearer_token(bad), None, "{bad}");
        }
    }
}
