//! Kills, their evidence, and what they leave alone.

use std::sync::Arc;
use std::time::Duration;

use events::event::command::{Evidence, KillReason};

use super::subject::{Call, RecordingSink, Subject};
use crate::ports::{CancelRequest, ExecuteError, PortError};

/// A cancellation as a client asks for it.
#[must_use]
pub fn client_cancel() -> CancelRequest {
    CancelRequest {
        reason: KillReason::Cancelled,
        evidence: Evidence { by: Some("client".to_owned()), ..Evidence::default() },
    }
}

/// A passed time limit keeps what was produced, names the reason and proves it.
pub async fn a_timeout_keeps_partial_output(subject: &Subject) {
    let handle = subject.environment().await;
    let call = Call::sh("echo partial; echo trouble 1>&2; sleep 60").timeout_ms(700);
    let result = subject.run(&handle, call).await.expect("a result");
    assert_eq!((result.exit_code, result.killed_by), (None, Some(KillReason::Timeout)));
    assert_eq!(result.stdout.head, b"partial\n");
    assert_eq!(result.stderr.head, b"trouble\n");
    let evidence = result.evidence.expect("evidence");
    assert_eq!(evidence.limit_ms, Some(700));
    assert!(evidence.elapsed_ms.is_some_and(|ms| (700..5_000).contains(&ms)));
}

/// When the lease's end was the bound, the reason says so.
pub async fn the_end_of_the_lease_is_expired(subject: &Subject) {
    let handle = subject.environment().await;
    let mut call = Call::sh("sleep 60").timeout_ms(300);
    call.command.timeout_reason = KillReason::Expired;
    let expires_at = call.command.lease_expires_at;
    let result = subject.run(&handle, call).await.expect("a result");
    assert_eq!(result.killed_by, Some(KillReason::Expired));
    assert_eq!(result.evidence.and_then(|evidence| evidence.expires_at), Some(expires_at));
}

/// The same environment works after a kill, again and again.
pub async fn kill_then_reuse(subject: &Subject) {
    let handle = subject.environment().await;
    for round in 0..2 {
        let killed = subject.run(&handle, Call::sh("sleep 60").timeout_ms(200)).await.expect("a result");
        assert_eq!(killed.killed_by, Some(KillReason::Timeout));
        let next = subject.sh(&handle, "echo alive").await;
        assert_eq!((next.exit_code, next.stdout.head.as_slice()), (Some(0), &b"alive\n"[..]), "{round}");
    }
}

/// Files that were there before a kill are still there, and no list says otherwise.
pub async fn a_kill_deletes_no_file(subject: &Subject) {
    let handle = subject.environment().await;
    subject.sh(&handle, "echo 1 > kept; echo 2 > also").await;
    let call = Call::sh("echo 3 > made; sleep 60").timeout_ms(700);
    let killed = subject.run(&handle, call).await.expect("a result");
    let changed: Vec<_> = killed.files_changed.iter().map(|change| change.path.path.as_str()).collect();
    assert_eq!(changed, ["made"]);
    let after = subject.sh(&handle, "cat kept also made").await;
    assert_eq!(after.stdout.head, b"1\n2\n3\n");
    assert_eq!(after.files_changed, []);
}

/// A cancelled call ends with everything known, and the environment stays usable.
pub async fn cancel_keeps_partial_output(subject: &Subject) {
    let handle = subject.environment().await;
    let sink = Arc::new(RecordingSink::default());
    let call = Call::sh("echo begun; sleep 60").sink(&sink);
    let cancel = call.cancel_handle();
    let ask = async {
        sink.shows("begun").await;
        cancel.cancel(client_cancel());
        let mut later = client_cancel();
        later.reason = KillReason::ServiceShutdown;
        cancel.cancel(later);
    };
    let (ended, ()) = tokio::join!(subject.run(&handle, call), ask);
    let Err(ExecuteError::Cancelled { partial }) = ended else { panic!("not cancelled: {ended:?}") };
    assert_eq!((partial.exit_code, partial.killed_by), (None, Some(KillReason::Cancelled)));
    assert_eq!(partial.stdout.head, b"begun\n");
    assert_eq!(partial.evidence.and_then(|evidence| evidence.by).as_deref(), Some("client"));
    assert_eq!(subject.sh(&handle, "echo on").await.stdout.head, b"on\n");
}

/// An end just before the limit is an end, also by a signal of its own.
pub async fn what_ends_in_time_is_not_killed(subject: &Subject) {
    let handle = subject.environment().await;
    for _ in 0..5 {
        let call = Call::sh("sleep 0.3; kill -9 $$").timeout_ms(1_500);
        let result = subject.run(&handle, call).await.expect("a result");
        assert_eq!((result.exit_code, result.killed_by), (Some(137), None));
    }
}

/// A process left behind does not hold the result up; it is gone and counted.
pub async fn left_processes_are_counted(subject: &Subject) {
    let handle = subject.environment().await;
    let result = subject.sh(&handle, "sleep 600 & echo done").await;
    assert_eq!((result.exit_code, result.stdout.head.as_slice()), (Some(0), &b"done\n"[..]));
    assert_eq!(result.stragglers, 1);
    assert!(result.duration_ms < 5_000);
}

/// Dropping the call does not stop the command: its work is done, and its turn is kept meanwhile.
pub async fn a_dropped_call_runs_on(subject: &Subject) {
    let handle = subject.environment().await;
    let sink = Arc::new(RecordingSink::default());
    let call = Call::sh("echo up; sleep 0.5; echo written > late").sink(&sink);
    tokio::select! {
        _ = subject.run(&handle, call) => panic!("the command ended before it was seen"),
        () = sink.shows("up") => {}
    }
    let busy = ExecuteError::Port(PortError::Rejected { code: "busy" });
    assert_eq!(subject.run(&handle, Call::sh("true")).await, Err(busy.clone()));
    let next = async {
        loop {
            match subject.run(&handle, Call::sh("cat late")).await {
                Err(error) if error == busy => tokio::time::sleep(Duration::from_millis(20)).await,
                other => return other,
            }
        }
    };
    let next = tokio::time::timeout(Duration::from_secs(20), next).await.expect("the turn comes");
    assert_eq!(next.expect("a result").stdout.head, b"written\n");
}
