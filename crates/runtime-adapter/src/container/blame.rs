//! Whose a kill by the kernel was. The kernel counts them for the whole sandbox, in which commands run beside each other.
//!
//! ```text
//! a foreground command runs          it answers for what is counted, as it does for every limit
//! only one command runs              that one
//! several run, all in the background the one that the kernel itself has ended; of their children nobody can say whose they were
//! ```
//! Whatever runs, a command whose own process the kernel has ended is the one; and what was one's is not another's.

use std::collections::HashMap;

use guest::protocol::spawn::{ExitStatus, Exited};

/// What a program's own process is ended with when memory is short.
const SIGKILL: i32 = 9;

/// The commands of one channel. Counts are of kills, as the guest tells them: absolute in samples, a rise in ends.
#[derive(Debug, Default)]
pub(super) struct Blame {
    /// Kills that are somebody's.
    charged: u64,
    /// Counted so far.
    counted: u64,
    running: HashMap<u32, Running>,
}

#[derive(Clone, Copy, Debug)]
struct Running {
    is_background: bool,
    /// The program runs: what was counted before is not its own.
    has_started: bool,
    /// The host has asked for its end.
    is_ending: bool,
    /// Counted when it started.
    base: u64,
    /// Charged when it started.
    charged: u64,
    /// Counted when it became the only one; before that a kill may have been another's.
    alone_since: u64,
    /// What it was told last.
    shown: u64,
}

impl Running {
    /// What was counted since its start and is nobody's yet.
    fn open(&self, counted: u64, charged: u64) -> u64 {
        counted.saturating_sub(self.base).saturating_sub(charged - self.charged)
    }

    /// The same, of what was counted while no other command ran.
    fn open_alone(&self, counted: u64, charged: u64) -> u64 {
        self.open(counted, charged).min(counted.saturating_sub(self.alone_since))
    }
}

impl Blame {
    /// A command is about to start, with so many counted.
    pub(super) fn begins(&mut self, stream: u32, is_background: bool, counted: u64) {
        let running = Running {
            is_background,
            has_started: false,
            is_ending: false,
            base: counted,
            charged: self.charged,
            alone_since: counted,
            shown: counted,
        };
        self.running.insert(stream, running);
    }

    /// Its program runs.
    pub(super) fn started(&mut self, stream: u32) {
        if let Some(running) = self.running.get_mut(&stream) {
            running.has_started = true;
        }
    }

    /// The host asks for its end.
    pub(super) fn ends(&mut self, stream: u32) {
        if let Some(running) = self.running.get_mut(&stream) {
            running.is_ending = true;
        }
    }

    /// It is over, or was never started.
    pub(super) fn over(&mut self, stream: u32) {
        self.running.remove(&stream);
        if self.running.len() == 1 {
            self.running.values_mut().for_each(|running| running.alone_since = self.counted);
        }
    }

    /// A sample: what each command is to be told.
    pub(super) fn sampled(&mut self, counted: u64) {
        let charged = self.charged;
        self.counted = self.counted.max(counted);
        for running in self.running.values_mut().filter(|running| !running.has_started) {
            (running.base, running.charged, running.shown) = (counted, charged, counted);
            running.alone_since = counted;
        }
        let is_alone = self.running.len() == 1;
        let answers = |running: &&mut Running| running.has_started && (is_alone || !running.is_background);
        if let Some(running) = self.running.values_mut().find(answers) {
            let own = if running.is_background {
                running.open_alone(counted, charged)
            } else {
                running.open(counted, charged)
            };
            running.shown += own;
            self.charged += own;
        }
    }

    /// What a command was told last.
    pub(super) fn shown(&self, stream: u32) -> u64 {
        self.running.get(&stream).map_or(0, |running| running.shown)
    }

