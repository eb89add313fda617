//! What only a kernel can show: trees of processes, signals, rights, limits. For adapters that run real programs (shell,
//! coreutils, Python) in their image.

use std::sync::Arc;
use std::time::{Duration, Instant};

use events::event::command::KillReason;
use events::spec::Mechanism;
use futures::StreamExt as _;

use super::subject::{Call, RecordingSink, Subject, path_of};
use crate::ports::WorkspaceError;

/// Long enough for a process that survived to have written its file (each waits three seconds before it does).
const SURVIVORS_WOULD_HAVE_WRITTEN: Duration = Duration::from_secs(4);

/// Turns the cases of this module into tests.
#[macro_export]
macro_rules! kernel_suite {
    ($subject:ident) => {
        $crate::contract_cases! { $subject;
            kernel: nothing_writes_after_a_kill, ignoring_signals_does_not_help,
                a_stopped_command_still_times_out, left_processes_are_gone_before_the_next_command,
                commands_have_no_rights, the_private_directory_is_out_of_reach,
                a_heredoc_then_another_command, many_files_do_not_matter_to_the_next_command,
                memory_is_enforced_with_evidence, an_innocent_command_after_an_oom_is_left_alone,
                many_background_commands_are_no_burden,
                slow_readers_cost_no_outcome, sparse_giants_do_not_hold_the_outcome, a_fork_flood_is_ended,
                many_busy_processes_are_no_flood,
                a_file_that_changes_while_read_is_refused, modes_and_sockets_through_the_port,
                a_cancelled_process_is_gone, many_with_short_limits_do_not_deadlock,
                killing_everything_reaches_only_ones_own;
            beside: the_foregrounds_memory_is_not_the_backgrounds, who_the_kernel_ends_is_the_one,
                who_the_kernel_ends_is_not_the_foreground,
                a_start_that_is_refused_is_nobody_elses, whomever_the_kernel_ends_it_is_memory;
            limits: a_spin_loop_is_timeout_and_keeps_to_its_processors, allocators_are_memory,
                a_fork_bomb_is_pids, a_fork_bomb_that_leaves_nobody_a_turn_is_pids, an_output_flood_is_output_limit,
                a_disk_filler_is_stopped_within_the_bound, a_program_that_ignores_the_full_disk_is_disk,
                fillers_of_every_kind_are_disk, deleted_open_files_are_disk, what_loses_its_name_counts_once, hiding_what_is_open_is_disk,
                a_tree_deeper_than_a_path_is_long_can_be_worked_in,
                room_taken_without_writing_counts, a_nearly_full_workspace_can_be_worked_in,
                what_only_looks_like_a_limit_stays_what_it_is, quiet_commands_are_left_alone;
        }
    };
}

/// A timeout ends the whole tree, also what left the process group or was orphaned twice.
pub async fn nothing_writes_after_a_kill(subject: &Subject) {
    let handle = subject.environment().await;
    for (script, timeout_ms) in [
        ("(sleep 3; echo > late) & wait", 50),
        ("setsid sh -c '(sleep 3; echo > late) & exit' & sleep 60", 600),
        ("nohup setsid sh -c 'sleep 3; echo > late' >/dev/null 2>&1 & sleep 60", 600),
    ] {
        let result = subject.run(&handle, Call::sh(script).timeout_ms(timeout_ms)).await.expect("a result");
        assert_eq!(result.killed_by, Some(KillReason::Timeout), "{script}");
    }
    tokio::time::sleep(SURVIVORS_WOULD_HAVE_WRITTEN).await;
    assert_eq!(subject.read(&handle, "late").await, Err(WorkspaceError::NotFound));
}

/// A command that ignores every signal it can is killed all the same, and the reason is the limit.
pub async fn ignoring_signals_does_not_help(subject: &Subject) {
    let handle = subject.environment().await;
    let script = "trap '' TERM INT HUP QUIT; echo deaf; while :; do sleep 1; done";
    let result = subject.run(&handle, Call::sh(script).timeout_ms(700)).await.expect("a result");
    assert_eq!((result.killed_by, result.exit_code), (Some(KillReason::Timeout), None));
    assert_eq!(result.stdout.head, b"deaf\n");
}

