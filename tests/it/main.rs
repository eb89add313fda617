//! The end-to-end tests, one binary.
