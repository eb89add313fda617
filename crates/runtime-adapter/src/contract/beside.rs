//! Memory that runs out while commands run beside each other: whose end that is, and whose not.

use std::sync::Arc;
use std::time::Duration;

use events::event::command::KillReason;
use events::spec::Mechanism;

use super::subject::{Call, RecordingSink, Subject};
use crate::ports::{EnvironmentHandle, ExecutionResult};

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
    let innocent = Call::sh("echo up; sleep 3; echo done").background().sink(&sink).timeout_ms(60_000);
    let other = async {
        sink.shows("up").await;
        subject.run(handle, script).await.expect("a result")
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

/// A command for which there is no process left is refused; those that run and never forked are left alone.
pub async fn a_start_that_is_refused_is_nobody_elses(subject: &Subject) {
    let mut spec = subject.spec();
    spec.limits.pids_max = 16;
    let handle = subject.adapter.execution.provision(spec).await.expect("provisioned");
    // In gVisor our own processes are not counted, and who stays at the limit is PIDS: fewer, then.
    let count = if subject.mechanism == Mechanism::Gvisor { 12 } else { 24_u64 };
    let sleepers = (0..count).map(|number| {
        let handle = &handle;
        async move {
            // One after the other, each while the earlier ones run.
            tokio::time::sleep(Duration::from_millis(200 * number)).await;
            let call = Call::argv(&["sleep", "8"]).background().timeout_ms(60_000);
            subject.run(handle, call).await.expect("a result")
        }
    });
    for result in futures::future::join_all(sleepers).await {
        assert_eq!(result.killed_by, None, "{result:?}");
        assert!(matches!(result.exit_code, Some(0 | 126)), "{result:?}");
    }
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
