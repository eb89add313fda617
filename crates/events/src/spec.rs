//! Values that specify what a lease may use: limits, mechanism, image digest.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// The six operator-set limits of an environment (decision D10); no default at the port.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Limits {
    /// CPU time per second of wall clock, in thousandths of a core.
    pub cpu_millicores: u64,
    /// Memory of the sandbox, swap included.
    pub memory_bytes: u64,
    /// Processes and threads of the sandbox.
    pub pids_max: u64,
    /// Bytes in the workspace.
    pub workspace_bytes: u64,
    /// Files, directories and links in the workspace.
    pub inodes_max: u64,
    /// Longest time of one command.
    pub wall_clock_seconds: u64,
}

/// How an environment is isolated (decision D2).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Mechanism {
    /// Containers on the shared kernel: development only.
    Docker,
    /// Containers on a user-space kernel (`--runtime=runsc`): production.
    Gvisor,
    /// Not configured in any build yet; selecting it is refused at start.
    Microvm,
    /// Evaluation without a container runtime.
    Fake,
}

impl Mechanism {
    /// The name used in configuration, JSON and SQL.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Docker => "docker",
            Self::Gvisor => "gvisor",
            Self::Microvm => "microvm",
            Self::Fake => "fake",
        }
    }
}

impl fmt::Display for Mechanism {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// The id of an image in the engine: `sha256:` and 64 lower-case hex digits, nothing else (decision D3).
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct ImageDigest(String);

/// The text is not a `sha256:` digest.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not an image digest: expected sha256: and 64 lower-case hex digits")]
pub struct InvalidImageDigest;

impl ImageDigest {
    /// The digest as text, prefix included.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for ImageDigest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl FromStr for ImageDigest {
    type Err = InvalidImageDigest;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let hex = text.strip_prefix("sha256:").ok_or(InvalidImageDigest)?;
        if hex.len() == 64 && hex.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f')) {
            Ok(Self(text.to_owned()))
        } else {
            Err(InvalidImageDigest)
        }
    }
}

impl TryFrom<String> for ImageDigest {
    type Error = InvalidImageDigest;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        text.parse()
    }
}

impl From<ImageDigest> for String {
    fn from(digest: ImageDigest) -> Self {
        digest.0
    }
}
