//! Frames of the files channel: requests about the workspace, and their answers.
//!
//! Every request has its own stream id. Answers end with exactly one final frame: `Error`, or the request's own
//! (`Ready`, `NonceChecked`, `Measured`, `DiffEnd`, `ReadEnd`, `Written`, `ListEnd`, `Stated`, `Removed`).
//!
//! ```text
//! Init | Adopt                -> Ready {usage}            must precede every other request but CheckNonce
//! CheckNonce                  -> NonceChecked
//! Measure                     -> Measured {usage}
//! Diff                        -> Change*, DiffEnd {usage} against the last baseline, which moves to now
//! Read                        -> ReadMeta, ReadData* (credit), ReadEnd {sha256}
//! Write, WriteData*, WriteEnd -> Credit*, Written         WriteData under credit; nothing shows before Written
//! List                        -> Entry* (credit), ListEnd {next_cursor}
//! Stat                        -> Stated
//! Remove                      -> Removed
//! Cancel                      -> Error {Cancelled}, or the final frame that crossed it
//! ```
//!
//! Credit: `ReadData` and `Entry` frames are charged with their payload length (data bytes; the entry's encoded
//! payload), `WriteData` with its bytes. Each direction of a request starts with a full window. `Change` frames
//! are bounded by the request and need none.
//!
//! Paths are raw bytes relative to the workspace, at most [`MAX_PATH_BYTES`]; components of 1 to 255 bytes, no
//! `.`, `..`, NUL; anything else is `PathRefused`. The top-level name `.leasehold` does not exist for this channel.

mod request;
mod response;
mod values;

pub use request::Request;
pub use response::Response;
pub use values::{Change, ChangeKind, ChangedPath, Entry, EntryKind, FilesErrorCode, Usage};

/// Most entries one `List` returns; more are reached through the cursor.
pub const MAX_LIST_ENTRIES: u32 = 10_000;
