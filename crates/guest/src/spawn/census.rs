//! Counting processes where no cgroup does (gVisor): at the limit in two samples in a row is what a flood looks like.
//!
//! The kernel says in one call how many tasks there are in its own sandbox. Asking each process instead would take thousands of calls
//! of a process that a flood leaves hardly a turn.

/// Whether a limit was reached before, and how often in a row since the channel was opened.
#[derive(Default)]
pub(super) struct Census {
    was_at_limit: bool,
    in_a_row: u64,
}

impl Census {
    /// Takes one sample: of all tasks, `trusted` are ours, and `limits` are those of the running commands, which share a user.
    pub(super) fn sample(&mut self, trusted: usize, limits: impl Iterator<Item = u64>) {
        let tasks = u64::from(rustix::system::sysinfo().procs).saturating_sub(trusted as u64);
        self.note(limits.min().is_some_and(|limit| tasks >= limit));
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
    fn the_smallest_limit_counts_and_our_own_tasks_do_not() {
        let mut census = Census::default();
        for (trusted, limits, in_a_row) in [
            (0, &[1, u64::MAX][..], 0),
            (0, &[1], 1),
            (0, &[], 1),
            (0, &[1], 1),
            (0, &[u64::MAX], 1),
            (0, &[1], 1),
            (usize::MAX, &[1], 1),
        ] {
            census.sample(trusted, limits.iter().copied());
            assert_eq!(census.in_a_row(), in_a_row, "{trusted} {limits:?}");
        }
    }
}
