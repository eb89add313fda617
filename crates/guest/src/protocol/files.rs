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
//! `.`, `..`, NUL. The top-level name `.leasehold` does not exist for this channel.

use super::codec::{Put, Take};
use super::frame::{Frame, ProtocolError, check_stream};
use super::{Hello, MAX_DATA_BYTES, MAX_NONCE_BYTES, MAX_PATH_BYTES, MAX_PAYLOAD_BYTES};

/// Most entries one `List` returns; more are reached through the cursor.
pub const MAX_LIST_ENTRIES: u32 = 10_000;

/// Why a request failed. A closed list; messages and paths never travel.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum FilesErrorCode {
    /// Nothing at this path.
    NotFound = 1,
    /// A component on the way, or the listed path, is not a directory.
    NotADirectory = 2,
    /// A directory where a file was expected.
    IsADirectory = 3,
    /// A FIFO, socket or device.
    NotRegular = 4,
    /// A symbolic link in the path: never followed.
    Symlink = 5,
    /// The path breaks the rules of the channel.
    PathRefused = 6,
    /// More bytes than the request allows.
    TooLarge = 7,
    /// Size, mtime or ctime changed between the first and the last byte.
    ChangedDuringRead = 8,
    /// The volume is full, in bytes or inodes.
    NoSpace = 9,
    /// `create_only` and something is there.
    Exists = 10,
    /// A directory that is not empty, without `recursive`.
    NotEmpty = 11,
    /// The workspace has no nonce, or another one: it was lost.
    NonceMismatch = 12,
    /// A request before `Init` or `Adopt`.
    NotReady = 13,
    /// The walk cannot hold what it found (entry or name budget): not measurable.
    CannotMeasure = 14,
    /// The host cancelled the request.
    Cancelled = 15,
    /// Anything else the system answered; see the errno.
    Io = 16,
}

impl FilesErrorCode {
    fn from_u8(value: u8) -> Option<Self> {
        Some(match value {
            1 => Self::NotFound,
            2 => Self::NotADirectory,
            3 => Self::IsADirectory,
            4 => Self::NotRegular,
            5 => Self::Symlink,
            6 => Self::PathRefused,
            7 => Self::TooLarge,
            8 => Self::ChangedDuringRead,
            9 => Self::NoSpace,
            10 => Self::Exists,
            11 => Self::NotEmpty,
            12 => Self::NonceMismatch,
            13 => Self::NotReady,
            14 => Self::CannotMeasure,
            15 => Self::Cancelled,
            16 => Self::Io,
            _ => return None,
        })
    }
}

/// What kind of thing a path names.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum EntryKind {
    /// A regular file.
    File = 1,
    /// A directory.
    Directory = 2,
    /// A symbolic link (never followed).
    Symlink = 3,
    /// A FIFO, socket or device.
    Other = 4,
}

impl EntryKind {
    fn from_u8(value: u8) -> Option<Self> {
        Some(match value {
            1 => Self::File,
            2 => Self::Directory,
            3 => Self::Symlink,
            4 => Self::Other,
            _ => return None,
        })
    }
}

/// One listed path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// Relative to the workspace, raw bytes.
    pub path: Vec<u8>,
    /// Kind of the thing itself.
    pub kind: EntryKind,
    /// Size in bytes (a symlink's is its target's length).
    pub size_bytes: u64,
    /// Last modification, microseconds since 1970 UTC.
    pub mtime_us: i64,
    /// Permission bits with set-id and sticky, as in `chmod`.
    pub mode: u32,
}

/// What the workspace holds, `.leasehold` and the root itself excluded; hard links counted once.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Usage {
    /// Allocated bytes (512-byte blocks).
    pub allocated_bytes: u64,
    /// Sum of file sizes.
    pub apparent_bytes: u64,
    /// Inodes of every kind (count).
    pub inodes: u64,
}