/// SIGSTOP to one's own group does not stop the clock.
pub async fn a_stopped_command_still_times_out(subject: &Subject) {
    let handle = subject.environment().await;
    let result = subject.run(&handle, Call::sh("kill -STOP 0; echo never").timeout_ms(700)).await;
    assert_eq!(result.expect("a result").killed_by, Some(KillReason::Timeout));
    assert_eq!(subject.sh(&handle, "echo on").await.stdout.head, b"on\n");
}

/// What a command leaves running is not there for the next one.
pub async fn left_processes_are_gone_before_the_next_command(subject: &Subject) {
    let handle = subject.environment().await;
    let left = subject.sh(&handle, "setsid sleep 4321 & sleep 4321 & exit 3").await;
    assert_eq!((left.exit_code, left.killed_by), (Some(3), None));
    assert_eq!(left.stragglers, 2);
    let seen = subject.sh(&handle, "cat /proc/[0-9]*/cmdline | tr '\\0' ' ' | grep -c 'sleep [4]321'").await;
    assert_eq!(seen.stdout.head, b"0\n");
}

/// No capability in any set, no new privileges, a filter, a user id of its own that is nobody's on the host.
pub async fn commands_have_no_rights(subject: &Subject) {
    let handle = subject.environment().await;
    let no_new_privileges = "python3 -c 'import ctypes; print(ctypes.CDLL(None).prctl(39, 0, 0, 0, 0))'";
    let script = format!("cat /proc/self/status; {no_new_privileges}; id -u; cat /proc/sys/kernel/hostname");
    let status = subject.sh(&handle, &script).await;
    let text = String::from_utf8(status.stdout.head).expect("text");
    let field = |name: &str| {
        let line = text.lines().find(|line| line.starts_with(name)).expect(name);
        line.split_whitespace().nth(1).expect("a value").to_owned()
    };
    for set in ["CapInh", "CapPrm", "CapEff", "CapBnd"] {
        assert_eq!(field(set), "0000000000000000", "{set}");
    }
    match subject.mechanism {
        // No system call reaches the host's kernel, so the container's filter is not for them; ambient capabilities do not
        // exist there.
        Mechanism::Gvisor => assert_eq!(field("Seccomp"), "0"),
        _ => assert_eq!((field("CapAmb"), field("Seccomp")), ("0000000000000000".to_owned(), "2".to_owned())),
    }
    assert_eq!(text.lines().rev().nth(2), Some("1"), "no new privileges");
    let uid: u32 = text.lines().rev().nth(1).expect("the uid").parse().expect("a number");
    assert!(uid >= 65_536);
    assert_eq!(text.lines().last(), Some("sandbox"));
    let other = subject.environment().await;
    let second = subject.sh(&other, "id -u").await;
    assert_ne!(second.stdout.head, format!("{uid}\n").into_bytes());
}

/// Code can neither read, rename nor remove what tells a workspace from a lost one.
pub async fn the_private_directory_is_out_of_reach(subject: &Subject) {
    let handle = subject.environment().await;
    let script = "mv .leasehold other; rm -rf .leasehold; ls .leasehold; echo x > .leasehold/nonce; rmdir /workspace/.leasehold";
    let result = subject.sh(&handle, script).await;
    assert_ne!(result.exit_code, Some(0));
    assert_eq!(result.files_changed, []);
    let killed = subject.run(&handle, Call::sh("sleep 60").timeout_ms(200)).await.expect("a result");
    assert_eq!(killed.killed_by, Some(KillReason::Timeout));
    assert_eq!(subject.sh(&handle, "echo on").await.stdout.head, b"on\n");
    let page = subject.adapter.workspace.list(&handle, None, true, None, 10).await.expect("listed");
    assert_eq!(page.entries, []);
}

/// A heredoc writes its file, and the environment takes the next command.
pub async fn a_heredoc_then_another_command(subject: &Subject) {
    let handle = subject.environment().await;
    let written = subject.sh(&handle, "cat > f <<'END'\none $two\nEND\n").await;
    assert_eq!(written.exit_code, Some(0));
    assert_eq!(subject.sh(&handle, "echo ok; cat f").await.stdout.head, b"ok\none $two\n");
    let open =
        subject.run(&handle, Call::sh("cat <<'END'\nnever ended").timeout_ms(5_000)).await.expect("a result");
    assert_eq!(open.killed_by, None);
}

