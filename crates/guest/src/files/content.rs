//! Digests of contents, and what one walk may spend on them.
//!
//! Hostile code makes files of any size at no cost (they are sparse): whoever reads them all never ends. So a
//! walk reads a bounded number of bytes for a bounded time, and goes on without digests.

use std::time::{Duration, Instant};

use guest::protocol::files::{EntryKind, FilesErrorCode, HASH_MAX_BYTES, HASH_MAX_MS, WALK_MAX_MS};
use rustix::fs::readlinkat;
use rustix::io::Errno;
use sha2::{Digest, Sha256};

use super::failure::Failure;
use super::metadata::{Stamp, size_bytes};
use super::walk::Found;
use super::workspace::Workspace;

/// How much of a file is read at once; between two reads a walk can be cancelled.
const HASH_BUFFER_BYTES: usize = 128 * 1024;

/// What is left of a walk's means.
pub(super) struct Budget {
    hash_bytes: u64,
    hash_until: Instant,
    walk_until: Instant,
}

impl Budget {
    /// Of a walk that begins now.
    pub(super) fn of_a_walk() -> Self {
        let hash_time = Duration::from_millis(HASH_MAX_MS);
        Self::new(HASH_MAX_BYTES, hash_time, Duration::from_millis(WALK_MAX_MS))
    }

    /// `hash_bytes` to read within `hash_time`, the whole walk within `walk_time`.
    pub(super) fn new(hash_bytes: u64, hash_time: Duration, walk_time: Duration) -> Self {
        let now = Instant::now();
        Self { hash_bytes, hash_until: now + hash_time, walk_until: now + walk_time }
    }

    /// # Errors
    /// `CannotMeasure` when the walk took too long.
    pub(super) fn check_walk(&self) -> Result<(), Failure> {
        if Instant::now() < self.walk_until { Ok(()) } else { Err(FilesErrorCode::CannotMeasure.into()) }
    }

    /// Takes a file's size out of the budget. A file that does not fit costs nothing: smaller ones still may.
    fn take(&mut self, size_bytes: u64) -> bool {
        let left = self.hash_bytes.checked_sub(size_bytes).filter(|_| self.has_time());
        self.hash_bytes = left.unwrap_or(self.hash_bytes);
        left.is_some()
    }

    fn has_time(&self) -> bool {
        Instant::now() < self.hash_until
    }
}

/// Digest of a file's content or a link's target. `None` when the budget does not allow it, or when the file
/// changed while it was read; its next status differs then, so the next walk looks again.
///
/// # Errors
/// `Cancelled`; otherwise whatever opening and reading answer.
pub(super) fn content_digest(
    workspace: &Workspace,
    found: &Found<'_>,
    kind: EntryKind,
    budget: &mut Budget,
    cancelled: &dyn Fn() -> bool,
) -> Result<Option<[u8; 32]>, Failure> {
    match kind {
        EntryKind::File => file_digest(workspace, found, budget, cancelled),
        EntryKind::Symlink => {
            Ok(Some(digest_of(readlinkat(found.parent, found.name, Vec::new())?.as_bytes())))
        }
        EntryKind::Other | EntryKind::Directory => Ok(None),
    }
}

fn file_digest(
    workspace: &Workspace,
    found: &Found<'_>,
    budget: &mut Budget,
    cancelled: &dyn Fn() -> bool,
) -> Result<Option<[u8; 32]>, Failure> {
    let (file, stat) = workspace.regular(found.parent, found.name.to_bytes())?;
    // Never more than it had: a file that grows faster than it is read has changed anyway.
    let mut left = size_bytes(&stat);
    if !budget.take(left) {
        return Ok(None);
    }
    let mut hasher = Sha256::new();
    let mut buffer = vec![0; usize::try_from(left).unwrap_or(usize::MAX).min(HASH_BUFFER_BYTES)];
    while left > 0 {
        let wanted = usize::try_from(left).unwrap_or(usize::MAX).min(buffer.len());
        match rustix::io::read(&file, &mut buffer[..wanted]) {
            Ok(0) => break,
            Ok(length) => {
                hasher.update(&buffer[..length]);
                left -= length as u64;
            }
            Err(Errno::INTR) => {}
            Err(errno) => return Err(errno.into()),
        }
        if cancelled() {
            return Err(FilesErrorCode::Cancelled.into());
        }
        if left > 0 && !budget.has_time() {
            return Ok(None);
        }
    }
    let is_unchanged = Stamp::of(&stat) == Stamp::of(&found.stat)
        && Stamp::of(&rustix::fs::fstat(&file)?) == Stamp::of(&stat);
    Ok(is_unchanged.then(|| hasher.finalize().into()))
}

