//! Memory that runs out while commands run beside each other: whose end that is, and whose not.

use std::sync::Arc;

use events::event::command::KillReason;
use events::spec::Mechanism;

use super::kills::client_cancel;
use super::subject::{Call, RecordingSink, Subject};
use crate::ports::{EnvironmentHandle, ExecuteError, ExecutionResult};

const MIB: u64 = 1 << 20;
const ALLOCATOR: &str = "exec python3 -c 'x = bytearray(1 << 30)'";

async fn environment(subject: &Subject, memory_bytes: u64) -> EnvironmentHandle {
    let mut spec = subject.spec();
    spec.limits.memory_bytes = memory_bytes;
    subject.adapter.execution.provision(spec).await.expect("provisioned")
}

/// Runs `script` while an innocent command waits in the background; answers both results.
async fn beside(
    subject: &Subject,
    handle: &EnvironmentHandle,
    script: Call,
) -> (ExecutionResult, ExecutionResult) {
    let sink = Arc::new(RecordingSink::default());
    let wait = "echo up; while ! [ -e go ]; do sleep 0.1; done; echo done";
    let innocent = Call::sh(wait).background().sink(&sink).timeout_ms(60_000);
    let other = async {
        sink.shows("up").await;
        let result = subject.run(handle, script).await.expect("a result");
        subject.write(handle, "go", b"").await.expect("written");
        result
    };
    let (innocent, other) = tokio::join!(subject.run(handle, innocent), other);
    (innocent.expect("a result"), other)
}

/// The foreground command that runs out of memory is MEMORY; the one behind it ends with the sandbox, and says so.
pub async fn the_foregrounds_memory_is_not_the_backgrounds(subject: &Subject) {
    let handle = environment(subject, 128 * MIB).await;
    let foreground = Call::sh(ALLOCATOR);
    let foreground_id = foreground.command.command_id;
    let (innocent, guilty) = beside(subject, &handle, foreground).await;
    assert_eq!((guilty.exit_code, guilty.killed_by), (None, Some(KillReason::Memory)), "{guilty:?}");
    assert_eq!((innocent.exit_code, innocent.killed_by), (None, Some(KillReason::Cancelled)), "{innocent:?}");
    assert_eq!(innocent.evidence.and_then(|evidence| evidence.stopped_with), Some(foreground_id));
    assert_eq!(subject.sh(&handle, "echo on").await.stdout.head, b"on\n");
}

/// Of two commands in the background the one that the kernel ended is MEMORY. In gVisor nobody can say which it was.
pub async fn who_the_kernel_ends_is_the_one(subject: &Subject) {
    let handle = environment(subject, 128 * MIB).await;
    let (innocent, guilty) = beside(subject, &handle, Call::sh(ALLOCATOR).background()).await;
    assert_eq!((guilty.exit_code, guilty.killed_by), (None, Some(KillReason::Memory)), "{guilty:?}");
    if subject.mechanism != Mechanism::Gvisor {
        assert_eq!((innocent.exit_code, innocent.killed_by), (Some(0), None), "{innocent:?}");
    }
    assert_eq!(subject.sh(&handle, "echo on").await.stdout.head, b"on\n");
}

/// A command in the background that the kernel ended is the one, also beside the foreground, which would answer for what is
/// nobody's. In gVisor the sandbox dies whole, and it does.
pub async fn who_the_kernel_ends_is_not_the_foreground(subject: &Subject) {
    let (eaters, foregrounds) = match subject.mechanism {
        Mechanism::Gvisor => ((None, Some(KillReason::Cancelled)), (None, Some(KillReason::Memory))),
        _ => ((None, Some(KillReason::Memory)), (Some(0), None)),
    };
    let handle = environment(subject, 128 * MIB).await;
    for _ in 0..5 {
        let sink = Arc::new(RecordingSink::default());
        let wait = "rm -f go; echo up; while ! [ -e go ]; do sleep 0.1; done; echo done";
        let foreground = Call::sh(wait).sink(&sink).timeout_ms(60_000);
        let eater = async {
            sink.shows("up").await;
            let guilty = subject.run(&handle, Call::sh(ALLOCATOR).background()).await.expect("a result");
            subject.write(&handle, "go", b"").await.expect("written");
            guilty
        };
        let (innocent, guilty) = tokio::join!(subject.run(&handle, foreground), eater);
        let innocent = innocent.expect("a result");
        assert_eq!((guilty.exit_code, guilty.killed_by), eaters, "{guilty:?}");
        assert_eq!((innocent.exit_code, innocent.killed_by), foregrounds, "{innocent:?}");
    }
}

/// A command for which there is no process left is refused; those that run and never forked are left alone.
pub async fn a_start_that_is_refused_is_nobody_elses(subject: &Subject) {
    let mut spec = subject.spec();
    spec.limits.pids_max = 16;
    let handle = subject.adapter.execution.provision(spec).await.expect("provisioned");
    subject.write(&handle, "up", b"up\n").await.expect("written");
    // In gVisor our own processes are not counted, and who stays at the limit is PIDS: fewer, then.
    let count = if subject.mechanism == Mechanism::Gvisor { 12 } else { 24 };
    // Each begins while the earlier ones run, and has begun or was refused before the next one.
    let (turn, settled) = (tokio::sync::Mutex::new(()), tokio::sync::watch::Sender::new(0));
    let one = async || {
        let my_turn = turn.lock().await;
        let sink = Arc::new(RecordingSink::default());
        let call = Call::argv(&["tail", "-n", "+1", "-f", "up"]).background().sink(&sink).timeout_ms(60_000);
        let cancel = call.cancel_handle();
        let end_together = async {
            sink.shows("up").await;
            settled.send_modify(|settled| *settled += 1);
            drop(my_turn);
            settled.subscribe().wait_for(|settled| *settled == count).await.expect("all of them");
            cancel.cancel(client_cancel());
            std::future::pending::<()>().await;
        };
        tokio::select! {
            ended = subject.run(&handle, call) => ended,
            () = end_together => unreachable!(),
        }
    };
    let ended = futures::future::join_all((0..count).map(|_| async {
        let ended = one().await;
        if ended.is_ok() {
            settled.send_modify(|settled| *settled += 1);
        }
        ended
    }))
    .await;
    let mut refused = 0;
    for ended in ended {
        match ended {
            Ok(result) => {
                assert_eq!((result.exit_code, result.killed_by), (Some(126), None), "{result:?}");
                refused += 1;
            }
            Err(ExecuteError::Cancelled { partial }) => assert_eq!(partial.stdout.head, b"up\n"),
            Err(error) => panic!("{error:?}"),
        }
    }
    assert_eq!(refused > 0, subject.mechanism != Mechanism::Gvisor, "{refused}");
}

/// A program that is no larger than our own processes, and has given up its rank, is MEMORY whomever the kernel ends.
pub async fn whomever_the_kernel_ends_it_is_memory(subject: &Subject) {
    let handle = environment(subject, 64 * MIB).await;
    for _ in 0..4 {
        let fill = "echo begun; echo 0 > /proc/self/oom_score_adj; exec head -c 200000000 /dev/zero > /tmp/x";
        let result = subject.run(&handle, Call::sh(fill)).await.expect("a result");
        assert_eq!((result.exit_code, result.killed_by), (None, Some(KillReason::Memory)), "{result:?}");
        assert_eq!(result.stdout.head, b"begun\n", "what it had said is kept");
        let next = subject.sh(&handle, "echo on").await;
        assert_eq!(next.stdout.head, b"on\n", "{next:?}");
    }
}
