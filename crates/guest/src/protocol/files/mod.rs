//! Frames of the files channel: requests about the workspace, and their answers.
//!
//! Every request has its own stream id. Answers end with exactly one final frame: `Error`, or the request's own
//! (`Ready`, `DiffEnd`, `Measured`, `ReadEnd`, `Written`, `ListEnd`, `Stated`, `Removed`).
//!
//! ```text
//! Init | Adopt                -> Ready {usage}            must precede every other request
//! Diff                        -> Change*, DiffEnd {usage} against the last baseline, which moves to now
//! Measure                     -> Measured {usage}         stats only: no content is read, no baseline moved
//! Read                        -> ReadMeta, ReadData* (credit), ReadEnd {sha256}
//! Write, WriteData*, WriteEnd -> Credit*, Written {usage} WriteData under credit; nothing shows before Written
//! List                        -> Entry* (credit), ListEnd {next_cursor}
//! Stat                        -> Stated
//! Remove                      -> Removed {usage}
//! Cancel                      -> Error {Cancelled}, or the final frame that crossed it
//! ```
//!
//! Credit: `ReadData` and `Entry` frames are charged with their payload length (data bytes; the entry's encoded
//! payload), `WriteData` with its bytes. Each direction of a request starts with [`CREDIT_WINDOW_BYTES`]; the receiver may
//! widen it by [`WIDE_WINDOW_BYTES`]. `Change` frames are bounded by the request and need none.
//!
//! Walks end in bounded time whatever the files are like: see [`HASH_MAX_BYTES`], [`HASH_MAX_MS`], [`WALK_MAX_MS`],
//! [`MEASURE_MAX_MS`], [`NAMES_PER_INODE`].
//! Slow transfers refuse neither `Init`, `Adopt`, `Diff` nor `Measure`: those have places of their own. A
//! request for which there is no place is answered `Io` with the errno EAGAIN.
//!
//! Paths are raw bytes relative to the workspace, at most [`MAX_PATH_BYTES`]; components of 1 to 255 bytes, no
//! `.`, `..`, NUL; anything else is `PathRefused`. The top-level name `.leasehold` does not exist for this channel.

mod request;
mod response;
mod values;

pub use request::Request;
pub use response::Response;
pub use values::{Change, ChangeKind, ChangedPath, Entry, EntryKind, FilesErrorCode, Quota, Usage};

/// Largest data carried by one data frame, in bytes.
pub const MAX_DATA_BYTES: usize = super::MAX_PAYLOAD_BYTES;

/// Initial credit of every request and direction, in bytes.
pub const CREDIT_WINDOW_BYTES: u32 = 512 * 1024;

/// What the receiver of a long transfer grants on top of that, in bytes, a writer's once it has sent a portion: a grant passes three other processes on its way,
/// and data must not run out meanwhile. What it holds for others to fetch is bounded by [`WIDE_WINDOWS`].
pub const WIDE_WINDOW_BYTES: u32 = 7 * CREDIT_WINDOW_BYTES;

/// How many transfers at once each receiver of a channel grants the wider window; the others get on with their initial credit.
pub const WIDE_WINDOWS: usize = 4;

/// The consumer of data grants it again in portions of this, in bytes.
pub const GRANT_BYTES: u32 = CREDIT_WINDOW_BYTES / 2;

/// Most entries one `List` returns; more are reached through the cursor.
pub const MAX_LIST_ENTRIES: u32 = 10_000;

/// Most bytes of file contents that one walk (`Init`, `Adopt`, `Diff`) reads for digests. A file that is larger
/// than what is left of them has no digest, and costs nothing of it.
pub const HASH_MAX_BYTES: u64 = 1 << 30;

/// No digest is computed later than this after the beginning of a walk, in milliseconds.
pub const HASH_MAX_MS: u64 = 10_000;

/// A walk that takes longer than this ends with `CannotMeasure`, in milliseconds.
pub const WALK_MAX_MS: u64 = 30_000;

/// The same for a `Measure`, in milliseconds: whoever waits for it is watching somebody write.
pub const MEASURE_MAX_MS: u64 = 10_000;

/// A walk that finds more further names of inodes that it has met than this many per inode of the quota ends with
/// `CannotMeasure`: hard links cost their maker nothing and the walk as much as files.
pub const NAMES_PER_INODE: u64 = 4;
