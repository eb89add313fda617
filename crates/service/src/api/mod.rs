//! What the service offers to its interfaces, without a word of HTTP: who asks, what they ask, what they get, and every way in
//! which they can be refused.
//!
//! The methods are those of [`crate::App`]; rows come from `projections`. Durations are ms, sizes bytes.

mod answer;
mod error;
mod request;

pub use answer::{
    CloseAnswer, ClosedState, ConsistencyAnswer, EventPage, FileWrite, InclusionAnswer, OutputItem,
    OutputItems, Page, Readiness, ReadinessCheck, TailItems,
};
pub use error::ServiceError;
pub use request::{
    AcquireRequest, CommandRequest, Idempotency, InvalidCursor, LimitsRequest, ListFiles, OutputCursor,
    PageRequest, Principal, RequestCtx, Scope,
};
