//! Events for people: one line each, with the facts that matter in words, and never a foreign byte that could forge a line.

mod command;
mod describe;
mod escape;

use std::fmt;

use events::stored::Recorded;
use events::{Position, Timestamp};

pub use describe::describe;
pub use escape::{Escaped, is_unsafe, quoted};

/// One line of a timeline.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Line {
    /// Place in the log.
    pub position: Position,
    /// Time since the first event shown, in ms.
    pub since_start_ms: u64,
    /// Stored name of the event.
    pub kind: String,
    /// What happened, in words; safe to show.
    pub facts: String,
}

/// Makes lines of a history, in order; times are relative to its first event.
#[derive(Clone, Copy, Debug, Default)]
pub struct Timeline {
    start: Option<Timestamp>,
}

impl Timeline {
    /// The next event's line.
    pub fn line(&mut self, recorded: &Recorded) -> Line {
        let at = recorded.header.recorded_at;
        let start = *self.start.get_or_insert(at);
        Line {
            position: recorded.position,
            since_start_ms: at.ms_since(start),
            kind: Escaped(&recorded.header.kind).to_string(),
            facts: describe(recorded.event.as_ref()),
        }
    }
}

impl fmt::Display for Line {
    /// Position, time, name, facts, in columns.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (seconds, ms) = (self.since_start_ms / 1_000, self.since_start_ms % 1_000);
        let clock = format!("+{}:{:02}.{ms:03}", seconds / 60, seconds % 60);
        write!(f, "{:>8}  {clock:>11}  {:<28}  {}", self.position.get(), self.kind, self.facts)
    }
}
