//! The two channels between the host and the guest binary, as pure values.
//!
//! The host opens one long-lived `guest spawn` per sandbox and one `guest files` per environment and speaks
//! frames over each one's stdin and stdout: the container's own the first time, which `guest init` hands over, those of an exec
//! later. Nothing here reads or writes: a frame becomes bytes with
//! [`encode`], bytes become frames with a [`Decoder`] fed in pieces of any size. The same code runs in the
//! guest (blocking, no async runtime) and in the host's adapter (tokio).
//!
//! ```text
//! frame  = u32 LE payload length · u8 kind · u32 LE stream id · payload      (header: 9 bytes)
//! ```
//!
//! Rules both channels share:
//! - The first frame in each direction is `Hello`. A different [`PROTOCOL_VERSION`] ends the channel.
//! - Stream id 0 is the connection; every command or request has its own id, chosen by the host, strictly
//!   increasing. Frames for an id that already ended are ignored by the guest (they crossed the end on the
//!   wire); an id never started, an unknown kind, an oversize or malformed payload ends the channel.
//! - Data flows under credit: each stream and direction starts with a window ([`CREDIT_WINDOW_BYTES`]; on the files
//!   channel [`files::CREDIT_WINDOW_BYTES`]) and the receiver grants more as it consumes. Sending without credit is a violation.
//! - End of input on the guest's stdin means the host is gone: every untrusted process dies, the guest exits.

mod codec;
pub mod files;
mod frame;
mod hello;
pub mod spawn;

pub use frame::{Decoder, Frame, HEADER_BYTES, ProtocolError, encode};
pub use hello::Hello;

/// The version both sides must speak; raised on any change of meaning or layout.
pub const PROTOCOL_VERSION: u16 = 6;

/// What `guest init` says on stderr when the channel over the container's own standard streams has ended. The engine's client
/// of those streams ends with the container, not with the channel.
pub const CHANNEL_ENDED: &str = "guest init: the channel has ended\n";

/// Largest payload of a frame, except a command's start (see [`spawn::MAX_START_BYTES`]), in bytes.
pub const MAX_PAYLOAD_BYTES: usize = 64 * 1024;

/// Largest data carried by one data frame of the spawn channel, in bytes.
pub const MAX_DATA_BYTES: usize = 32 * 1024;

/// Initial credit of every stream and direction of the spawn channel, and the most that may ever be outstanding, in bytes.
pub const CREDIT_WINDOW_BYTES: u32 = 256 * 1024;

/// How often the host sends `Ping` on each channel, in milliseconds.
pub const HEARTBEAT_INTERVAL_MS: u64 = 5_000;

/// After this many intervals without any frame from the host, counted from the first `Ping`, the guest treats
/// the host as gone.
pub const MISSED_HEARTBEATS: u64 = 3;

/// Environment's nonce: at most this many bytes, at least one.
pub const MAX_NONCE_BYTES: usize = 64;

/// The nonce's file, relative to the workspace; only the guest's own processes can read it.
pub const NONCE_FILE: &str = ".leasehold/nonce";

/// Longest workspace-relative path carried verbatim, in bytes.
pub const MAX_PATH_BYTES: usize = policy::PATH_BYTES_MAX;
