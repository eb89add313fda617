//! Deleted files that are still open, as spawn finds them.

use guest::protocol::spawn::{StartCommand, ToGuest, ToHost};
use rustix::process::{Pid, Signal, kill_process};

use crate::spawn_host::{Channel, command};

#[derive(Debug, PartialEq, Eq)]
struct Measured {
    bytes: u64,
    inodes: u64,
    kept_bytes: u64,
    kept_inodes: u64,
    complete: bool,
    readable: bool,
}

fn measure(channel: &mut Channel, uid: u32, bytes_max: u64, inodes_max: u64) -> Measured {
    channel.send(&ToGuest::Measure { token: 7, uid, gid: uid, bytes_max, inodes_max });
    loop {
        if let ToHost::Measured {
            token,
            deleted_bytes: bytes,
            deleted_inodes: inodes,
            kept_bytes,
            kept_inodes,
            complete,
            readable,
        } = channel.receive()
        {
            assert_eq!(token, 7);
            return Measured { bytes, inodes, kept_bytes, kept_inodes, complete, readable };
        }
    }
}

/// Each test has a user of its own: they run beside each other and beside others that start commands.
fn command_of(uid: u32, argv: &[&str]) -> StartCommand {
    StartCommand { uid, gid: uid, ..command(argv) }
}

/// Starts a Python program and waits until it says that it is ready.
fn holder(uid: u32, script: &str) -> Channel {
    let mut channel = Channel::open();
    let script = format!("import ctypes, os, time\n{script}\nprint('ready', flush=True)\ntime.sleep(600)");
    channel.start(StartCommand { background: true, ..command_of(uid, &["python3", "-c", &script]) });
    loop {
        match channel.receive() {
            ToHost::Data { bytes, .. } if bytes.starts_with(b"ready") => return channel,
            ToHost::Data { bytes, .. } => panic!("{}", String::from_utf8_lossy(&bytes)),
            ToHost::Exited { exited, .. } => panic!("{exited:?}"),
            _ => {}
        }
    }
}

#[test]
fn what_is_unlinked_and_open_is_found_once() {
    let mut channel = holder(
        61_300,
        "a = open('a', 'wb'); a.write(b'x' * 1000000); a.flush(); os.unlink('a')\n\
         b = os.open('.', os.O_TMPFILE | os.O_RDWR); os.truncate(b, 1 << 40); os.dup(b)\n\
         if os.fork() == 0: time.sleep(600)\n\
         kept = open('kept', 'wb'); kept.write(b'y' * 5000000); kept.flush()\n\
         liar = open('a (deleted)', 'wb'); liar.write(b'z' * 5000000); liar.flush()\n\
         os.mkdir('d'); d = os.open('d', os.O_RDONLY); os.rmdir('d')\n\
         m = os.memfd_create('m'); os.write(m, b'm' * 5000000)",
    );
    let found = measure(&mut channel, 61_300, u64::MAX, u64::MAX);
    assert!(found.complete && found.readable, "{found:?}");
    assert_eq!(found.inodes, 3, "the file, the nameless one, the directory");
    assert!(((1 << 40) + 1_000_000..(1 << 40) + 1_100_000).contains(&found.bytes), "{found:?}");
    let found = measure(&mut channel, 61_300, 1 << 30, u64::MAX);
    assert!(!found.complete && found.readable && found.bytes > 1 << 30, "{found:?}");
}

#[test]
fn what_two_searches_find_is_told_apart_from_what_only_the_second_does() {
    let mut channel = Channel::open();
    let script = "import os, sys\n\
         def nameless(size):\n\
         \x20   fd = os.open('f', os.O_CREAT | os.O_RDWR); os.unlink('f'); os.truncate(fd, size); return fd\n\
         stays, goes = nameless(1000), nameless(20000)\n\
         print('ready', flush=True); sys.stdin.readline()\n\
         os.close(goes); comes = nameless(300000)\n\
         print('ready', flush=True); sys.stdin.readline()";
    let start = StartCommand { stdin: true, ..command_of(61_312, &["python3", "-c", script]) };
    let stream = channel.start(start);
    let ready = |channel: &mut Channel| {
        while !matches!(channel.receive(), ToHost::Data { bytes, .. } if bytes.starts_with(b"ready")) {}
    };
    let found = |bytes, inodes, kept_bytes, kept_inodes| Measured {
        bytes,
        inodes,
        kept_bytes,
        kept_inodes,
        complete: true,
        readable: true,
    };
    ready(&mut channel);
    assert_eq!(measure(&mut channel, 61_312, u64::MAX, u64::MAX), found(21_000, 2, 0, 0));
    assert_eq!(measure(&mut channel, 61_312, u64::MAX, u64::MAX), found(21_000, 2, 21_000, 2));
    channel.send(&ToGuest::StdinData { stream, bytes: b"\n".to_vec() });
    ready(&mut channel);
    assert_eq!(measure(&mut channel, 61_312, u64::MAX, u64::MAX), found(301_000, 2, 1_000, 1));
}

#[test]
fn nobody_runs_means_nothing_is_held() {
    let mut channel = Channel::open();
    let nothing =
        Measured { bytes: 0, inodes: 0, kept_bytes: 0, kept_inodes: 0, complete: true, readable: true };
    assert_eq!(measure(&mut channel, 61_301, 1, 1), nothing);
    assert!(channel.run(command_of(61_301, &["true"])).exited().clean);
    assert_eq!(measure(&mut channel, 61_301, 1, 1), nothing);
}

