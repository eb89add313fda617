//! The rules of Leasehold, pure: what may happen to a run, and how it is written down.
//!
//! A command goes in, events come out ([`run::decide`]); events build the state ([`run::RunState::apply`]);
//! nothing here reads a clock, makes an id, opens a connection or starts a task. Everything a decision needs is an
//! argument, so every rule can be tried as a table (given, when, then).
//!
//! - [`ids`], [`time`], [`spec`]: the values that every part of the house shares.
//! - [`event`]: the events, one payload type each, and the registry of their stored names.
//! - [`run`]: the run stream: state, commands, decisions, rejections.
//! - [`stored`]: the bytes of an event (header, body, leaf) as the log keeps and hashes them.

pub mod bounds;
pub mod event;
pub mod ids;
pub mod run;
pub mod spec;
pub mod stored;
pub mod time;

pub use event::Event;
pub use ids::{
    CommandId, EnvironmentId, Epoch, EventId, InstanceId, LeaseId, LogId, NodeId, Position, RunId, TenantId,
    Version,
};
pub use time::Timestamp;
