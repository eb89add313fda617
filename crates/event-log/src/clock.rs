//! The log clock: the only source of `now` in the house.
//!
//! It is the database's clock as the last round trip showed it, plus monotonic time since. All instances of a service thus read
//! one clock, and a step of the local wall clock changes nothing. Order is position, never time.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use events::Timestamp;
use tokio::time::Instant;

/// A handle on the log's clock; clones share it.
#[derive(Clone, Debug)]
pub struct LogClock {
    state: Arc<Mutex<State>>,
}

#[derive(Debug)]
struct State {
    /// Database time in microseconds since the Unix epoch, and when it was read.
    anchor_micros: i64,
    anchored: Instant,
    /// The latest time that was handed out.
    last_micros: i64,
}

impl LogClock {
    /// A clock that reads `database_time` at `read`.
    pub(crate) fn new(database_time: SystemTime, read: Instant) -> Self {
        let anchor_micros = unix_micros(database_time);
        let state = State { anchor_micros, anchored: read, last_micros: anchor_micros };
        Self { state: Arc::new(Mutex::new(state)) }
    }

    /// Now, in microseconds; never earlier than any time this clock has shown before.
    ///
    /// # Panics
    /// Never: a database clock before 1970 or after 9999 reads as the nearest time that can be written.
    #[must_use]
    pub fn now(&self) -> Timestamp {
        let mut state = self.lock();
        let elapsed = i64::try_from(state.anchored.elapsed().as_micros()).unwrap_or(i64::MAX);
        let now = state.anchor_micros.saturating_add(elapsed).max(state.last_micros);
        state.last_micros = now;
        Timestamp::try_from_unix_micros(now).unwrap_or(EPOCH.plus_ms(if now < 0 { 0 } else { u64::MAX }))
    }

    /// How long ago the database's clock was last read.
    #[must_use]
    pub fn age(&self) -> Duration {
        self.lock().anchored.elapsed()
    }

    /// The database said `database_time` in an answer that arrived at `read`.
    pub(crate) fn observe(&self, database_time: SystemTime, read: Instant) {
        let mut state = self.lock();
        if read >= state.anchored {
            state.anchor_micros = unix_micros(database_time);
            state.anchored = read;
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // The state is three numbers, each valid at any moment.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

const EPOCH: Timestamp = match Timestamp::try_from_unix_micros(0) {
    Ok(epoch) => epoch,
    Err(_) => unreachable!(),
};

/// Microseconds since the Unix epoch of a time that the driver read.
pub(crate) fn unix_micros(time: SystemTime) -> i64 {
    match time.duration_since(UNIX_EPOCH) {
        Ok(since) => i64::try_from(since.as_micros()).unwrap_or(i64::MAX),
        Err(before) => i64::try_from(before.duration().as_micros()).map_or(i64::MIN, |micros| -micros),
    }
}

/// The driver's form of a log time.
pub(crate) fn system_time(time: Timestamp) -> SystemTime {
    UNIX_EPOCH + Duration::from_micros(time.unix_micros().unsigned_abs())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(micros: u64) -> SystemTime {
        UNIX_EPOCH + Duration::from_micros(micros)
    }

    #[tokio::test(start_paused = true)]
    async fn runs_with_monotonic_time_and_never_goes_back() {
        let clock = LogClock::new(at(5_000_000), Instant::now());
        tokio::time::advance(Duration::from_micros(1_234_567)).await;
        assert_eq!(clock.now().unix_micros(), 6_234_567);

        // The database's clock was set back: time stands still until it has caught up.
        clock.observe(at(4_000_000), Instant::now());
        assert_eq!(clock.now().unix_micros(), 6_234_567);
        tokio::time::advance(Duration::from_secs(3)).await;
        assert_eq!(clock.now().unix_micros(), 7_000_000);

        // An answer that was read before the current anchor tells nothing new.
        clock.observe(at(99_000_000), Instant::now() - Duration::from_secs(3600));
        assert_eq!(clock.now().unix_micros(), 7_000_000);
    }

    #[tokio::test(start_paused = true)]
    async fn keeps_microseconds_and_drops_what_is_below() {
        let clock = LogClock::new(UNIX_EPOCH + Duration::from_nanos(1_123_456_789), Instant::now());
        assert_eq!(clock.now().to_string(), "1970-01-01T00:00:01.123456Z");
    }
}
