//! The only place in this crate that starts a task: a panic is logged where it happens, and a task ends with its handle.

use std::future::Future;

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
    let inner = tokio::spawn(work);
    let abort = AbortOnDrop(inner.abort_handle());
    tokio::spawn(async move {
        let _abort = abort;
        if let Err(error) = inner.await
            && error.is_panic()
        {
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

/// Carries the end of the watching task over to the watched one.
struct AbortOnDrop(tokio::task::AbortHandle);

impl Drop for AbortOnDrop {
    fn drop(&mut self) {
        self.0.abort();
    }
}
