//! Guest to host.

use super::super::codec::{Put, Take};
use super::super::frame::{Frame, ProtocolError, check_stream, header};
use super::super::{HEADER_BYTES, Hello, MAX_PATH_BYTES, MAX_PAYLOAD_BYTES};
use super::values::{Change, Entry, FilesErrorCode, Usage};

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
    /// Answer to `Measure`; final.
    Measured {
        /// Request id.
        id: u32,
        /// What was found.
        usage: Usage,
        /// False: the walk stopped because that was more than asked for; there may be more still.
        complete: bool,
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
        /// 1 to [`MAX_DATA_BYTES`](super::MAX_DATA_BYTES) bytes.
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
        /// What the workspace holds now, as far as known without looking.
        usage: Usage,
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
        /// What the workspace holds now, as far as known without looking.
        usage: Usage,
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
    /// Answer to `Room`; final.
    Room {
        /// Request id.
        id: u32,
        /// What may still be written to the engine's disk, in bytes.
        free_bytes: u64,
    },
}

impl Response {
    /// True for the frame that ends a request.
    #[must_use]
    pub fn is_final(&self) -> bool {
        match self {
            Self::Error { .. }
            | Self::Ready { .. }
            | Self::DiffEnd { .. }
            | Self::Measured { .. }
            | Self::ReadEnd { .. }
            | Self::Written { .. }
            | Self::ListEnd { .. }
            | Self::Stated { .. }
            | Self::Removed { .. }
            | Self::Room { .. } => true,
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

/// Kind of [`Response::ReadData`].
const READ_DATA: u8 = 9;

impl Response {
    /// The header of a [`Response::ReadData`] of so many bytes; the bytes follow it as they are.
    #[must_use]
    pub fn read_data_header(id: u32, length: usize) -> [u8; HEADER_BYTES] {
        header(READ_DATA, id, length)
    }
}

impl Frame for Response {
    fn kind(&self) -> u8 {
        match self {
            Self::Hello(_) => 1,
            Self::Error { .. } => 2,
            Self::Ready { .. } => 3,
            Self::Change { .. } => 6,
            Self::DiffEnd { .. } => 7,
            Self::ReadMeta { .. } => 8,
            Self::ReadData { .. } => READ_DATA,
            Self::ReadEnd { .. } => 10,
            Self::Written { .. } => 11,
            Self::Entry { .. } => 12,
            Self::ListEnd { .. } => 13,
            Self::Stated { .. } => 14,
            Self::Removed { .. } => 15,
            Self::Credit { .. } => 16,
            Self::Pong { .. } => 17,
            Self::Measured { .. } => 18,
            Self::Room { .. } => 19,
        }
    }

    fn stream(&self) -> u32 {
        match self {
            Self::Hello(_) | Self::Pong { .. } => 0,
            Self::Error { id, .. }
            | Self::Ready { id, .. }
            | Self::Change { id, .. }
            | Self::DiffEnd { id, .. }
            | Self::Measured { id, .. }
            | Self::ReadMeta { id, .. }
            | Self::ReadData { id, .. }
            | Self::ReadEnd { id, .. }
            | Self::Written { id, .. }
            | Self::Entry { id, .. }
            | Self::ListEnd { id, .. }
            | Self::Stated { id, .. }
            | Self::Removed { id, .. }
            | Self::Credit { id, .. }
            | Self::Room { id, .. } => *id,
        }
    }

    fn put_payload(&self, out: &mut Vec<u8>) {
        match self {
            Self::Hello(hello) => hello.put(out),
            Self::Error { code, errno, .. } => {
                out.put_u8(*code as u8);
                out.put_i32(*errno);
            }
            Self::Ready { usage, .. } => usage.put(out),
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
            Self::Written { size_bytes, sha256, created, usage, .. } => {
                out.put_u64(*size_bytes);
                out.put_raw(sha256);
                out.put_bool(*created);
                usage.put(out);
            }
            Self::Entry { entry, .. } | Self::Stated { entry, .. } => entry.put(out),
            Self::ListEnd { next_cursor, .. } => out.put_opt_bytes(next_cursor.as_deref()),
            Self::Removed { entries, usage, .. } => {
                out.put_u64(*entries);
                usage.put(out);
            }
            Self::Credit { bytes, .. } => out.put_u32(*bytes),
            Self::Pong { token } => out.put_u64(*token),
            Self::Measured { usage, complete, .. } => {
                usage.put(out);
                out.put_bool(*complete);
            }
            Self::Room { free_bytes, .. } => out.put_u64(*free_bytes),
        }
    }

    fn max_payload_bytes(kind: u8) -> Option<usize> {
        match kind {
            1..=3 | 6..=19 => Some(MAX_PAYLOAD_BYTES),
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
            READ_DATA if payload.is_empty() => return Err(take.malformed("bytes")),
            READ_DATA => Self::ReadData { id, bytes: take.rest() },
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
                usage: Usage::take(&mut take)?,
            },
            12 => Self::Entry { id, entry: Entry::take(&mut take)? },
            13 => Self::ListEnd { id, next_cursor: take.opt_bytes("next_cursor", MAX_PATH_BYTES)? },
            14 => Self::Stated { id, entry: Entry::take(&mut take)? },
            15 => Self::Removed { id, entries: take.u64("entries")?, usage: Usage::take(&mut take)? },
            16 => Self::Credit { id, bytes: take.u32("bytes")? },
            17 => Self::Pong { token: take.u64("token")? },
            18 => Self::Measured { id, usage: Usage::take(&mut take)?, complete: take.bool("complete")? },
            19 => Self::Room { id, free_bytes: take.u64("free_bytes")? },
            _ => return Err(ProtocolError::UnknownKind { kind }),
        };
        take.finish()?;
        Ok(frame)
    }
}