/// 20,000 files change nothing for the next command but the time of the look.
pub async fn many_files_do_not_matter_to_the_next_command(subject: &Subject) {
    let handle = subject.environment().await;
    let script = "import os\nos.mkdir('d')\nfor i in range(20000): open(f'd/{i:05}', 'w').close()";
    let call = Call::argv(&["python3", "-c", script]).timeout_ms(30_000);
    let made = subject.run(&handle, call).await.expect("a result");
    assert_eq!(
        (made.exit_code, made.files_changed.len(), made.files_changed_truncated),
        (Some(0), 100, true)
    );
    let next = subject.sh(&handle, "echo on").await;
    assert_eq!((next.stdout.head.as_slice(), next.files_changed.len()), (&b"on\n"[..], 0));
}

/// A kill by the kernel is MEMORY with its counts, whatever the program makes of it.
pub async fn memory_is_enforced_with_evidence(subject: &Subject) {
    let mut spec = subject.spec();
    spec.limits.memory_bytes = 128 << 20;
    let handle = subject.adapter.execution.provision(spec).await.expect("provisioned");
    let script = "echo before; python3 -c 'x = bytearray(1 << 30)'; echo after: $?; sleep 60";
    let result = subject.run(&handle, Call::sh(script)).await.expect("a result");
    assert_eq!((result.exit_code, result.killed_by), (None, Some(KillReason::Memory)));
    assert!(result.stdout.head.starts_with(b"before\n"));
    let evidence = result.evidence.expect("evidence");
    assert_eq!(evidence.limit_bytes, Some(128 << 20));
    assert!(evidence.oom_kills.is_some_and(|kills| kills >= 1) && evidence.source.is_some());
    assert_eq!(subject.sh(&handle, "echo on").await.stdout.head, b"on\n");
}

/// What one command ran into is not charged to the next.
pub async fn an_innocent_command_after_an_oom_is_left_alone(subject: &Subject) {
    let mut spec = subject.spec();
    spec.limits.memory_bytes = 128 << 20;
    let handle = subject.adapter.execution.provision(spec).await.expect("provisioned");
    for _ in 0..3 {
        let guilty = Call::argv(&["python3", "-c", "x = bytearray(1 << 30)"]);
        let killed = subject.run(&handle, guilty).await.expect("a result");
        assert_eq!(killed.killed_by, Some(KillReason::Memory));
        let oom_kills = killed.evidence.and_then(|evidence| evidence.oom_kills).expect("a count");
        // Of a gVisor sandbox the kernel may end several processes, one after the other, before its own.
        assert!(oom_kills == 1 || oom_kills > 1 && subject.mechanism == Mechanism::Gvisor, "{oom_kills}");
        let innocent = subject.sh(&handle, "sleep 1; echo fine").await;
        assert_eq!((innocent.killed_by, innocent.stdout.head.as_slice()), (None, &b"fine\n"[..]));
    }
}

/// Slow downloads hold up neither a command's outcome nor its list of changes.
pub async fn slow_readers_cost_no_outcome(subject: &Subject) {
    let handle = subject.environment().await;
    subject.write(&handle, "large", &vec![7; 1 << 20]).await.expect("written");
    let path = path_of("large");
    let open = || subject.adapter.workspace.read(&handle, &path, 64 << 20);
    // Each holds its window unread; those that have no turn yet wait for one.
    let mut readers: Vec<_> = Vec::new();
    let waiting = (0..70).map(|_| open()).collect::<futures::stream::FuturesUnordered<_>>();
    let mut waiting = std::pin::pin!(waiting);
    while let Ok(Some(reader)) = tokio::time::timeout(Duration::from_millis(500), waiting.next()).await {
        readers.push(reader.expect("opened"));
    }
    assert!(readers.len() < 70);
    let result = subject.sh(&handle, "echo made > made").await;
    assert_eq!(
        (result.exit_code, result.files_changed.len(), result.files_changed_truncated),
        (Some(0), 1, false)
    );
    readers.clear();
    while let Some(reader) = waiting.next().await {
        drop(reader.expect("the turn of the others has come"));
    }
}

