//! `/v1/leases/{lease_id}/files`: raw bytes of the workspace, streamed.
//!
//! Paths are taken from the raw request target (see [`super::super::raw_path`]). What a tenant stored is given back as bytes
//! to be saved, never as something that a browser would show.

use std::sync::Arc;

use axum::Json;
use axum::body::Body;
use axum::extract::{Request, State};
use axum::http::{HeaderName, HeaderValue, StatusCode, Uri, header};
use axum::response::{IntoResponse, Response};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use bytes::Bytes;
use events::LeaseId;
use futures::{Stream, StreamExt as _};
use runtime_adapter::ports::{ByteStream, PortError, WorkspaceEntryKind, WorkspaceError};
use utoipa::IntoParams;

use super::super::context::{Caller, LEASEHOLD_POSITION};
use super::super::openapi::FileBytes;
use super::super::problem::{Code, Problem};
use super::super::query::{page, raw_parameters};
use super::super::raw_path::{encoded_file_path, path_from_base64, percent_decode};
use super::super::shapes::{FileEntry, FileWritten, Page};
use super::written;
use crate::App;
use crate::api::{ListFiles, ServiceError};

/// Names a file whose path is not UTF-8.
#[derive(IntoParams)]
#[into_params(parameter_in = Query)]
#[expect(dead_code, reason = "documents a parameter that is read as raw bytes")]
pub(in crate::http) struct FileQuery {
    /// The path in base64 (either alphabet, padded or not), instead of the one in the target, which is then ignored.
    #[param(min_length = 2)]
    path_base64: Option<String>,
}

/// Lease and path of a request for one file.
fn target(uri: &Uri) -> Result<(LeaseId, Vec<u8>), Problem> {
    let lease_id = uri
        .path()
        .strip_prefix("/v1/leases/")
        .and_then(|rest| rest.split('/').next())
        .and_then(|id| id.parse::<LeaseId>().ok())
        .ok_or_else(|| Problem::malformed("the id in the path is not a UUID"))?;
    let [path_base64] = raw_parameters(uri, ["path_base64"])?;
    let path = match (path_base64, encoded_file_path(uri.path())) {
        (Some(text), _) => path_from_base64(&text)?,
        (None, Some(encoded)) => percent_decode(encoded, false)?,
        (None, None) => return Err(Problem::new(Code::PathRefused, "the path is empty")),
    };
    Ok((lease_id, path))
}

const CONTENT_SECURITY_POLICY: HeaderValue = HeaderValue::from_static("default-src 'none'; sandbox");

/// How foreign bytes are handed out.
fn foreign_bytes(size_bytes: u64, body: Body) -> Response {
    let headers = [
        (header::CONTENT_TYPE, HeaderValue::from_static("application/octet-stream")),
        (header::CONTENT_LENGTH, HeaderValue::from(size_bytes)),
        (header::CONTENT_DISPOSITION, HeaderValue::from_static("attachment")),
        (header::CONTENT_SECURITY_POLICY, CONTENT_SECURITY_POLICY),
        (header::CACHE_CONTROL, HeaderValue::from_static("private, no-store")),
    ];
    (StatusCode::OK, headers, body).into_response()
}

/// The bytes of a file.
///
/// A file that changes while it is read ends the body before its length, or is `file_changed` when nothing of it was sent.
#[utoipa::path(
    get, path = "/v1/leases/{lease_id}/files/{*path}", tag = "files",
    params(("lease_id" = Uuid, Path), ("path" = String, Path, description = "Relative to `/workspace`; may hold slashes"), FileQuery),
    responses((status = 200, description = "The bytes", body = FileBytes, content_type = "application/octet-stream"), Problem),
)]
pub(in crate::http) async fn read_file(
    State(app): State<Arc<App>>,
    Caller(ctx): Caller,
    uri: Uri,
) -> Result<Response, Problem> {
    let (lease_id, path) = target(&uri)?;
    let file = app.read_file(&ctx, lease_id, &path).await?;
    let bytes = begun(file.bytes).await.map_err(ServiceError::from)?;
    Ok(foreign_bytes(file.size_bytes, Body::from_stream(bytes)))
}

