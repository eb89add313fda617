//! HTTP: the only interface over a network. A request walks through these files in this order:
//!
//! ```text
//! envelope   an id, a task of its own; at the end the problem document, when there is one (unread: what is left of the body)
//! host       a foreign Host is refused
//! context    who asks (bearer token), under which key, from which position on
//! query, json_body, raw_path    parameters, body and file path, bounded and read strictly
//! requests   checks that need nothing but the request, all at once
//! routes     one handler per operation: asks the service
//! shapes     what clients receive;  output_events: output as server-sent events
//! problem    the closed list of codes: every refusal and failure
//! ```
//! `openapi` is derived from the handlers; `docs/errors` has a page for every code.

mod context;
mod envelope;
mod host;
mod json_body;
mod openapi;
mod output_events;
mod problem;
mod query;
mod raw_path;
mod requests;
#[expect(unused_qualifications, reason = "utoipa's path macro writes qualified names")]
mod routes;
mod shapes;
mod strict_json;
mod text;
mod unread;

use std::sync::Arc;

use axum::Router;
use axum::http::{HeaderValue, header};
use axum::middleware::from_fn_with_state;
use axum::routing::get;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

pub use problem::Code;
use routes::{commands, files, leases, log, runs, service};

use crate::App;

/// Everything that this process serves over HTTP.
pub fn router(app: Arc<App>) -> Router {
    let (api, document) = operations(&app).split_for_parts();
    let document = written(document);
    let document = move || {
        let json = document.clone();
        async move { ([(header::CONTENT_TYPE, HeaderValue::from_static("application/json"))], json) }
    };
    // The same handlers for an empty path: refused, unless `path_base64` names the file.
    let file = get(files::read_file).head(files::stat_file).put(files::write_file).delete(files::remove_file);
    let more_files = Router::new()
        .route("/v1/leases/{lease_id}/files/", file)
        .route_layer(from_fn_with_state(Arc::clone(&app), context::authenticated));
    api.merge(more_files)
        .route("/openapi.json", get(document))
        .fallback(envelope::no_route)
        .method_not_allowed_fallback(envelope::no_method)
        .layer(from_fn_with_state(app.supervisor().clone(), envelope::envelope))
        .with_state(app)
}

/// The OpenAPI document as it is served and as `docs/openapi.json` pins it.
#[must_use]
pub fn openapi_json() -> String {
    let (_, document) = described().split_for_parts();
    written(document)
}

fn written(document: utoipa::openapi::OpenApi) -> String {
    openapi::with_plain_parameters(document).to_pretty_json().unwrap_or_default()
}

/// All operations with their documents; those of tenants need a token.
fn operations(app: &Arc<App>) -> OpenApiRouter<Arc<App>> {
    tenant_operations()
        .route_layer(from_fn_with_state(Arc::clone(app), context::authenticated))
        .merge(service_operations())
}

fn described() -> OpenApiRouter<Arc<App>> {
    tenant_operations().merge(service_operations())
}

fn tenant_operations() -> OpenApiRouter<Arc<App>> {
    OpenApiRouter::with_openapi(openapi::base())
        .routes(routes!(leases::acquire_lease))
        .routes(routes!(leases::list_leases))
        .routes(routes!(leases::get_lease))
        .routes(routes!(leases::renew_lease))
        .routes(routes!(leases::release_lease))
        .routes(routes!(leases::revoke_lease))
        .routes(routes!(commands::execute_command))
        .routes(routes!(commands::list_commands))
        .routes(routes!(commands::get_command))
        .routes(routes!(commands::kill_command))
        .routes(routes!(commands::command_output))
        .routes(routes!(files::read_file, files::stat_file, files::write_file, files::remove_file))
        .routes(routes!(files::list_files))
        .routes(routes!(runs::close_run))
        .routes(routes!(runs::run_events))
        .routes(routes!(log::log_checkpoint))
        .routes(routes!(log::log_proof))
        .routes(routes!(log::log_consistency))
}

fn service_operations() -> OpenApiRouter<Arc<App>> {
    OpenApiRouter::new().routes(routes!(service::healthz)).routes(routes!(service::readyz))
}