/// Huge files that cost no disk are reported whole, so before the adapter's own deadline for that, and count by their size.
pub async fn sparse_giants_do_not_hold_the_outcome(subject: &Subject) {
    let mut spec = subject.spec();
    spec.limits.workspace_bytes = 8 << 30;
    let handle = subject.adapter.execution.provision(spec).await.expect("provisioned");
    let result = subject.sh(&handle, "for i in 1 2 3 4; do truncate -s 1900M f$i; done; echo made").await;
    assert_eq!((result.killed_by, result.stdout.head.as_slice()), (None, &b"made\n"[..]));
    assert_eq!((result.files_changed.len(), result.files_changed_truncated), (4, false));
    let result = subject.sh(&handle, "for i in 5 6 7 8; do truncate -s 1900M f$i; done; sleep 60").await;
    super::quota::is_disk(&result, "bytes", 8 << 30);
    assert_eq!(subject.sh(&handle, "rm f*; echo next").await.stdout.head, b"next\n");
}

/// Forks that go on being refused are PIDS.
pub async fn a_fork_flood_is_ended(subject: &Subject) {
    let mut spec = subject.spec();
    spec.limits.pids_max = 64;
    let handle = subject.adapter.execution.provision(spec).await.expect("provisioned");
    let script = "import os, time\nprint('flood', flush=True)\nwhile True:\n    try:\n        if os.fork() == 0: time.sleep(100)\n    except OSError: time.sleep(0.01)";
    let result = subject.run(&handle, Call::argv(&["python3", "-c", script])).await.expect("a result");
    assert_eq!((result.exit_code, result.killed_by), (None, Some(KillReason::Pids)));
    assert_eq!(result.stdout.head, b"flood\n");
    let evidence = result.evidence.expect("evidence");
    assert_eq!(evidence.limit, Some(64));
    match subject.mechanism {
        // Its kernel counts no refusals: the guest counts processes.
        Mechanism::Gvisor => {
            assert_eq!((evidence.source.as_deref(), evidence.refused_forks), (Some("process_count"), None));
        }
        _ => assert!(evidence.refused_forks.is_some_and(|refused| refused > 0)),
    }
    assert_eq!(subject.sh(&handle, "echo on").await.stdout.head, b"on\n");
}

/// Many busy processes below the limit cost nobody their environment.
pub async fn many_busy_processes_are_no_flood(subject: &Subject) {
    let mut spec = subject.spec();
    spec.limits.memory_bytes = 2 << 30;
    let handle = subject.adapter.execution.provision(spec).await.expect("provisioned");
    let script = "i=0; while [ $i -lt 80 ]; do (while :; do sleep 0.1; done) & i=$((i+1)); done; sleep 8; kill $(jobs -p); echo done";
    let result = subject.run(&handle, Call::sh(script).timeout_ms(60_000)).await.expect("a result");
    assert_eq!((result.killed_by, result.stdout.head.as_slice()), (None, &b"done\n"[..]));
    assert_eq!(subject.sh(&handle, "echo on").await.stdout.head, b"on\n");
}

/// Commands that only wait in the background cost nobody time, and nobody is accused for their number.
pub async fn many_background_commands_are_no_burden(subject: &Subject) {
    let handle = subject.environment().await;
    let begun = Instant::now();
    let sinks: Vec<_> = (0..40).map(|_| Arc::new(RecordingSink::default())).collect();
    let waiting = sinks.iter().map(|sink| {
        let call = Call::sh("echo up; sleep 300").background().timeout_ms(300_000).sink(sink);
        subject.run(&handle, call)
    });
    let work = async {
        for sink in &sinks {
            sink.shows("up").await;
        }
        for _ in 0..3 {
            let next = subject.sh(&handle, "sleep 1; echo fine").await;
            assert_eq!((next.killed_by, next.stdout.head.as_slice()), (None, &b"fine\n"[..]), "{next:?}");
        }
        assert!(begun.elapsed() < Duration::from_secs(60), "{:?}", begun.elapsed());
        subject.adapter.execution.destroy(handle.environment_id).await.expect("destroyed");
    };
    let (ended, ()) = tokio::join!(futures::future::join_all(waiting), work);
    assert_eq!(ended.len(), 40);
}

