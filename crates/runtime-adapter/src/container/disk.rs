//! Room on the engine's own disk. Below the reserve nothing new begins, while outcomes, kills and removals go on: a full disk would
//! take the engine, and often the host, with it.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use guest::protocol::files::{Request, Response};

use super::files::FilesChannel;
use crate::ports::PortError;

/// How long an answer counts; asking takes a round trip, which no command should wait for each time.
const ANSWER_AGE_MAX: Duration = Duration::from_secs(2);
/// How long asking may take.
const ANSWER_DEADLINE: Duration = Duration::from_secs(5);

/// The disk as last heard of, whichever environment asked.
#[derive(Debug)]
pub(super) struct Disk {
    reserve_bytes: u64,
    /// When there last was room enough.
    roomy_at: Mutex<Option<Instant>>,
    /// Whoever asks, asks for all that wait.
    asking: tokio::sync::Mutex<()>,
}

impl Disk {
    /// One of which this much, in bytes, must stay free.
    pub(super) fn new(reserve_bytes: u64) -> Self {
        Self { reserve_bytes, roomy_at: Mutex::default(), asking: tokio::sync::Mutex::default() }
    }

    /// There was room a moment ago.
    pub(super) fn is_known_roomy(&self) -> bool {
        let roomy_at = *self.roomy_at.lock().unwrap_or_else(PoisonError::into_inner);
        self.reserve_bytes == 0 || roomy_at.is_some_and(|at| at.elapsed() < ANSWER_AGE_MAX)
    }

    /// Asks a files container, which has its root on that disk. Without an answer there is nothing to say: whatever is wrong
    /// with the channel is its user's to report.
    ///
    /// # Errors
    /// `Unavailable` (`disk_reserve`).
    pub(super) async fn check(&self, files: &Arc<FilesChannel>) -> Result<(), PortError> {
        let _turn = self.asking.lock().await;
        if self.is_known_roomy() {
            return Ok(());
        }
        let asked_at = Instant::now();
        let mut exchange = files.send(|id| Request::Room { id });
        let answer = tokio::time::timeout(ANSWER_DEADLINE, exchange.next()).await;
        let Ok(Ok(Response::Room { free_bytes, .. })) = answer else { return Ok(()) };
        if free_bytes < self.reserve_bytes {
            tracing::warn!(
                free_bytes,
                reserve_bytes = self.reserve_bytes,
                "the engine's disk is below its reserve"
            );
            return Err(PortError::Unavailable { code: "disk_reserve", effect_possible: false });
        }
        *self.roomy_at.lock().unwrap_or_else(PoisonError::into_inner) = Some(asked_at);
        Ok(())
    }
}
