//! The only place of this crate that starts tasks: a panic in one is logged, never lost.

use std::future::Future;

use futures::FutureExt as _;
use tokio::task::JoinHandle;

/// Starts a background task.
#[expect(clippy::disallowed_methods, reason = "this is the crate's supervise module")]
pub(crate) fn spawn<F>(name: &'static str, task: F) -> JoinHandle<()>
where
    F: Future<Output = ()> + Send + 'static,
{
    tokio::spawn(async move {
        if std::panic::AssertUnwindSafe(task).catch_unwind().await.is_err() {
            tracing::error!(task = name, "a background task of the log panicked");
        }
    })
}
