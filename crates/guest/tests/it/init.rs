//! `guest init` as a real PID 1, in a process namespace of its own.

use std::process::{Child, Stdio};

use rustix::process::{Pid, Signal, kill_process};

use crate::wire::eventually;

const GUEST: &str = env!("CARGO_BIN_EXE_guest");

/// The namespace's PID 1, killed with its parent at the test's end.
struct Namespace {
    unshare: Child,
    init: Pid,
}

#[expect(clippy::disallowed_methods, reason = "the test plays the container engine")]
fn namespace(program: &[&str]) -> Namespace {
    let unshare = std::process::Command::new("unshare")
        .args(["--pid", "--fork", "--kill-child"])
        .args(program)
        .stdin(Stdio::null())
        .spawn()
        .unwrap();
    let mut init = None;
    eventually("the fork", || {
        init = children(unshare.id()).first().copied().and_then(Pid::from_raw);
        init.is_some()
    });
    Namespace { unshare, init: init.unwrap() }
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
        let mut namespace = namespace(&[GUEST, "init"]);
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
    let namespace = namespace(&["sh", "-c", "sleep 0.2 & (sleep 0.3 &) ; exec \"$0\" init", GUEST]);
    let pid = u32::try_from(namespace.init.as_raw_nonzero().get()).unwrap();
    eventually("the exec", || {
        std::fs::read_to_string(format!("/proc/{pid}/comm")).is_ok_and(|name| name.trim() == "guest")
    });
    eventually("the reaping", || children(pid).is_empty());
}
