//! Killing what a process left behind: find every descendant, stop all of them, then kill all of them.
//!
//! The caller is a subreaper, so a descendant that loses its parent becomes the caller's child: nothing can
//! leave the tree. Stopping first keeps a fork loop from outrunning the kill.

use std::collections::{HashMap, HashSet};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, WaitStatus, kill_process};

use super::children::{Children, Left};

/// Attempts before giving up.
const ROUNDS: u32 = 10;

/// Scans of one round until no new descendant appears.
const STOP_SCANS: u32 = 50;

/// How long one round waits for the killed to be gone.
const ROUND_WAIT: Duration = Duration::from_millis(100);

/// What [`kill`] did.
pub(super) struct Sweep {
    /// Descendants that were alive and got killed.
    pub(super) killed: HashSet<Pid>,
    /// True when the kernel answered ECHILD: nothing is left.
    pub(super) clean: bool,
}

/// Kills every descendant of the calling process and reaps it, except the trees below `spared`.
/// `ended` sees each child's end.
pub(super) fn kill(children: &Children, spared: &[Pid], mut ended: impl FnMut(Pid, WaitStatus)) -> Sweep {
    let me = rustix::process::getpid();
    let mut killed = HashSet::new();
    for _ in 0..ROUNDS {
        killed.extend(stop_then_kill(me, spared));
        let deadline = Instant::now() + ROUND_WAIT;
        loop {
            let left = children.reap(&mut ended);
            if left == Left::None || (!spared.is_empty() && descendants(me, spared).is_empty()) {
                return Sweep { killed, clean: true };
            }
            if Instant::now() >= deadline {
                break;
            }
            children.wait_for_news(deadline);
        }
    }
    Sweep { killed, clean: false }
}

fn stop_then_kill(root: Pid, spared: &[Pid]) -> HashSet<Pid> {
    let mut stopped = HashSet::new();
    for _ in 0..STOP_SCANS {
        let before = stopped.len();
        for pid in descendants(root, spared) {
            if stopped.insert(pid) {
                // It may have ended meanwhile.
                let _ = kill_process(pid, Signal::STOP);
            }
        }
        if stopped.len() == before {
            break;
        }
    }
    for pid in &stopped {
        let _ = kill_process(*pid, Signal::KILL);
    }
    stopped
}

/// Living descendants of `root`, in no order, without zombies and without the trees below `spared`.
fn descendants(root: Pid, spared: &[Pid]) -> Vec<Pid> {
    let mut children: HashMap<i32, Vec<(Pid, bool)>> = HashMap::new();
    let Ok(entries) = std::fs::read_dir("/proc") else { return Vec::new() };
    for entry in entries.flatten() {
        let name = entry.file_name();
        let Some(pid) = name.to_str().and_then(|name| name.parse().ok()).and_then(Pid::from_raw) else {
            continue;
        };
        let Ok(stat) = std::fs::read(entry.path().join("stat")) else { continue };
        if let Some((parent, is_zombie)) = parse_stat(&stat) {
            children.entry(parent).or_default().push((pid, is_zombie));
        }
    }
    let mut found = Vec::new();
    let mut pending = vec![root];
    while let Some(parent) = pending.pop() {
        for (pid, is_zombie) in children.remove(&parent.as_raw_nonzero().get()).unwrap_or_default() {
            if spared.contains(&pid) {
                continue;
            }
            if !is_zombie {
                found.push(pid);
            }
            pending.push(pid);
        }
    }
    found
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
    use super::parse_stat;

    #[test]
    fn stat_with_a_hostile_name() {
        assert_eq!(parse_stat(b"42 (sleep) S 7 42 42 0"), Some((7, false)));
        assert_eq!(parse_stat(b"42 (a) R 1 (b) Z 9 42 42 0"), Some((9, true)));
        assert_eq!(parse_stat(b"42 (\xff) ) S 3 1"), Some((3, false)));
        assert_eq!(parse_stat(b"42 (cut"), None);
    }
}
