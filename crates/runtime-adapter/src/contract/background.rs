//! Background commands beside the foreground one.

use std::sync::Arc;

use events::event::command::KillReason;

use super::kills::client_cancel;
use super::subject::{Call, RecordingSink, Subject};
use crate::ports::ExecuteError;

/// It runs while foreground commands come and go.
pub async fn runs_beside_the_foreground(subject: &Subject) {
    let handle = subject.environment().await;
    let sink = Arc::new(RecordingSink::default());
    let call = Call::sh("echo up; sleep 60").background().sink(&sink);
    let cancel = call.cancel_handle();
    let foreground = async {
        sink.shows("up").await;
        for _ in 0..2 {
            assert_eq!(subject.sh(&handle, "echo fore").await.stdout.head, b"fore\n");
        }
        cancel.cancel(client_cancel());
    };
    let (background, ()) = tokio::join!(subject.run(&handle, call), foreground);
    let Err(ExecuteError::Cancelled { partial }) = background else { panic!("{background:?}") };
    assert_eq!(partial.stdout.head, b"up\n");
}

/// A foreground kill stops the sandbox, and the background command says with what.
pub async fn a_foreground_kill_ends_it(subject: &Subject) {
    let handle = subject.environment().await;
    let sink = Arc::new(RecordingSink::default());
    let call = Call::sh("echo up; sleep 60").background().sink(&sink).timeout_ms(60_000);
    let foreground = Call::sh("sleep 60").timeout_ms(300);
    let foreground_id = foreground.command.command_id;
    let kill = async {
        sink.shows("up").await;
        subject.run(&handle, foreground).await.expect("a result")
    };
    let (background, killed) = tokio::join!(subject.run(&handle, call), kill);
    assert_eq!(killed.killed_by, Some(KillReason::Timeout));
    let background = background.expect("a result, as nobody cancelled it");
    assert_eq!((background.exit_code, background.killed_by), (None, Some(KillReason::Cancelled)));
    assert_eq!(background.evidence.and_then(|evidence| evidence.stopped_with), Some(foreground_id));
    assert_eq!(background.stdout.head, b"up\n");
}

/// Its own kill takes its own tree only.
pub async fn its_own_kill_leaves_the_rest(subject: &Subject) {
    let handle = subject.environment().await;
    let (back_sink, fore_sink) = (Arc::<RecordingSink>::default(), Arc::<RecordingSink>::default());
    let background = Call::sh("echo up; sleep 60").background().sink(&back_sink).timeout_ms(60_000);
    let cancel = background.cancel_handle();
    let foreground = async {
        back_sink.shows("up").await;
        let call = Call::sh("echo fore; sleep 1; echo end").sink(&fore_sink);
        let ask = async {
            fore_sink.shows("fore").await;
            cancel.cancel(client_cancel());
        };
        tokio::join!(subject.run(&handle, call), ask).0
    };
    let (background, foreground) = tokio::join!(subject.run(&handle, background), foreground);
    assert!(matches!(background, Err(ExecuteError::Cancelled { .. })), "{background:?}");
    let foreground = foreground.expect("a result");
    assert_eq!((foreground.exit_code, foreground.stdout.head.as_slice()), (Some(0), &b"fore\nend\n"[..]));
}

/// Each of two commands that overlap reports what changed while it ran.
pub async fn changes_of_overlapping_commands(subject: &Subject) {
    let handle = subject.environment().await;
    let sink = Arc::new(RecordingSink::default());
    let script = "echo 1 > early; echo up; sleep 1; echo 2 > late";
    let background = Call::sh(script).background().sink(&sink);
    let foreground = async {
        sink.shows("up").await;
        subject.sh(&handle, "echo 3 > mine").await
    };
    let (background, foreground) = tokio::join!(subject.run(&handle, background), foreground);
    let names = |changes: &[events::event::command::FileChange]| {
        changes.iter().map(|change| change.path.path.clone()).collect::<Vec<_>>()
    };
    assert_eq!(names(&foreground.files_changed), ["mine"]);
    assert_eq!(names(&background.expect("a result").files_changed), ["early", "late", "mine"]);
}
