//! `guest spawn`: the shims, one command after the other.

use std::path::PathBuf;

use guest::protocol::spawn::{ExitStatus, ToGuest, ToHost};
use rustix::process::{Pid, Signal, kill_process};

use crate::spawn_host::{Channel, command, shell};
use crate::wire::{eventually, is_alive};

fn children_of(pid: u32) -> Vec<u32> {
    let list = std::fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap_or_default();
    list.split_ascii_whitespace().map(|pid| pid.parse().unwrap()).filter(|pid| is_alive(*pid)).collect()
}

/// The only shim, once it waits.
fn standby(channel: &Channel) -> u32 {
    let mut waiting = 0;
    eventually("a shim that waits", || {
        let shims = children_of(channel.child.id());
        let [shim] = shims.as_slice() else { return false };
        waiting = *shim;
        is_waiting(*shim)
    });
    waiting
}

/// It has given up what no command may have, and runs none.
fn is_waiting(shim: u32) -> bool {
    status(shim, "NoNewPrivs:") == "1" && state(shim) == Some('S') && children_of(shim).is_empty()
}

fn state(pid: u32) -> Option<char> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    stat.rsplit(')').next()?.trim_start().chars().next()
}

fn status(pid: u32, field: &str) -> String {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix(field)).unwrap_or_default();
    line.trim().to_owned()
}

fn kill(pid: u32) {
    kill_process(Pid::from_raw(pid.try_into().unwrap()).unwrap(), Signal::KILL).unwrap();
}

/// Where the descriptors of a process lead.
fn descriptors(pid: u32) -> Vec<PathBuf> {
    let listed = std::fs::read_dir(format!("/proc/{pid}/fd")).unwrap();
    listed.filter_map(|entry| std::fs::read_link(entry.unwrap().path()).ok()).collect()
}

/// Of the only command there is.
fn wait_for_exit(channel: &mut Channel) -> ExitStatus {
    let (mut status, mut outputs_open) = (None, 2);
    while status.is_none() || outputs_open > 0 {
        match channel.receive() {
            ToHost::Exited { exited, .. } => status = Some(exited.status),
            ToHost::OutputClosed { .. } => outputs_open -= 1,
            ToHost::Started { .. } => {}
            frame => panic!("unexpected {frame:?}"),
        }
    }
    status.unwrap()
}

#[test]
fn one_shim_serves_one_command_after_the_other() {
    let mut channel = Channel::open();
    let shim = standby(&channel);
    for script in ["true", "exit 7", "sleep 600 & sleep 600 & true", "kill -9 $$"] {
        channel.run(shell(script));
        assert_eq!(standby(&channel), shim, "{script}");
    }
    for refused in [command(&["no-such-program"]), command(&["/dev/null"]), command(&["a/b"])] {
        assert!(channel.run(refused).start_failed.is_some());
        assert_eq!(standby(&channel), shim);
    }
    let outcome = channel.run(shell("ps -o ppid= -p $$"));
    assert_eq!(outcome.stdout_text().trim(), shim.to_string());
}

#[test]
fn what_one_command_used_is_not_the_next_ones() {
    let mut channel = Channel::open();
    let large = "x = bytearray(64 << 20)\nfor i in range(3000000): pass";
    assert!(channel.run(command(&["python3", "-c", large])).exited().max_rss_bytes >= 64 << 20);
    let exited = channel.run(command(&["true"])).exited();
    assert!(exited.max_rss_bytes < 32 << 20, "{exited:?}");
    assert!(exited.cpu_ms < 20, "{exited:?}");
    // What its children used is the shell's to tell.
    let exited = channel.run(command(&["sh", "-c", &format!("python3 -c '{large}'; true")])).exited();
    assert!(exited.max_rss_bytes >= 64 << 20 && exited.cpu_ms >= 20, "{exited:?}");
}

#[test]
fn a_late_kill_does_not_reach_the_next_command() {
    let mut channel = Channel::open();
    for _ in 0..100 {
        let first = ToGuest::Start { stream: channel.new_stream(), command: command(&["true"]) };
        let kill = ToGuest::Kill { stream: guest::protocol::Frame::stream(&first) };
        channel.send(&first);
        // `Started` waits for company: about when the command ends.
        assert!(matches!(channel.receive(), ToHost::Started { .. }));
        channel.send(&kill);
        let status = wait_for_exit(&mut channel);
        assert!([ExitStatus::Code(0), ExitStatus::Signal(9)].contains(&status), "{status:?}");
        assert_eq!(channel.run(command(&["true"])).code(), ExitStatus::Code(0));
    }
}

