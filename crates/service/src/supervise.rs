//! The only place where tasks are started: each has a name, a panic in one is reported and harms nobody else, and at the end all
//! of them are waited for.

use std::future::Future;
use std::panic::AssertUnwindSafe;
use std::time::Duration;

use futures::FutureExt as _;
use tokio::sync::oneshot;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

/// Starts and joins tasks; clones share them.
#[derive(Clone, Debug, Default)]
pub struct Supervisor {
    tracker: TaskTracker,
    stopping: CancellationToken,
}

/// The task panicked, or the service ended before it did.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the task did not end properly")]
pub struct TaskLost;

/// Where a task's value arrives. Dropping it does not stop the task.
pub type Outcome<T> = oneshot::Receiver<T>;

impl Supervisor {
    /// Starts a task that nobody waits for.
    pub fn start(&self, name: &'static str, task: impl Future<Output = ()> + Send + 'static) {
        drop(self.spawn(name, task));
    }

    /// Starts a task and answers where its value will arrive.
    pub fn spawn<T: Send + 'static>(
        &self,
        name: &'static str,
        task: impl Future<Output = T> + Send + 'static,
    ) -> Outcome<T> {
        let (sender, receiver) = oneshot::channel();
        let supervised = async move {
            match AssertUnwindSafe(task).catch_unwind().await {
                // The receiver may be gone: a caller that went away does not stop what was accepted.
                Ok(value) => drop(sender.send(value)),
                Err(panic) => {
                    let text = panic
                        .downcast_ref::<&str>()
                        .map(|text| (*text).to_owned())
                        .or_else(|| panic.downcast_ref::<String>().cloned())
                        .unwrap_or_default();
                    tracing::error!(task = name, panic = text, "a task panicked");
                }
            }
        };
        #[expect(clippy::disallowed_methods, reason = "this is the one place")]
        drop(tokio::spawn(self.tracker.track_future(supervised)));
        receiver
    }

    /// Starts a task and waits for its value; the task goes on when the waiting is given up.
    ///
    /// # Errors
    /// [`TaskLost`] when it panicked.
    pub async fn run<T: Send + 'static>(
        &self,
        name: &'static str,
        task: impl Future<Output = T> + Send + 'static,
    ) -> Result<T, TaskLost> {
        self.spawn(name, task).await.map_err(|_| TaskLost)
    }

    /// Cancelled when the service stops; loops end at it.
    #[must_use]
    pub fn stopping(&self) -> &CancellationToken {
        &self.stopping
    }

    /// Tells loops to end, and waits at most `limit` until every task has ended.
    ///
    /// # Errors
    /// The number of tasks that are still there.
    pub async fn join(&self, limit: Duration) -> Result<(), usize> {
        self.stopping.cancel();
        self.tracker.close();
        tokio::time::timeout(limit, self.tracker.wait()).await.map_err(|_| self.tracker.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_panic_is_contained_and_a_dropped_outcome_stops_nothing() {
        let supervisor = Supervisor::default();
        let lost: Result<(), TaskLost> = supervisor.run("panics", async { panic!("on purpose") }).await;
        assert_eq!(lost, Err(TaskLost));
        let (sender, receiver) = oneshot::channel();
        drop(supervisor.spawn("goes on", async move { sender.send(7) }));
        assert_eq!(receiver.await, Ok(7));
        assert_eq!(supervisor.join(Duration::from_secs(5)).await, Ok(()));
    }

    #[tokio::test]
    async fn joining_counts_what_does_not_end() {
        let supervisor = Supervisor::default();
        supervisor.start("stays", std::future::pending());
        assert_eq!(supervisor.join(Duration::from_millis(10)).await, Err(1));
    }
}