/// The same bytes once the first are there: what goes wrong before them can still be said with a status.
async fn begun(
    bytes: ByteStream,
) -> Result<impl Stream<Item = Result<Bytes, WorkspaceError>>, WorkspaceError> {
    let mut bytes = Box::pin(held_back(bytes).fuse());
    let first = bytes.next().await.transpose()?;
    Ok(futures::stream::iter(first.map(Ok)).chain(bytes))
}

/// Keeps each piece until the next one, or the good end, is there. That a file changed is known after its last byte; a body
/// that had all its bytes by then would look whole.
fn held_back(bytes: ByteStream) -> impl Stream<Item = Result<Bytes, WorkspaceError>> {
    let start = (bytes.fuse(), None::<Bytes>);
    futures::stream::unfold(start, |(mut bytes, mut held)| async move {
        loop {
            match bytes.next().await {
                Some(Ok(piece)) if piece.is_empty() => {}
                Some(Ok(piece)) => {
                    if let Some(before) = held.replace(piece) {
                        return Some((Ok(before), (bytes, held)));
                    }
                }
                Some(Err(error)) => return Some((Err(error), (bytes, None))),
                None => return held.map(|last| (Ok(last), (bytes, None))),
            }
        }
    })
}

/// Size of a file, without its bytes.
#[utoipa::path(
    head, path = "/v1/leases/{lease_id}/files/{*path}", tag = "files",
    params(("lease_id" = Uuid, Path), ("path" = String, Path, description = "Relative to `/workspace`; may hold slashes"), FileQuery),
    responses((status = 200, description = "The headers of the file"), Problem),
)]
pub(in crate::http) async fn stat_file(
    State(app): State<Arc<App>>,
    Caller(ctx): Caller,
    uri: Uri,
) -> Result<Response, Problem> {
    let (lease_id, path) = target(&uri)?;
    let entry = app.stat_file(&ctx, lease_id, &path).await?;
    match entry.kind {
        WorkspaceEntryKind::File => Ok(foreign_bytes(entry.size_bytes, Body::empty())),
        WorkspaceEntryKind::Directory => Err(ServiceError::IsADirectory.into()),
        WorkspaceEntryKind::Symlink => Err(ServiceError::SymlinkRefused.into()),
        WorkspaceEntryKind::Other => Err(ServiceError::NotRegular.into()),
    }
}

/// Writes a file, durably; missing directories are made, links are never followed.
#[utoipa::path(
    put, path = "/v1/leases/{lease_id}/files/{*path}", tag = "files",
    params(("lease_id" = Uuid, Path), ("path" = String, Path, description = "Relative to `/workspace`; may hold slashes"), FileQuery),
    request_body(content = FileBytes, content_type = "application/octet-stream"),
    responses(
        (status = 200, description = "Replaced", body = FileWritten, headers(("Leasehold-Position" = u64))),
        (status = 201, description = "Created", body = FileWritten, headers(("Leasehold-Position" = u64))),
        Problem,
    ),
)]
pub(in crate::http) async fn write_file(
    State(app): State<Arc<App>>,
    Caller(ctx): Caller,
    request: Request,
) -> Result<Response, Problem> {
    let (lease_id, path) = target(request.uri())?;
    let body = upload(request.into_body());
    let file = FileWritten::from(app.write_file(&ctx, lease_id, &path, body).await?);
    let status = if file.created { StatusCode::CREATED } else { StatusCode::OK };
    Ok(written(status, file.position, file))
}

/// A body as the workspace takes it. A client that goes away ends it with an error, so that half a file is never kept.
fn upload(body: Body) -> ByteStream {
    let cut = |_| WorkspaceError::Port(PortError::Rejected { code: "upload_aborted" });
    body.into_data_stream().map(move |chunk| chunk.map_err(cut)).boxed()
}

