//! One command against one state: events, "already done", or a refusal.

use super::command::RunCommand;
use super::rejection::Rejection;
use super::state::RunState;
use crate::event::Event;
use crate::time::Timestamp;

/// What a command leads to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Decision {
    /// Append these events, together or not at all.
    Append(Vec<Event>),
    /// The command had its effect before; nothing to append.
    AlreadyDone,
}

/// Decides `command` at log time `now`. Pure: equal arguments give equal decisions.
///
/// # Errors
/// A [`Rejection`] when the rules refuse; nothing has changed.
pub fn decide(_state: &RunState, _command: &RunCommand, _now: Timestamp) -> Result<Decision, Rejection> {
    Ok(Decision::AlreadyDone)
}
