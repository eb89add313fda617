//! A gVisor sandbox whose kernel can open nothing more, because code has used up what the engine lets it open. The runtime's own way
//! in, its kill included, needs a descriptor there; our end of such a sandbox needs none.

use std::sync::Arc;
use std::time::{Duration, Instant};

use events::event::command::KillReason;
use events::spec::Mechanism;
use runtime_adapter::contract::{Call, RecordingSink, Subject, check};
use rustix::process::{Signal, kill_process};

use super::channels::{all_clients, eventually};
use super::subject;

/// Far below what waiting for a runtime that hangs would take.
const SOON: Duration = Duration::from_secs(20);

/// Directories in each other, each of which gVisor's kernel keeps open: more than an engine may open files in most places. Then every
/// descriptor that is given back is taken at once, until the end.
const EXHAUST: &str = "import os
for n in range(25_000):
    try: os.mkdir('d'); os.chdir('d')
    except OSError: break
print('none left', flush=True)
while True:
    try: os.open('/etc/passwd', os.O_RDONLY)
    except OSError: pass";

#[tokio::test(flavor = "multi_thread")]
async fn a_sandbox_with_no_file_left_is_killed_on_time() {
    check(subject(Mechanism::Gvisor).await, async |subject: &Subject| {
        let handle = subject.environment().await;
        let call = Call::argv(&["python3", "-c", EXHAUST]).timeout_ms(30_000);
        let begun = Instant::now();
        let killed = subject.run(&handle, call).await.expect("a result");
        assert_eq!(killed.killed_by, Some(KillReason::Timeout));
        assert!(begun.elapsed() < Duration::from_secs(30) + SOON, "{:?}", begun.elapsed());
        assert_eq!(killed.stdout.head, b"none left\n");
        // It is usable, and what the code had made is still there.
        let next = subject.sh(&handle, "ls; rm -r d || true; echo on").await;
        assert!(next.stdout.head.starts_with(b"d\n"), "{:?}", String::from_utf8_lossy(&next.stdout.head));
        let begun = Instant::now();
        subject.adapter.execution.destroy(handle.environment_id).await.expect("destroyed");
        assert!(begun.elapsed() < SOON, "{:?}", begun.elapsed());
    })
    .await;
}

/// One whose service has died is ended by the next.
#[tokio::test(flavor = "multi_thread")]
async fn a_sandbox_with_no_file_left_outlives_nobody() {
    check(subject(Mechanism::Gvisor).await, async |subject: &Subject| {
        let handle = subject.environment().await;
        let id = handle.environment_id;
        let sink = Arc::new(RecordingSink::default());
        let call = Call::argv(&["python3", "-c", EXHAUST]).timeout_ms(60_000).sink(&sink);
        let accident = async {
            sink.shows("none left").await;
            for client in all_clients(id) {
                kill_process(client, Signal::KILL).expect("it runs");
            }
        };
        let (ended, ()) = tokio::join!(subject.run(&handle, call), accident);
        ended.expect_err("its channel is gone");
        let begun = Instant::now();
        let next = (subject.restart)().await;
        next.execution.destroy(id).await.expect("destroyed");
        assert!(begun.elapsed() < SOON, "{:?}", begun.elapsed());
        eventually("nothing of it", async || next.inventory.list().await.expect("listed").is_empty()).await;
    })
    .await;
}
