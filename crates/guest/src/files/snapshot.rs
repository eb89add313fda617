//! What the workspace held when it was last looked at, and what changed since.
//!
//! Files, symbolic links and special files are remembered, with a content digest; directories are only
//! measured. A digest is computed anew only when size, mtime, ctime or inode differ, and only within the walk's
//! budget: a file beyond it is remembered, and reported, without one.

use std::collections::BTreeMap;
use std::ops::Bound;

use guest::protocol::MAX_PATH_BYTES;
use guest::protocol::files::{Change, ChangeKind, ChangedPath, EntryKind, FilesErrorCode, Quota, Usage};
use rustix::fs::Stat;

use super::content::{Budget, content_digest, digest_of};
use super::failure::Failure;
use super::metadata::{Stamp, kind};
use super::meter::Meter;
use super::walk::{Below, Found, walk};
use super::workspace::Workspace;

/// Most memory a baseline, and a walk beside it, may take in bytes: room for a million files, and well within the
/// container's. Beyond, the workspace cannot be measured.
const MAX_MEMORY_BYTES: usize = 288 << 20;

/// What one remembered path costs besides its bytes: half empty nodes of the map, the path's own allocation.
const RECORD_BYTES: usize = 208;

/// What one changed record costs until the walk ends, besides its path: the list may grow by doubling.
const MODIFIED_BYTES: usize = 320;

/// A path, or for one that is too long to be addressed, NUL, its digest and its length: no path holds NUL.
type Key = Box<[u8]>;

#[derive(Debug, Clone)]
struct Record {
    kind: EntryKind,
    stamp: Stamp,
    /// Of the content, or of a link's target. `None`: could not be read unchanged, or not within the budget.
    sha256: Option<[u8; 32]>,
    /// Number of the walk that saw it last.
    seen: u32,
    /// Number of the walk that saw it first.
    born: u32,
}

/// The baseline.
#[derive(Default)]
pub(super) struct Snapshot {
    records: BTreeMap<Key, Record>,
    key_bytes: usize,
    walks: u32,
}

/// What a walk found out.
pub(super) struct Difference {
    /// The first ones by path, as many as asked for.
    pub(super) changes: Vec<Change>,
    pub(super) total_changes: u64,
    pub(super) usage: Usage,
}

impl Snapshot {
    /// Walks the workspace, reports what differs from the baseline and moves it. A failed walk moves nothing.
    pub(super) fn update(
        &mut self,
        workspace: &Workspace,
        quota: Quota,
        max_changes: usize,
        budget: &mut Budget,
        cancelled: &dyn Fn() -> bool,
    ) -> Result<Difference, Failure> {
        self.walks += 1;
        let mut meter = Meter::new(quota);
        let mut first = First { max: max_changes, changes: BTreeMap::new(), total: 0 };
        let mut modified: Vec<(Key, Record)> = Vec::new();
        let mut modified_bytes = 0;
        let walked = walk(workspace.root(), b"", |found| {
            if cancelled() {
                return Err(FilesErrorCode::Cancelled.into());
            }
            budget.check_walk()?;
            meter.add(&found.stat)?;
            if self.memory_bytes() + modified_bytes + meter.memory_bytes() > MAX_MEMORY_BYTES {
                return Err(FilesErrorCode::CannotMeasure.into());
            }
            if kind(&found.stat) == EntryKind::Directory {
                return Ok(Below::Enter);
            }
            if let Some((key, record)) = self.look(workspace, found, &mut first, budget, cancelled)? {
                modified_bytes += MODIFIED_BYTES + key.len();
                modified.push((key, record));
            }
            Ok(Below::Skip)
        });
        if let Err(failure) = walked {
            let born = self.walks;
            self.drop_records(|_, record| record.born == born);
            return Err(failure);
        }
        self.settle(modified, &mut first);
        let changes = first.changes.into_values().collect();
        Ok(Difference { changes, total_changes: first.total, usage: meter.usage() })
    }

    /// Compares one thing with its record. A new one is recorded at once (a failed walk takes it back), a changed
    /// one is given back to be recorded at the end.
    fn look(
        &mut self,
        workspace: &Workspace,
        found: &Found<'_>,
        first: &mut First,
        budget: &mut Budget,
        cancelled: &dyn Fn() -> bool,
    ) -> Result<Option<(Key, Record)>, Failure> {
        let (kind, stamp, seen) = (kind(&found.stat), Stamp::of(&found.stat), self.walks);
        let key = key_of(found.path);
        let old = self.records.get_mut(&key);
        let born = match old {
            Some(old) if old.kind == kind && old.stamp == stamp => {
                old.seen = seen;
                return Ok(None);
            }
            Some(old) => old.born,
            None => seen,
        };
        let sha256 = match content_digest(workspace, found, kind, budget, cancelled) {
            Ok(sha256) => sha256,
            Err(failure) => match failure.code {
                FilesErrorCode::Cancelled => return Err(failure),
                // It cannot be read: it is there none the less.
                FilesErrorCode::Io => None,
                // It vanished between its status and its opening, or became something else: not there.
                _ => return Ok(None),
            },
        };
        let record = Record { kind, stamp, sha256, seen, born };
        if born != seen {
            return Ok(Some((key, record)));
        }
        first.add(&key, ChangeKind::Created, &record);
        self.insert(key, record);
        Ok(None)
    }

