//! The real binary as a plain process, through its real channels, and the protocol itself. Needs root, as the
//! guest does: it switches users.
#![expect(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests")]

mod files_changes;
mod files_content;
mod files_host;
mod files_quota;
mod files_removal;
mod init;
mod protocol;
mod spawn_commands;
mod spawn_counters;
mod spawn_deleted;
mod spawn_host;
mod spawn_processes;
mod spawn_standby;
mod wire;
