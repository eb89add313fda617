//! A request that changes something: who sends it, under which key, and its JSON body.
//!
//! In this order, so that each step is bounded by the one before: the caller is known, the declared size is looked at, the
//! bytes are read up to the bound, the text is read strictly, its digest is taken for the key, the fields are matched, the
//! values are checked, all of them at once.

use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::extract::{FromRequest, FromRequestParts as _, Request};
use axum::http::{HeaderMap, header};
use futures::StreamExt as _;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};
use sha2::{Digest, Sha256};

use super::context::{self, Caller, single};
use super::problem::{Code, FieldError, Problem};
use super::strict_json;
use super::text::{pointer_token, quoted};
use crate::api::{Idempotency, RequestCtx};

/// Longest time for a JSON body to arrive.
const BODY_DEADLINE: Duration = Duration::from_secs(60);

/// A JSON body of one kind of request.
pub(super) trait RequestBody: DeserializeOwned {
    /// Largest body in bytes, before parsing.
    const BYTES_MAX: usize = 1024 * 1024;
    /// No body at all, and null, mean an empty object.
    const OPTIONAL: bool = false;

    /// What the request asks for.
    type Checked;

    /// Checks every value; the faults of all of them together.
    fn check(self) -> Result<Self::Checked, Vec<FieldError>>;
}

/// A write by a known caller.
pub(super) struct Write<B: RequestBody> {
    /// Who, and under which key.
    pub ctx: RequestCtx,
    /// What.
    pub body: B::Checked,
    /// The client does not want to wait (RFC 7240).
    pub respond_async: bool,
}

impl<B: RequestBody, S: Sync> FromRequest<S> for Write<B> {
    type Rejection = Problem;

    async fn from_request(request: Request, state: &S) -> Result<Self, Problem> {
        let (mut parts, body) = request.into_parts();
        let Caller(mut ctx) = Caller::from_request_parts(&mut parts, state).await?;
        let key = context::idempotency_key(&parts.headers)?;
        let respond_async = context::responds_async(&parts.headers);
        let bytes = read(&parts.headers, body, B::BYTES_MAX).await?;
        let mut value = Value::Null;
        if !(bytes.is_empty() && B::OPTIONAL) {
            expect_json(&parts.headers)?;
            value = strict_json::parse(&bytes).map_err(|error| not_json(&error))?;
        }
        if value.is_null() && B::OPTIONAL {
            value = Value::Object(Map::new());
        }
        drop(bytes);
        if let Some(key) = key {
            let digest = digest(parts.method.as_str(), parts.uri.path(), &value)?;
            ctx.idempotency = Some(Idempotency { key, digest });
        }
        let body: B = serde_path_to_error::deserialize(value).map_err(|error| wrong_shape(&error))?;
        let body = body.check().map_err(Problem::invalid)?;
        Ok(Self { ctx, body, respond_async })
    }
}

/// The bytes of a body of at most `limit_bytes`.
async fn read(headers: &HeaderMap, body: Body, limit_bytes: usize) -> Result<Bytes, Problem> {
    let too_large =
        || Problem::new(Code::PayloadTooLarge, format!("the body is larger than {limit_bytes} bytes"));
    let declared = single(headers, &header::CONTENT_LENGTH)?.and_then(|text| text.parse::<u64>().ok());
    let late = || Problem::new(Code::RequestTimeout, "the body did not arrive within 60 s");
    if declared.is_some_and(|bytes| bytes > limit_bytes as u64) {
        return Err(too_large());
    }
    let mut chunks = body.into_data_stream();
    let whole = async {
        let mut whole = Vec::new();
        while let Some(chunk) = chunks.next().await {
            let chunk = chunk.map_err(|_| Problem::malformed("the body ended before its length"))?;
            if whole.len() + chunk.len() > limit_bytes {
                return Err(too_large());
            }
            whole.extend_from_slice(&chunk);
        }
        Ok(Bytes::from(whole))
    };
    tokio::time::timeout(BODY_DEADLINE, whole).await.map_err(|_| late())?
}