    /// The walk succeeded: takes over what changed, drops what is gone.
    fn settle(&mut self, modified: Vec<(Key, Record)>, first: &mut First) {
        for (key, record) in modified {
            if self.records.get(&key).is_none_or(|old| !is_same_content(old, &record)) {
                first.add(&key, ChangeKind::Modified, &record);
            }
            self.insert(key, record);
        }
        let seen = self.walks;
        self.drop_records(|key, record| {
            let is_gone = record.seen != seen;
            if is_gone {
                first.add(key, ChangeKind::Deleted, record);
            }
            is_gone
        });
    }

    fn drop_records(&mut self, mut is_gone: impl FnMut(&Key, &Record) -> bool) {
        let key_bytes = &mut self.key_bytes;
        self.records.retain(|key, record| {
            let is_gone = is_gone(key, record);
            if is_gone {
                *key_bytes -= key.len();
            }
            !is_gone
        });
    }

    /// Remembered paths (count).
    pub(super) fn len(&self) -> usize {
        self.records.len()
    }

    fn memory_bytes(&self) -> usize {
        self.records.len() * RECORD_BYTES + self.key_bytes
    }

    fn insert(&mut self, key: Key, record: Record) {
        let length = key.len();
        if self.records.insert(key, record).is_none() {
            self.key_bytes += length;
        }
    }

    /// Notes what the API wrote, so that it is no command's change.
    pub(super) fn record_written(&mut self, path: &[u8], stat: &Stat, sha256: [u8; 32]) {
        let record = Record {
            kind: EntryKind::File,
            stamp: Stamp::of(stat),
            sha256: Some(sha256),
            seen: self.walks,
            born: 0,
        };
        self.insert(key_of(path), record);
    }

    /// Notes what the API removed: the path and everything below it.
    pub(super) fn forget(&mut self, path: &[u8]) {
        let below = [path, b"/"].concat();
        let gone: Vec<Key> = self
            .records
            .range::<[u8], _>((Bound::Included(path), Bound::Unbounded))
            .map(|(key, _)| key)
            .take_while(|key| key.starts_with(path))
            .filter(|key| key.len() == path.len() || key.starts_with(&below))
            .cloned()
            .collect();
        for key in gone {
            self.key_bytes -= key.len();
            self.records.remove(&key);
        }
    }
}

/// The first changes by path, however many there are.
struct First {
    max: usize,
    changes: BTreeMap<Key, Change>,
    total: u64,
}

impl First {
    fn add(&mut self, key: &Key, change: ChangeKind, record: &Record) {
        self.total += 1;
        let is_before = |last: (&Key, &Change)| key < last.0;
        if self.changes.len() < self.max || self.changes.last_key_value().is_some_and(is_before) {
            self.changes.insert(key.clone(), changed(key, change, record));
        }
        if self.changes.len() > self.max {
            self.changes.pop_last();
        }
    }
}

fn key_of(path: &[u8]) -> Key {
    if path.len() <= MAX_PATH_BYTES {
        return path.into();
    }
    let mut key = vec![0];
    key.extend_from_slice(&digest_of(path));
    key.extend_from_slice(&(path.len() as u64).to_le_bytes());
    key.into()
}

fn changed_path(key: &[u8]) -> ChangedPath {
    if let Some(rest) = key.strip_prefix(&[0])
        && let Some((sha256, length)) = rest.split_first_chunk::<32>()
        && let Ok(length) = length.try_into()
    {
        return ChangedPath::Digest { sha256: *sha256, path_bytes: u64::from_le_bytes(length) };
    }
    ChangedPath::Path(key.to_vec())
}

fn changed(key: &[u8], change: ChangeKind, record: &Record) -> Change {
    let is_there = record.kind == EntryKind::File && change != ChangeKind::Deleted;
    Change {
        path: changed_path(key),
        change,
        kind: record.kind,
        size_bytes: if is_there { record.stamp.size_bytes } else { 0 },
        sha256: record.sha256.filter(|_| is_there),
    }
}

fn is_same_content(old: &Record, new: &Record) -> bool {
    old.kind == new.kind
        && match new.kind {
            // A special file has no content: it is the same while it is of the same kind.
            EntryKind::Other => true,
            EntryKind::File | EntryKind::Symlink | EntryKind::Directory => {
                old.sha256.is_some() && old.sha256 == new.sha256
            }
        }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn resident_bytes() -> usize {
        let status = std::fs::read_to_string("/proc/self/status").unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
        line.trim().trim_end_matches(" kB").parse::<usize>().unwrap() * 1024
    }

    #[test]
    fn a_baseline_takes_no_more_memory_than_it_is_charged() {
        let stamp = Stamp::of(&rustix::fs::stat("/").unwrap());
        let record = Record { kind: EntryKind::File, stamp, sha256: Some([7; 32]), seen: 1, born: 1 };
        // Kept, so that the second one takes nothing that the first one gave back.
        let mut kept = Vec::new();
        for is_sorted in [true, false] {
            let mut snapshot = Snapshot::default();
            let before = resident_bytes();
            for index in 0..200_000_u32 {
                let place = if is_sorted { index } else { index.wrapping_mul(2_654_435_761) };
                snapshot.insert(key_of(format!("{place:010}").as_bytes()), record.clone());
            }
            let taken = resident_bytes().saturating_sub(before);
            assert!(taken > 200_000 * size_of::<Record>(), "{taken} bytes: something was measured");
            assert!(taken <= snapshot.memory_bytes(), "{taken} > {}", snapshot.memory_bytes());
            kept.push(snapshot);
        }
        // With paths of 40 bytes, and a walk beside it.
        const {
            let one = RECORD_BYTES + 40 + crate::files::meter::SEEN_BYTES;
            assert!(1_000_000 * one < MAX_MEMORY_BYTES, "a million files fit");
        }
    }
}
