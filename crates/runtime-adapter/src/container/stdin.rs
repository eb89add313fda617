//! Feeds standard input to a command, beside its output and under its time limit.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use guest::protocol::{CREDIT_WINDOW_BYTES, MAX_DATA_BYTES};
use tokio::io::{AsyncRead, AsyncReadExt};
use tokio::sync::{Semaphore, watch};

use super::spawn::SpawnChannel;
use crate::supervise::{Task, task};

/// How long the rest of the source is counted after the command has ended.
const COUNT_DEADLINE: Duration = Duration::from_millis(250);

/// How the source ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum SourceEnd {
    Complete,
    Failed,
}

/// The running pump; stops when dropped.
pub(super) struct StdinPump {
    credit: Arc<Semaphore>,
    read_bytes: Arc<AtomicU64>,
    end: watch::Receiver<Option<SourceEnd>>,
    _task: Task,
}

impl StdinPump {
    /// Starts to send `source` to a command that was started with a pipe.
    pub(super) fn start(
        channel: Arc<SpawnChannel>,
        stream: u32,
        mut source: Pin<Box<dyn AsyncRead + Send>>,
    ) -> Self {
        let window = usize::try_from(CREDIT_WINDOW_BYTES).unwrap_or(usize::MAX);
        let credit = Arc::new(Semaphore::new(window));
        let read_bytes = Arc::new(AtomicU64::new(0));
        let (end_sender, end) = watch::channel(None);
        let (permits, counted) = (Arc::clone(&credit), Arc::clone(&read_bytes));
        let pump = async move {
            let mut buffer = vec![0; MAX_DATA_BYTES];
            let end = loop {
                let count = match source.read(&mut buffer).await {
                    Ok(0) => break SourceEnd::Complete,
                    Ok(count) => count,
                    Err(_) => break SourceEnd::Failed,
                };
                counted.fetch_add(count as u64, Ordering::Relaxed);
                // Once nobody reads, the rest is only counted.
                let wanted = u32::try_from(count).unwrap_or(u32::MAX);
                if let Ok(permit) = permits.acquire_many(wanted).await {
                    permit.forget();
                    channel.stdin(stream, buffer[..count].to_vec());
                }
            };
            if end == SourceEnd::Complete {
                channel.close_stdin(stream);
            }
            end_sender.send_replace(Some(end));
        };
        Self { credit, read_bytes, end, _task: task("standard input", pump) }
    }

    /// The pipe took this much.
    pub(super) fn grant(&self, bytes: u32) {
        self.credit.add_permits(usize::try_from(bytes).unwrap_or(0));
    }

    /// Nobody reads any more.
    pub(super) fn broken(&self) {
        self.credit.close();
    }

    /// Pending unless the source fails.
    pub(super) async fn failed(&mut self) {
        let failed = self.end.wait_for(|end| *end == Some(SourceEnd::Failed)).await.is_ok();
        if !failed {
            std::future::pending::<()>().await;
        }
    }

    /// Bytes of the source that the command's pipe, which took `delivered_bytes`, did not take.
    pub(super) async fn undelivered_bytes(mut self, delivered_bytes: u64) -> u64 {
        self.broken();
        let _ = tokio::time::timeout(COUNT_DEADLINE, self.end.wait_for(Option::is_some)).await;
        self.read_bytes.load(Ordering::Relaxed).saturating_sub(delivered_bytes)
    }
}
