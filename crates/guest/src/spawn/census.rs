//! Counting a user's processes where no cgroup does (gVisor): at the limit in two samples in a row is what a flood looks like.

use std::path::Path;

use rustix::process::Pid;

/// Where processes show themselves.
const PROC: &str = "/proc";

/// Whether a limit was reached before, and how often in a row since the channel was opened.
#[derive(Default)]
pub(super) struct Census {
    was_at_limit: bool,
    in_a_row: u64,
}

impl Census {
    /// Takes one sample: `limits` are the running commands' users with their limits.
    pub(super) fn sample(&mut self, limits: impl Iterator<Item = (u32, u64)>) {
        let mut limits = limits;
        self.note(limits.any(|(uid, limit)| tasks_of(Path::new(PROC), uid) >= limit));
    }

    fn note(&mut self, is_at_limit: bool) {
        self.in_a_row += u64::from(is_at_limit && self.was_at_limit);
        self.was_at_limit = is_at_limit;
    }

    /// Samples at the limit that followed one at the limit.
    pub(super) fn in_a_row(&self) -> u64 {
        self.in_a_row
    }
}

/// Threads of all processes of a user.
fn tasks_of(proc: &Path, uid: u32) -> u64 {
    let is_process = |name: &str| name.parse().ok().and_then(Pid::from_raw).is_some();
    let entries = std::fs::read_dir(proc).into_iter().flatten().flatten();
    entries
        .filter(|entry| entry.file_name().to_str().is_some_and(is_process))
        // One that ended meanwhile counts no more.
        .filter_map(|entry| std::fs::read(entry.path().join("status")).ok())
        .filter_map(|status| threads_of(&String::from_utf8_lossy(&status), uid))
        .sum()
}

/// The number of threads in a process's status, when it is the user's. The name in the first line is the process's own choice;
/// where its line ends are not escaped (gVisor) it holds more lines, so the last match counts.
fn threads_of(status: &str, uid: u32) -> Option<u64> {
    let field =
        |name: &str| status.lines().rev().find_map(|line| line.strip_prefix(name)?.split_whitespace().next());
    let is_theirs = field("Uid:")?.parse() == Ok(uid);
    if is_theirs { field("Threads:")?.parse().ok() } else { None }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_second_sample_in_a_row_counts() {
        let mut census = Census::default();
        for (is_at_limit, in_a_row) in
            [(true, 0), (false, 0), (true, 0), (true, 1), (true, 2), (false, 2), (true, 2), (true, 3)]
        {
            census.note(is_at_limit);
            assert_eq!(census.in_a_row(), in_a_row);
        }
    }

    #[test]
    fn threads_of_the_user_alone_are_counted() {
        let root = tempfile::tempdir().unwrap();
        for (name, text) in [
            ("1", "Name:\tguest\nUid:\t0\t0\t0\t0\nThreads:\t1\n"),
            ("17", "Name:\tUid:\\n 7\nUid:\t70000\t70000\t70000\t70000\nThreads:\t3\n"),
            ("18", "Name:\tsh\nUid:\t70000\t70000\t70000\t70000\nThreads:\t1\n"),
            ("20", "Name:\tx\nUid:\t0\nThreads:\t0\nUid:\t70002\t70002\t70002\t70002\nThreads:\t5\n"),
            ("self", "Name:\tsh\nUid:\t70000\t70000\t70000\t70000\nThreads:\t1\n"),
        ] {
            std::fs::create_dir(root.path().join(name)).unwrap();
            std::fs::write(root.path().join(name).join("status"), text).unwrap();
        }
        std::fs::create_dir(root.path().join("19")).unwrap();
        assert_eq!(tasks_of(root.path(), 70_000), 4);
        assert_eq!(tasks_of(root.path(), 70_001), 0);
        assert_eq!(tasks_of(root.path(), 70_002), 5, "whatever it calls itself");
        assert!(tasks_of(Path::new(PROC), rustix::process::getuid().as_raw()) >= 1, "this process at least");
    }
}