    /// A command has ended: what of the kills that were counted meanwhile is its own. A kill that it was told of before stays its own.
    pub(super) fn exited(&mut self, stream: u32, exited: &Exited) -> u64 {
        let is_alone = self.running.len() == 1;
        let Some(running) = self.running.get(&stream) else { return exited.oom_kills };
        let told = running.shown.saturating_sub(running.base);
        let counted = running.base + exited.oom_kills;
        let by_the_kernel = exited.status == ExitStatus::Signal(SIGKILL) && !running.is_ending;
        let own = if by_the_kernel || !running.is_background {
            running.open(counted, self.charged)
        } else if is_alone {
            running.open_alone(counted, self.charged)
        } else {
            0
        };
        self.charged += own;
        self.counted = self.counted.max(counted);
        told + own
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn end(status: ExitStatus, oom_kills: u64) -> Exited {
        Exited {
            status,
            oom_kills,
            clean: true,
            stragglers: 0,
            cpu_ms: 0,
            max_rss_bytes: 0,
            refused_forks: 0,
            memory_peak_bytes: 0,
            cgroup_cpu_ms: 0,
            stdin_bytes: 0,
        }
    }

    const KILLED: ExitStatus = ExitStatus::Signal(9);
    const DONE: ExitStatus = ExitStatus::Code(0);

    /// Two commands, started when 5 were counted; true for background.
    fn two(first: bool, second: bool) -> Blame {
        let mut blame = Blame::default();
        for (stream, is_background) in [(1, first), (2, second)] {
            blame.begins(stream, is_background, 4);
            blame.sampled(5);
            blame.started(stream);
        }
        blame
    }

    #[test]
    fn alone_everything_since_the_start_is_its_own() {
        let mut blame = two(true, true);
        blame.over(2);
        assert_eq!(blame.shown(1), 5, "what was counted before is not");
        blame.sampled(6);
        assert_eq!(blame.shown(1), 6);
        assert_eq!(blame.exited(1, &end(DONE, 2)), 2, "the one it was told of, and one more");
    }

    #[test]
    fn the_foreground_answers_for_what_is_counted() {
        let mut blame = two(true, false);
        blame.sampled(6);
        assert_eq!((blame.shown(1), blame.shown(2)), (5, 6));
        assert_eq!(blame.exited(2, &end(DONE, 1)), 1);
        blame.over(2);
        assert_eq!(blame.exited(1, &end(DONE, 1)), 0, "it is not the other's as well");
    }

    #[test]
    fn who_was_ended_by_the_kernel_is_the_one() {
        let mut blame = two(true, false);
        assert_eq!(blame.exited(1, &end(KILLED, 1)), 1);
        blame.over(1);
        blame.sampled(6);
        assert_eq!(blame.shown(2), 5);
        assert_eq!(blame.exited(2, &end(DONE, 1)), 0);
        let mut blame = two(true, true);
        blame.sampled(6);
        assert_eq!((blame.shown(1), blame.shown(2)), (5, 5), "nobody can say");
        assert_eq!(blame.exited(2, &end(KILLED, 1)), 1);
        blame.over(2);
        blame.sampled(6);
        assert_eq!(blame.shown(1), 5);
        assert_eq!(blame.exited(1, &end(DONE, 1)), 0);
    }

    #[test]
    fn what_was_nobodys_is_not_charged_to_who_is_left() {
        for is_sampled in [true, false] {
            let mut blame = two(true, true);
            if is_sampled {
                blame.sampled(6);
            }
            assert_eq!(blame.exited(1, &end(DONE, 1)), 0);
            blame.over(1);
            blame.sampled(6);
            assert_eq!(blame.shown(2), 5);
            assert_eq!(blame.exited(2, &end(DONE, 1)), 0);
        }
        let mut blame = two(true, true);
        blame.sampled(6);
        assert_eq!(blame.exited(1, &end(DONE, 1)), 0);
        blame.over(1);
        blame.sampled(7);
        assert_eq!(blame.shown(2), 6, "the one since is its own");
    }

    #[test]
    fn a_kill_of_ours_is_none_of_the_kernels() {
        let mut blame = two(true, true);
        blame.ends(1);
        assert_eq!(blame.exited(1, &end(KILLED, 1)), 0);
    }
}
