//! Output and exit codes.

use std::sync::Arc;

use events::bounds::VIEW_BYTES_MAX;
use events::event::command::KillReason;
use sha2::{Digest, Sha256};

use super::subject::{Call, RecordingSink, Subject};
use crate::ports::OutputStream;

/// A byte that is no text is kept.
pub async fn any_byte_survives(subject: &Subject) {
    let handle = subject.environment().await;
    let result = subject.sh(&handle, r"printf 'a\377b\000c'").await;
    assert_eq!((result.exit_code, result.stdout.head.as_slice()), (Some(0), &b"a\xffb\0c"[..]));
}

/// Text whose characters straddle every piece is byte-identical, in the capture and at the sink.
pub async fn long_text_is_kept_whole(subject: &Subject) {
    let handle = subject.environment().await;
    let text = "日本語🦀".repeat(20_000).into_bytes();
    let sink = Arc::new(RecordingSink::default());
    let call = Call::argv(&["cat"]).stdin(text.clone()).sink(&sink);
    let result = subject.run(&handle, call).await.expect("a result");
    assert_eq!(result.stdout.bytes_total, text.len() as u64);
    assert_eq!(result.stdout.sha256, <[u8; 32]>::from(Sha256::digest(&text)));
    assert!(sink.bytes(OutputStream::Stdout) == text);
    assert_eq!(subject.sh(&handle, "echo next").await.stdout.head, b"next\n");
}

/// 2 MiB without a newline arrive like any other bytes.
pub async fn a_long_line_needs_no_newline(subject: &Subject) {
    let handle = subject.environment().await;
    let sink = Arc::new(RecordingSink::default());
    let call = Call::argv(&["head", "-c", "2097152", "/dev/zero"]).sink(&sink);
    let result = subject.run(&handle, call).await.expect("a result");
    assert_eq!((result.exit_code, result.stdout.bytes_total), (Some(0), 2 << 20));
    assert_eq!(sink.bytes(OutputStream::Stdout).len(), 2 << 20);
}

/// Long output is no reason to kill: head and tail are kept, the last line among them.
pub async fn head_and_tail_of_long_output(subject: &Subject) {
    let handle = subject.environment().await;
    let result = subject.sh(&handle, "echo first; head -c 1000000 /dev/zero; echo last").await;
    assert_eq!((result.exit_code, result.killed_by), (Some(0), None));
    let tail = result.stdout.tail.expect("not everything fits");
    assert!(result.stdout.head.starts_with(b"first\n") && tail.ends_with(b"last\n"));
    assert_eq!(result.stdout.head.len(), VIEW_BYTES_MAX * 60 / 100);
    assert_eq!(tail.len(), VIEW_BYTES_MAX * 20 / 100);
    assert_eq!(result.stdout.bytes_total, 1_000_011);
}

/// Past the bound the command is killed; what is kept is cut to the bound and flagged.
pub async fn output_over_the_bound_is_cut_and_killed(subject: &Subject) {
    let handle = subject.environment().await;
    let sink = Arc::new(RecordingSink::default());
    let call = Call::sh("head -c 50000000 /dev/zero; sleep 30").output_bytes_max(1000).sink(&sink);
    let result = subject.run(&handle, call).await.expect("a result");
    assert_eq!((result.exit_code, result.killed_by), (None, Some(KillReason::OutputLimit)));
    assert_eq!((result.stdout.head.len(), result.stdout.tail.is_some()), (1000, true));
    assert_eq!(sink.bytes(OutputStream::Stdout).len(), 1000);
    let evidence = result.evidence.expect("evidence");
    assert_eq!(evidence.limit_bytes, Some(1000));
    assert!(evidence.produced_bytes.is_some_and(|bytes| bytes > 1000));
    assert_eq!(subject.sh(&handle, "echo on").await.stdout.head, b"on\n");
}

/// The bound holds also for a program that has ended before its output was read.
pub async fn a_fast_end_does_not_beat_the_bound(subject: &Subject) {
    let handle = subject.environment().await;
    for _ in 0..5 {
        let call = Call::argv(&["head", "-c", "2000", "/dev/zero"]).output_bytes_max(1000);
        let result = subject.run(&handle, call).await.expect("a result");
        assert_eq!((result.exit_code, result.killed_by), (None, Some(KillReason::OutputLimit)));
    }
}

