//! `guest spawn`: what it does to processes: leftovers, kills, lost ends.

use std::time::{Duration, Instant};

use guest::protocol::spawn::{ExitStatus, Output, ToGuest, ToHost};
use guest::protocol::{HEARTBEAT_INTERVAL_MS, MISSED_HEARTBEATS};

use crate::spawn_host::{Channel, command, shell};
use crate::wire::{eventually, is_alive};

#[test]
fn leftovers_are_killed_and_counted() {
    let mut channel = Channel::open();
    let outcome = channel.run(shell("sleep 600 & echo $!"));
    assert_eq!(outcome.code(), ExitStatus::Code(0));
    assert_eq!((outcome.exited().stragglers, outcome.exited().clean), (1, true));
    assert!(!is_alive(outcome.stdout_text().trim().parse().unwrap()));

    // Double fork into a session of its own, output detached, TERM and HUP ignored.
    let script = "trap '' TERM HUP; (setsid sh -c 'sleep 601 & sleep 602 & echo ready > up; wait' \
                  >/dev/null 2>&1 &); while [ ! -e up ]; do :; done; exit 5";
    let outcome = channel.run(shell(script));
    assert_eq!(outcome.code(), ExitStatus::Code(5));
    assert_eq!((outcome.exited().stragglers, outcome.exited().clean), (3, true));
}

#[test]
fn leftovers_that_end_by_themselves_keep_their_output() {
    let mut channel = Channel::open();
    // Whether a leftover ends within the grace is up to the scheduler; each attempt must be one or the other,
    // and an unhurried machine shows both lines.
    eventually("an end within the grace", || {
        let outcome = channel.run(shell("(sleep 0.01; echo late) & echo early"));
        match outcome.stdout_text() {
            "early\nlate\n" => outcome.exited().stragglers == 0,
            "early\n" => {
                assert!(outcome.exited().stragglers > 0);
                false
            }
            // The command itself was the slower one.
            "late\nearly\n" => false,
            text => panic!("{text:?}"),
        }
    });
}

#[test]
fn trusted_processes_cannot_be_touched() {
    let mut channel = Channel::open();
    let spawn = channel.child.id();
    let outcome = channel.run(shell(&format!(
        "for pid in {spawn} $PPID; do kill -9 $pid && echo killed; kill -STOP $pid && echo stopped; \
         cat /proc/$pid/environ && echo read; cat /proc/$pid/mem && echo read; \
         echo forged > /proc/$pid/fd/1 && echo forged; done; exit 3"
    )));
    assert_eq!(outcome.code(), ExitStatus::Code(3));
    assert_eq!(outcome.stdout_text(), "");
    assert_eq!(channel.run(command(&["true"])).code(), ExitStatus::Code(0));
}

/// What a command that was just started says: pids.
fn pids_said<const COUNT: usize>(channel: &mut Channel) -> [u32; COUNT] {
    let ToHost::Started { .. } = channel.receive() else { panic!("not started") };
    let ToHost::Data { bytes, .. } = channel.receive() else { panic!("no output") };
    let pids: Vec<u32> =
        String::from_utf8(bytes).unwrap().split_whitespace().map(|pid| pid.parse().unwrap()).collect();
    pids.try_into().unwrap()
}

fn pid_said(channel: &mut Channel) -> u32 {
    let [pid] = pids_said(channel);
    pid
}

#[test]
fn one_foreground_command_and_many_behind() {
    let mut channel = Channel::open();
    let mut first = shell("echo $$; exec sleep 600");
    first.background = true;
    let background = channel.start(first);
    let pid = pid_said(&mut channel);
    assert_eq!(channel.run(shell("exit 4")).code(), ExitStatus::Code(4), "beside it");
    assert!(is_alive(pid), "another command's end is not its end");

    let foreground = channel.start(shell("sleep 600"));
    let ToHost::Started { .. } = channel.receive() else { panic!("not started") };
    let refused = channel.run(shell("true"));
    assert_eq!(refused.start_failed.map(|(code, errno, _)| (code, errno)), Some((126, 16)));

    for stream in [background, foreground] {
        channel.send(&ToGuest::Kill { stream });
        let exited = loop {
            match channel.receive() {
                ToHost::Exited { stream: ended, exited } if ended == stream => break exited,
                ToHost::OutputClosed { .. } => {}
                frame => panic!("unexpected {frame:?}"),
            }
        };
        assert_eq!((exited.status, exited.clean), (ExitStatus::Signal(9), true));
    }
    assert!(!is_alive(pid));
    channel.send(&ToGuest::Kill { stream: background });
    channel.send(&ToGuest::Credit { stream: background, output: Output::Stdout, bytes: 5 });
    channel.send(&ToGuest::Ping { token: 7 });
    loop {
        match channel.receive() {
            ToHost::Pong { token } => break assert_eq!(token, 7, "late frames are ignored"),
            ToHost::OutputClosed { .. } => {}
            frame => panic!("unexpected {frame:?}"),
        }
    }
}

