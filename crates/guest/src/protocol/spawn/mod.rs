//! Frames of the spawn channel: commands, their streams, their ends.
//!
//! ```text
//! host                                       guest
//! Hello                       ->        <-   Hello {counters}
//! Start {stream}              ->        <-   Started {pid} | StartFailed (ends the stream)
//! StdinData*, StdinClose      ->        <-   StdinCredit*, StdinBroken?
//! Credit {output}*            ->        <-   Data {output}*, OutputClosed {output} (once each, after its data)
//! Kill                        ->        <-   Exited (once)
//! Measure {token}             ->        <-   Measured {token}
//! ```
//!
//! - A stream is over once `Exited` and both `OutputClosed` have arrived. `Exited` is control: it may overtake
//!   data still waiting for credit. `OutputClosed` never overtakes its own output's data.
//! - Credit: both outputs and stdin start with a full window when `Start` is sent. The guest returns stdin
//!   credit as the pipe takes bytes; the host returns output credit as it consumes them. After an `Exited`
//!   the host keeps granting until both outputs are closed.
//! - Stdin without `stdin: true` is `/dev/null`. A command that no longer reads, or that ended before
//!   `StdinClose`, is a `StdinBroken`, once, never an end of the stream; later `StdinData` of that stream is dropped,
//!   without credit. Its `delivered_bytes` may be all there was to send: the host compares.
//! - One foreground command at a time: a second `Start` with `background: false` is a `StartFailed` (EBUSY).

mod start;
mod to_guest;
mod to_host;
mod values;

pub use start::{Rlimits, StartCommand};
pub use to_guest::ToGuest;
pub use to_host::ToHost;
pub use values::{CounterSource, Counters, ExitStatus, Exited, Output};

/// Largest payload of a start frame in bytes: 64 KiB of argv, 128 KiB of environment and their lengths.
pub const MAX_START_BYTES: usize = 256 * 1024;

/// Most arguments of one command.
pub const MAX_ARGS: usize = 1024;

/// Most environment variables of one command.
pub const MAX_ENV: usize = 1024;

/// Longest message in a `StartFailed`, in bytes.
pub const MAX_MESSAGE_BYTES: usize = 1024;

/// How often the counters are sampled while a command runs, in milliseconds.
pub const COUNTER_INTERVAL_MS: u64 = 250;

/// How long leftover descendants may still end by themselves after the main process did, in milliseconds.
pub const STRAGGLER_GRACE_MS: u64 = 50;

/// How long the search of one `Measure` may take, in milliseconds.
pub const MEASURE_MAX_MS: u64 = 4_000;
