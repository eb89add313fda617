//! `guest spawn`: whose kill by the kernel it was. The cgroup's files are the test's own, mounted where the guest
//! looks for them.

use std::time::{Duration, Instant};

use guest::protocol::spawn::{COUNTER_INTERVAL_MS, Counters, Exited, ToGuest, ToHost};

use crate::spawn_host::{Channel, shell};

/// Mounts its first argument over the cgroup tree, in a namespace of its own, and runs the others.
const MOUNTED: &str = r#"mount --bind "$1" /sys/fs/cgroup && shift && exec "$@""#;

struct Sandbox {
    cgroup: tempfile::TempDir,
    channel: Channel,
}

impl Sandbox {
    fn open() -> Self {
        let cgroup = tempfile::tempdir().unwrap();
        write_counters(&cgroup, 0, 0);
        write_cpu(&cgroup, 0);
        let root = cgroup.path().to_str().unwrap();
        let before = ["unshare", "--mount", "sh", "-c", MOUNTED, "sh", root].map(str::to_owned);
        let before: Vec<&str> = before.iter().map(String::as_str).collect();
        let channel = Channel::open_behind(&before);
        assert_eq!(channel.hello.counters, guest::protocol::spawn::CounterSource::V2);
        Self { cgroup, channel }
    }

    /// Starts a command that ends when its stdin does; what came before it ran.
    fn start(&mut self, background: bool) -> (u32, Vec<Counters>) {
        let mut command = shell("cat");
        (command.stdin, command.background) = (true, background);
        let stream = self.channel.start(command);
        let mut told = Vec::new();
        loop {
            match self.channel.receive_any() {
                ToHost::Started { stream: started, .. } if started == stream => return (stream, told),
                ToHost::Counters(counters) => told.push(counters),
                frame => panic!("unexpected {frame:?}"),
            }
        }
    }

    /// Ends a command; its end, and what was told meanwhile.
    fn end(&mut self, stream: u32) -> (Exited, Vec<Counters>) {
        self.channel.send(&ToGuest::StdinClose { stream });
        let mut told = Vec::new();
        let (mut exited, mut outputs_open) = (None, 2);
        while exited.is_none() || outputs_open > 0 {
            match self.channel.receive_any() {
                ToHost::Exited { exited: end, .. } => exited = Some(end),
                ToHost::OutputClosed { .. } => outputs_open -= 1,
                ToHost::Counters(counters) => told.push(counters),
                frame => panic!("unexpected {frame:?}"),
            }
        }
        (exited.unwrap(), told)
    }

    /// What is told within two samples.
    fn watch(&mut self) -> Vec<Counters> {
        let until = Instant::now() + Duration::from_millis(COUNTER_INTERVAL_MS * 2 + 100);
        let mut told = Vec::new();
        let mut token = 0;
        while Instant::now() < until {
            token += 1;
            self.channel.send(&ToGuest::Ping { token });
            loop {
                match self.channel.receive_any() {
                    ToHost::Pong { token: answered } if answered == token => break,
                    ToHost::Counters(counters) => told.push(counters),
                    frame => panic!("unexpected {frame:?}"),
                }
            }
            std::thread::yield_now();
        }
        told
    }
}

fn write_counters(cgroup: &tempfile::TempDir, oom_kills: u64, refused_forks: u64) {
    let write = |name: &str, text: String| std::fs::write(cgroup.path().join(name), text).unwrap();
    write("memory.events", format!("oom {oom_kills}\noom_kill {oom_kills}\n"));
    write("pids.events", format!("max {refused_forks}\n"));
}

fn write_cpu(cgroup: &tempfile::TempDir, usage_us: u64) {
    std::fs::write(cgroup.path().join("cpu.stat"), format!("usage_usec {usage_us}\n")).unwrap();
}

fn counts(told: &[Counters]) -> Vec<(u64, u64)> {
    told.iter().map(|counters| (counters.oom_kills, counters.refused_forks)).collect()
}

#[test]
fn what_one_command_caused_is_not_the_next_ones() {
    let mut sandbox = Sandbox::open();
    let (first, told) = sandbox.start(false);
    assert_eq!(counts(&told), []);
    write_counters(&sandbox.cgroup, 1, 7);
    let (exited, while_first) = sandbox.end(first);
    assert_eq!((exited.oom_kills, exited.refused_forks), (1, 7));

    let (second, before_second) = sandbox.start(false);
    let told = counts(&[while_first, before_second].concat());
    assert_eq!(told.last(), Some(&(1, 7)), "before the second one's start");
    assert_eq!(counts(&sandbox.watch()), [], "nothing of it after the start");
    let (exited, told) = sandbox.end(second);
    assert_eq!((exited.oom_kills, exited.refused_forks), (0, 0));
    assert_eq!(counts(&told), []);
}

#[test]
fn what_rises_while_a_command_runs_is_told_at_once() {
    let mut sandbox = Sandbox::open();
    let (stream, _) = sandbox.start(false);
    write_counters(&sandbox.cgroup, 0, 3);
    let ToHost::Counters(counters) = sandbox.channel.receive_any() else { panic!("no counters") };
    assert_eq!(counts(&[counters]), [(0, 3)]);
    assert_eq!(counts(&sandbox.watch()), [], "the same rise is told once");
    let (exited, _) = sandbox.end(stream);
    assert_eq!(exited.refused_forks, 3);
}

#[test]
fn a_rise_found_by_a_start_reaches_those_that_run() {
    let mut sandbox = Sandbox::open();
    let (behind, _) = sandbox.start(true);
    write_counters(&sandbox.cgroup, 2, 0);
    let (front, told) = sandbox.start(false);
    assert_eq!(counts(&told), [(2, 0)], "by the sample of the start, or by one just before");
    assert_eq!(counts(&sandbox.watch()), []);
    assert_eq!(sandbox.end(front).0.oom_kills, 0);
    assert_eq!(sandbox.end(behind).0.oom_kills, 2);
}

#[test]
fn processor_time_is_told_in_steps_and_at_a_kill() {
    let mut sandbox = Sandbox::open();
    let used = |told: &[Counters]| told.iter().map(|counters| counters.cpu_us).collect::<Vec<_>>();
    let (stream, _) = sandbox.start(false);
    write_cpu(&sandbox.cgroup, 150_000);
    assert_eq!(used(&sandbox.watch()), []);
    write_cpu(&sandbox.cgroup, 250_000);
    assert_eq!(used(&sandbox.watch()), [250_000]);
    assert_eq!(sandbox.end(stream).0.cgroup_cpu_ms, 250);
    write_cpu(&sandbox.cgroup, 270_000);
    let (stream, told) = sandbox.start(false);
    assert_eq!(used(&told), [270_000], "what came before is not its own");
    write_cpu(&sandbox.cgroup, 270_500);
    sandbox.channel.send(&ToGuest::Kill { stream });
    assert_eq!(used(&sandbox.end(stream).1), [270_500]);
}

#[test]
fn what_a_channel_finds_at_its_start_is_no_commands() {
    let mut sandbox = Sandbox::open();
    write_counters(&sandbox.cgroup, 5, 5);
    let (stream, told) = sandbox.start(false);
    assert_eq!(counts(&told), [(5, 5)]);
    assert_eq!(sandbox.end(stream).0.oom_kills, 0);
}