#[test]
fn when_the_shim_that_waits_dies_the_next_command_runs() {
    let mut channel = Channel::open();
    let first = standby(&channel);
    kill(first);
    // At once, and again when its end was seen.
    assert!(channel.run(command(&["true"])).start_failed.is_none());
    eventually("its end", || !is_alive(first));
    let second = standby(&channel);
    kill(second);
    eventually("its end", || !is_alive(second));
    let outcome = channel.run(shell("echo again"));
    assert_eq!((outcome.code(), outcome.stdout_text()), (ExitStatus::Code(0), "again\n"));
    assert!(![first, second].contains(&standby(&channel)));
}

#[test]
fn no_shim_holds_anything_of_a_command() {
    let mut channel = Channel::open();
    let mut behind = shell("echo $$; exec cat");
    (behind.stdin, behind.background) = (true, true);
    let stream = channel.start(behind);
    let ToHost::Started { .. } = channel.receive() else { panic!("not started") };
    let ToHost::Data { bytes, .. } = channel.receive() else { panic!("no output") };
    let cat: u32 = String::from_utf8(bytes).unwrap().trim().parse().unwrap();
    let pipes = descriptors(cat);
    let mut shims = Vec::new();
    eventually("the next shim", || {
        shims = children_of(channel.child.id());
        shims.len() == 2 && shims.iter().all(|shim| is_waiting(*shim) || children_of(*shim) == [cat])
    });
    eventually("letting go", || {
        let held: Vec<_> = shims.iter().flat_map(|shim| descriptors(*shim)).collect();
        pipes.iter().all(|pipe| !held.contains(pipe))
    });
    for pid in shims {
        assert_eq!(std::fs::read(format!("/proc/{pid}/environ")).unwrap(), b"");
        let score = std::fs::read_to_string(format!("/proc/{pid}/oom_score_adj")).unwrap();
        assert_ne!(score.trim(), "1000", "only a command goes first");
        assert_eq!(status(pid, "CapBnd:"), "0000000000000000");
        assert!(status(pid, "Uid:").starts_with("0\t0\t"), "it stays ours");
    }
    // Nobody else holds its stdin: the end arrives.
    channel.send(&ToGuest::StdinClose { stream });
    assert_eq!(wait_for_exit(&mut channel), ExitStatus::Code(0));
    // One that nobody needs ends.
    standby(&channel);
}

/// Between commands spawn holds the streams of the next one, and nothing of the last: each has pipes of its own.
#[test]
fn spawn_lets_go_of_a_command_that_has_ended() {
    let mut channel = Channel::open();
    let mut pipes = Vec::new();
    for _ in 0..5 {
        let outcome =
            channel.run_with(shell("readlink /proc/self/fd/0 /proc/self/fd/1 /proc/self/fd/2"), Some(b"in"));
        let last: Vec<PathBuf> = outcome.stdout_text().lines().map(PathBuf::from).collect();
        assert_eq!(last.len(), 3, "{last:?}");
        assert!(last.iter().all(|pipe| !pipes.contains(pipe)), "{last:?} after {pipes:?}");
        pipes.extend(last);
        let spawn = channel.child.id();
        eventually("letting go", || descriptors(spawn).iter().all(|held| !pipes.contains(held)));
        let shim = standby(&channel);
        assert!(descriptors(shim).iter().all(|held| !pipes.contains(held)));
    }
}

#[test]
fn a_shim_that_waits_survives_the_loss_of_another_and_ends_with_the_channel() {
    let mut channel = Channel::open();
    let lost = standby(&channel);
    let mut behind = shell("sleep 600");
    behind.background = true;
    channel.start(behind);
    let mut next = Vec::new();
    eventually("the next shim", || {
        next = children_of(channel.child.id());
        next.retain(|shim| *shim != lost);
        next.len() == 1 && is_waiting(next[0])
    });
    kill(lost);
    assert_eq!(wait_for_exit(&mut channel), ExitStatus::Lost);
    let outcome = channel.run(shell("ps -o ppid= -p $$"));
    assert_eq!(outcome.stdout_text().trim(), next[0].to_string(), "it was spared");
    let waiting = standby(&channel);
    channel.close_stdin();
    assert_eq!(channel.wait_for_end(), Some(0));
    assert!(!is_alive(waiting));
}

#[test]
fn an_order_may_be_as_large_as_a_start_frame() {
    let mut channel = Channel::open();
    let argument = "x".repeat(100 << 10);
    for _ in 0..3 {
        let outcome = channel.run(command(&["printf", "%s%s", &argument, &argument]));
        assert_eq!((outcome.code(), outcome.stdout.len()), (ExitStatus::Code(0), 200 << 10));
    }
}
