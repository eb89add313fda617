//! The only place of this crate that starts tasks: a panic in one is logged, never lost.

use std::future::Future;
use std::panic::AssertUnwindSafe;

use futures::FutureExt as _;
use tokio::task::JoinHandle;

/// Starts a background task; `None` is the result of one that panicked.
#[expect(clippy::disallowed_methods, reason = "this is the crate's supervise module")]
pub(crate) fn spawn<F>(name: &'static str, task: F) -> JoinHandle<Option<F::Output>>
where
    F: Future + Send + 'static,
    F::Output: Send,
{
    tokio::spawn(async move {
        let result = AssertUnwindSafe(task).catch_unwind().await;
        if result.is_err() {
            tracing::error!(task = name, "a background task of the projections panicked");
        }
        result.ok()
    })
}
