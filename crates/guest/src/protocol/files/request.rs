//! Host to guest.

use super::super::codec::{Put, Take};
use super::super::frame::{Frame, ProtocolError, check_stream, header};
use super::super::{HEADER_BYTES, Hello, MAX_NONCE_BYTES, MAX_PAYLOAD_BYTES};
use super::values::Quota;

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
        /// How much it may hold: what the API writes is refused beyond it.
        quota: Quota,
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
        /// How much it may hold: what the API writes is refused beyond it.
        quota: Quota,
        /// The nonce it must hold.
        nonce: Vec<u8>,
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
    /// Measures what the workspace holds, with one status call per name.
    Measure {
        /// Request id.
        id: u32,
        /// The walk ends as soon as more than this was found.
        stop: Quota,
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
        /// 1 to [`MAX_DATA_BYTES`](super::MAX_DATA_BYTES) bytes.
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
        /// Most entries, 1 to [`MAX_LIST_ENTRIES`](super::MAX_LIST_ENTRIES).
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
    /// How much room the engine's own disk has.
    Room {
        /// Request id.
        id: u32,
    },
}

/// Kind of [`Request::WriteData`].
const WRITE_DATA: u8 = 9;

impl Request {
    /// The header of a [`Request::WriteData`] of so many bytes; the bytes follow it as they are.
    #[must_use]
    pub fn write_data_header(id: u32, length: usize) -> [u8; HEADER_BYTES] {
        header(WRITE_DATA, id, length)
    }
}

impl Frame for Request {
    fn kind(&self) -> u8 {
        match self {
            Self::Hello(_) => 1,
            Self::Init { .. } => 2,
            Self::Adopt { .. } => 3,
            Self::Diff { .. } => 6,
            Self::Read { .. } => 7,
            Self::Write { .. } => 8,
            Self::WriteData { .. } => WRITE_DATA,
            Self::WriteEnd { .. } => 10,
            Self::List { .. } => 11,
            Self::Stat { .. } => 12,
            Self::Remove { .. } => 13,
            Self::Credit { .. } => 14,
            Self::Cancel { .. } => 15,
            Self::Ping { .. } => 16,
            Self::Measure { .. } => 17,
            Self::Room { .. } => 18,
        }
    }

    fn stream(&self) -> u32 {
        match self {
            Self::Hello(_) | Self::Ping { .. } => 0,
            Self::Init { id, .. }
            | Self::Adopt { id, .. }
            | Self::Diff { id, .. }
            | Self::Measure { id, .. }
            | Self::Read { id, .. }
            | Self::Write { id, .. }
            | Self::WriteData { id, .. }
            | Self::WriteEnd { id }
            | Self::List { id, .. }
            | Self::Stat { id, .. }
            | Self::Remove { id, .. }
            | Self::Credit { id, .. }
            | Self::Cancel { id }
            | Self::Room { id } => *id,
        }
    }

    fn put_payload(&self, out: &mut Vec<u8>) {
        match self {
            Self::Hello(hello) => hello.put(out),
            Self::Init { uid, gid, quota, nonce, .. } | Self::Adopt { uid, gid, quota, nonce, .. } => {
                out.put_u32(*uid);
                out.put_u32(*gid);
                quota.put(out);
                out.put_bytes(nonce);
            }
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
            Self::Measure { stop, .. } => stop.put(out),
            Self::WriteEnd { .. } | Self::Cancel { .. } | Self::Room { .. } => {}
        }
    }

    fn max_payload_bytes(kind: u8) -> Option<usize> {
        match kind {
            1..=3 | 6..=18 => Some(MAX_PAYLOAD_BYTES),
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
                let quota = Quota::take(&mut take)?;
                let nonce = take_nonce(&mut take)?;
                if kind == 2 {
                    Self::Init { id, uid, gid, quota, nonce }
                } else {
                    Self::Adopt { id, uid, gid, quota, nonce }
                }
            }
            6 => Self::Diff {
                id,
                max_changes: take.u32("max_changes")?,
                max_path_bytes: take.u32("max_path_bytes")?,
            },
            7 => Self::Read {
                id,
                path: take.bytes("path", MAX_PAYLOAD_BYTES)?,
                offset: take.u64("offset")?,
                max_bytes: take.u64("max_bytes")?,
                allow_partial: take.bool("allow_partial")?,
            },
            8 => Self::Write {
                id,
                path: take.bytes("path", MAX_PAYLOAD_BYTES)?,
                max_bytes: take.u64("max_bytes")?,
                create_only: take.bool("create_only")?,
            },
            WRITE_DATA if payload.is_empty() => return Err(take.malformed("bytes")),
            WRITE_DATA => Self::WriteData { id, bytes: take.rest() },
            10 => Self::WriteEnd { id },
            11 => Self::List {
                id,
                path: take.bytes("path", MAX_PAYLOAD_BYTES)?,
                recursive: take.bool("recursive")?,
                limit: take.u32("limit")?,
                cursor: take.bytes("cursor", MAX_PAYLOAD_BYTES)?,
            },
            12 => Self::Stat { id, path: take.bytes("path", MAX_PAYLOAD_BYTES)? },
            13 => Self::Remove {
                id,
                path: take.bytes("path", MAX_PAYLOAD_BYTES)?,
                recursive: take.bool("recursive")?,
            },
            14 => Self::Credit { id, bytes: take.u32("bytes")? },
            15 => Self::Cancel { id },
            16 => Self::Ping { token: take.u64("token")? },
            17 => Self::Measure { id, stop: Quota::take(&mut take)? },
            18 => Self::Room { id },
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
