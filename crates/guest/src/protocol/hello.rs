//! The versioned first frame of each direction.

use super::codec::{Put, Take};
use super::frame::ProtocolError;
use super::{MAX_PAYLOAD_BYTES, PROTOCOL_VERSION};

/// Longest build version in a hello, in bytes.
const MAX_BUILD_BYTES: usize = 64;

/// Who is speaking: the first frame in each direction of either channel.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Hello {
    /// Must equal [`PROTOCOL_VERSION`] for the channel to continue.
    pub protocol_version: u16,
    /// Version of the speaking crate, for diagnosis only.
    pub build: String,
    /// Process id of the speaker in its own namespace (the host sends 0).
    pub pid: u32,
    /// Spawn channel, guest to host: which cgroup counters it can read. Elsewhere [`CounterSource::None`].
    ///
    /// [`CounterSource::None`]: super::spawn::CounterSource::None
    pub counters: super::spawn::CounterSource,
    /// Files channel, guest to host: paths are resolved by `openat2` (else by a component walk).
    pub openat2: bool,
}

impl Hello {
    /// What the host says first.
    #[must_use]
    pub fn host() -> Self {
        Self::guest(0, super::spawn::CounterSource::None, false)
    }

    /// What the guest says first.
    #[must_use]
    pub fn guest(pid: u32, counters: super::spawn::CounterSource, openat2: bool) -> Self {
        Self {
            protocol_version: PROTOCOL_VERSION,
            build: env!("CARGO_PKG_VERSION").to_owned(),
            pid,
            counters,
            openat2,
        }
    }

    /// True when both sides speak the same version.
    #[must_use]
    pub fn is_compatible(&self) -> bool {
        self.protocol_version == PROTOCOL_VERSION
    }

    pub(super) fn put(&self, out: &mut Vec<u8>) {
        out.put_u16(self.protocol_version);
        out.put_bytes(self.build.as_bytes());
        out.put_u32(self.pid);
        out.put_u8(self.counters as u8);
        out.put_bool(self.openat2);
    }

    pub(super) fn take(kind: u8, payload: &[u8]) -> Result<Self, ProtocolError> {
        debug_assert!(payload.len() <= MAX_PAYLOAD_BYTES);
        let mut take = Take::new(kind, payload);
        let protocol_version = take.u16("protocol_version")?;
        if protocol_version != PROTOCOL_VERSION {
            // Another version may lay out the rest differently: only the version is read.
            return Ok(Self {
                protocol_version,
                build: String::new(),
                pid: 0,
                counters: super::spawn::CounterSource::None,
                openat2: false,
            });
        }
        let hello = Self {
            protocol_version,
            build: take.string("build", MAX_BUILD_BYTES)?,
            pid: take.u32("pid")?,
            counters: take.map_u8("counters", super::spawn::CounterSource::from_u8)?,
            openat2: take.bool("openat2")?,
        };
        take.finish()?;
        Ok(hello)
    }
}
