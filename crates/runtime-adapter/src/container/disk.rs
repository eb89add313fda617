//! Room on the engine's own disk. Below the reserve nothing new begins, while outcomes, kills and removals go on: a full disk would
//! take the engine, and often the host, with it.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use guest::protocol::files::{Request, Response};

use super::files::FilesChannel;
use crate::ports::PortError;

/// How long an answer counts; asking takes a round trip, which no command should wait for each time.
const ANSWER_AGE_MAX: Duration = Duration::from_secs(2);
/// How long it counts while somebody else asks.
const STALE_MAX: Duration = Duration::from_secs(10);
/// How long to wait for who asks when it does not count any more.
const TURN_DEADLINE: Duration = Duration::from_secs(1);
/// How long asking may take.
const ANSWER_DEADLINE: Duration = Duration::from_secs(5);

/// The disk as last heard of, whichever environment asked.
#[derive(Debug)]
pub(super) struct Disk {
    reserve_bytes: u64,
    last: Mutex<Option<Answer>>,
    /// One asks at a time. Nobody waits for it for long: the one asked may be slow, and is somebody else's.
    asking: tokio::sync::Mutex<()>,
}

#[derive(Clone, Copy, Debug)]
struct Answer {
    at: Instant,
    is_roomy: bool,
}

/// Nothing new may begin.
const FULL: PortError = PortError::Unavailable { code: "disk_reserve", effect_possible: false };

impl Disk {
    /// One of which this much, in bytes, must stay free.
    pub(super) fn new(reserve_bytes: u64) -> Self {
        Self { reserve_bytes, last: Mutex::default(), asking: tokio::sync::Mutex::default() }
    }

    /// There was room a moment ago.
    pub(super) fn is_known_roomy(&self) -> bool {
        let is_recent = |answer: Answer| answer.is_roomy && answer.at.elapsed() < ANSWER_AGE_MAX;
        self.reserve_bytes == 0 || self.last().is_some_and(is_recent)
    }

    fn last(&self) -> Option<Answer> {
        *self.last.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Asks a files container, which has its root on that disk; while another one is asked, the last answer counts. Without an answer
    /// there is nothing to say: whatever is wrong with the channel is its user's to report.
    ///
    /// # Errors
    /// `Unavailable` (`disk_reserve`).
    pub(super) async fn check(&self, files: &Arc<FilesChannel>) -> Result<(), PortError> {
        if self.is_known_roomy() {
            return Ok(());
        }
        let _turn = match (self.asking.try_lock(), self.last()) {
            (Ok(turn), _) => turn,
            (Err(_), Some(answer)) if !answer.is_roomy => return Err(FULL),
            (Err(_), Some(answer)) if answer.at.elapsed() < STALE_MAX => return Ok(()),
            (Err(_), _) => match tokio::time::timeout(TURN_DEADLINE, self.asking.lock()).await {
                Ok(turn) if !self.is_known_roomy() => turn,
                _ => return Ok(()),
            },
        };
        let at = Instant::now();
        let mut exchange = files.send(|id| Request::Room { id });
        let answer = tokio::time::timeout(ANSWER_DEADLINE, exchange.next()).await;
        let Ok(Ok(Response::Room { free_bytes, .. })) = answer else { return Ok(()) };
        let is_roomy = free_bytes >= self.reserve_bytes;
        *self.last.lock().unwrap_or_else(PoisonError::into_inner) = Some(Answer { at, is_roomy });
        if is_roomy {
            return Ok(());
        }
        let reserve_bytes = self.reserve_bytes;
        tracing::warn!(free_bytes, reserve_bytes, "the engine's disk is below its reserve");
        Err(FULL)
    }
}
