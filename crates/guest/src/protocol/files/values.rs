//! What the files channel talks about: entries, changes, usage, and why a request failed.

use super::super::MAX_PATH_BYTES;
use super::super::codec::{Put, Take};
use super::super::frame::ProtocolError;

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
    /// The volume or its [`Quota`] is full, in bytes or inodes.
    NoSpace = 9,
    /// `create_only` and something is there.
    Exists = 10,
    /// A directory that is not empty, without `recursive`.
    NotEmpty = 11,
    /// The workspace has no nonce, or another one: it was lost.
    NonceMismatch = 12,
    /// A request before `Init` or `Adopt`.
    NotReady = 13,
    /// The walk cannot hold what it found (entry or name budget), found more hard links than
    /// [`NAMES_PER_INODE`](super::NAMES_PER_INODE) allows, or took too long: not measurable.
    CannotMeasure = 14,
    /// The host cancelled the request.
    Cancelled = 15,
    /// Anything else the system answered; see the errno.
    Io = 16,
}

impl FilesErrorCode {
    pub(super) fn from_u8(value: u8) -> Option<Self> {
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
    pub(super) fn from_u8(value: u8) -> Option<Self> {
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
    /// Size of the largest regular file.
    pub largest_bytes: u64,
}

impl Usage {
    /// What counts against a quota of bytes: blocks or sizes, whichever are more.
    #[must_use]
    pub fn used_bytes(&self) -> u64 {
        self.allocated_bytes.max(self.apparent_bytes)
    }
}

/// How much a workspace may hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Quota {
    /// Most [`Usage::used_bytes`].
    pub bytes_max: u64,
    /// Most [`Usage::inodes`].
    pub inodes_max: u64,
}

impl Quota {
    /// No bound at all.
    pub const UNBOUNDED: Self = Self { bytes_max: u64::MAX, inodes_max: u64::MAX };

    /// More than it allows is there.
    #[must_use]
    pub fn is_exceeded_by(&self, usage: &Usage) -> bool {
        usage.used_bytes() > self.bytes_max || usage.inodes > self.inodes_max
    }

    pub(super) fn put(self, out: &mut Vec<u8>) {
        out.put_u64(self.bytes_max);
        out.put_u64(self.inodes_max);
    }

    pub(super) fn take(take: &mut Take<'_>) -> Result<Self, ProtocolError> {
        Ok(Self { bytes_max: take.u64("bytes_max")?, inodes_max: take.u64("inodes_max")? })
    }
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
    pub(super) fn from_u8(value: u8) -> Option<Self> {
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
    /// SHA-256 of the content now; only for a regular file that is there, could be read unchanged, and was not
    /// beyond the walk's budget ([`HASH_MAX_BYTES`](super::HASH_MAX_BYTES), [`HASH_MAX_MS`](super::HASH_MAX_MS)).
    pub sha256: Option<[u8; 32]>,
}

impl ChangedPath {
    /// What a change costs of a diff's path bytes.
    #[must_use]
    pub fn encoded_bytes(&self) -> usize {
        match self {
            Self::Path(path) => path.len(),
            Self::Digest { sha256, .. } => sha256.len() + 8,
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

    pub(super) fn put(&self, out: &mut Vec<u8>) {
        out.put_bytes(&self.path);
        out.put_u8(self.kind as u8);
        out.put_u64(self.size_bytes);
        out.put_i64(self.mtime_us);
        out.put_u32(self.mode);
    }

    pub(super) fn take(take: &mut Take<'_>) -> Result<Self, ProtocolError> {
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
    pub(super) fn put(&self, out: &mut Vec<u8>) {
        out.put_u64(self.allocated_bytes);
        out.put_u64(self.apparent_bytes);
        out.put_u64(self.inodes);
        out.put_u64(self.largest_bytes);
    }

    pub(super) fn take(take: &mut Take<'_>) -> Result<Self, ProtocolError> {
        Ok(Self {
            allocated_bytes: take.u64("allocated_bytes")?,
            apparent_bytes: take.u64("apparent_bytes")?,
            inodes: take.u64("inodes")?,
            largest_bytes: take.u64("largest_bytes")?,
        })
    }
}

impl Change {
    pub(super) fn put(&self, out: &mut Vec<u8>) {
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

    pub(super) fn take(take: &mut Take<'_>) -> Result<Self, ProtocolError> {
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
