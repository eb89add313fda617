//! The rules of Leasehold: what may happen to a run, as pure functions over events, and how events are stored.
