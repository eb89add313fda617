//! What a tree holds: blocks, sizes and inodes of every kind, each inode once: it may have several names, and what moves ahead
//! of the walk is met again.

use std::collections::HashSet;
use std::os::fd::OwnedFd;
use std::time::Duration;

use guest::protocol::files::{EntryKind, FilesErrorCode, MEASURE_MAX_MS, NAMES_PER_INODE, Quota, Usage};
use rustix::fs::{Mode, OFlags, Stat, fstat, openat};
use rustix::io::Errno;

use super::content::Budget;
use super::failure::Failure;
use super::metadata::{kind, size_bytes};
use super::walk::{Below, Found, walk};
use super::workspace::Workspace;

/// What one inode costs during a walk: its number in a set that grows by doubling.
pub(super) const SEEN_BYTES: usize = 32;

/// Names that a small quota allows all the same.
const NAMES_MIN: u64 = 10_000;

/// Adds up one walk.
pub(super) struct Meter {
    usage: Usage,
    seen: HashSet<u64>,
    /// Names of inodes that were met before.
    further_names: u64,
    further_names_max: u64,
}

impl Meter {
    /// For a tree that may hold this much.
    pub(super) fn new(quota: Quota) -> Self {
        let further_names_max = quota.inodes_max.saturating_mul(NAMES_PER_INODE).max(NAMES_MIN);
        Self { usage: Usage::default(), seen: HashSet::new(), further_names: 0, further_names_max }
    }

    pub(super) fn usage(&self) -> Usage {
        self.usage
    }

    pub(super) fn memory_bytes(&self) -> usize {
        self.seen.len() * SEEN_BYTES
    }

    /// Takes back what was counted and is gone by now.
    fn forget(&mut self, stat: &Stat) {
        self.seen.remove(&stat.st_ino);
        let usage = &mut self.usage;
        usage.inodes = usage.inodes.saturating_sub(1);
        usage.allocated_bytes = usage.allocated_bytes.saturating_sub(allocated_bytes(stat));
        usage.apparent_bytes = usage.apparent_bytes.saturating_sub(size_bytes(stat));
    }

    /// Adds one name; true when its inode was not met before.
    ///
    /// # Errors
    /// `CannotMeasure` at too many names. However many inodes there are, they are measured: only what is known to be too much can be
    /// worked down.
    pub(super) fn add(&mut self, stat: &Stat) -> Result<bool, Failure> {
        if !self.seen.insert(stat.st_ino) {
            self.further_names += 1;
            return if self.further_names > self.further_names_max {
                Err(FilesErrorCode::CannotMeasure.into())
            } else {
                Ok(false)
            };
        }
        let kind = kind(stat);
        let is_directory = kind == EntryKind::Directory;
        let usage = &mut self.usage;
        usage.inodes += 1;
        usage.allocated_bytes = usage.allocated_bytes.saturating_add(allocated_bytes(stat));
        if !is_directory {
            // Hostile sparse files add up to more than a number holds.
            usage.apparent_bytes = usage.apparent_bytes.saturating_add(size_bytes(stat));
        }
        if kind == EntryKind::File {
            usage.largest_bytes = usage.largest_bytes.max(size_bytes(stat));
        }
        Ok(true)
    }
}

/// Bytes of the blocks that something takes.
pub(super) fn allocated_bytes(stat: &Stat) -> u64 {
    u64::try_from(stat.st_blocks).unwrap_or(0).saturating_mul(512)
}

/// The large files of a walk, held so that they can be asked at its end whether they still have a name: a program that removes one here
/// and makes another there has never had both. By descriptors, because names change while they are looked for.
struct Large {
    bytes_min: u64,
    held: Vec<(OwnedFd, Stat)>,
}

/// A file is large from this part of the limit on: so many of them fit that all can be held.
const LARGE_PARTS: u64 = 64;

