//! `guest spawn`: how a command starts, what it sees, what its streams carry.

use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::time::Duration;

use guest::protocol::spawn::{ExitStatus, Output, ToGuest, ToHost};
use guest::protocol::{CREDIT_WINDOW_BYTES, PROTOCOL_VERSION};

use crate::spawn_host::{Channel, UID, command, shell};
use crate::wire::pattern;

#[test]
fn greets_with_its_version() {
    let channel = Channel::open();
    assert_eq!(channel.hello.protocol_version, PROTOCOL_VERSION);
    assert_eq!(channel.hello.pid, channel.child.id());
}

#[test]
fn exit_codes_and_signals_are_kept_apart() {
    let mut channel = Channel::open();
    for code in [0, 1, 126, 127, 137, 255] {
        let outcome = channel.run(shell(&format!("exit {code}")));
        assert_eq!(outcome.code(), ExitStatus::Code(code));
        assert!(outcome.exited().clean);
        assert_eq!(outcome.exited().stragglers, 0);
    }
    for signal in [9, 11, 15] {
        let outcome = channel.run(shell(&format!("kill -{signal} $$")));
        assert_eq!(outcome.code(), ExitStatus::Signal(signal));
    }
}

#[test]
fn outputs_are_separate_and_raw() {
    let mut channel = Channel::open();
    let outcome = channel.run(shell(r"printf 'a\377b'; printf 'err\000' >&2"));
    assert_eq!(outcome.stdout, b"a\xffb");
    assert_eq!(outcome.stderr, b"err\0");
}

#[test]
fn eight_mib_through_cat() {
    let mut channel = Channel::open();
    let input = pattern(8 << 20);
    let outcome = channel.run_with(command(&["cat"]), Some(&input));
    assert_eq!(outcome.code(), ExitStatus::Code(0));
    assert!(outcome.stdout == input, "{} bytes came back", outcome.stdout.len());
    assert_eq!(outcome.exited().stdin_bytes, 8 << 20);
    assert_eq!(outcome.stdin_broken, None);
}

#[test]
fn ten_mib_of_output_need_credit() {
    let mut channel = Channel::open();
    let content = pattern(10 << 20);
    std::fs::write(channel.path().join("big"), &content).unwrap();
    let outcome = channel.run(command(&["cat", "big"]));
    assert!(outcome.stdout == content, "{} bytes came back", outcome.stdout.len());
}

#[test]
fn output_stops_at_the_window_and_goes_on_after_the_end() {
    let mut channel = Channel::open();
    let stream = channel.start(shell("head -c 300000 /dev/zero"));
    let mut received = 0;
    let mut ended = false;
    while received < CREDIT_WINDOW_BYTES as usize || !ended {
        match channel.receive() {
            ToHost::Data { bytes, .. } => received += bytes.len(),
            ToHost::Exited { exited, .. } => {
                assert_eq!(exited.status, ExitStatus::Code(0));
                ended = true;
            }
            ToHost::Started { .. } | ToHost::OutputClosed { output: Output::Stderr, .. } => {}
            frame => panic!("unexpected {frame:?}"),
        }
    }
    assert_eq!(received, CREDIT_WINDOW_BYTES as usize, "not a byte without credit");
    channel.send(&ToGuest::Credit { stream, output: Output::Stdout, bytes: 100_000 });
    loop {
        match channel.receive() {
            ToHost::Data { bytes, .. } => received += bytes.len(),
            ToHost::OutputClosed { output: Output::Stdout, total_bytes, .. } => {
                assert_eq!((received, total_bytes), (300_000, 300_000));
                return;
            }
            ToHost::OutputClosed { output: Output::Stderr, .. } => {}
            frame => panic!("unexpected {frame:?}"),
        }
    }
}

#[test]
fn unread_stdin_is_an_event_not_a_hang() {
    let mut channel = Channel::open();
    let outcome = channel.run_with(command(&["true"]), Some(&pattern(4 << 20)));
    assert_eq!(outcome.code(), ExitStatus::Code(0));
    let delivered = outcome.stdin_broken.expect("said");
    assert_eq!(delivered, outcome.exited().stdin_bytes);
    assert!(delivered < 4 << 20);
    assert_eq!(channel.run(command(&["true"])).code(), ExitStatus::Code(0), "the channel goes on");
}

#[test]
fn no_stdin_is_end_of_file_and_so_is_an_empty_one() {
    let mut channel = Channel::open();
    for stdin in [None, Some(b"".as_slice())] {
        let outcome = channel.run_with(command(&["cat"]), stdin);
        assert_eq!((outcome.code(), outcome.stdout.len()), (ExitStatus::Code(0), 0));
    }
}

