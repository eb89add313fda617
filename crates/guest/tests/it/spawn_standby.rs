//! `guest spawn`: the processes that wait for the next command.

use std::path::PathBuf;

use guest::protocol::spawn::{ExitStatus, ToGuest, ToHost};
use rustix::process::{Pid, Signal, kill_process};

use crate::spawn_host::{Channel, command, shell};
use crate::wire::{eventually, is_alive};

fn children_of(pid: u32) -> Vec<u32> {
    let list = std::fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap_or_default();
    list.split_ascii_whitespace().map(|pid| pid.parse().unwrap()).filter(|pid| is_alive(*pid)).collect()
}

/// The only shim and the recruit below it, once both are there and wait.
fn standby(channel: &Channel) -> [u32; 2] {
    let mut pair = [0, 0];
    eventually("a pair that waits", || {
        let shims = children_of(channel.child.id());
        let recruits: Vec<_> = shims.iter().flat_map(|shim| children_of(*shim)).collect();
        let ([shim], [recruit]) = (shims.as_slice(), recruits.as_slice()) else { return false };
        pair = [*shim, *recruit];
        is_waiting(*recruit)
    });
    pair
}

/// It has done all it can before its order: no right is left to its successors.
fn is_waiting(recruit: u32) -> bool {
    status(recruit, "NoNewPrivs:") == "1" && state(recruit) == Some('S')
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

#[test]
fn one_pair_waits_and_becomes_the_next_command() {
    let mut channel = Channel::open();
    let mut last = [0, 0];
    for _ in 0..5 {
        let [shim, recruit] = standby(&channel);
        assert_ne!([shim, recruit], last, "a pair serves once");
        let outcome = channel.run(command(&["true"]));
        assert_eq!((outcome.code(), outcome.pid), (ExitStatus::Code(0), recruit));
        last = [shim, recruit];
    }
    assert!(last.iter().all(|pid| !is_alive(*pid)));
}

#[test]
fn whichever_of_the_pair_dies_the_next_command_runs() {
    let mut channel = Channel::open();
    for which in [0, 1] {
        let pair = standby(&channel);
        kill(pair[which]);
        // At once, and again when the end of both was seen.
        let outcome = channel.run(command(&["true"]));
        assert!(outcome.start_failed.is_none());
        eventually("the end of both", || pair.iter().all(|pid| !is_alive(*pid)));
        let outcome = channel.run(shell("echo alive"));
        assert_eq!((outcome.code(), outcome.stdout_text()), (ExitStatus::Code(0), "alive\n"));

        let pair = standby(&channel);
        kill(pair[which]);
        eventually("the end of both", || pair.iter().all(|pid| !is_alive(*pid)));
        let outcome = channel.run(shell("echo again"));
        assert_eq!((outcome.code(), outcome.stdout_text()), (ExitStatus::Code(0), "again\n"));
    }
}

#[test]
fn a_pair_made_beside_a_command_holds_nothing_of_it() {
    let mut channel = Channel::open();
    let mut behind = command(&["cat"]);
    (behind.stdin, behind.background) = (true, true);
    let stream = channel.start(behind);
    let ToHost::Started { pid: cat, .. } = channel.receive() else { panic!("not started") };
    let pipes = descriptors(cat);
    let mut pair = Vec::new();
    eventually("the next pair", || {
        let shims = children_of(channel.child.id());
        pair = shims.iter().flat_map(|shim| children_of(*shim).into_iter().chain([*shim])).collect();
        pair.retain(|pid| *pid != cat && !children_of(*pid).contains(&cat));
        pair.len() == 2 && pair.iter().any(|pid| is_waiting(*pid))
    });
    for pid in pair {
        let held = descriptors(pid);
        assert!(pipes.iter().all(|pipe| !held.contains(pipe)), "{pipes:?} and {held:?}");
        assert_eq!(std::fs::read(format!("/proc/{pid}/environ")).unwrap(), b"");
        let score = std::fs::read_to_string(format!("/proc/{pid}/oom_score_adj")).unwrap();
        assert_ne!(score.trim(), "1000", "only a command goes first");
    }
    // Nobody else holds its stdin: the end arrives.
    channel.send(&ToGuest::StdinClose { stream });
    loop {
        match channel.receive() {
            ToHost::Exited { exited, .. } => break assert_eq!(exited.status, ExitStatus::Code(0)),
            ToHost::OutputClosed { .. } => {}
            frame => panic!("unexpected {frame:?}"),
        }
    }
}

#[test]
fn a_waiting_pair_survives_the_loss_of_a_shim_and_ends_with_the_channel() {
    let mut channel = Channel::open();
    let [lost, _] = standby(&channel);
    channel.start(shell("sleep 600"));
    while !matches!(channel.receive(), ToHost::Started { .. }) {}
    let mut next = Vec::new();
    eventually("the next pair", || {
        next = children_of(channel.child.id());
        next.retain(|shim| *shim != lost);
        next.len() == 1 && children_of(next[0]).first().is_some_and(|recruit| is_waiting(*recruit))
    });
    let recruit = children_of(next[0])[0];
    kill(lost);
    while !matches!(channel.receive(), ToHost::Exited { .. }) {}
    assert_eq!(channel.run(command(&["true"])).pid, recruit, "it was spared");
    let pair = standby(&channel);
    channel.close_stdin();
    assert_eq!(channel.wait_for_end(), Some(0));
    assert!(pair.iter().all(|pid| !is_alive(*pid)));
}

#[test]
fn an_order_may_be_as_large_as_a_start_frame() {
    let mut channel = Channel::open();
    standby(&channel);
    let argument = "x".repeat(100 << 10);
    let outcome = channel.run(command(&["printf", "%s%s", &argument, &argument]));
    assert_eq!((outcome.code(), outcome.stdout.len()), (ExitStatus::Code(0), 200 << 10));
}
