//! What deleted files still take: a walk does not see them while a process has them open.
//!
//! Every descriptor of the commands' processes is looked at, as their own user: only that user may. The search goes
//! on in short turns between everything else that spawn does, and ends when it has found more than was asked for.
//!
//! A process can hide its descriptors (it makes itself undumpable). Ours does between its start and its exec, however long somebody
//! holds it up there: a child of a shim whose command has not started yet is known by its parent, and holds nothing. The kernel does so for a
//! moment in other places. So once is an accident, and again is hiding. Threads of one process share their
//! descriptors (the seccomp profile sees to it), and one that outlived its process's first thread shows them too.
//!
//! An answer also says what the search before it found as well: that had no name all the time between the two, so that a walk
//! made meanwhile did not count it.

use std::collections::HashSet;
use std::ffi::CStr;
use std::mem::take;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::time::{Duration, Instant};

use guest::protocol::spawn::{MEASURE_MAX_MS, ToHost};
use rustix::fs::{
    AtFlags, CWD, Dir, Mode, OFlags, Stat, StatxFlags, openat, readlinkat, stat, statat, statx,
};
use rustix::io::Errno;

use super::identity::Borrowed;

/// How long one turn of a search may take.
const TURN: Duration = Duration::from_millis(2);

/// Descriptors looked at between two looks at the clock.
const BATCH: usize = 64;

/// Scans in a row with any hidden process that are no accident.
const HIDDEN_SCANS_MAX: u32 = 3;

const DIRECTORY: OFlags = OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::CLOEXEC);

/// A question of the host.
#[derive(Debug, Clone, Copy)]
pub(super) struct Question {
    pub(super) token: u64,
    pub(super) uid: u32,
    pub(super) gid: u32,
    pub(super) bytes_max: u64,
    pub(super) inodes_max: u64,
}

/// One file's life: its number is another's as soon as it is gone. The second is its birth in nanoseconds, 0 where the kernel does
/// not tell.
type Life = (u64, u64);

/// What is remembered from search to search.
#[derive(Debug, Default)]
pub(super) struct Memory {
    hidden: Hidden,
    found: HashSet<Life>,
}

/// Which processes hid their descriptors lately.
#[derive(Debug, Default)]
struct Hidden {
    last: HashSet<u32>,
    scans: u32,
}

impl Hidden {
    /// Takes a scan's list; true when it is no accident.
    fn is_hiding(&mut self, now: HashSet<u32>) -> bool {
        let again = now.intersection(&self.last).next().is_some();
        self.scans = if now.is_empty() { 0 } else { self.scans + 1 };
        self.last = now;
        again || self.scans >= HIDDEN_SCANS_MAX
    }
}

/// One search.
pub(super) struct Scan {
    question: Question,
    device: u64,
    /// Threads may have descriptors of their own: no filter of system calls sees to it that they share them.
    every_thread: bool,
    /// Set by the first turn.
    until: Option<Instant>,
    /// Processes, and threads of a process.
    pending: Vec<(u32, Option<u32>)>,
    current: Option<Descriptors>,
    seen: HashSet<u64>,
    lives: HashSet<Life>,
    bytes: u64,
    /// The part that the search before found as well: files and their bytes.
    kept: (u64, u64),
    hidden: HashSet<u32>,
    /// Shims whose commands were on their way to their programs meanwhile.
    starting: HashSet<u32>,
    failed: bool,
}

/// What is left to look at of one process.
struct Descriptors {
    pid: u32,
    directory: OwnedFd,
    entries: Dir,
}

impl Scan {
    pub(super) fn begin(question: Question, workspace: &Path, every_thread: bool) -> Self {
        let device = stat(workspace).map(|stat| stat.st_dev);
        let pending = processes();
        let failed = device.is_err() || pending.is_none();
        Self {
            question,
            device: device.unwrap_or(0),
            every_thread,
            until: None,
            pending: pending.unwrap_or_default().into_iter().map(|pid| (pid, None)).collect(),
            current: None,
            seen: HashSet::new(),
            lives: HashSet::new(),
            bytes: 0,
            kept: (0, 0),
            hidden: HashSet::new(),
            starting: HashSet::new(),
            failed,
        }
    }

