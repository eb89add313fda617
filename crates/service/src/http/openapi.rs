//! The OpenAPI 3.1 document: derived from the handlers, completed with what all of them share, pinned in `docs/openapi.json`.

use std::collections::BTreeMap;

use utoipa::openapi::schema::Type;
use utoipa::openapi::security::{HttpAuthScheme, HttpBuilder, SecurityScheme};
use utoipa::openapi::{ContentBuilder, Object, ObjectBuilder, OpenApi, RefOr, ResponseBuilder};
use utoipa::{IntoParams, IntoResponses, OpenApi as _, ToSchema};

use super::problem::{Code, Problem, ProblemDocument};

/// Header of every POST that changes something.
#[derive(IntoParams)]
#[into_params(parameter_in = Header)]
#[expect(dead_code, reason = "documents a header that `context` reads")]
pub(super) struct IdempotencyKey {
    /// 1 to 255 visible ASCII characters, bare or as a quoted string. A repeat within 24 h under the same key answers the same
    /// status and the resource as it is now; with another body it is refused.
    #[param(rename = "Idempotency-Key", required = false, value_type = String, min_length = 1, max_length = 255, pattern = "^[!-~]+$")]
    idempotency_key: Option<String>,
}

/// Header of reads.
#[derive(IntoParams)]
#[into_params(parameter_in = Header)]
#[expect(dead_code, reason = "documents a header that `context` reads")]
pub(super) struct MinPosition {
    /// The `position` of a write: the read waits up to 2 s until it can be seen, then answers `projection_behind`.
    #[param(rename = "Leasehold-Min-Position", required = false, value_type = u64, maximum = 9007199254740991_u64)]
    leasehold_min_position: Option<u64>,
}

/// Header of requests that may wait.
#[derive(IntoParams)]
#[into_params(parameter_in = Header)]
#[expect(dead_code, reason = "documents a header that `context` reads")]
pub(super) struct Prefer {
    /// `respond-async` (RFC 7240): answer 202 at once.
    #[param(rename = "Prefer", required = false, value_type = String)]
    prefer: Option<String>,
}

/// Header of streams.
#[derive(IntoParams)]
#[into_params(parameter_in = Header)]
#[expect(dead_code, reason = "documents a header that `context` reads")]
pub(super) struct LastEventId {
    /// `id` of the last event that arrived: the stream goes on right after it.
    #[param(rename = "Last-Event-ID", required = false, value_type = String)]
    last_event_id: Option<String>,
}

impl IntoResponses for Problem {
    fn responses() -> BTreeMap<String, RefOr<utoipa::openapi::Response>> {
        let schema = utoipa::openapi::Ref::from_schema_name(ProblemDocument::name());
        let content = ContentBuilder::new().schema(Some(schema)).build();
        let response = ResponseBuilder::new()
            .description("The request failed (RFC 9457); `code` says how")
            .content("application/problem+json", content)
            .build();
        BTreeMap::from([("default".to_owned(), RefOr::T(response))])
    }
}

/// The bytes of a file.
#[derive(ToSchema)]
#[schema(value_type = String, format = Binary)]
#[expect(dead_code, reason = "documents bodies that are streamed")]
pub(super) struct FileBytes(Vec<u8>);

/// The closed list of codes as a schema.
pub(super) fn code_schema() -> Object {
    ObjectBuilder::new()
        .schema_type(Type::String)
        .description(Some("Stable code from a closed list, one page each in docs/errors."))
        .enum_values(Some(Code::ALL.iter().map(|code| code.as_str())))
        .build()
}

#[derive(utoipa::OpenApi)]
#[openapi(
    info(
        title = "Leasehold",
        description = "Leases on sandboxes for untrusted code, with every fact in one append-only log. Durations in requests are \
                       seconds, in answers milliseconds; sizes are bytes; times are RFC 3339 UTC with microseconds.",
    ),
    tags(
        (name = "leases", description = "Who may run what, until when"),
        (name = "commands", description = "Execution and output"),
        (name = "files", description = "The workspace of a lease"),
        (name = "runs", description = "History and its end"),
        (name = "service", description = "Health"),
    ),
    components(schemas(ProblemDocument)),
    security(("bearer" = [])),
)]
struct Base;

/// The document without any path.
pub(super) fn base() -> OpenApi {
    let mut document = Base::openapi();
    let scheme = HttpBuilder::new()
        .scheme(HttpAuthScheme::Bearer)
        .description(Some("A token as printed at its creation: `Authorization: Bearer lh_…`"))
        .build();
    document
        .components
        .get_or_insert_default()
        .security_schemes
        .insert("bearer".to_owned(), RefOr::T(SecurityScheme::Http(scheme)));
    document
}

/// Writes the router's catch-all `{*path}` as OpenAPI writes a parameter.
pub(super) fn with_plain_parameters(mut document: OpenApi) -> OpenApi {
    document.paths.paths = std::mem::take(&mut document.paths.paths)
        .into_iter()
        .map(|(path, item)| (path.replace("{*", "{"), item))
        .collect();
    document
}