#[test]
fn a_start_is_told_while_it_runs_whether_it_speaks_or_not() {
    let mut channel = Channel::open();
    for (script, speaks) in [("sleep 600", false), ("echo; sleep 600", true)] {
        let stream = channel.start(shell(script));
        assert_eq!(channel.receive(), ToHost::Started { stream });
        if speaks {
            assert!(matches!(channel.receive(), ToHost::Data { .. }));
        }
        channel.send(&ToGuest::Kill { stream });
        assert!(matches!(channel.receive(), ToHost::Exited { .. }));
        for _ in 0..2 {
            assert!(matches!(channel.receive(), ToHost::OutputClosed { .. }));
        }
    }
}

#[test]
fn a_kill_takes_the_whole_tree() {
    let mut channel = Channel::open();
    let mut tree = shell("trap '' TERM; setsid sleep 600 & sleep 601 & echo $! ; wait");
    tree.background = true;
    let stream = channel.start(tree);
    let sleeper: u32 = loop {
        match channel.receive() {
            ToHost::Data { bytes, .. } => break String::from_utf8(bytes).unwrap().trim().parse().unwrap(),
            ToHost::Started { .. } => {}
            frame => panic!("unexpected {frame:?}"),
        }
    };
    channel.send(&ToGuest::Kill { stream });
    loop {
        match channel.receive() {
            ToHost::Exited { exited, .. } => {
                assert_eq!((exited.status, exited.stragglers), (ExitStatus::Signal(9), 2));
                break;
            }
            ToHost::OutputClosed { .. } => {}
            frame => panic!("unexpected {frame:?}"),
        }
    }
    assert!(!is_alive(sleeper));
}

/// Starts a stubborn tree and gives the pids of its two processes.
fn stubborn(channel: &mut Channel) -> [u32; 2] {
    channel.start(shell("trap '' TERM HUP INT; setsid sleep 600 & echo $$ $!; wait"));
    let pids = pids_said(channel);
    assert!(pids.iter().all(|pid| is_alive(*pid)));
    pids
}

#[test]
fn the_hosts_end_kills_everything() {
    let mut channel = Channel::open();
    let pids = stubborn(&mut channel);
    channel.close_stdin();
    assert_eq!(channel.wait_for_end(), Some(0));
    assert!(pids.iter().all(|pid| !is_alive(*pid)), "dead before the channel closed");
}

#[test]
fn a_killed_spawn_takes_its_commands_with_it() {
    let mut channel = Channel::open();
    let pids = stubborn(&mut channel);
    channel.child.kill().unwrap();
    channel.wait_for_end();
    eventually("the end of the orphans", || pids.iter().all(|pid| !is_alive(*pid)));
}

/// Its first thread ends, which looks like the end of the process; another one goes on for ten minutes.
const HEADLESS: &str = "import ctypes, os, threading, time\n\
                        def last():\n\
                        \x20   while open('/proc/self/stat').read().rsplit(')')[1].split()[0] != 'Z': pass\n\
                        \x20   os.write(1, b'%d\\n' % os.getpid()); time.sleep(600)\n\
                        threading.Thread(target=last).start()\n\
                        ctypes.CDLL(None).syscall(60, 0)";