/// Removes a file or a link; a directory only when it is empty.
#[utoipa::path(
    delete, path = "/v1/leases/{lease_id}/files/{*path}", tag = "files",
    params(("lease_id" = Uuid, Path), ("path" = String, Path, description = "Relative to `/workspace`; may hold slashes"), FileQuery),
    responses((status = 204, description = "Removed", headers(("Leasehold-Position" = u64))), Problem),
)]
pub(in crate::http) async fn remove_file(
    State(app): State<Arc<App>>,
    Caller(ctx): Caller,
    uri: Uri,
) -> Result<(StatusCode, [(HeaderName, HeaderValue); 1]), Problem> {
    let (lease_id, path) = target(&uri)?;
    let position = app.remove_file(&ctx, lease_id, &path).await?;
    Ok((StatusCode::NO_CONTENT, [(LEASEHOLD_POSITION, HeaderValue::from(position.get()))]))
}

/// Which entries.
#[derive(IntoParams)]
#[into_params(parameter_in = Query)]
#[expect(dead_code, reason = "documents parameters that are read as raw bytes")]
pub(in crate::http) struct ListQuery {
    /// The directory, relative to `/workspace`; without it the workspace itself.
    path: Option<String>,
    /// The directory in base64 (either alphabet), instead of `path`.
    path_base64: Option<String>,
    /// Below it as well.
    #[param(default = false)]
    recursive: Option<bool>,
    /// `next_cursor` of the page before.
    cursor: Option<String>,
    /// Entries wanted.
    #[param(minimum = 1, maximum = 1000, default = 100)]
    limit: Option<u64>,
}

/// Entries of a directory, sorted by the bytes of their paths. Links are named as links.
#[utoipa::path(
    get, path = "/v1/leases/{lease_id}/files", tag = "files",
    params(("lease_id" = Uuid, Path), ListQuery),
    responses((status = 200, description = "A page", body = Page<FileEntry>), Problem),
)]
pub(in crate::http) async fn list_files(
    State(app): State<Arc<App>>,
    Caller(ctx): Caller,
    super::Id(lease_id): super::Id<LeaseId>,
    uri: Uri,
) -> Result<Json<Page<FileEntry>>, Problem> {
    let listing = app.list_files(&ctx, lease_id, list_request(&uri)?).await?;
    Ok(Json(Page {
        items: listing.entries.into_iter().map(FileEntry::from).collect(),
        next_cursor: listing.next_after.map(|after| URL_SAFE_NO_PAD.encode(after)),
    }))
}

fn list_request(uri: &Uri) -> Result<ListFiles, Problem> {
    let names = ["path", "path_base64", "recursive", "cursor", "limit"];
    let [path, path_base64, recursive, cursor, limit] = raw_parameters(uri, names)?;
    let path = match (path, path_base64) {
        (Some(_), Some(_)) => return Err(Problem::malformed("path and path_base64 exclude each other")),
        (None, Some(text)) => Some(path_from_base64(&text)?),
        (path, None) => path.filter(|path| path != b"" && path != b"."),
    };
    let recursive = match recursive.as_deref() {
        None | Some(b"false") => false,
        Some(b"true") => true,
        Some(_) => return Err(Problem::malformed("recursive must be true or false")),
    };
    let limit = limit
        .map(|text| String::from_utf8(text).ok().and_then(|text| text.parse::<u64>().ok()).ok_or(()))
        .transpose()
        .map_err(|()| Problem::malformed("limit must be a number"))?;
    let after = cursor
        .map(|text| URL_SAFE_NO_PAD.decode(text))
        .transpose()
        .map_err(|_| Problem::malformed("the cursor is not one of this list"))?;
    let limit = page(None, limit)?.limit;
    Ok(ListFiles { path, recursive, after, limit })
}

#[cfg(test)]
mod tests {
    use super::*;

    const LEASE: &str = "/v1/leases/0190f0f0-0000-7000-8000-000000000001/files";

    fn of(rest: &str) -> Result<Vec<u8>, Code> {
        target(&format!("{LEASE}{rest}").parse().unwrap())
            .map(|(_, path)| path)
            .map_err(|problem| problem.code())
    }