/// How a path differs from the baseline.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum ChangeKind {
    /// Not there before.
    Created = 1,
    /// There before with other content or of another kind.
    Modified = 2,
    /// No longer there.
    Deleted = 3,
}

impl ChangeKind {
    fn from_u8(value: u8) -> Option<Self> {
        Some(match value {
            1 => Self::Created,
            2 => Self::Modified,
            3 => Self::Deleted,
            _ => return None,
        })
    }
}

/// A changed path, or its digest when it is longer than a path may be.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum ChangedPath {
    /// The path itself, at most [`MAX_PATH_BYTES`].
    Path(Vec<u8>),
    /// A path too long to carry.
    Digest {
        /// SHA-256 of the path's bytes.
        sha256: [u8; 32],
        /// Length of the path in bytes.
        path_bytes: u64,
    },
}

/// One difference between two moments. Files, symbolic links and special files are reported, directories not.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Change {
    /// Where.
    pub path: ChangedPath,
    /// How.
    pub change: ChangeKind,
    /// What is there now, or was (deleted).
    pub kind: EntryKind,
    /// Size now in bytes; 0 for anything but a regular file that is there.
    pub size_bytes: u64,
    /// SHA-256 of the content now; only for a regular file that is there and could be read unchanged.
    pub sha256: Option<[u8; 32]>,
}

/// Host to guest.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Request {
    /// First frame.
    Hello(Hello),
    /// Makes a fresh volume a workspace: root-owned 1777 root, `.leasehold/` with the nonce, empty baseline.
    /// Repeating it with the same nonce is `Adopt`; with another it is `NonceMismatch`.
    Init {
        /// Request id.
        id: u32,
        /// Owner of what the API writes.
        uid: u32,
        /// Group of what the API writes.
        gid: u32,
        /// 1 to [`MAX_NONCE_BYTES`] bytes.
        nonce: Vec<u8>,
    },
    /// Takes over an existing workspace: compares the nonce, removes unfinished writes, takes a baseline.
    Adopt {
        /// Request id.
        id: u32,
        /// Owner of what the API writes.
        uid: u32,
        /// Group of what the API writes.
        gid: u32,
        /// The nonce it must hold.
        nonce: Vec<u8>,
    },
    /// Compares the nonce, nothing else.
    CheckNonce {
        /// Request id.
        id: u32,
        /// The nonce it must hold.
        nonce: Vec<u8>,
    },
    /// Measures without touching the baseline.
    Measure {
        /// Request id.
        id: u32,
    },
    /// Reports what changed since the baseline and moves the baseline to now.
    Diff {
        /// Request id.
        id: u32,
        /// Most changes to report (count); the rest is only counted.
        max_changes: u32,
        /// Most path bytes to report in all.
        max_path_bytes: u32,
    },
    /// Reads a regular file.
    Read {
        /// Request id.
        id: u32,
        /// Which file.
        path: Vec<u8>,
        /// First byte.
        offset: u64,
        /// Most bytes to send.
        max_bytes: u64,
        /// True: stop quietly at `max_bytes`. False: more than that from `offset` on is `TooLarge`, at once.
        allow_partial: bool,
    },
    /// Begins a write; the file appears, whole, at `WriteEnd`.
    Write {
        /// Request id.
        id: u32,
        /// Which file; missing parent directories are made.
        path: Vec<u8>,
        /// More bytes than this is `TooLarge`.
        max_bytes: u64,
        /// True: an existing path is `Exists`.
        create_only: bool,
    },
    /// Bytes of a write, under credit.
    WriteData {
        /// Request id of the write.
        id: u32,
        /// 1 to [`MAX_DATA_BYTES`] bytes.
        bytes: Vec<u8>,
    },
    /// Ends a write: flush, hand to the owner, rename into place.
    WriteEnd {
        /// Request id of the write.
        id: u32,
    },
    /// Lists a directory, sorted by path bytes.
    List {
        /// Request id.
        id: u32,
        /// Which directory; empty is the workspace.
        path: Vec<u8>,
        /// True: everything below it. Symbolic links are listed, not entered.
        recursive: bool,
        /// Most entries, 1 to [`MAX_LIST_ENTRIES`].
        limit: u32,
        /// Continue after this path (an earlier answer's `next_cursor`); empty from the start.
        cursor: Vec<u8>,
    },
    /// Describes the path itself.
    Stat {
        /// Request id.
        id: u32,
        /// Which path.
        path: Vec<u8>,
    },
    /// Removes a file, link or special file; a directory when empty or `recursive`.
    Remove {
        /// Request id.
        id: u32,
        /// Which path.
        path: Vec<u8>,
        /// True: with everything below it.
        recursive: bool,
    },
    /// The host consumed this much of a request's answer.
    Credit {
        /// Request id.
        id: u32,
        /// Granted bytes.
        bytes: u32,
    },
    /// Ends a request early; an unfinished write leaves nothing.
    Cancel {
        /// Request id.
        id: u32,
    },
    /// Heartbeat; answered by `Pong` with the same token.
    Ping {
        /// Any value.
        token: u64,
    },
}