#[test]
fn a_process_without_its_first_thread_is_killed_like_any_other() {
    let pid_in = |text: &str| text.trim().parse::<u32>().unwrap();
    let mut channel = Channel::open();
    // Left behind by a command that ends.
    let script = "python3 -c \"$1\" > pid & while [ ! -s pid ]; do :; done; cat pid";
    let outcome = channel.run(command(&["sh", "-c", script, "sh", HEADLESS]));
    assert_eq!((outcome.exited().stragglers, outcome.exited().clean), (1, true));
    assert!(!is_alive(pid_in(outcome.stdout_text())));

    // The command itself, when it is killed, and when the host or spawn is gone.
    for end in ["kill", "host", "spawn"] {
        let mut channel = Channel::open();
        let stream = channel.start(command(&["python3", "-c", HEADLESS]));
        let pid = loop {
            match channel.receive() {
                ToHost::Data { bytes, .. } => break pid_in(&String::from_utf8(bytes).unwrap()),
                ToHost::Started { .. } => {}
                frame => panic!("unexpected {frame:?}"),
            }
        };
        assert!(is_alive(pid));
        match end {
            "kill" => channel.send(&ToGuest::Kill { stream }),
            "host" => channel.close_stdin(),
            _ => channel.child.kill().unwrap(),
        }
        eventually(end, || !is_alive(pid));
    }
}

#[test]
fn a_killed_shim_is_a_lost_command() {
    let mut channel = Channel::open();
    let pids = stubborn(&mut channel);
    let stat = std::fs::read_to_string(format!("/proc/{}/stat", pids[0])).unwrap();
    let shim: i32 = stat.rsplit(')').next().unwrap().split_whitespace().nth(1).unwrap().parse().unwrap();
    rustix::process::kill_process(
        rustix::process::Pid::from_raw(shim).unwrap(),
        rustix::process::Signal::KILL,
    )
    .unwrap();
    loop {
        match channel.receive() {
            ToHost::Exited { exited, .. } => {
                assert_eq!((exited.status, exited.clean), (ExitStatus::Lost, false));
                break;
            }
            ToHost::OutputClosed { .. } => {}
            frame => panic!("unexpected {frame:?}"),
        }
    }
    assert!(pids.iter().all(|pid| !is_alive(*pid)));
    assert_eq!(channel.child.try_wait().unwrap(), None, "spawn goes on");
}

#[test]
fn a_broken_protocol_ends_the_channel_and_the_commands() {
    let violations: [&[u8]; 4] = [
        &[0xff; 16],
        // A frame of a stream that was never started.
        &[0, 0, 0, 0, 6, 99, 0, 0, 0],
        // A second hello would need a payload; an empty one is malformed.
        &[0, 0, 0, 0, 1, 0, 0, 0, 0],
        // Oversize.
        &[0xff, 0xff, 0xff, 0x7f, 3, 1, 0, 0, 0],
    ];
    for violation in violations {
        let mut channel = Channel::open();
        let pids = stubborn(&mut channel);
        channel.send_raw(violation);
        let code = channel.wait_for_end();
        assert!(pids.iter().all(|pid| !is_alive(*pid)));
        assert_eq!(code, Some(3));
    }
}

#[test]
fn a_stopped_group_does_not_hide_from_a_kill() {
    let mut channel = Channel::open();
    let mut stopped = shell("echo $$; kill -STOP 0; echo never");
    stopped.background = true;
    let stream = channel.start(stopped);
    let pid = pid_said(&mut channel);
    eventually("the stop", || {
        std::fs::read_to_string(format!("/proc/{pid}/stat")).is_ok_and(|stat| stat.contains(") T "))
    });
    channel.send(&ToGuest::Kill { stream });
    loop {
        match channel.receive() {
            ToHost::Exited { exited, .. } => {
                break assert_eq!((exited.status, exited.clean), (ExitStatus::Signal(9), true));
            }
            ToHost::OutputClosed { .. } => {}
            frame => panic!("unexpected {frame:?}"),
        }
    }
}

#[test]
fn a_fork_loop_left_behind_is_swept() {
    let mut channel = Channel::open();
    // Each generation forks the next and ends: never the same process twice.
    let outcome = channel.run(shell("f() { (f) & }; (f) & exit 0"));
    let exited = outcome.exited();
    assert_eq!(exited.status, ExitStatus::Code(0));
    assert!(exited.clean, "{exited:?}");
}

#[test]
fn a_host_that_fell_silent_is_gone() {
    let mut channel = Channel::open();
    let pids = stubborn(&mut channel);
    channel.send(&ToGuest::Ping { token: 1 });
    let begin = Instant::now();
    assert_eq!(channel.wait_for_end(), Some(0), "its end of the channel is still open");
    assert!(begin.elapsed() >= Duration::from_millis(HEARTBEAT_INTERVAL_MS * MISSED_HEARTBEATS));
    assert!(pids.iter().all(|pid| !is_alive(*pid)));
}