    /// Goes on for one turn; the answer, once there is one. `starting` are the shims whose commands have not reached their programs.
    pub(super) fn turn(
        &mut self,
        memory: &mut Memory,
        starting: impl Iterator<Item = u32>,
    ) -> Option<ToHost> {
        self.starting.extend(starting);
        let now = Instant::now();
        let until = now + TURN;
        let all_until = *self.until.get_or_insert(now + Duration::from_millis(MEASURE_MAX_MS));
        let is_cut = !self.failed && {
            let user = Borrowed::take(self.question.uid, self.question.gid);
            self.failed |= user.is_none();
            loop {
                if self.failed || self.is_over() || Instant::now() > all_until {
                    break true;
                }
                if !self.look(&memory.found) {
                    break false;
                }
                if Instant::now() > until && !self.failed {
                    return None;
                }
            }
        };
        let is_hiding = memory.hidden.is_hiding(take(&mut self.hidden));
        let readable = !self.failed && !is_hiding;
        let deleted_inodes = self.seen.len() as u64;
        memory.found = take(&mut self.lives);
        Some(ToHost::Measured {
            token: self.question.token,
            deleted_bytes: self.bytes,
            deleted_inodes,
            kept_bytes: self.kept.1,
            kept_inodes: self.kept.0,
            complete: readable && !is_cut,
            readable,
        })
    }

    fn is_over(&self) -> bool {
        self.bytes > self.question.bytes_max || self.seen.len() as u64 > self.question.inodes_max
    }

    /// Looks at some descriptors of one process; false when there is none left.
    fn look(&mut self, before: &HashSet<Life>) -> bool {
        let Some(mut descriptors) = self.current.take() else {
            let Some((pid, thread)) = self.pending.pop() else { return false };
            match self.open(pid, thread) {
                Ok(descriptors) => self.current = descriptors,
                Err(Errno::ACCESS | Errno::PERM) => self.hides(pid),
                Err(Errno::NOENT | Errno::SRCH) => {}
                Err(_) => self.failed = true,
            }
            return true;
        };
        for _ in 0..BATCH {
            let entry = match descriptors.entries.read() {
                Some(Ok(entry)) => entry,
                None | Some(Err(Errno::NOENT | Errno::SRCH)) => return true,
                Some(Err(_)) => {
                    self.failed = true;
                    return true;
                }
            };
            match self.add(&descriptors.directory, entry.file_name(), before) {
                // Closed meanwhile, or the process has ended.
                Ok(()) | Err(Errno::NOENT | Errno::SRCH) => {}
                Err(Errno::ACCESS | Errno::PERM) => {
                    if has_memory(descriptors.pid) {
                        self.hides(descriptors.pid);
                    }
                    return true;
                }
                Err(_) => self.failed = true,
            }
            if self.is_over() {
                break;
            }
        }
        self.current = Some(descriptors);
        true
    }

    fn hides(&mut self, pid: u32) {
        let parent = status(pid, b"PPid:").and_then(|parent| parent.parse().ok());
        if !parent.is_some_and(|parent| self.starting.contains(&parent)) {
            self.hidden.insert(pid);
        }
    }

    /// `None` for a process of somebody else.
    fn open(&mut self, pid: u32, thread: Option<u32>) -> Result<Option<Descriptors>, Errno> {
        let open = |path: String| openat(CWD, path, DIRECTORY, Mode::empty());
        if let Some(thread) = thread {
            let directory = open(format!("/proc/{pid}/task/{thread}/fd"))?;
            let entries = Dir::read_from(&directory)?;
            return Ok(Some(Descriptors { pid, directory, entries }));
        }
        // The directory's owner is the process's own user, dumpable or not; what gVisor says is checked.
        if stat(format!("/proc/{pid}"))?.st_uid != self.question.uid
            && user_of(pid) != Some(self.question.uid)
        {
            return Ok(None);
        }
        if self.every_thread {
            self.pending.extend(other_threads(pid).map(|thread| (pid, Some(thread))));
        }
        let directory = match open(format!("/proc/{pid}/fd")) {
            // Its first thread has ended: it is over, or goes on without it.
            Err(Errno::ACCESS | Errno::PERM) if !has_memory(pid) => {
                match other_threads(pid).find_map(|thread| open(format!("/proc/{pid}/task/{thread}/fd")).ok())
                {
                    Some(directory) => directory,
                    None => return Ok(None),
                }
            }
            opened => opened?,
        };
        let entries = Dir::read_from(&directory)?;
        Ok(Some(Descriptors { pid, directory, entries }))
    }

