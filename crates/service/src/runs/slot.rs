//! One folded run: its state, the tip it was folded to, and how it catches up.

use event_log::{EventLog, Tip};
use events::run::RunState;
use events::stored::StreamName;
use events::{Event, Position, Timestamp, Version};

use super::{RunRef, SubmitError, log_fault};

/// Events read at a time.
const PAGE_EVENTS: usize = 512;

/// See the module.
pub(super) struct Slot {
    stream: StreamName,
    state: RunState,
    tip: Option<Tip>,
    last_position: Position,
    loaded: bool,
}

impl Slot {
    pub(super) fn new(run: RunRef) -> Self {
        Self {
            stream: StreamName::run(run.tenant, run.run_id),
            state: RunState::default(),
            tip: None,
            last_position: Position(0),
            loaded: false,
        }
    }

    pub(super) const fn state(&self) -> &RunState {
        &self.state
    }

    pub(super) const fn tip(&self) -> Option<Tip> {
        self.tip
    }

    pub(super) const fn last_position(&self) -> Position {
        self.last_position
    }

    pub(super) async fn load_once(&mut self, log: &EventLog) -> Result<(), SubmitError> {
        if self.loaded { Ok(()) } else { self.catch_up(log).await }
    }

    /// Folds everything after the tip. An error or a dropped call leaves a state that is a prefix of the log.
    pub(super) async fn catch_up(&mut self, log: &EventLog) -> Result<(), SubmitError> {
        loop {
            let from = self.tip.map_or(Version(1), |tip| tip.version.next());
            let page =
                log.read_stream(&self.stream, from, PAGE_EVENTS).await.map_err(|error| log_fault(&error))?;
            // A page may be short because its events are large: only an empty one is the end.
            if page.is_empty() {
                self.loaded = true;
                return Ok(());
            }
            for recorded in page {
                if let Some(event) = &recorded.event {
                    self.state.apply(event, recorded.header.recorded_at);
                }
                self.tip = Some(Tip { version: recorded.header.version, leaf: recorded.leaf });
                self.last_position = recorded.position;
            }
        }
    }

    /// Folds what was just appended by us.
    pub(super) fn appended(&mut self, events: &[Event], at: Timestamp, tip: Tip, last_position: Position) {
        for event in events {
            self.state.apply(event, at);
        }
        self.tip = Some(tip);
        self.last_position = last_position;
    }

    /// The log may hold more than is known here: the next use catches up.
    pub(super) const fn forget(&mut self) {
        self.loaded = false;
    }
}
