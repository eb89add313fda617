//! Query parameters: known names only, each at most once.

use axum::extract::{FromRequestParts, Query};
use axum::http::Uri;
use axum::http::request::Parts;
use serde::de::DeserializeOwned;

use super::problem::{FieldError, Problem};
use super::raw_path::percent_decode;
use super::text::quoted;
use crate::api::PageRequest;

/// Entries on a page when the request does not say.
const PAGE_DEFAULT: usize = 100;
/// Entries on a page at most.
const PAGE_MAX: usize = 1_000;
/// Longest cursor in bytes: a workspace path in base64.
const CURSOR_BYTES_MAX: usize = 8 * 1024;

/// Parameters as `T` declares them.
pub(super) struct Params<T>(pub T);

impl<T: DeserializeOwned, S: Sync> FromRequestParts<S> for Params<T> {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Problem> {
        let Query(params) = Query::<T>::try_from_uri(&parts.uri).map_err(|rejection| {
            Problem::malformed(format!(
                "the query is not one of this route: {}",
                quoted(&rejection.body_text())
            ))
        })?;
        Ok(Self(params))
    }
}

/// A part of a list, within the bounds of pages.
pub(super) fn page(cursor: Option<String>, limit: Option<u64>) -> Result<PageRequest, Problem> {
    let limit = match limit {
        None => PAGE_DEFAULT,
        Some(limit) => {
            usize::try_from(limit).ok().filter(|limit| (1..=PAGE_MAX).contains(limit)).ok_or_else(|| {
                Problem::invalid(vec![FieldError::new("limit", format!("must be 1 to {PAGE_MAX}"))])
            })?
        }
    };
    if cursor.as_ref().is_some_and(|cursor| cursor.len() > CURSOR_BYTES_MAX) {
        return Err(Problem::malformed("the cursor is not one of this list"));
    }
    Ok(PageRequest { cursor, limit })
}

/// Parameters as raw bytes, for those that name files: percent-decoded once, `+` read as a space.
pub(super) fn raw_parameters<const N: usize>(
    uri: &Uri,
    names: [&str; N],
) -> Result<[Option<Vec<u8>>; N], Problem> {
    let mut values = [const { None }; N];
    for pair in uri.query().unwrap_or_default().split('&').filter(|pair| !pair.is_empty()) {
        let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
        let name = percent_decode(name, true)?;
        let slot = names.iter().position(|known| known.as_bytes() == name).ok_or_else(|| {
            Problem::malformed(format!(
                "the query has an unknown parameter: {}",
                quoted(&String::from_utf8_lossy(&name))
            ))
        })?;
        if values[slot].replace(percent_decode(value, true)?).is_some() {
            return Err(Problem::malformed(format!("the parameter {} is there more than once", names[slot])));
        }
    }
    Ok(values)
}

#[cfg(test)]
mod tests {
    use super::super::problem::Code;
    use super::*;

    #[test]
    fn pages_have_bounds() {
        assert_eq!(page(None, None).unwrap(), PageRequest { cursor: None, limit: 100 });
        assert_eq!(page(None, Some(1_000)).unwrap().limit, 1_000);
        for limit in [0, 1_001, u64::MAX] {
            assert_eq!(page(None, Some(limit)).unwrap_err().code(), Code::InvalidRequest);
        }
    }

    #[test]
    fn raw_parameters_keep_their_bytes() {
        let of = |target: &str| raw_parameters(&target.parse().unwrap(), ["path", "recursive"]);
        assert_eq!(of("/f").unwrap(), [None, None]);
        assert_eq!(
            of("/f?path=a%ff%2Fb+c&recursive=true").unwrap(),
            [Some(b"a\xff/b c".to_vec()), Some(b"true".to_vec())]
        );
        assert_eq!(of("/f?recursive").unwrap(), [None, Some(Vec::new())]);
        for bad in ["/f?pth=a", "/f?path=a&path=a", "/f?path=%f"] {
            assert_eq!(of(bad).unwrap_err().code(), Code::MalformedRequest, "{bad}");
        }
    }
}
