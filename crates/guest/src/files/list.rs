//! Listing: one page of a directory or a tree, sorted by the bytes of the whole path.
//!
//! A page is found by one pass that keeps the `limit` smallest paths after the cursor: memory is bounded by the
//! page, not by the directory. Subtrees that cannot contribute are not entered.

use std::collections::BTreeMap;
use std::os::fd::AsFd;

use guest::protocol::MAX_PATH_BYTES;
use guest::protocol::files::{Entry, EntryKind, FilesErrorCode, MAX_LIST_ENTRIES, Response};

use super::failure::Failure;
use super::metadata::{entry, kind};
use super::reply::Conversation;
use super::walk::{Below, walk};
use super::workspace::{Workspace, checked};

pub(super) struct Page<'a> {
    pub(super) path: &'a [u8],
    pub(super) recursive: bool,
    pub(super) limit: u32,
    pub(super) cursor: &'a [u8],
}

pub(super) fn list(
    workspace: &Workspace,
    conversation: &mut Conversation,
    page: &Page<'_>,
) -> Result<Response, Failure> {
    if !page.path.is_empty() {
        checked(page.path)?;
    }
    let directory = workspace.directory(page.path)?;
    let limit = usize::try_from(page.limit.clamp(1, MAX_LIST_ENTRIES)).unwrap_or(1);
    let mut found: BTreeMap<Vec<u8>, Entry> = BTreeMap::new();
    let mut has_more = false;
    walk(directory.as_fd(), page.path, |thing| {
        if conversation.is_cancelled() {
            return Err(FilesErrorCode::Cancelled.into());
        }
        let path = thing.path;
        // A path that is too long cannot be named on this channel at all.
        if path > page.cursor && path.len() <= MAX_PATH_BYTES {
            let is_smaller = found.last_key_value().is_none_or(|(last, _)| path < last.as_slice());
            if found.len() < limit || is_smaller {
                found.insert(path.to_vec(), entry(path, &thing.stat));
            } else {
                has_more = true;
            }
            if found.len() > limit {
                found.pop_last();
                has_more = true;
            }
        }
        let last = found.last_key_value().map(|(last, _)| last.as_slice()).filter(|_| found.len() >= limit);
        if !page.recursive || kind(&thing.stat) != EntryKind::Directory {
            return Ok(Below::Skip);
        }
        Ok(match where_below(path, page.cursor, last) {
            Subtree::Inside => Below::Enter,
            Subtree::Before => Below::Skip,
            Subtree::Behind => {
                // Whether it holds anything decides whether there is more; an empty page after this one is
                // allowed, a missed entry is not.
                has_more = true;
                Below::Skip
            }
        })
    })?;
    let next_cursor = found.last_key_value().map(|(last, _)| last.clone()).filter(|_| has_more);
    for entry in found.into_values() {
        let cost = entry.credit_bytes();
        conversation.wait_for_credit(cost)?;
        conversation.spend(cost);
        conversation.send(Response::Entry { id: conversation.id, entry });
    }
    Ok(Response::ListEnd { id: conversation.id, next_cursor })
}

/// Where everything below a path lies, relative to the page.
#[derive(Debug, PartialEq, Eq)]
enum Subtree {
    Before,
    Inside,
    Behind,
}

/// Everything below `a` sorts after `a/` and before `a0` (the byte after the slash).
fn where_below(path: &[u8], cursor: &[u8], last: Option<&[u8]>) -> Subtree {
    let from = [path, b"/"].concat();
    let until = [path, b"0"].concat();
    if cursor >= until.as_slice() {
        Subtree::Before
    } else if last.is_some_and(|last| from.as_slice() > last) {
        Subtree::Behind
    } else {
        Subtree::Inside
    }
}

#[cfg(test)]
mod tests {
    use super::{Subtree, where_below};

    #[test]
    fn subtrees_relative_to_a_page() {
        assert_eq!(where_below(b"a", b"", None), Subtree::Inside);
        assert_eq!(where_below(b"a", b"a", None), Subtree::Inside);
        assert_eq!(where_below(b"a", b"a/z", None), Subtree::Inside);
        assert_eq!(where_below(b"a", b"a0", None), Subtree::Before);
        assert_eq!(where_below(b"b", b"", Some(b"a")), Subtree::Behind);
        assert_eq!(where_below(b"b", b"", Some(b"b/x")), Subtree::Inside);
    }
}
