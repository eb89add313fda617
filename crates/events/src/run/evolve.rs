//! The fold.

use super::state::RunState;
use crate::event::Event;
use crate::time::Timestamp;

impl RunState {
    /// Applies one recorded event. Total: an event that the rules could not have produced is applied as far as it makes
    /// sense, because history is never refused.
    pub fn apply(&mut self, _event: &Event, _recorded_at: Timestamp) {}
}
