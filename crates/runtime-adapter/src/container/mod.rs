//! The adapter over a container engine.
