//! `guest init` as a real PID 1, in a process namespace of its own.

use std::io::{Read, Write};
use std::process::{Child, ChildStderr, ChildStdin, ChildStdout, Stdio};

use guest::protocol::spawn::{ToGuest, ToHost};
use guest::protocol::{CHANNEL_ENDED, Decoder, Hello, encode};
use rustix::process::{Pid, Signal, kill_process};

use crate::wire::eventually;

const GUEST: &str = env!("CARGO_BIN_EXE_guest");

/// The namespace's PID 1, killed with its parent at the test's end.
struct Namespace {
    unshare: Child,
    init: Pid,
    stdin: Option<ChildStdin>,
    stdout: ChildStdout,
    stderr: ChildStderr,
}

#[expect(clippy::disallowed_methods, reason = "the test plays the container engine")]
fn namespace(program: &[&str]) -> Namespace {
    let mut unshare = std::process::Command::new("unshare")
        .args(["--pid", "--fork", "--kill-child"])
        .args(program)
        .env_clear()
        .env("PATH", "/usr/bin:/bin")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut init = None;
    eventually("the fork", || {
        init = children(unshare.id()).first().copied().and_then(Pid::from_raw);
        init.is_some()
    });
    let (stdin, stdout, stderr) = (unshare.stdin.take(), unshare.stdout.take(), unshare.stderr.take());
    Namespace { unshare, init: init.unwrap(), stdin, stdout: stdout.unwrap(), stderr: stderr.unwrap() }
}

impl Namespace {
    fn pid(&self) -> u32 {
        u32::try_from(self.init.as_raw_nonzero().get()).unwrap()
    }

    /// Init has taken over: it waits for its signals and, at first, for the hello.
    fn ready(&self) {
        let has_null = || self.descriptors().iter().any(|what| what == "/dev/null");
        eventually("init's own descriptors", has_null);
    }

    fn children(&self) -> Vec<i32> {
        children(self.pid())
    }

    /// What init has open, the three standard streams first.
    fn descriptors(&self) -> Vec<String> {
        let link = |number: u32| std::fs::read_link(format!("/proc/{}/fd/{number}", self.pid()));
        (0..16).filter_map(|number| Some(link(number).ok()?.to_string_lossy().into_owned())).collect()
    }

    /// Says hello as the host, and hears the guest's.
    fn greet(&mut self) {
        let mut bytes = Vec::new();
        encode(&ToGuest::Hello(Hello::host()), &mut bytes);
        self.stdin.as_mut().unwrap().write_all(&bytes).unwrap();
        let mut decoder = Decoder::<ToHost>::new();
        let mut buffer = [0; 1024];
        let hello = loop {
            if let Some(frame) = decoder.next_frame().unwrap() {
                break frame;
            }
            let length = self.stdout.read(&mut buffer).unwrap();
            assert!(length > 0, "stdout is open");
            decoder.feed(&buffer[..length]);
        };
        assert!(matches!(hello, ToHost::Hello(hello) if hello.is_compatible()));
    }

    fn hears_the_end(&mut self) {
        let mut said = vec![0; CHANNEL_ENDED.len()];
        self.stderr.read_exact(&mut said).unwrap();
        assert_eq!(String::from_utf8(said).unwrap(), CHANNEL_ENDED);
    }

    /// It does its work and nothing more: no child, nothing open but the null device.
    fn is_alone(&mut self) {
        eventually("the reaping", || self.children().is_empty());
        eventually("the last stream let go", || self.descriptors().iter().all(|what| what == "/dev/null"));
        assert!(self.unshare.try_wait().unwrap().is_none(), "init lives");
    }
}

impl Drop for Namespace {
    fn drop(&mut self) {
        let _ = self.unshare.kill();
        let _ = self.unshare.wait();
    }
}

fn children(pid: u32) -> Vec<i32> {
    let list = std::fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap_or_default();
    list.split_whitespace().map(|pid| pid.parse().unwrap()).collect()
}

#[test]
fn ends_on_the_engines_stop_signal() {
    for signal in [Signal::TERM, Signal::INT] {
        let mut namespace = namespace(&[GUEST, "init", "sandbox"]);
        // Before it is ready the signal does nothing at all: it is PID 1.
        eventually("its end", || {
            let _ = kill_process(namespace.init, signal);
            let ended = namespace.unshare.try_wait().unwrap();
            ended.inspect(|status| assert!(status.success(), "{status}")).is_some()
        });
    }
}

#[test]
fn reaps_what_is_orphaned() {
    let namespace = namespace(&["sh", "-c", "sleep 0.2 & (sleep 0.3 &) ; exec \"$0\" init files", GUEST]);
    eventually("the exec", || {
        std::fs::read_to_string(format!("/proc/{}/comm", namespace.pid()))
            .is_ok_and(|name| name.trim() == "guest")
    });
    eventually("the reaping", || namespace.children().is_empty());
}

#[test]
fn hands_its_streams_over_at_the_hosts_first_byte_and_outlives_the_channel() {
    let mut namespace = namespace(&[GUEST, "init", "sandbox"]);
    namespace.ready();
    assert_eq!(namespace.children(), [0; 0], "nobody has said hello yet");
    namespace.greet();

    let [spawn] = namespace.children()[..] else { panic!("{:?}", namespace.children()) };
    let read = |what: &str| std::fs::read(format!("/proc/{spawn}/{what}")).unwrap();
    assert_eq!(read("cmdline"), format!("{GUEST}\0spawn\0").as_bytes());
    assert_eq!(read("environ"), b"", "a trusted process holds nothing");
    let status = String::from_utf8(read("status")).unwrap();
    let field =
        |name: &str| status.lines().find_map(|line| line.strip_prefix(name)).unwrap().trim().to_owned();
    assert_eq!(field("SigBlk:"), format!("{:016x}", 1 << (Signal::CHILD.as_raw() - 1)), "its own mask alone");
    assert_eq!(
        field("NSsid:").split_whitespace().next(),
        Some(spawn.to_string().as_str()),
        "a session of its own"
    );
    assert_eq!(namespace.descriptors()[..2], ["/dev/null", "/dev/null"], "they are the channel's alone");

    namespace.stdin = None;
    namespace.hears_the_end();
    namespace.is_alone();
}

#[test]
fn tells_the_death_of_the_channels_process() {
    let mut namespace = namespace(&[GUEST, "init", "sandbox"]);
    namespace.ready();
    namespace.greet();
    let [spawn] = namespace.children()[..] else { panic!("{:?}", namespace.children()) };
    kill_process(Pid::from_raw(spawn).unwrap(), Signal::KILL).unwrap();
    namespace.hears_the_end();
    namespace.is_alone();
}

#[test]
fn starts_nothing_without_a_hello() {
    let mut namespace = namespace(&[GUEST, "init", "sandbox"]);
    namespace.ready();
    namespace.stdin = None;
    namespace.is_alone();
}