/// Guest to host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Response {
    /// First frame.
    Hello(Hello),
    /// The request failed; final.
    Error {
        /// Request id.
        id: u32,
        /// Which of the closed list.
        code: FilesErrorCode,
        /// The system's error number, 0 when there is none; for diagnosis only.
        errno: i32,
    },
    /// `Init` or `Adopt` done; final.
    Ready {
        /// Request id.
        id: u32,
        /// What the workspace holds.
        usage: Usage,
    },
    /// The nonce is the expected one; final.
    NonceChecked {
        /// Request id.
        id: u32,
    },
    /// Answer to `Measure`; final.
    Measured {
        /// Request id.
        id: u32,
        /// What the workspace holds.
        usage: Usage,
    },
    /// One difference, sorted by path.
    Change {
        /// Request id.
        id: u32,
        /// The difference.
        change: Change,
    },
    /// Answer to `Diff`; final.
    DiffEnd {
        /// Request id.
        id: u32,
        /// What the workspace holds now.
        usage: Usage,
        /// All changes, reported or not (count).
        total_changes: u64,
        /// True: some were not reported.
        truncated: bool,
    },
    /// The file is open; its data follows.
    ReadMeta {
        /// Request id.
        id: u32,
        /// Whole size of the file in bytes.
        size_bytes: u64,
        /// Last modification, microseconds since 1970 UTC.
        mtime_us: i64,
        /// Permission bits.
        mode: u32,
    },
    /// Bytes of the file, under credit.
    ReadData {
        /// Request id.
        id: u32,
        /// 1 to [`MAX_DATA_BYTES`] bytes.
        bytes: Vec<u8>,
    },
    /// Everything asked for was sent and the file did not change meanwhile; final.
    ReadEnd {
        /// Request id.
        id: u32,
        /// Bytes sent.
        sent_bytes: u64,
        /// SHA-256 of the bytes sent.
        sha256: [u8; 32],
        /// True: the last byte sent is the file's last.
        end_of_file: bool,
    },
    /// The write is durable and in place; final.
    Written {
        /// Request id.
        id: u32,
        /// Size in bytes.
        size_bytes: u64,
        /// SHA-256 of the content.
        sha256: [u8; 32],
        /// True: the path was free. False: a regular file was replaced.
        created: bool,
    },
    /// One listed path, under credit.
    Entry {
        /// Request id.
        id: u32,
        /// What was found.
        entry: Entry,
    },
    /// Answer to `List`; final.
    ListEnd {
        /// Request id.
        id: u32,
        /// There is more after this path; `None` at the end.
        next_cursor: Option<Vec<u8>>,
    },
    /// Answer to `Stat`; final.
    Stated {
        /// Request id.
        id: u32,
        /// What was found.
        entry: Entry,
    },
    /// Answer to `Remove`; final.
    Removed {
        /// Request id.
        id: u32,
        /// Paths removed (count, directories included).
        entries: u64,
    },
    /// The guest took this much of a write.
    Credit {
        /// Request id of the write.
        id: u32,
        /// Granted bytes.
        bytes: u32,
    },
    /// Answer to `Ping`.
    Pong {
        /// The ping's token.
        token: u64,
    },
}

