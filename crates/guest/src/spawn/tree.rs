//! Killing what a process left behind: find every descendant, stop all of them, then kill all of them.
//!
//! The caller is a subreaper, so a descendant that loses its parent becomes the caller's child: nothing can
//! leave the tree. Each descendant is stopped the moment it is found, before its own children are looked for:
//! a fork loop cannot outrun the search for long. Only the kernel's ECHILD says that nothing is left.

use std::collections::{HashMap, HashSet};
use std::path::Path;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, getpid, kill_process};

use super::children::{Children, Left};
use crate::sys::Ended;

/// How long the killing may take before the caller gives up.
const PATIENCE: Duration = Duration::from_secs(2);

/// Rounds without any change before the caller gives up: what neither stops nor ends is beyond reach.
const STILL_ROUNDS: u32 = 10;

/// How long one round waits for a change.
const ROUND_WAIT: Duration = Duration::from_millis(100);

/// Searches of one round until no new descendant appears.
const STOP_SEARCHES: u32 = 50;

/// What [`kill`] did.
pub(super) struct Sweep {
    /// Descendants that were alive and got killed.
    pub(super) killed: HashSet<Pid>,
    /// True when nothing is left.
    pub(super) clean: bool,
}

/// Kills every descendant of the calling process and reaps it, except the trees below `spared`.
/// `ended` sees each child's end.
pub(super) fn kill(children: &Children, spared: &[Pid], mut ended: impl FnMut(Ended)) -> Sweep {
    let mut killed = HashSet::new();
    let give_up = Instant::now() + PATIENCE;
    let mut still_rounds = 0;
    while still_rounds < STILL_ROUNDS && Instant::now() < give_up {
        let before = killed.len();
        killed.extend(stop_then_kill(spared));
        let mut has_changed = killed.len() > before;
        children.take_news();
        let left = children.reap(|child| {
            has_changed = true;
            ended(child);
        });
        if left == Left::None || (!spared.is_empty() && !has_descendants(spared)) {
            return Sweep { killed, clean: true };
        }
        still_rounds = if has_changed { 0 } else { still_rounds + 1 };
        children.wait_for_news(give_up.min(Instant::now() + ROUND_WAIT));
    }
    Sweep { killed, clean: false }
}

fn stop_then_kill(spared: &[Pid]) -> HashSet<Pid> {
    let mut stopped = HashSet::new();
    for _ in 0..STOP_SEARCHES {
        let before = stopped.len();
        search(spared, |pid| {
            // It may have ended meanwhile.
            if !stopped.contains(&pid) && kill_process(pid, Signal::STOP).is_ok() && is_alive(pid) {
                stopped.insert(pid);
            }
        });
        if stopped.len() == before {
            break;
        }
    }
    for pid in &stopped {
        let _ = kill_process(*pid, Signal::KILL);
    }
    stopped
}

fn has_descendants(spared: &[Pid]) -> bool {
    let mut any = false;
    search(spared, |pid| any |= is_alive(pid));
    any
}

/// Calls `found` for each descendant of the caller, before looking for that one's own children; not for `spared`
/// and what is below them. Zombies are found too.
fn search(spared: &[Pid], mut found: impl FnMut(Pid)) {
    // A kernel without the lists of children is asked for every process there is.
    let table = children_of(getpid()).is_none().then(process_table);
    let mut pending = vec![getpid()];
    while let Some(parent) = pending.pop() {
        let below = match &table {
            Some(table) => table.get(&parent.as_raw_nonzero().get()).cloned(),
            None => children_of(parent),
        };
        for pid in below.unwrap_or_default() {
            if !spared.contains(&pid) {
                found(pid);
                pending.push(pid);
            }
        }
    }
}

/// The children of all threads of a process; `None` when it is gone or the kernel keeps no such list.
fn children_of(pid: Pid) -> Option<Vec<Pid>> {
    let mut children = Vec::new();
    for thread in std::fs::read_dir(format!("/proc/{}/task", pid.as_raw_nonzero())).ok()?.flatten() {
        let list = std::fs::read_to_string(thread.path().join("children")).ok()?;
        children.extend(list.split_ascii_whitespace().filter_map(|pid| Pid::from_raw(pid.parse().ok()?)));
    }
    Some(children)
}

/// Every process by its parent.
fn process_table() -> HashMap<i32, Vec<Pid>> {
    let mut table: HashMap<i32, Vec<Pid>> = HashMap::new();
    for entry in std::fs::read_dir("/proc").into_iter().flatten().flatten() {
        let name = entry.file_name();
        let Some(pid) = name.to_str().and_then(|name| name.parse().ok()).and_then(Pid::from_raw) else {
            continue;
        };
        if let Some((parent, _)) = stat_of(pid) {
            table.entry(parent).or_default().push(pid);
        }
    }
    table
}

/// Any thread runs: a process whose first one has ended looks like a zombie and goes on.
fn is_alive(pid: Pid) -> bool {
    let threads = || std::fs::read_dir(format!("/proc/{}/task", pid.as_raw_nonzero())).into_iter().flatten();
    let runs = |stat: &Path| stat_at(stat).is_some_and(|(_, is_zombie)| !is_zombie);
    stat_of(pid).is_some_and(|(_, is_zombie)| {
        !is_zombie || threads().flatten().any(|thread| runs(&thread.path().join("stat")))
    })
}

fn stat_of(pid: Pid) -> Option<(i32, bool)> {
    stat_at(Path::new(&format!("/proc/{}/stat", pid.as_raw_nonzero())))
}

fn stat_at(path: &Path) -> Option<(i32, bool)> {
    parse_stat(&std::fs::read(path).ok()?)
}

/// Parent pid and whether it is a zombie, from `/proc/<pid>/stat`. The name in parentheses is the process's
/// own choice and may hold anything: the fields start after the last `)`.
fn parse_stat(stat: &[u8]) -> Option<(i32, bool)> {
    let end = stat.iter().rposition(|byte| *byte == b')')?;
    let fields = std::str::from_utf8(stat.get(end + 1..)?).ok()?;
    let mut fields = fields.split_ascii_whitespace();
    let state = fields.next()?;
    let parent = fields.next()?.parse().ok()?;
    Some((parent, matches!(state, "Z" | "X")))
}

#[cfg(test)]
mod tests {
    use super::{children_of, parse_stat, process_table};

    #[test]
    fn stat_with_a_hostile_name() {
        assert_eq!(parse_stat(b"42 (sleep) S 7 42 42 0"), Some((7, false)));
        assert_eq!(parse_stat(b"42 (a) R 1 (b) Z 9 42 42 0"), Some((9, true)));
        assert_eq!(parse_stat(b"42 (\xff) ) S 3 1"), Some((3, false)));
        assert_eq!(parse_stat(b"42 (cut"), None);
    }

    #[test]
    #[expect(clippy::disallowed_methods, reason = "a test needs a child")]
    fn both_ways_find_a_child() {
        let mut child = std::process::Command::new("sleep").arg("600").spawn().unwrap();
        let pid = rustix::process::Pid::from_child(&child);
        let me = rustix::process::getpid();
        assert!(children_of(me).is_some_and(|children| children.contains(&pid)));
        assert!(process_table()[&me.as_raw_nonzero().get()].contains(&pid));
        child.kill().unwrap();
        child.wait().unwrap();
        assert_eq!(children_of(pid), None);
    }
}