impl Large {
    /// None is held where the kernel itself knows what there is: it would keep the room of one that is removed.
    fn new(stop: Quota, is_in_memory: bool) -> Self {
        let bytes_min = if is_in_memory { u64::MAX } else { (stop.bytes_max / LARGE_PARTS).max(1) };
        Self { bytes_min, held: Vec::new() }
    }

    /// Takes hold of a large file; `None` when it has gone since it was looked at. Otherwise what is under the name, and the file that
    /// is to be kept when it counts.
    fn hold(&self, found: &Found<'_>) -> Option<(Stat, Option<OwnedFd>)> {
        let is_large = allocated_bytes(&found.stat).max(size_bytes(&found.stat)) >= self.bytes_min;
        if !is_large || kind(&found.stat) != EntryKind::File {
            return Some((found.stat, None));
        }
        let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        match openat(found.parent, found.name, flags, Mode::empty()) {
            Ok(file) => fstat(&file).ok().map(|stat| (stat, Some(file))),
            Err(Errno::NOENT) => None,
            // One that cannot be held counts as one that stays.
            Err(_) => Some((found.stat, None)),
        }
    }

    /// Takes back the ones that have no name any more. Whoever has them open still holds them without one.
    fn forget_nameless(&mut self, meter: &mut Meter) {
        self.held.retain(|(file, stat)| {
            let is_named = !fstat(file).is_ok_and(|now| now.st_nlink == 0);
            if !is_named {
                meter.forget(stat);
            }
            is_named
        });
    }
}

/// Walks the whole workspace, or as far as more than `stop` was found: what was found, and whether it is all.
pub(super) fn measure(
    workspace: &Workspace,
    quota: Quota,
    stop: Quota,
    cancelled: &dyn Fn() -> bool,
) -> Result<(Usage, bool), Failure> {
    let budget = Budget::new(0, Duration::ZERO, Duration::from_millis(MEASURE_MAX_MS));
    let mut meter = Meter::new(quota);
    let mut large = Large::new(stop, workspace.is_in_memory()?);
    let mut is_over = false;
    let walked = walk(workspace.root(), b"", |found| {
        if cancelled() {
            return Err(FilesErrorCode::Cancelled.into());
        }
        budget.check_walk()?;
        let Some((stat, file)) = large.hold(found) else { return Ok(Below::Skip) };
        if meter.add(&stat)? {
            large.held.extend(file.map(|file| (file, stat)));
        }
        if stop.is_exceeded_by(&meter.usage) {
            large.forget_nameless(&mut meter);
        }
        is_over = stop.is_exceeded_by(&meter.usage);
        // Any error ends the walk; this one is taken back below.
        if is_over { Err(FilesErrorCode::Cancelled.into()) } else { Ok(Below::Enter) }
    });
    if !is_over {
        walked?;
    }
    Ok((meter.usage, !is_over))
}

#[cfg(test)]
mod tests {
    use super::*;

    const NEVER: &dyn Fn() -> bool = &|| false;

    fn tree() -> (tempfile::TempDir, Workspace) {
        let root = tempfile::tempdir().unwrap();
        let workspace = Workspace::open(root.path()).unwrap();
        (root, workspace)
    }

    fn quota(bytes_max: u64, inodes_max: u64) -> Quota {
        Quota { bytes_max, inodes_max }
    }

    #[test]
    fn it_stops_as_soon_as_there_is_more() {
        let (root, workspace) = tree();
        for number in 0..100 {
            std::fs::write(root.path().join(number.to_string()), [7; 5000]).unwrap();
        }
        let all = measure(&workspace, Quota::UNBOUNDED, Quota::UNBOUNDED, NEVER).unwrap();
        assert!(all.1 && all.0.inodes == 100 && all.0.apparent_bytes == 500_000);
        assert_eq!(all.0.largest_bytes, 5000);
        assert!(all.0.used_bytes() >= 500_000);
        let (part, complete) = measure(&workspace, Quota::UNBOUNDED, quota(u64::MAX, 9), NEVER).unwrap();
        assert_eq!((part.inodes, complete), (10, false));
        let (part, complete) = measure(&workspace, Quota::UNBOUNDED, quota(50_000, 100), NEVER).unwrap();
        assert!(!complete && part.used_bytes() > 50_000 && part.inodes < 12, "{part:?}");
        let cancelled = measure(&workspace, Quota::UNBOUNDED, Quota::UNBOUNDED, &|| true);
        assert_eq!(cancelled, Err(FilesErrorCode::Cancelled.into()));
    }