#[test]
fn what_cannot_start_is_told_apart_from_what_ran() {
    let mut channel = Channel::open();
    let script = channel.path().join("plain");
    std::fs::write(&script, "no format").unwrap();
    let script = script.to_str().unwrap().to_owned();
    let rows = [
        (vec!["no-such-program"], 127, 2),
        (vec![""], 127, 2),
        (vec!["/no/such/program"], 127, 2),
        (vec!["/etc/passwd"], 126, 13),
        (vec!["./plain"], 126, 22),
        (vec!["plain"], 127, 2),
        (vec!["A=B", "echo", "hi"], 127, 2),
        (vec!["/"], 126, 13),
    ];
    for (argv, exit_code, errno) in rows {
        let outcome = channel.run(command(&argv));
        let (code, number, message) = outcome.start_failed.unwrap_or_else(|| panic!("{argv:?} ran"));
        assert_eq!((code, number), (exit_code, errno), "{argv:?}: {message}");
        assert!(!message.is_empty());
    }
    std::fs::set_permissions(&script, std::fs::Permissions::from_mode(0o755)).unwrap();
    let outcome = channel.run(command(&[&script]));
    assert_eq!(outcome.start_failed.map(|(code, errno, _)| (code, errno)), Some((126, 8)));
}

/// fork: resource temporarily unavailable. The channel goes on.
#[test]
fn no_process_left_is_a_start_failure() {
    let mut channel = Channel::open();
    let mut first = shell("sleep 600 & echo up; wait");
    first.background = true;
    let first = channel.start(first);
    while !matches!(channel.receive(), ToHost::Data { .. }) {}
    // The first command's two processes have the same user, which may have one.
    let mut second = command(&["true"]);
    second.rlimits.nproc = Some(1);
    let outcome = channel.run(second);
    let (code, errno, message) = outcome.start_failed.expect("it ran");
    assert_eq!((code, errno, message.as_str()), (126, 11, "no process left for the program"));
    assert_eq!(channel.run(command(&["true"])).code(), ExitStatus::Code(0));
    channel.send(&ToGuest::Kill { stream: first });
}

#[test]
fn an_argument_over_the_systems_limit_is_said() {
    let mut channel = Channel::open();
    // One string may have 128 KiB.
    let argument = "x".repeat(140 << 10);
    let outcome = channel.run(command(&["echo", &argument]));
    assert_eq!(outcome.start_failed.map(|(code, errno, _)| (code, errno)), Some((126, 7)));
}

#[test]
fn the_working_directory_is_walked_without_following() {
    let mut channel = Channel::open();
    let root = channel.path().to_owned();
    std::fs::create_dir_all(root.join("a/b")).unwrap();
    std::fs::write(root.join("file"), "").unwrap();
    symlink("/etc", root.join("out")).unwrap();
    symlink("a", root.join("in")).unwrap();
    let inside = |cwd: &str| {
        let mut command = command(&["pwd"]);
        command.cwd = cwd.as_bytes().to_vec();
        command
    };
    let outcome = channel.run(inside("a/b"));
    assert_eq!(outcome.stdout_text().trim_end(), root.join("a/b").to_str().unwrap());
    assert_eq!(channel.run(inside("")).stdout_text().trim_end(), root.to_str().unwrap());
    for cwd in ["out", "in", "in/b", "missing", "a/missing", "file", "file/x", "..", "/etc", "a/../a", "a//b"]
    {
        let outcome = channel.run(inside(cwd));
        assert_eq!(outcome.start_failed.as_ref().map(|failed| failed.0), Some(126), "{cwd}");
        assert!(outcome.stdout.is_empty());
    }
}

#[test]
fn arguments_and_environment_are_verbatim() {
    let mut channel = Channel::open();
    let outcome = channel.run(command(&["printf", "%s|", "a\nb", " $HOME", "", "x=y", "*"]));
    assert_eq!(outcome.stdout_text(), "a\nb| $HOME||x=y|*|");

    let values: [&[u8]; 7] =
        [b"line\nbreak", b"a=b=c", b"  leading", b"$HOME", b"", "\u{e9}\u{1f600}".as_bytes(), b"\xff\x01"];
    let mut environ = command(&["cat", "/proc/self/environ"]);
    environ.env = values
        .iter()
        .enumerate()
        .map(|(index, value)| (format!("V{index}").into_bytes(), value.to_vec()))
        .collect();
    let expected: Vec<u8> =
        environ.env.iter().flat_map(|(name, value)| [name, b"=".as_slice(), value, b"\0"].concat()).collect();
    assert_eq!(channel.run(environ).stdout, expected);
}

#[test]
fn the_command_has_its_own_ids_no_capability_and_no_descriptor() {
    let mut channel = Channel::open();
    let outcome = channel.run(shell(
        "id -u; id -g; id -G; umask; grep -E '^(Cap|NoNewPrivs|SigIgn|SigBlk)' /proc/self/status; \
         cat /proc/self/oom_score_adj; ulimit -c; ulimit -n; echo $$; ps -o pgid= -p $$",
    ));
    let text = outcome.stdout_text();
    let expected = format!(
        "{UID}\n{UID}\n{UID}\n0022\nSigBlk:\t{zero}\nSigIgn:\t{zero}\nCapInh:\t{zero}\nCapPrm:\t{zero}\n\
         CapEff:\t{zero}\nCapBnd:\t{zero}\nCapAmb:\t{zero}\nNoNewPrivs:\t1\n1000\n0\n1024\n",
        zero = "0000000000000000"
    );
    assert!(text.starts_with(&expected), "{text}\nexpected\n{expected}");
    let ids: Vec<u32> = text.lines().rev().take(2).map(|id| id.trim().parse().unwrap()).collect();
    assert_eq!(ids[0], ids[1], "a session of its own");
    // The fourth is the listed directory itself.
    assert_eq!(channel.run(command(&["ls", "/proc/self/fd"])).stdout_text(), "0\n1\n2\n3\n");
}