/// SHA-256.
pub(super) fn digest_of(bytes: &[u8]) -> [u8; 32] {
    Sha256::digest(bytes).into()
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::fs::File;
    use std::os::unix::fs::FileExt;

    use guest::protocol::files::{Change, ChangedPath};

    use guest::protocol::files::Quota;

    use super::*;
    use crate::files::snapshot::Snapshot;

    const AMPLE: Duration = Duration::from_secs(600);

    fn never() -> bool {
        false
    }

    fn update(workspace: &Workspace, budget: &mut Budget) -> Result<Vec<Change>, Failure> {
        Ok(Snapshot::default().update(workspace, Quota::UNBOUNDED, 100, budget, &never)?.changes)
    }

    fn seen(changes: &[Change]) -> Vec<(ChangedPath, u64, bool)> {
        changes
            .iter()
            .map(|change| (change.path.clone(), change.size_bytes, change.sha256.is_some()))
            .collect()
    }

    fn path(path: &str) -> ChangedPath {
        ChangedPath::Path(path.into())
    }

    #[test]
    fn files_beyond_the_bytes_have_no_digest() {
        let root = tempfile::tempdir().unwrap();
        let workspace = Workspace::open(root.path()).unwrap();
        std::fs::create_dir(root.path().join("d")).unwrap();
        for (name, bytes) in [("a", 11), ("b", 6), ("d/c", 5)] {
            std::fs::write(root.path().join(name), vec![b'x'; bytes]).unwrap();
        }
        let changes = update(&workspace, &mut Budget::new(10, AMPLE, AMPLE)).unwrap();
        let expected = [(path("a"), 11, false), (path("b"), 6, true), (path("d/c"), 5, false)];
        assert_eq!(seen(&changes), expected, "what does not fit costs nothing");
        let changes = update(&workspace, &mut Budget::new(22, AMPLE, AMPLE)).unwrap();
        assert!(changes.iter().all(|change| change.sha256.is_some()));
    }

    #[test]
    fn a_file_without_digest_is_modified_by_any_touch_and_by_nothing_else() {
        let root = tempfile::tempdir().unwrap();
        let workspace = Workspace::open(root.path()).unwrap();
        let file = File::create(root.path().join("f")).unwrap();
        file.set_len(20).unwrap();
        let mut snapshot = Snapshot::default();
        let mut update = |bytes| {
            let mut budget = Budget::new(bytes, AMPLE, AMPLE);
            seen(&snapshot.update(&workspace, Quota::UNBOUNDED, 100, &mut budget, &never).unwrap().changes)
        };
        assert_eq!(update(10), [(path("f"), 20, false)]);
        assert_eq!(update(100), []);
        file.write_all_at(b"x", 3).unwrap();
        assert_eq!(update(10), [(path("f"), 20, false)]);
        file.write_all_at(b"y", 3).unwrap();
        assert_eq!(update(100), [(path("f"), 20, true)]);
    }

    #[test]
    fn when_the_time_is_over_the_walk_goes_on_without_digests() {
        let root = tempfile::tempdir().unwrap();
        let workspace = Workspace::open(root.path()).unwrap();
        std::fs::write(root.path().join("a"), "content").unwrap();
        let changes = update(&workspace, &mut Budget::new(1000, Duration::ZERO, AMPLE)).unwrap();
        assert_eq!(seen(&changes), [(path("a"), 7, false)]);
        let failure = update(&workspace, &mut Budget::new(1000, AMPLE, Duration::ZERO)).err();
        assert_eq!(failure, Some(FilesErrorCode::CannotMeasure.into()));
    }

    #[test]
    fn a_cancel_is_seen_within_a_file() {
        let root = tempfile::tempdir().unwrap();
        let workspace = Workspace::open(root.path()).unwrap();
        File::create(root.path().join("large")).unwrap().set_len(1 << 40).unwrap();
        let looks = Cell::new(0);
        let cancelled = || {
            looks.set(looks.get() + 1);
            looks.get() > 3
        };
        let mut budget = Budget::new(u64::MAX, AMPLE, AMPLE);
        let answer = Snapshot::default().update(&workspace, Quota::UNBOUNDED, 100, &mut budget, &cancelled);
        assert_eq!(answer.err(), Some(FilesErrorCode::Cancelled.into()));
        assert_eq!(looks.get(), 4);
    }
}