impl Response {
    /// True for the frame that ends a request.
    #[must_use]
    pub fn is_final(&self) -> bool {
        match self {
            Self::Error { .. }
            | Self::Ready { .. }
            | Self::NonceChecked { .. }
            | Self::Measured { .. }
            | Self::DiffEnd { .. }
            | Self::ReadEnd { .. }
            | Self::Written { .. }
            | Self::ListEnd { .. }
            | Self::Stated { .. }
            | Self::Removed { .. } => true,
            Self::Hello(_)
            | Self::Change { .. }
            | Self::ReadMeta { .. }
            | Self::ReadData { .. }
            | Self::Entry { .. }
            | Self::Credit { .. }
            | Self::Pong { .. } => false,
        }
    }
}

impl Entry {
    /// What an `Entry` frame costs in credit, in bytes.
    #[must_use]
    pub fn credit_bytes(&self) -> u32 {
        // Length prefix, kind, size, mtime, mode around the path.
        u32::try_from(self.path.len()).unwrap_or(u32::MAX).saturating_add(25)
    }

    fn put(&self, out: &mut Vec<u8>) {
        out.put_bytes(&self.path);
        out.put_u8(self.kind as u8);
        out.put_u64(self.size_bytes);
        out.put_i64(self.mtime_us);
        out.put_u32(self.mode);
    }

    fn take(take: &mut Take<'_>) -> Result<Self, ProtocolError> {
        Ok(Self {
            path: take.bytes("path", MAX_PATH_BYTES)?,
            kind: take.map_u8("kind", EntryKind::from_u8)?,
            size_bytes: take.u64("size_bytes")?,
            mtime_us: take.i64("mtime_us")?,
            mode: take.u32("mode")?,
        })
    }
}

impl Usage {
    fn put(&self, out: &mut Vec<u8>) {
        out.put_u64(self.allocated_bytes);
        out.put_u64(self.apparent_bytes);
        out.put_u64(self.inodes);
    }

    fn take(take: &mut Take<'_>) -> Result<Self, ProtocolError> {
        Ok(Self {
            allocated_bytes: take.u64("allocated_bytes")?,
            apparent_bytes: take.u64("apparent_bytes")?,
            inodes: take.u64("inodes")?,
        })
    }
}

impl Change {
    fn put(&self, out: &mut Vec<u8>) {
        match &self.path {
            ChangedPath::Path(path) => {
                out.put_bool(false);
                out.put_bytes(path);
            }
            ChangedPath::Digest { sha256, path_bytes } => {
                out.put_bool(true);
                out.put_raw(sha256);
                out.put_u64(*path_bytes);
            }
        }
        out.put_u8(self.change as u8);
        out.put_u8(self.kind as u8);
        out.put_u64(self.size_bytes);
        out.put_bool(self.sha256.is_some());
        if let Some(sha256) = &self.sha256 {
            out.put_raw(sha256);
        }
    }

    fn take(take: &mut Take<'_>) -> Result<Self, ProtocolError> {
        let path = if take.bool("path")? {
            ChangedPath::Digest { sha256: take.digest("path")?, path_bytes: take.u64("path")? }
        } else {
            ChangedPath::Path(take.bytes("path", MAX_PATH_BYTES)?)
        };
        Ok(Self {
            path,
            change: take.map_u8("change", ChangeKind::from_u8)?,
            kind: take.map_u8("kind", EntryKind::from_u8)?,
            size_bytes: take.u64("size_bytes")?,
            sha256: if take.bool("sha256")? { Some(take.digest("sha256")?) } else { None },
        })
    }
}

