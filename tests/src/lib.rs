//! The harness and the end-to-end tests.