#[test]
fn a_process_that_hides_its_descriptors_is_told() {
    let mut channel = holder(
        61_302,
        "a = open('a', 'wb'); a.write(b'x' * 1000000); a.flush(); os.unlink('a')\n\
         assert ctypes.CDLL(None).prctl(4, 0, 0, 0, 0) == 0",
    );
    assert!(measure(&mut channel, 61_302, u64::MAX, u64::MAX).readable, "once may be an accident");
    let again = measure(&mut channel, 61_302, u64::MAX, u64::MAX);
    assert!(!again.readable && !again.complete, "{again:?}");
}

/// However long somebody holds up the start of another command.
#[test]
fn a_start_that_stands_still_hides_nobody_else() {
    let mut channel = holder(
        61_313,
        "a = open('a', 'wb'); a.write(b'x' * 1000000); a.flush(); os.unlink('a')\n\
         assert ctypes.CDLL(None).prctl(4, 0, 0, 0, 0) == 0",
    );
    let children = |pid: u32| {
        let list = std::fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap_or_default();
        list.split_ascii_whitespace().map(|pid| pid.parse().unwrap()).collect::<Vec<u32>>()
    };
    // The holder keeps its shim; another one waits.
    let spawn = channel.child.id();
    let mut waiting = None;
    crate::wire::eventually("a shim that waits", || {
        waiting = children(spawn).into_iter().find(|shim| children(*shim).is_empty());
        waiting.is_some()
    });
    let shim = Pid::from_raw(waiting.unwrap().try_into().unwrap()).unwrap();
    kill_process(shim, Signal::STOP).unwrap();
    channel.start(StartCommand { background: true, ..command_of(61_313, &["true"]) });
    measure(&mut channel, 61_313, u64::MAX, u64::MAX);
    let again = measure(&mut channel, 61_313, u64::MAX, u64::MAX);
    kill_process(shim, Signal::CONT).unwrap();
    assert!(!again.readable && !again.complete, "{again:?}");
}

#[test]
fn the_dead_hide_nothing_and_what_outlives_its_first_thread_does_not_either() {
    let mut channel = holder(
        61_310,
        "pid = os.fork()\n\
         if pid == 0: os._exit(0)\n\
         os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)",
    );
    for _ in 0..4 {
        let found = measure(&mut channel, 61_310, u64::MAX, u64::MAX);
        assert!(found.complete && found.readable, "a zombie: {found:?}");
    }
    let mut channel = holder(
        61_311,
        "import threading\n\
         fd = os.open('a', os.O_CREAT | os.O_WRONLY); os.write(fd, b'x' * 100000); os.unlink('a')\n\
         def state(): return open('/proc/self/stat').read().rsplit(')', 1)[1].split()[0]\n\
         def last():\n\
         \x20   while state() != 'Z': time.sleep(0.01)\n\
         \x20   print('ready', flush=True); time.sleep(600)\n\
         threading.Thread(target=last).start()\n\
         ctypes.CDLL(None).syscall(60, 0)",
    );
    for _ in 0..4 {
        let found = measure(&mut channel, 61_311, u64::MAX, u64::MAX);
        assert_eq!((found.inodes, found.complete, found.readable), (1, true, true));
    }
}

#[test]
fn many_descriptors_hold_up_nobody() {
    let mut channel = holder(
        61_303,
        "import resource\n\
         for _ in range(40):\n\
         \x20   if os.fork() == 0:\n\
         \x20       fd = os.open('f', os.O_CREAT | os.O_RDWR)\n\
         \x20       for _ in range(900): os.dup(fd)\n\
         \x20       os.kill(os.getppid(), 0); os.open(f'done-{os.getpid()}', os.O_CREAT)\n\
         \x20       time.sleep(600)\n\
         while len([name for name in os.listdir() if name.startswith('done')]) < 40: time.sleep(0.01)",
    );
    channel.send_together(&[
        ToGuest::Measure { token: 9, uid: 61_303, gid: 61_303, bytes_max: 1, inodes_max: 1 },
        ToGuest::Ping { token: 1 },
    ]);
    let first = loop {
        match channel.receive() {
            ToHost::Pong { .. } => break "pong",
            ToHost::Measured { .. } => break "measured",
            _ => {}
        }
    };
    assert_eq!(first, "pong", "the search goes on between other things");
    loop {
        if let ToHost::Measured { deleted_inodes, complete, .. } = channel.receive() {
            assert_eq!((deleted_inodes, complete), (0, true));
            break;
        }
    }
}

#[test]
fn commands_start_during_a_search_and_the_next_search_is_whole() {
    let mut channel =
        holder(61_304, "a = open('a', 'wb'); a.write(b'x' * 100000); a.flush(); os.unlink('a')");
    for _ in 0..20 {
        let measure = ToGuest::Measure {
            token: 7,
            uid: 61_304,
            gid: 61_304,
            bytes_max: u64::MAX,
            inodes_max: u64::MAX,
        };
        let mut background = command_of(61_304, &["true"]);
        background.background = true;
        let start = ToGuest::Start { stream: channel.new_stream(), command: background };
        channel.send_together(&[measure, start]);
        let mut over = 0;
        while over < 2 {
            match channel.receive() {
                ToHost::Measured { deleted_inodes, .. } => {
                    assert_eq!(deleted_inodes, 1);
                    over += 1;
                }
                ToHost::Exited { exited, .. } => {
                    assert!(exited.clean);
                    over += 1;
                }
                _ => {}
            }
        }
    }
    assert!(measure(&mut channel, 61_304, u64::MAX, u64::MAX).complete);
}