    /// A file that is removed in one directory when the next one has its size was never there together with it.
    #[test]
    fn what_moves_from_place_to_place_is_never_there_twice() {
        const FILE_BYTES: u64 = 36 << 20;
        let (root, workspace) = tree();
        let places = ["a/f", "b/f"].map(|place| root.path().join(place));
        for place in &places {
            std::fs::create_dir(place.parent().unwrap()).unwrap();
        }
        std::fs::File::create(&places[0]).unwrap().set_len(FILE_BYTES).unwrap();
        let alternate = || {
            let (from, to) = if places[0].exists() { (0, 1) } else { (1, 0) };
            let next = std::fs::File::create(&places[to]).unwrap();
            std::fs::remove_file(&places[from]).unwrap();
            next.set_len(FILE_BYTES).unwrap();
            false
        };
        for _ in 0..200 {
            let (usage, complete) =
                measure(&workspace, Quota::UNBOUNDED, quota(64 << 20, 100), &alternate).unwrap();
            assert!(complete && usage.used_bytes() < 64 << 20, "{usage:?}");
        }
        std::fs::File::create(root.path().join("b/g")).unwrap().set_len(FILE_BYTES).unwrap();
        let (usage, complete) = measure(&workspace, Quota::UNBOUNDED, quota(64 << 20, 100), NEVER).unwrap();
        assert!(!complete && usage.used_bytes() >= 2 * FILE_BYTES, "{usage:?}");
    }

    #[test]
    fn sparse_giants_add_up_without_an_overflow() {
        let (root, workspace) = tree();
        for number in 0..3 {
            let file = std::fs::File::create(root.path().join(number.to_string())).unwrap();
            file.set_len(1 << 43).unwrap();
        }
        let (usage, _) = measure(&workspace, Quota::UNBOUNDED, Quota::UNBOUNDED, NEVER).unwrap();
        assert_eq!((usage.apparent_bytes, usage.used_bytes()), (3 << 43, 3 << 43));
        let mut meter = Meter::new(Quota::UNBOUNDED);
        let mut stat = rustix::fs::stat(root.path().join("0")).unwrap();
        stat.st_size = i64::MAX;
        for inode in 1..=3 {
            stat.st_ino = inode;
            meter.add(&stat).unwrap();
        }
        assert_eq!(meter.usage().apparent_bytes, u64::MAX);
    }

    #[test]
    fn names_without_inodes_are_not_measured_for_ever() {
        let (root, workspace) = tree();
        std::fs::write(root.path().join("file"), "x").unwrap();
        for number in 0..=NAMES_MIN {
            std::fs::hard_link(root.path().join("file"), root.path().join(number.to_string())).unwrap();
        }
        let refused = measure(&workspace, quota(1 << 30, 100), quota(1 << 30, 100), NEVER);
        assert_eq!(refused, Err(FilesErrorCode::CannotMeasure.into()));
        let (usage, complete) = measure(&workspace, quota(1, NAMES_MIN), Quota::UNBOUNDED, NEVER).unwrap();
        assert_eq!((usage.inodes, complete), (1, true), "hard links count once");
    }

    #[test]
    fn inodes_far_beyond_the_quota_are_measured() {
        let (root, workspace) = tree();
        for number in 0..NAMES_MIN + 10 {
            std::fs::create_dir(root.path().join(number.to_string())).unwrap();
        }
        let (usage, complete) = measure(&workspace, quota(1 << 30, 100), Quota::UNBOUNDED, NEVER).unwrap();
        assert_eq!((usage.inodes, complete), (NAMES_MIN + 10, true));
    }
}
