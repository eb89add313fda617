//! The audit tool: verify and timeline over a log it never writes to.
