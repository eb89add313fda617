//! The header: everything about an event but its body.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use crate::bounds::INTEGER_MAX;
use crate::ids::{EventId, LogId, RunId, TenantId, Version};
use crate::time::Timestamp;

/// Room for a header, so that writing one seldom has to move it.
const HEADER_BYTES_USUAL: usize = 768;

/// `prev_leaf` of the first event of a stream.
pub const ZERO_LEAF: [u8; 32] = [0; 32];

/// The header of a stored event. Serialises to RFC 8785 canonical JSON by [`Header::to_canonical`].
///
/// The fields stand in the order of their JSON names: written one after the other they are in canonical form, without being
/// sorted first. Every event is written and every one read back is compared, so this counts.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Header {
    /// Who caused it: `token:{id}`, `service:{instance}`.
    pub actor: String,
    /// SHA-256 of salt and body, lower-case hex.
    pub body_commit: String,
    /// The event that caused this one.
    pub causation_id: Option<EventId>,
    /// The run, where there is one.
    pub correlation_id: Option<RunId>,
    /// The event's own id.
    pub event_id: EventId,
    /// The log it belongs to.
    pub log_id: LogId,
    /// Leaf of the previous event of this stream, lower-case hex; zeros for version 1.
    pub prev_leaf: String,
    /// Log time.
    pub recorded_at: Timestamp,
    /// Schema of the body.
    pub schema: u32,
    /// The stream, `category/key`.
    pub stream: StreamName,
    /// Whose event it is.
    pub tenant: TenantId,
    /// Event type name.
    #[serde(rename = "type")]
    pub kind: String,
    /// Version of this header form: 1.
    pub v: u32,
    /// Index in the stream, from 1.
    pub version: Version,
}

/// A header could not be written or read.
#[derive(Debug, thiserror::Error)]
pub enum HeaderError {
    /// Not a header of a known form.
    #[error("the header is not valid JSON of the known form")]
    Json(#[from] serde_json::Error),
    /// The bytes are valid but not canonical: they were not written by us. Or the version is larger than canonical JSON can say.
    #[error("the header is not in canonical form")]
    NotCanonical,
}

impl Header {
    /// RFC 8785 bytes: names in order, no white space, and of values only strings, null and small integers, all of which
    /// `serde_json` writes as the standard asks (a test compares with a canonicaliser).
    ///
    /// # Errors
    /// When a value cannot be written as JSON, or the version is 2^53 or more.
    pub fn to_canonical(&self) -> Result<Vec<u8>, HeaderError> {
        if self.version.get() > INTEGER_MAX {
            return Err(HeaderError::NotCanonical);
        }
        let mut bytes = Vec::with_capacity(HEADER_BYTES_USUAL);
        serde_json::to_writer(&mut bytes, self)?;
        Ok(bytes)
    }

    /// Reads a header and insists on canonical form.
    ///
    /// # Errors
    /// When the bytes are not exactly what [`Header::to_canonical`] writes.
    pub fn from_canonical(bytes: &[u8]) -> Result<Self, HeaderError> {
        let header: Self = serde_json::from_slice(bytes)?;
        if header.to_canonical()? == bytes { Ok(header) } else { Err(HeaderError::NotCanonical) }
    }
}

/// SHA-256(salt ‖ body): says nothing about the body to anyone without the salt.
#[must_use]
pub fn body_commitment(salt: &[u8; 32], body: &[u8]) -> [u8; 32] {
    let mut hasher = Sha256::new();
    hasher.update(salt);
    hasher.update(body);
    hasher.finalize().into()
}

/// SHA-256(0x00 ‖ header): the RFC 6962 leaf hash.
#[must_use]
pub fn leaf_hash(header: &[u8]) -> [u8; 32] {
    let mut hasher = Sha256::new();
    hasher.update([0_u8]);
    hasher.update(header);
    hasher.finalize().into()
}

/// Name of a stream: a category and a key, written `category/key`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct StreamName {
    category: String,
    key: String,
}

/// The text is not `category/key` in the allowed characters.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not a stream name: lower-case category, slash, key of [a-z0-9/-], at most 200 bytes")]
pub struct InvalidStreamName;

impl StreamName {
    /// From its parts.
    ///
    /// # Errors
    /// When a part holds other characters than `[a-z0-9-]` (the key also `/`), is empty, or the whole is over 200 bytes.
    pub fn try_new(category: &str, key: &str) -> Result<Self, InvalidStreamName> {
        let plain = |b: u8| matches!(b, b'a'..=b'z' | b'0'..=b'9' | b'-');
        let good = !category.is_empty()
            && !key.is_empty()
            && category.len() + key.len() < 200
            && category.bytes().all(plain)
            && key.bytes().all(|b| plain(b) || b == b'/');
        if good {
            Ok(Self { category: category.to_owned(), key: key.to_owned() })
        } else {
            Err(InvalidStreamName)
        }
    }

    /// `run/{tenant}/{run_id}`.
    #[must_use]
    pub fn run(tenant: TenantId, run_id: RunId) -> Self {
        Self { category: "run".to_owned(), key: format!("{tenant}/{run_id}") }
    }

    /// `service/{instance}`.
    #[must_use]
    pub fn service(instance_id: crate::ids::InstanceId) -> Self {
        Self { category: "service".to_owned(), key: instance_id.to_string() }
    }

    /// The kind of stream.
    #[must_use]
    pub fn category(&self) -> &str {
        &self.category
    }

    /// Which one of its kind.
    #[must_use]
    pub fn key(&self) -> &str {
        &self.key
    }
}

impl fmt::Display for StreamName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.category, self.key)
    }
}

impl FromStr for StreamName {
    type Err = InvalidStreamName;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let (category, key) = text.split_once('/').ok_or(InvalidStreamName)?;
        Self::try_new(category, key)
    }
}

impl TryFrom<String> for StreamName {
    type Error = InvalidStreamName;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        text.parse()
    }
}

impl From<StreamName> for String {
    fn from(name: StreamName) -> Self {
        name.to_string()
    }
}
