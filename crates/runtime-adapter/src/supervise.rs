//! The only place in this crate that starts a task: a panic is logged where it happens, and a task ends with its handle.

use std::future::Future;
use std::panic::AssertUnwindSafe;

use futures::FutureExt as _;
use tokio::task::JoinHandle;

/// A running task, aborted when dropped.
#[derive(Debug)]
pub(crate) struct Task(JoinHandle<()>);

impl Drop for Task {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// Starts a task that lives at most as long as the returned handle.
pub(crate) fn task(name: &'static str, work: impl Future<Output = ()> + Send + 'static) -> Task {
    Task(detached(name, work))
}

/// Starts a task that runs to its end.
#[expect(clippy::disallowed_methods, reason = "this is the supervised start itself")]
pub(crate) fn detached(
    name: &'static str,
    work: impl Future<Output = ()> + Send + 'static,
) -> JoinHandle<()> {
    tokio::spawn(async move {
        // What the work held is dropped with it, so nothing half-changed is seen again.
        if AssertUnwindSafe(work).catch_unwind().await.is_err() {
            tracing::error!(task = name, "a background task panicked");
        }
    })
}

/// Runs work to its end even when the caller stops waiting for it.
///
/// # Errors
/// The work panicked, which has been logged.
pub(crate) async fn to_end<T: Send + 'static>(
    name: &'static str,
    work: impl Future<Output = T> + Send + 'static,
) -> Result<T, Panicked> {
    let (sender, receiver) = tokio::sync::oneshot::channel();
    detached(name, async move {
        // A caller that has gone away does not want the value.
        let _ = sender.send(work.await);
    });
    receiver.await.map_err(|_| Panicked)
}

/// Work ended without a value.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Panicked;

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_panic_is_told_to_who_waits_and_to_nobody_else() {
        assert_eq!(to_end("sound", async { 7 }).await.ok(), Some(7));
        assert!(to_end("broken", async { panic!("on purpose") }).await.is_err());
        assert!(detached("broken", async { panic!("on purpose") }).await.is_ok());
    }

    #[tokio::test]
    async fn a_task_ends_with_its_handle() {
        let (sender, mut receiver) = tokio::sync::oneshot::channel::<()>();
        let handle = task("waits for ever", async move {
            std::future::pending::<()>().await;
            drop(sender);
        });
        assert!(
            receiver.try_recv().is_err_and(|error| error == tokio::sync::oneshot::error::TryRecvError::Empty)
        );
        drop(handle);
        assert!(receiver.await.is_err());
    }
}