impl Frame for Request {
    fn kind(&self) -> u8 {
        match self {
            Self::Hello(_) => 1,
            Self::Init { .. } => 2,
            Self::Adopt { .. } => 3,
            Self::CheckNonce { .. } => 4,
            Self::Measure { .. } => 5,
            Self::Diff { .. } => 6,
            Self::Read { .. } => 7,
            Self::Write { .. } => 8,
            Self::WriteData { .. } => 9,
            Self::WriteEnd { .. } => 10,
            Self::List { .. } => 11,
            Self::Stat { .. } => 12,
            Self::Remove { .. } => 13,
            Self::Credit { .. } => 14,
            Self::Cancel { .. } => 15,
            Self::Ping { .. } => 16,
        }
    }

    fn stream(&self) -> u32 {
        match self {
            Self::Hello(_) | Self::Ping { .. } => 0,
            Self::Init { id, .. }
            | Self::Adopt { id, .. }
            | Self::CheckNonce { id, .. }
            | Self::Measure { id }
            | Self::Diff { id, .. }
            | Self::Read { id, .. }
            | Self::Write { id, .. }
            | Self::WriteData { id, .. }
            | Self::WriteEnd { id }
            | Self::List { id, .. }
            | Self::Stat { id, .. }
            | Self::Remove { id, .. }
            | Self::Credit { id, .. }
            | Self::Cancel { id } => *id,
        }
    }

    fn put_payload(&self, out: &mut Vec<u8>) {
        match self {
            Self::Hello(hello) => hello.put(out),
            Self::Init { uid, gid, nonce, .. } | Self::Adopt { uid, gid, nonce, .. } => {
                out.put_u32(*uid);
                out.put_u32(*gid);
                out.put_bytes(nonce);
            }
            Self::CheckNonce { nonce, .. } => out.put_bytes(nonce),
            Self::Diff { max_changes, max_path_bytes, .. } => {
                out.put_u32(*max_changes);
                out.put_u32(*max_path_bytes);
            }
            Self::Read { path, offset, max_bytes, allow_partial, .. } => {
                out.put_bytes(path);
                out.put_u64(*offset);
                out.put_u64(*max_bytes);
                out.put_bool(*allow_partial);
            }
            Self::Write { path, max_bytes, create_only, .. } => {
                out.put_bytes(path);
                out.put_u64(*max_bytes);
                out.put_bool(*create_only);
            }
            Self::WriteData { bytes, .. } => out.put_raw(bytes),
            Self::List { path, recursive, limit, cursor, .. } => {
                out.put_bytes(path);
                out.put_bool(*recursive);
                out.put_u32(*limit);
                out.put_bytes(cursor);
            }
            Self::Stat { path, .. } => out.put_bytes(path),
            Self::Remove { path, recursive, .. } => {
                out.put_bytes(path);
                out.put_bool(*recursive);
            }
            Self::Credit { bytes, .. } => out.put_u32(*bytes),
            Self::Ping { token } => out.put_u64(*token),
            Self::Measure { .. } | Self::WriteEnd { .. } | Self::Cancel { .. } => {}
        }
    }

    fn max_payload_bytes(kind: u8) -> Option<usize> {
        match kind {
            9 => Some(MAX_DATA_BYTES),
            1..=16 => Some(MAX_PAYLOAD_BYTES),
            _ => None,
        }
    }