/// One bound for both streams.
pub async fn both_streams_share_the_bound(subject: &Subject) {
    let handle = subject.environment().await;
    let script = "head -c 600 /dev/zero; echo e 1>&2; head -c 600 /dev/zero; sleep 30";
    let result = subject.run(&handle, Call::sh(script).output_bytes_max(1000)).await.expect("a result");
    assert_eq!(result.killed_by, Some(KillReason::OutputLimit));
    assert!(result.stdout.head.len() + result.stderr.head.len() <= 1000);
}

/// A very fast command loses neither its first chunk nor its end.
pub async fn the_first_chunk_is_not_lost(subject: &Subject) {
    let handle = subject.environment().await;
    for round in 0..20 {
        let sink = Arc::new(RecordingSink::default());
        let text = format!("x{round}");
        let result = subject.run(&handle, Call::argv(&["echo", &text]).sink(&sink)).await.expect("a result");
        assert_eq!(sink.bytes(OutputStream::Stdout), format!("{text}\n").into_bytes());
        assert_eq!(result.exit_code, Some(0));
    }
}

/// 137 and a signal of its own are a program's own ends, not kills.
pub async fn exit_codes_are_the_programs_own(subject: &Subject) {
    let handle = subject.environment().await;
    for (script, code) in [("exit 137", 137), ("exit 1", 1), ("kill -9 $$", 137), ("kill -SEGV $$", 139)] {
        let result = subject.sh(&handle, script).await;
        assert_eq!((result.exit_code, result.killed_by), (Some(code), None), "{script}");
    }
}

/// What cannot be found ends with 127 and says so beside the output.
pub async fn missing_programs_are_start_failures(subject: &Subject) {
    let handle = subject.environment().await;
    for program in ["no-such-program", "/no/such/program"] {
        let result = subject.run(&handle, Call::argv(&[program])).await.expect("a result");
        assert_eq!((result.exit_code, result.killed_by), (Some(127), None));
        assert!(result.evidence.expect("evidence").start_error.is_some());
        assert_eq!((result.stdout.bytes_total, result.stderr.bytes_total), (0, 0));
    }
    let own = subject.sh(&handle, "exit 127").await;
    assert_eq!((own.exit_code, own.evidence), (Some(127), None));
}

/// `A=B` is a program's name, not an assignment.
pub async fn an_equals_sign_is_part_of_the_name(subject: &Subject) {
    let handle = subject.environment().await;
    let result = subject.run(&handle, Call::argv(&["A=B", "echo", "hi"])).await.expect("a result");
    assert_eq!((result.exit_code, result.stdout.bytes_total), (Some(127), 0));
}

/// A working directory that is not there, or is a link, is a start failure without output.
pub async fn a_missing_directory_is_a_start_failure(subject: &Subject) {
    let handle = subject.environment().await;
    subject.sh(&handle, "ln -s /etc out; mkdir in").await;
    for cwd in ["missing", "out"] {
        let mut call = Call::argv(&["pwd"]);
        call.command.cwd = cwd.to_owned();
        let result = subject.run(&handle, call).await.expect("a result");
        assert_eq!((result.exit_code, result.stdout.bytes_total), (Some(126), 0), "{cwd}");
        assert!(result.evidence.expect("evidence").start_error.is_some());
    }
    let mut call = Call::argv(&["pwd"]);
    call.command.cwd = "in".to_owned();
    assert_eq!(subject.run(&handle, call).await.expect("a result").stdout.head, b"/workspace/in\n");
}

/// The shell's own complaint, at once.
pub async fn an_unbalanced_quote_fails_fast(subject: &Subject) {
    let handle = subject.environment().await;
    let result = subject.sh(&handle, "echo 'never closed").await;
    assert_eq!((result.exit_code, result.killed_by), (Some(2), None));
    assert!(result.stderr.bytes_total > 0 && result.duration_ms < 5_000);
}

/// A replaced shell image gives the exit code of what replaced it.
pub async fn an_exec_ed_program_gives_its_exit_code(subject: &Subject) {
    let handle = subject.environment().await;
    assert_eq!(subject.sh(&handle, "exec false").await.exit_code, Some(1));
    assert_eq!(subject.sh(&handle, "exec true").await.exit_code, Some(0));
}
