//! The append-only event log on PostgreSQL: append, read, tail, verify, and the embedded server for development.
