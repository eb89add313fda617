//! The sandbox's own cgroup counters, as far as the container shows them.
//!
//! The files are opened once and re-read from their start: a sample costs a few microseconds.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;

use guest::protocol::spawn::{CounterSource, Counters};

/// Where engines mount the container's cgroup.
const CGROUP_ROOT: &str = "/sys/fs/cgroup";

/// Open counter files of whichever version is there.
pub(super) struct CounterFiles {
    source: CounterSource,
    oom_kills: Option<File>,
    pids_events: Option<File>,
    memory_peak: Option<File>,
    cpu: Option<File>,
}

impl CounterFiles {
    /// Finds out what is readable here.
    pub(super) fn open() -> Self {
        Self::open_at(Path::new(CGROUP_ROOT))
    }

    fn open_at(root: &Path) -> Self {
        let open = |name: &str| File::open(root.join(name)).ok();
        let v2 = Self {
            source: CounterSource::V2,
            oom_kills: open("memory.events"),
            pids_events: open("pids.events"),
            memory_peak: open("memory.peak"),
            cpu: open("cpu.stat"),
        };
        if v2.oom_kills.is_some() || v2.pids_events.is_some() {
            return v2;
        }
        let v1 = Self {
            source: CounterSource::V1,
            oom_kills: open("memory/memory.oom_control"),
            pids_events: open("pids/pids.events"),
            memory_peak: open("memory/memory.max_usage_in_bytes"),
            cpu: open("cpuacct/cpuacct.usage"),
        };
        if v1.oom_kills.is_some() || v1.pids_events.is_some() {
            return v1;
        }
        // What else a kernel shows there (gVisor some of it) is not worth a look at each command: nobody asks for it alone.
        Self { source: CounterSource::None, oom_kills: None, pids_events: None, memory_peak: None, cpu: None }
    }

    pub(super) fn source(&self) -> CounterSource {
        self.source
    }

    /// The counters now; 0 where unreadable.
    pub(super) fn sample(&self) -> Counters {
        let (cpu_field, cpu_divisor) = match self.source {
            CounterSource::V2 => ("usage_usec", 1),
            CounterSource::V1 | CounterSource::None => ("", 1000),
        };
        Counters {
            oom_kills: read(self.oom_kills.as_ref(), "oom_kill"),
            refused_forks: read(self.pids_events.as_ref(), "max"),
            memory_peak_bytes: read(self.memory_peak.as_ref(), ""),
            cpu_us: read(self.cpu.as_ref(), cpu_field) / cpu_divisor,
        }
    }
}

/// Reads a counter file: the line `field value`, or the only number when `field` is empty.
fn read(file: Option<&File>, field: &str) -> u64 {
    let mut buffer = [0; 4096];
    let length = file.and_then(|file| file.read_at(&mut buffer, 0).ok()).unwrap_or(0);
    parse(&String::from_utf8_lossy(&buffer[..length]), field)
}

fn parse(text: &str, field: &str) -> u64 {
    let value = if field.is_empty() {
        Some(text.trim())
    } else {
        text.lines().find_map(|line| line.strip_prefix(field)?.strip_prefix(' '))
    };
    value.and_then(|value| value.trim().parse().ok()).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tree(files: &[(&str, &str)]) -> tempfile::TempDir {
        let root = tempfile::tempdir().unwrap();
        for (name, text) in files {
            let path = root.path().join(name);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        }
        root
    }

    #[test]
    fn version_1_layout() {
        let root = tree(&[
            ("memory/memory.oom_control", "oom_kill_disable 0\nunder_oom 0\noom_kill 3\n"),
            ("memory/memory.max_usage_in_bytes", "1048576\n"),
            ("pids/pids.events", "max 7\n"),
            ("cpuacct/cpuacct.usage", "2000500\n"),
        ]);
        let files = CounterFiles::open_at(root.path());
        assert_eq!(files.source(), CounterSource::V1);
        let expected =
            Counters { oom_kills: 3, refused_forks: 7, memory_peak_bytes: 1_048_576, cpu_us: 2000 };
        assert_eq!(files.sample(), expected);
        std::fs::write(root.path().join("pids/pids.events"), "max 9\n").unwrap();
        assert_eq!(files.sample().refused_forks, 9, "each sample reads the file anew");
    }

    #[test]
    fn version_2_layout() {
        let root = tree(&[
            ("memory.events", "low 0\nhigh 0\nmax 12\noom 2\noom_kill 1\noom_group_kill 0\n"),
            ("memory.peak", "4096\n"),
            ("pids.events", "max 5\n"),
            ("cpu.stat", "usage_usec 1234\nuser_usec 1000\nsystem_usec 234\n"),
        ]);
        let files = CounterFiles::open_at(root.path());
        assert_eq!(files.source(), CounterSource::V2);
        let expected = Counters { oom_kills: 1, refused_forks: 5, memory_peak_bytes: 4096, cpu_us: 1234 };
        assert_eq!(files.sample(), expected);
    }

    #[test]
    fn nothing_readable_is_said() {
        let root = tree(&[]);
        let files = CounterFiles::open_at(root.path());
        assert_eq!(files.source(), CounterSource::None);
        assert_eq!(files.sample(), Counters::default());
    }
}