    fn add(&mut self, directory: &OwnedFd, name: &CStr, before: &HashSet<Life>) -> Result<(), Errno> {
        if matches!(name.to_bytes(), b"." | b"..") {
            return Ok(());
        }
        let stat = statat(directory, name, AtFlags::empty())?;
        if stat.st_dev != self.device || !is_deleted(directory, name, &stat)? {
            return Ok(());
        }
        if self.seen.insert(stat.st_ino) {
            let blocks = u64::try_from(stat.st_blocks).unwrap_or(0).saturating_mul(512);
            let size = u64::try_from(stat.st_size).unwrap_or(0);
            self.bytes = self.bytes.saturating_add(blocks.max(size));
            // One that was closed meanwhile, or whose number is another's by now, was not kept.
            let Some(life) = life(directory, name).filter(|life| life.0 == stat.st_ino) else {
                return Ok(());
            };
            self.lives.insert(life);
            if before.contains(&life) {
                self.kept = (self.kept.0 + 1, self.kept.1.saturating_add(blocks.max(size)));
            }
        }
        Ok(())
    }
}

/// No name is left; or, where the count of names cannot be trusted, the text says so and is not a name itself.
fn is_deleted(directory: impl AsFd, name: &CStr, open: &Stat) -> Result<bool, Errno> {
    if open.st_nlink == 0 {
        return Ok(true);
    }
    let text = match readlinkat(directory, name, Vec::new()) {
        // Linux says no path that is longer than a page, and its count of names can be trusted. gVisor says every path.
        Err(Errno::NAMETOOLONG) => return Ok(false),
        text => text?,
    };
    if !text.as_bytes().ends_with(b" (deleted)") {
        return Ok(false);
    }
    Ok(stat(&text).map_or(true, |named| (named.st_dev, named.st_ino) != (open.st_dev, open.st_ino)))
}

fn life(directory: impl AsFd, name: &CStr) -> Option<Life> {
    let found = statx(directory, name, AtFlags::empty(), StatxFlags::INO | StatxFlags::BTIME).ok()?;
    let is_told = found.stx_mask & StatxFlags::BTIME.bits() != 0;
    let seconds = u64::try_from(found.stx_btime.tv_sec).unwrap_or(0);
    let birth = seconds.saturating_mul(1_000_000_000).saturating_add(found.stx_btime.tv_nsec.into());
    Some((found.stx_ino, if is_told { birth } else { 0 }))
}

fn processes() -> Option<Vec<u32>> {
    let entries = std::fs::read_dir("/proc").ok()?;
    Some(entries.flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect())
}

/// The first word after a name in a process's status, which everybody may read. The first field is the process's own name:
/// where its line ends are not escaped (gVisor) it can hold lines of the process's choice, so the last match counts.
fn status(pid: u32, name: &[u8]) -> Option<String> {
    let status = std::fs::read(format!("/proc/{pid}/status")).ok()?;
    let line = status.rsplit(|byte| *byte == b'\n').find_map(|line| line.strip_prefix(name))?;
    Some(std::str::from_utf8(line).ok()?.split_ascii_whitespace().next()?.to_owned())
}

/// The real user of a process.
fn user_of(pid: u32) -> Option<u32> {
    status(pid, b"Uid:")?.parse().ok()
}

/// False for a process whose first thread is ending or has ended: its descriptors are nobody's to read any more.
fn has_memory(pid: u32) -> bool {
    status(pid, b"VmSize:").is_some()
}

fn other_threads(pid: u32) -> impl Iterator<Item = u32> {
    let threads = std::fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    let ids = threads.filter_map(|thread| thread.file_name().to_str()?.parse().ok());
    ids.filter(move |thread| *thread != pid)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn once_is_an_accident_and_again_is_hiding() {
        let mut hidden = Hidden::default();
        let set = |pids: &[u32]| pids.iter().copied().collect::<HashSet<_>>();
        assert!(!hidden.is_hiding(set(&[7])));
        assert!(!hidden.is_hiding(set(&[])));
        assert!(!hidden.is_hiding(set(&[7])));
        assert!(hidden.is_hiding(set(&[7, 8])), "the same one again");
        assert!(!hidden.is_hiding(set(&[])));
        assert!(!hidden.is_hiding(set(&[1])));
        assert!(!hidden.is_hiding(set(&[2])));
        assert!(hidden.is_hiding(set(&[3])), "handed from one to the next");
    }

    #[test]
    fn a_process_is_asked_whose_it_is() {
        let me = rustix::process::getuid().as_raw();
        assert_eq!(user_of(std::process::id()), Some(me));
        assert!(processes().unwrap().contains(&std::process::id()));
    }
}