    #[test]
    fn paths_arrive_as_they_were_meant() {
        assert_eq!(of("/a/b.txt").unwrap(), b"a/b.txt");
        assert_eq!(of("/a%0Ab").unwrap(), b"a\nb");
        assert_eq!(of("/%252e%252e/x").unwrap(), b"%2e%2e/x");
        assert_eq!(of("/%2e%2e/x").unwrap(), b"../x");
        assert_eq!(of("//etc/passwd").unwrap(), b"/etc/passwd");
        assert_eq!(of("/a%00b").unwrap(), b"a\0b");
        assert_eq!(of("/ignored?path_base64=%2Fw%3D%3D").unwrap(), b"\xff");
        assert_eq!(of("?path_base64=_w").unwrap(), b"\xff");
        assert_eq!(of(""), Err(Code::PathRefused));
        assert_eq!(of("/a%g0"), Err(Code::MalformedRequest));
        assert_eq!(of("/a?other=1"), Err(Code::MalformedRequest));
    }

    #[tokio::test]
    async fn a_fault_after_the_last_byte_takes_the_last_piece_with_it() {
        let passed = async |pieces: Vec<Result<&'static [u8], WorkspaceError>>| {
            let pieces = pieces.into_iter().map(|piece| piece.map(Bytes::from_static));
            held_back(futures::stream::iter(pieces).boxed()).collect::<Vec<_>>().await
        };
        let (one, two) = (Ok(Bytes::from_static(b"one")), Ok(Bytes::from_static(b"two")));
        assert_eq!(passed(vec![]).await, []);
        assert_eq!(passed(vec![Ok(b"one")]).await, std::slice::from_ref(&one));
        assert_eq!(passed(vec![Ok(b"one"), Ok(b""), Ok(b"two"), Ok(b"")]).await, [one.clone(), two]);
        let changed = || Err(WorkspaceError::ChangedDuringRead);
        assert_eq!(
            passed(vec![Ok(b"one"), Ok(b"two"), changed()]).await,
            [one, Err(WorkspaceError::ChangedDuringRead)]
        );
        assert_eq!(
            passed(vec![Ok(b"all"), Ok(b""), changed()]).await,
            [Err(WorkspaceError::ChangedDuringRead)]
        );
    }

    #[tokio::test]
    async fn what_fails_before_its_first_bytes_is_no_answer_yet() {
        const CHANGED: WorkspaceError = WorkspaceError::ChangedDuringRead;
        let begun = async |pieces: Vec<Result<&'static [u8], WorkspaceError>>| {
            let pieces = pieces.into_iter().map(|piece| piece.map(Bytes::from_static));
            Ok(begun(futures::stream::iter(pieces).boxed()).await?.collect::<Vec<_>>().await)
        };
        assert_eq!(begun(vec![Ok(b"all"), Err(CHANGED)]).await, Err(CHANGED));
        assert_eq!(begun(vec![Err(CHANGED)]).await, Err(CHANGED));
        assert_eq!(begun(vec![]).await, Ok(vec![]));
        let one = Ok(Bytes::from_static(b"one"));
        assert_eq!(begun(vec![Ok(b"one"), Ok(b"two"), Err(CHANGED)]).await, Ok(vec![one, Err(CHANGED)]));
    }

    #[test]
    fn listings_take_bytes_and_refuse_what_they_do_not_know() {
        let of = |query: &str| list_request(&format!("{LEASE}{query}").parse().unwrap());
        let all = of("").unwrap();
        assert_eq!((all.path, all.recursive, all.after, all.limit), (None, false, None, 100));
        let some = of("?path=d%ff&recursive=true&limit=7&cursor=ZC9h").unwrap();
        assert_eq!(some.path.as_deref(), Some(&b"d\xff"[..]));
        assert_eq!((some.recursive, some.after.as_deref(), some.limit), (true, Some(&b"d/a"[..]), 7));
        assert_eq!(of("?path=.").unwrap().path, None);
        for bad in ["?recursive=1", "?limit=x", "?cursor=%21", "?path=a&path_base64=YQ", "?depth=1"] {
            assert_eq!(of(bad).unwrap_err().code(), Code::MalformedRequest, "{bad}");
        }
    }
}