    fn from_parts(kind: u8, stream: u32, payload: &[u8]) -> Result<Self, ProtocolError> {
        check_stream(kind, stream, matches!(kind, 1 | 16))?;
        let id = stream;
        let mut take = Take::new(kind, payload);
        let frame = match kind {
            1 => return Hello::take(kind, payload).map(Self::Hello),
            2 | 3 => {
                let (uid, gid) = (take.u32("uid")?, take.u32("gid")?);
                let nonce = take_nonce(&mut take)?;
                if kind == 2 {
                    Self::Init { id, uid, gid, nonce }
                } else {
                    Self::Adopt { id, uid, gid, nonce }
                }
            }
            4 => Self::CheckNonce { id, nonce: take_nonce(&mut take)? },
            5 => Self::Measure { id },
            6 => Self::Diff {
                id,
                max_changes: take.u32("max_changes")?,
                max_path_bytes: take.u32("max_path_bytes")?,
            },
            7 => Self::Read {
                id,
                path: take.bytes("path", MAX_PATH_BYTES)?,
                offset: take.u64("offset")?,
                max_bytes: take.u64("max_bytes")?,
                allow_partial: take.bool("allow_partial")?,
            },
            8 => Self::Write {
                id,
                path: take.bytes("path", MAX_PATH_BYTES)?,
                max_bytes: take.u64("max_bytes")?,
                create_only: take.bool("create_only")?,
            },
            9 if payload.is_empty() => return Err(take.malformed("bytes")),
            9 => Self::WriteData { id, bytes: take.rest() },
            10 => Self::WriteEnd { id },
            11 => Self::List {
                id,
                path: take.bytes("path", MAX_PATH_BYTES)?,
                recursive: take.bool("recursive")?,
                limit: take.u32("limit")?,
                cursor: take.bytes("cursor", MAX_PATH_BYTES)?,
            },
            12 => Self::Stat { id, path: take.bytes("path", MAX_PATH_BYTES)? },
            13 => Self::Remove {
                id,
                path: take.bytes("path", MAX_PATH_BYTES)?,
                recursive: take.bool("recursive")?,
            },
            14 => Self::Credit { id, bytes: take.u32("bytes")? },
            15 => Self::Cancel { id },
            16 => Self::Ping { token: take.u64("token")? },
            _ => return Err(ProtocolError::UnknownKind { kind }),
        };
        take.finish()?;
        Ok(frame)
    }
}

fn take_nonce(take: &mut Take<'_>) -> Result<Vec<u8>, ProtocolError> {
    let nonce = take.bytes("nonce", MAX_NONCE_BYTES)?;
    if nonce.is_empty() { Err(take.malformed("nonce")) } else { Ok(nonce) }
}

impl Frame for Response {
    fn kind(&self) -> u8 {
        match self {
            Self::Hello(_) => 1,
            Self::Error { .. } => 2,
            Self::Ready { .. } => 3,
            Self::NonceChecked { .. } => 4,
            Self::Measured { .. } => 5,
            Self::Change { .. } => 6,
            Self::DiffEnd { .. } => 7,
            Self::ReadMeta { .. } => 8,
            Self::ReadData { .. } => 9,
            Self::ReadEnd { .. } => 10,
            Self::Written { .. } => 11,
            Self::Entry { .. } => 12,
            Self::ListEnd { .. } => 13,
            Self::Stated { .. } => 14,
            Self::Removed { .. } => 15,
            Self::Credit { .. } => 16,
            Self::Pong { .. } => 17,
        }
    }

    fn stream(&self) -> u32 {
        match self {
            Self::Hello(_) | Self::Pong { .. } => 0,
            Self::Error { id, .. }
            | Self::Ready { id, .. }
            | Self::NonceChecked { id }
            | Self::Measured { id, .. }
            | Self::Change { id, .. }
            | Self::DiffEnd { id, .. }
            | Self::ReadMeta { id, .. }
            | Self::ReadData { id, .. }
            | Self::ReadEnd { id, .. }
            | Self::Written { id, .. }
            | Self::Entry { id, .. }
            | Self::ListEnd { id, .. }
            | Self::Stated { id, .. }
            | Self::Removed { id, .. }
            | Self::Credit { id, .. } => *id,
        }
    }