fn expect_json(headers: &HeaderMap) -> Result<(), Problem> {
    let media_type = single(headers, &header::CONTENT_TYPE)?.unwrap_or_default();
    let essence = media_type.split(';').next().unwrap_or_default().trim();
    if essence.eq_ignore_ascii_case("application/json") {
        Ok(())
    } else {
        Err(Problem::new(Code::UnsupportedMediaType, "the content type must be application/json"))
    }
}

/// SHA-256 over method, path and canonical body (RFC 8785), each preceded by its length.
fn digest(method: &str, path: &str, body: &Value) -> Result<[u8; 32], Problem> {
    let canonical = serde_json_canonicalizer::to_vec(body)
        .map_err(|_| Problem::malformed("the body has no canonical JSON form"))?;
    let mut hasher = Sha256::new();
    for part in [method.as_bytes(), path.as_bytes(), &canonical] {
        hasher.update((part.len() as u64).to_be_bytes());
        hasher.update(part);
    }
    Ok(hasher.finalize().into())
}

fn not_json(error: &serde_json::Error) -> Problem {
    Problem::malformed(format!("the body is not valid JSON: {}", quoted(&error.to_string())))
}

fn wrong_shape(error: &serde_path_to_error::Error<serde_json::Error>) -> Problem {
    let mut pointer = String::new();
    for segment in error.path() {
        match segment {
            serde_path_to_error::Segment::Seq { index } => pointer.push_str(&format!("/{index}")),
            serde_path_to_error::Segment::Map { key } => {
                pointer.push_str(&format!("/{}", pointer_token(key)));
            }
            serde_path_to_error::Segment::Enum { .. } | serde_path_to_error::Segment::Unknown => {}
        }
    }
    Problem::malformed("the body does not have the fields of this request")
        .with_errors(vec![FieldError::new(pointer, quoted(&error.inner().to_string()))])
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_digest_is_of_the_meaning_not_of_the_text() {
        let of = |method, path, body: &Value| digest(method, path, body).unwrap();
        let one = of("POST", "/v1/a", &strict_json::parse(br#"{"b":1.0,"a":"x"}"#).unwrap());
        assert_eq!(one, of("POST", "/v1/a", &json!({"a": "x", "b": 1})));
        assert_ne!(one, of("POST", "/v1/a", &json!({"a": "x", "b": 2})));
        assert_ne!(one, of("POST", "/v1/b", &json!({"a": "x", "b": 1})));
        assert_ne!(one, of("PUT", "/v1/a", &json!({"a": "x", "b": 1})));
    }

    #[tokio::test]
    async fn a_body_is_bounded_declared_or_not() {
        let stream = |count: usize| {
            Body::from_stream(futures::stream::iter(
                (0..count).map(|_| Ok::<_, std::io::Error>(Bytes::from_static(&[b' '; 64]))),
            ))
        };
        assert_eq!(read(&HeaderMap::new(), stream(2), 128).await.unwrap().len(), 128);
        let refused = read(&HeaderMap::new(), stream(3), 128).await.unwrap_err();
        assert_eq!(refused.code(), Code::PayloadTooLarge);
        let mut headers = HeaderMap::new();
        headers.insert(header::CONTENT_LENGTH, 129.into());
        assert_eq!(read(&headers, Body::empty(), 128).await.unwrap_err().code(), Code::PayloadTooLarge);
    }

    #[tokio::test(start_paused = true)]
    async fn a_body_that_does_not_come_is_given_up() {
        let never = Body::from_stream(futures::stream::pending::<Result<Bytes, std::io::Error>>());
        let late = read(&HeaderMap::new(), never, 128).await.unwrap_err();
        assert_eq!(late.code(), Code::RequestTimeout);
    }

    #[test]
    fn json_says_so() {
        let with = |value: &'static str| {
            let mut headers = HeaderMap::new();
            headers.insert(header::CONTENT_TYPE, value.parse().unwrap());
            expect_json(&headers)
        };
        assert!(with("application/json").is_ok());
        assert!(with("Application/JSON; charset=utf-8").is_ok());
        assert_eq!(with("text/plain").unwrap_err().code(), Code::UnsupportedMediaType);
        assert!(expect_json(&HeaderMap::new()).is_err());
    }
}
