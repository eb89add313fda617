//! A run's history in a file that can be checked without the database: JSON lines.
//!
//! ```text
//!   {"bundle":"leasehold-run","v":1,"log_id":…,"origin":…,"tenant":…,"run_id":…,"head":…,
//!    "streams":[{"stream":…,"version":N,"tip":hex}],"events":N,"checkpoint":note|null}
//!   {"position":…,"header":base64,"salt":base64|null,"body":base64|null,"proof":[hex,…]|null}     N lines, by position
//! ```
//! Bytes are those of the log. `checkpoint` is the newest signed head, `proof` an event's inclusion in its tree: it is null while the
//! head does not cover the event. The file names no key: whoever checks it brings one. A reader ignores fields it does not know.
//! - [`write`]: from the log. [`check`]: the file alone ([`report`]: what it proves). [`anchor`]: head and proofs, for both.

mod anchor;
pub mod check;
mod report;
pub mod write;

use events::{LogId, Position, RunId, TenantId, Version};
use serde::{Deserialize, Serialize};

/// What the first line names.
const KIND: &str = "leasehold-run";
/// The form that this version writes and reads.
const FORM: u32 = 1;

/// The first line.
#[derive(Debug, Serialize, Deserialize)]
struct Head {
    bundle: String,
    v: u32,
    log_id: LogId,
    origin: String,
    tenant: TenantId,
    run_id: RunId,
    /// First position after the log when the file was written.
    head: Position,
    streams: Vec<StreamEnd>,
    events: u64,
    /// A signed note.
    checkpoint: Option<String>,
}

/// Where a stream ends.
#[derive(Debug, Serialize, Deserialize)]
struct StreamEnd {
    stream: events::stored::StreamName,
    version: Version,
    tip: Hex32,
}

/// One event.
#[derive(Debug, Serialize, Deserialize)]
struct EventLine {
    position: Position,
    header: Base64,
    salt: Option<Base64>,
    body: Option<Base64>,
    /// From the leaf upwards.
    proof: Option<Vec<Hex32>>,
}

/// Bytes, as base64 with padding.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
struct Base64(Vec<u8>);

impl From<Base64> for String {
    fn from(bytes: Base64) -> Self {
        crate::shape::base64(&bytes.0)
    }
}

impl TryFrom<String> for Base64 {
    type Error = base64::DecodeError;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        base64::Engine::decode(&base64::engine::general_purpose::STANDARD, text).map(Self)
    }
}

/// 32 bytes, as lower-case hex.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
struct Hex32([u8; 32]);

impl From<Hex32> for String {
    fn from(bytes: Hex32) -> Self {
        hex::encode(bytes.0)
    }
}

impl TryFrom<String> for Hex32 {
    type Error = hex::FromHexError;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        let mut bytes = [0; 32];
        hex::decode_to_slice(text, &mut bytes).map(|()| Self(bytes))
    }
}