    fn put_payload(&self, out: &mut Vec<u8>) {
        match self {
            Self::Hello(hello) => hello.put(out),
            Self::Error { code, errno, .. } => {
                out.put_u8(*code as u8);
                out.put_i32(*errno);
            }
            Self::Ready { usage, .. } | Self::Measured { usage, .. } => usage.put(out),
            Self::NonceChecked { .. } => {}
            Self::Change { change, .. } => change.put(out),
            Self::DiffEnd { usage, total_changes, truncated, .. } => {
                usage.put(out);
                out.put_u64(*total_changes);
                out.put_bool(*truncated);
            }
            Self::ReadMeta { size_bytes, mtime_us, mode, .. } => {
                out.put_u64(*size_bytes);
                out.put_i64(*mtime_us);
                out.put_u32(*mode);
            }
            Self::ReadData { bytes, .. } => out.put_raw(bytes),
            Self::ReadEnd { sent_bytes, sha256, end_of_file, .. } => {
                out.put_u64(*sent_bytes);
                out.put_raw(sha256);
                out.put_bool(*end_of_file);
            }
            Self::Written { size_bytes, sha256, created, .. } => {
                out.put_u64(*size_bytes);
                out.put_raw(sha256);
                out.put_bool(*created);
            }
            Self::Entry { entry, .. } | Self::Stated { entry, .. } => entry.put(out),
            Self::ListEnd { next_cursor, .. } => out.put_opt_bytes(next_cursor.as_deref()),
            Self::Removed { entries, .. } => out.put_u64(*entries),
            Self::Credit { bytes, .. } => out.put_u32(*bytes),
            Self::Pong { token } => out.put_u64(*token),
        }
    }

    fn max_payload_bytes(kind: u8) -> Option<usize> {
        match kind {
            9 => Some(MAX_DATA_BYTES),
            1..=17 => Some(MAX_PAYLOAD_BYTES),
            _ => None,
        }
    }

    fn from_parts(kind: u8, stream: u32, payload: &[u8]) -> Result<Self, ProtocolError> {
        check_stream(kind, stream, matches!(kind, 1 | 17))?;
        let id = stream;
        let mut take = Take::new(kind, payload);
        let frame = match kind {
            1 => return Hello::take(kind, payload).map(Self::Hello),
            2 => Self::Error {
                id,
                code: take.map_u8("code", FilesErrorCode::from_u8)?,
                errno: take.i32("errno")?,
            },
            3 => Self::Ready { id, usage: Usage::take(&mut take)? },
            4 => Self::NonceChecked { id },
            5 => Self::Measured { id, usage: Usage::take(&mut take)? },
            6 => Self::Change { id, change: Change::take(&mut take)? },
            7 => Self::DiffEnd {
                id,
                usage: Usage::take(&mut take)?,
                total_changes: take.u64("total_changes")?,
                truncated: take.bool("truncated")?,
            },
            8 => Self::ReadMeta {
                id,
                size_bytes: take.u64("size_bytes")?,
                mtime_us: take.i64("mtime_us")?,
                mode: take.u32("mode")?,
            },
            9 if payload.is_empty() => return Err(take.malformed("bytes")),
            9 => Self::ReadData { id, bytes: take.rest() },
            10 => Self::ReadEnd {
                id,
                sent_bytes: take.u64("sent_bytes")?,
                sha256: take.digest("sha256")?,
                end_of_file: take.bool("end_of_file")?,
            },
            11 => Self::Written {
                id,
                size_bytes: take.u64("size_bytes")?,
                sha256: take.digest("sha256")?,
                created: take.bool("created")?,
            },
            12 => Self::Entry { id, entry: Entry::take(&mut take)? },
            13 => Self::ListEnd { id, next_cursor: take.opt_bytes("next_cursor", MAX_PATH_BYTES)? },
            14 => Self::Stated { id, entry: Entry::take(&mut take)? },
            15 => Self::Removed { id, entries: take.u64("entries")? },
            16 => Self::Credit { id, bytes: take.u32("bytes")? },
            17 => Self::Pong { token: take.u64("token")? },
            _ => return Err(ProtocolError::UnknownKind { kind }),
        };
        take.finish()?;
        Ok(frame)
    }
}
