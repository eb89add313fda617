//! The only place in this crate that starts a task: a panic is logged where it happens, and a task ends with its handle.

use std::future::Future;
use std::panic::AssertUnwindSafe;
use std::pin::Pin;
use std::task::{Context, Poll};

use futures::FutureExt as _;
use tokio::runtime::Handle;
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

/// The same, done by the caller's own task for as long as it waits, which saves it two changes of task; a task of the work's
/// own does the rest. Only for callers that do nothing but wait: one that neither waits nor lets go holds the work up, and
/// everything that the work holds.
///
/// # Errors
/// The work panicked, which has been logged.
pub(crate) fn to_end_here<T: Send + 'static>(
    name: &'static str,
    work: impl Future<Output = T> + Send + 'static,
) -> ToEnd<T> {
    ToEnd { name, work: Some(Box::pin(AssertUnwindSafe(work).catch_unwind())), runtime: None }
}

/// See [`to_end_here`].
pub(crate) struct ToEnd<T: Send + 'static> {
    name: &'static str,
    work: Option<Work<T>>,
    /// Known once the work has begun; what never began is simply dropped.
    runtime: Option<Handle>,
}

type Work<T> = Pin<Box<dyn Future<Output = std::thread::Result<T>> + Send>>;

impl<T: Send + 'static> Future for ToEnd<T> {
    type Output = Result<T, Panicked>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        if self.runtime.is_none() {
            self.runtime = Handle::try_current().ok();
        }
        let Some(work) = &mut self.work else { return Poll::Ready(Err(Panicked)) };
        let Poll::Ready(ended) = work.as_mut().poll(context) else { return Poll::Pending };
        self.work = None;
        Poll::Ready(ended.map_err(|_| {
            tracing::error!(task = self.name, "work panicked");
            Panicked
        }))
    }
}

impl<T: Send + 'static> Drop for ToEnd<T> {
    fn drop(&mut self) {
        if let (Some(work), Some(runtime)) = (self.work.take(), &self.runtime) {
            let (_entered, name) = (runtime.enter(), self.name);
            detached(name, async move {
                // Nobody wants the value any more.
                if work.await.is_err() {
                    tracing::error!(task = name, "work panicked");
                }
            });
        }
    }
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
        assert_eq!(to_end_here("sound", async { 7 }).await.ok(), Some(7));
        assert!(to_end_here("broken", async { panic!("on purpose") }).await.is_err());
        assert!(detached("broken", async { panic!("on purpose") }).await.is_ok());
    }

    #[tokio::test]
    async fn work_that_has_begun_goes_on_without_its_caller() {
        let (go, gone) = tokio::sync::oneshot::channel::<()>();
        let (sender, ended) = tokio::sync::oneshot::channel();
        let mut work = Box::pin(to_end_here("abandoned", async move {
            let _ = gone.await;
            let _ = sender.send(7);
        }));
        assert!(futures::poll!(&mut work).is_pending());
        drop(work);
        go.send(()).unwrap();
        assert_eq!(ended.await, Ok(7));
    }

    #[tokio::test]
    async fn work_that_never_began_never_runs() {
        let (sender, ended) = tokio::sync::oneshot::channel::<()>();
        drop(to_end_here("forgotten", async move { sender.send(()) }));
        assert!(ended.await.is_err());
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