#[test]
fn standard_streams_can_be_opened_again() {
    let mut channel = Channel::open();
    let outcome = channel
        .run_with(shell("cat /dev/stdin > /dev/stdout; echo e > /dev/stderr"), Some(b"through the pipe"));
    assert_eq!(outcome.stdout, b"through the pipe");
    assert_eq!(outcome.stderr, b"e\n");
}

/// Streams are made ahead of a command: not those of another user.
#[test]
fn each_users_streams_can_be_opened_again() {
    let mut channel = Channel::open();
    for uid in [UID, UID, UID + 1, UID + 1, UID] {
        let mut again = shell("echo o > /dev/stdout; echo e > /dev/stderr; stat -Lc %u /proc/self/fd/1");
        again.uid = uid;
        let outcome = channel.run(again);
        assert_eq!(outcome.stdout_text(), format!("o\n{uid}\n"));
        assert_eq!(outcome.stderr, b"e\n");
    }
}

#[test]
fn a_program_that_closes_its_outputs_goes_on() {
    let mut channel = Channel::open();
    let outcome = channel.run(shell("echo o; echo e >&2; exec >&- 2>&-; sleep 0.1; exit 3"));
    assert_eq!(outcome.code(), ExitStatus::Code(3));
    assert_eq!((outcome.stdout_text(), outcome.stderr.as_slice()), ("o\n", b"e\n".as_slice()));
}

#[test]
fn limits_reach_the_child() {
    let mut channel = Channel::open();
    let mut limited = shell("head -c 20000 /dev/zero > f; wc -c < f");
    limited.rlimits.fsize = Some(10_000);
    assert_eq!(channel.run(limited).stdout_text().trim(), "10000");
}

#[test]
fn stdin_without_credit_is_a_violation() {
    let mut channel = Channel::open();
    let mut sleeper = command(&["sleep", "600"]);
    sleeper.stdin = true;
    let stream = channel.start(sleeper);
    // The pipe takes 64 KiB and gives that much credit back: the sixth window cannot fit.
    let piece = vec![0; 32 * 1024];
    let mut frames = Vec::new();
    for _ in 0..20 {
        guest::protocol::encode(&ToGuest::StdinData { stream, bytes: piece.clone() }, &mut frames);
    }
    channel.send_raw(&frames);
    assert_eq!(channel.wait_for_end(), Some(3));
}

#[test]
fn usage_is_measured() {
    let mut channel = Channel::open();
    let outcome =
        channel.run(command(&["python3", "-c", "x = bytearray(64 << 20)\nfor i in range(3000000): pass"]));
    let exited = outcome.exited();
    assert!(exited.max_rss_bytes >= 64 << 20, "{exited:?}");
    assert!(exited.max_rss_bytes < 512 << 20, "{exited:?}");
    assert!(exited.cpu_ms >= 20, "{exited:?}");
}

#[test]
fn the_nonce_is_read_and_hidden_from_commands() {
    let mut channel = Channel::open();
    channel.send(&ToGuest::ReadNonce);
    assert_eq!(channel.receive(), ToHost::Nonce(None));
    let private = channel.path().join(".leasehold");
    std::fs::create_dir(&private).unwrap();
    std::fs::set_permissions(&private, std::fs::Permissions::from_mode(0o700)).unwrap();
    std::fs::write(private.join("nonce"), b"\x01\xff").unwrap();
    channel.send(&ToGuest::ReadNonce);
    assert_eq!(channel.receive(), ToHost::Nonce(Some(b"\x01\xff".to_vec())));
    assert_eq!(channel.run(shell("cat .leasehold/nonce")).stdout_text(), "");
}

#[test]
fn files_belong_to_the_commands_user() {
    let mut channel = Channel::open();
    assert_eq!(channel.run(shell("echo x > made")).code(), ExitStatus::Code(0));
    let made = std::fs::metadata(channel.path().join("made")).unwrap();
    assert_eq!((made.uid(), made.gid(), made.mode() & 0o777), (UID, UID, 0o644));
}

#[test]
fn commands_are_fast_enough_to_start() {
    let mut channel = Channel::open();
    let mut times: Vec<Duration> = (0..50)
        .map(|_| {
            let begin = std::time::Instant::now();
            assert_eq!(channel.run(command(&["true"])).code(), ExitStatus::Code(0));
            begin.elapsed()
        })
        .collect();
    times.sort();
    println!("p50 {:?}, p95 {:?}", times[25], times[47]);
    assert!(times[25] < Duration::from_millis(50), "p50 {:?}", times[25]);
}