/// A reader never gets half of one version and half of another as if they were one file.
pub async fn a_file_that_changes_while_read_is_refused(subject: &Subject) {
    let handle = subject.environment().await;
    // More than is on its way at once: the reading goes on when the file changes.
    subject.write(&handle, "f", &vec![1; 16 << 20]).await.expect("written");
    let mut file = subject.adapter.workspace.read(&handle, &path_of("f"), 64 << 20).await.expect("opened");
    file.bytes.next().await.expect("a piece").expect("bytes");
    assert_eq!(subject.sh(&handle, "echo more >> f").await.exit_code, Some(0));
    let mut last = Ok(());
    while let Some(piece) = file.bytes.next().await {
        last = piece.map(drop);
    }
    assert_eq!(last, Err(WorkspaceError::ChangedDuringRead));
}

/// `kill -9 -1` by code reaches only its own: the environment answers.
pub async fn killing_everything_reaches_only_ones_own(subject: &Subject) {
    let handle = subject.environment().await;
    let sink = Arc::new(RecordingSink::default());
    let result = subject.run(&handle, Call::sh("echo up; kill -9 -1").sink(&sink)).await.expect("a result");
    assert_eq!(result.killed_by, None);
    let attack = "for p in /proc/[0-9]*; do kill -9 ${p#/proc/} 2>/dev/null; kill -STOP ${p#/proc/} 2>/dev/null; done; echo tried";
    let result = subject.run(&handle, Call::sh(attack).timeout_ms(2_000)).await.expect("a result");
    assert!(result.stdout.head.is_empty() || result.stdout.head == b"tried\n");
    assert_eq!(subject.sh(&handle, "echo on").await.stdout.head, b"on\n");
}

/// The port reads what the mode hides, and refuses what is no file.
pub async fn modes_and_sockets_through_the_port(subject: &Subject) {
    let handle = subject.environment().await;
    let script = "import os, socket\nopen('hidden', 'w').write('x')\nos.chmod('hidden', 0)\nos.mkdir('d')\nopen('d/f', 'w').write('y')\nos.chmod('d', 0)\nsocket.socket(socket.AF_UNIX).bind('s')";
    let made = subject.run(&handle, Call::argv(&["python3", "-c", script])).await.expect("a result");
    // A socket made under gVisor exists only in its own kernel.
    let (changed, socket) = match subject.mechanism {
        Mechanism::Gvisor => (2, WorkspaceError::NotFound),
        _ => (3, WorkspaceError::NotRegular),
    };
    assert_eq!((made.exit_code, made.files_changed.len()), (Some(0), changed));
    assert_eq!(subject.read(&handle, "hidden").await.expect("read"), b"x");
    assert_eq!(subject.read(&handle, "d/f").await.expect("read"), b"y");
    assert_eq!(subject.read(&handle, "s").await, Err(socket));
}

/// After a cancellation the process is not there any more.
pub async fn a_cancelled_process_is_gone(subject: &Subject) {
    let handle = subject.environment().await;
    let sink = Arc::new(RecordingSink::default());
    let call = Call::sh("setsid sleep 4322 & echo up; sleep 4322").sink(&sink);
    let cancel = call.cancel_handle();
    let ask = async {
        sink.shows("up").await;
        cancel.cancel(super::kills::client_cancel());
    };
    let (ended, ()) = tokio::join!(subject.run(&handle, call), ask);
    assert!(ended.is_err());
    let seen = subject.sh(&handle, "cat /proc/[0-9]*/cmdline | tr '\\0' ' ' | grep -c 'sleep [4]322'").await;
    assert_eq!(seen.stdout.head, b"0\n");
}

/// Twenty at once, half of them killed by their limit, half by a signal of their own just before it.
pub async fn many_with_short_limits_do_not_deadlock(subject: &Subject) {
    let handle = subject.environment().await;
    let runs = (0..20).map(|number| {
        let (script, limit_ms) =
            if number % 2 == 0 { ("sleep 60", 500) } else { ("sleep 0.4; kill -9 $$", 5_000) };
        subject.run(&handle, Call::sh(script).timeout_ms(limit_ms).background())
    });
    for (number, result) in futures::future::join_all(runs).await.into_iter().enumerate() {
        let result = result.expect("a result");
        let expected = if number % 2 == 0 { (None, Some(KillReason::Timeout)) } else { (Some(137), None) };
        assert_eq!((result.exit_code, result.killed_by), expected, "{number}");
    }
    assert_eq!(subject.sh(&handle, "echo on").await.stdout.head, b"on\n");
}
