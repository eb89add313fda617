//! What the loop looks at between events: the sandbox's counters, and deleted files when the host has asked.

use std::time::{Duration, Instant};

use guest::protocol::spawn::{COUNTER_INTERVAL_MS, CounterSource, Counters, ToHost};

use super::{CPU_STEP_US, Server};

impl Server {
    pub(super) fn sample_if_due(&mut self) {
        if !self.is_any_running() || Instant::now() < self.next_sample {
            return;
        }
        self.next_sample = Instant::now() + Duration::from_millis(COUNTER_INTERVAL_MS);
        if self.counter_files.source() == CounterSource::None {
            let trusted = self.trusted_tasks();
            self.census.sample(trusted, self.commands.values().filter_map(|command| command.processes_max));
        }
        let sample = self.sample();
        // Whom the kernel has ended says so at its own end, which may still be on its way: beside others, nobody is to answer for it
        // before that.
        let is_new = sample.oom_kills > self.told.oom_kills;
        let is_held = is_new && !self.holds_kills && self.commands.len() > 1;
        self.holds_kills = is_held;
        if !is_held {
            self.tell(sample, CPU_STEP_US);
        }
    }

    /// Init, this process, and the shims.
    fn trusted_tasks(&self) -> usize {
        let shims = self.commands.values().filter(|command| command.link.is_some()).count();
        2 + shims + usize::from(self.standby.is_some())
    }

    /// The counters now, with what only the census tells.
    pub(super) fn sample(&self) -> Counters {
        let counters = self.counter_files.sample();
        let refused_forks = counters.refused_forks.saturating_sub(self.own_refusals) + self.census.in_a_row();
        Counters { refused_forks, ..counters }
    }

    /// Reports a sample in which something rose since the last report; the processor's time by more than a step.
    pub(super) fn tell(&mut self, sample: Counters, cpu_step_us: u64) {
        if sample.oom_kills > self.told.oom_kills
            || sample.refused_forks > self.told.refused_forks
            || sample.cpu_us.saturating_sub(self.told.cpu_us) > cpu_step_us
        {
            self.told = sample;
            self.writer.control(&ToHost::Counters(sample));
        }
    }

    /// One turn of the search for deleted files, if one was asked for.
    pub(super) fn scan_on(&mut self) {
        let Some(scan) = self.scans.front_mut() else { return };
        let starting = self.commands.values().filter(|command| !command.started && command.link.is_some());
        let starting = starting.map(|command| command.shim.as_raw_nonzero().get().unsigned_abs());
        if let Some(answer) = scan.turn(&mut self.searched, starting) {
            self.scans.pop_front();
            self.writer.control(&answer);
        }
    }
}
