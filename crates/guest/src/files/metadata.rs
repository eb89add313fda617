//! The parts of a file's status the service looks at.

use guest::protocol::files::{Entry, EntryKind};
use rustix::fs::{FileType, Stat};

pub(super) fn kind(stat: &Stat) -> EntryKind {
    match FileType::from_raw_mode(stat.st_mode) {
        FileType::RegularFile => EntryKind::File,
        FileType::Directory => EntryKind::Directory,
        FileType::Symlink => EntryKind::Symlink,
        _ => EntryKind::Other,
    }
}

pub(super) fn size_bytes(stat: &Stat) -> u64 {
    u64::try_from(stat.st_size).unwrap_or(0)
}

/// What changes when content changes: size, inode, mtime and ctime. Times in nanoseconds since 1970 UTC, wrapped
/// around after 584 years: they are only compared.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Stamp {
    pub(super) size_bytes: u64,
    mtime_ns: i64,
    ctime_ns: i64,
    inode: u64,
}

impl Stamp {
    pub(super) fn of(stat: &Stat) -> Self {
        Self {
            size_bytes: size_bytes(stat),
            mtime_ns: wrapped_ns(stat.st_mtime, stat.st_mtime_nsec),
            ctime_ns: wrapped_ns(stat.st_ctime, stat.st_ctime_nsec),
            inode: stat.st_ino,
        }
    }
}

fn wrapped_ns(seconds: i64, nanoseconds: u64) -> i64 {
    seconds.wrapping_mul(1_000_000_000).wrapping_add_unsigned(nanoseconds)
}

pub(super) fn mtime_us(stat: &Stat) -> i64 {
    let micros = i64::try_from(stat.st_mtime_nsec / 1000).unwrap_or(0);
    stat.st_mtime.saturating_mul(1_000_000).saturating_add(micros)
}

pub(super) fn entry(path: &[u8], stat: &Stat) -> Entry {
    Entry {
        path: path.to_vec(),
        kind: kind(stat),
        size_bytes: size_bytes(stat),
        mtime_us: mtime_us(stat),
        mode: stat.st_mode & 0o7777,
    }
}
