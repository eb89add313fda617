//! Files written and removed through the interface (a command's own changes are part of its outcome).

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use crate::bounds::{PATH_BYTES_MAX, json_text_bytes};
use crate::ids::{EnvironmentId, Epoch, LeaseId};

/// A workspace path in JSON: text, plus the exact bytes in base64 when they are not UTF-8.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct PathText {
    /// Relative to `/workspace`; lossy when `path_base64` is set.
    pub path: String,
    /// The exact bytes, set only when they are not UTF-8.
    pub path_base64: Option<String>,
}

impl PathText {
    /// Any path, also one too long to be recorded: that one is named by digest and length.
    #[must_use]
    pub fn from_bytes(bytes: &[u8]) -> Self {
        if bytes.len() > PATH_BYTES_MAX {
            let digest = hex::encode(Sha256::digest(bytes));
            return Self { path: format!("<{} bytes, sha256 {digest}>", bytes.len()), path_base64: None };
        }
        match std::str::from_utf8(bytes) {
            Ok(text) => Self { path: text.to_owned(), path_base64: None },
            Err(_) => Self {
                path: String::from_utf8_lossy(bytes).into_owned(),
                path_base64: Some(STANDARD.encode(bytes)),
            },
        }
    }

    /// The exact bytes.
    ///
    /// # Errors
    /// When `path_base64` is set and is not base64: the value was not made by [`PathText::from_bytes`].
    pub fn to_bytes(&self) -> Result<Vec<u8>, base64::DecodeError> {
        match &self.path_base64 {
            Some(encoded) => STANDARD.decode(encoded),
            None => Ok(self.path.as_bytes().to_vec()),
        }
    }

    /// The same path in the form that [`PathText::from_bytes`] gives it, so never larger than a path can be.
    #[must_use]
    pub fn bounded(&self) -> Self {
        Self::from_bytes(&self.to_bytes().unwrap_or_else(|_| self.path.as_bytes().to_vec()))
    }

    /// Bytes of both values as JSON, keys left out.
    #[must_use]
    pub fn json_value_bytes(&self) -> usize {
        json_text_bytes(&self.path) + self.path_base64.as_deref().map_or(4, json_text_bytes)
    }
}

/// A file was written through the interface.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct WorkspaceFileWritten {
    /// Under which lease.
    pub lease_id: LeaseId,
    /// Its generation.
    pub epoch: Epoch,
    /// In which environment.
    pub environment_id: EnvironmentId,
    /// Which file.
    #[serde(flatten)]
    pub path: PathText,
    /// Its size.
    pub size_bytes: u64,
    /// SHA-256 of its bytes, lower-case hex.
    pub sha256: String,
    /// The file did not exist before.
    pub created: bool,
    /// The artifact that keeps the bytes, when inputs are recorded.
    pub artifact_id: Option<uuid::Uuid>,
}

/// A file was removed through the interface.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct WorkspaceFileRemoved {
    /// Under which lease.
    pub lease_id: LeaseId,
    /// Its generation.
    pub epoch: Epoch,
    /// In which environment.
    pub environment_id: EnvironmentId,
    /// Which file.
    #[serde(flatten)]
    pub path: PathText,
}
