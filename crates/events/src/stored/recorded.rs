//! From an event to stored bytes and back.

use serde_json::Value;

use super::header::{Header, HeaderError, StreamName, body_commitment, leaf_hash};
use crate::bounds::{EVENT_BYTES_MAX, INTEGER_MAX};
use crate::event::{Event, EventType};
use crate::ids::{EventId, LogId, Position, RunId, TenantId, Version};
use crate::time::Timestamp;

/// An event to be appended: everything but its place in the log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewEvent {
    /// Its own id; deterministic for facts that may be reported twice.
    pub event_id: EventId,
    /// Whose event it is.
    pub tenant: TenantId,
    /// Log time.
    pub recorded_at: Timestamp,
    /// Who caused it.
    pub actor: String,
    /// The run, where there is one.
    pub correlation_id: Option<RunId>,
    /// The event that caused this one.
    pub causation_id: Option<EventId>,
    /// The fact.
    pub event: Event,
}

/// An event in its stored form, chained to its predecessor.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sealed {
    /// Canonical header.
    pub header: Vec<u8>,
    /// Leaf hash of the header.
    pub leaf: [u8; 32],
}

/// An event read back from the log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Recorded {
    /// Its place in the log.
    pub position: Position,
    /// The decoded header.
    pub header: Header,
    /// Its leaf hash.
    pub leaf: [u8; 32],
    /// The fact; `None` when the body was erased.
    pub event: Option<Event>,
}

/// An event cannot be written.
#[derive(Debug, thiserror::Error)]
pub enum EncodeError {
    /// Larger than the log takes; bounds on input make this a fault of ours.
    #[error("the event takes {bytes} bytes, more than the log takes")]
    TooLarge {
        /// Encoded size.
        bytes: usize,
    },
    /// Not representable.
    #[error("the event cannot be written as canonical JSON")]
    Json(#[from] serde_json::Error),
    /// The header is not representable.
    #[error(transparent)]
    Header(#[from] HeaderError),
}

/// Stored bytes cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum DecodeError {
    /// The header is malformed.
    #[error(transparent)]
    Header(#[from] HeaderError),
    /// The type name is not registered, or has no payload in this version.
    #[error("event type {name} is not known to this version")]
    UnknownType {
        /// As stored.
        name: String,
    },
    /// The schema is newer than this version.
    #[error("schema {schema} of {name} is not known to this version")]
    UnknownSchema {
        /// As stored.
        name: String,
        /// As stored.
        schema: u32,
    },
    /// The body is not a payload of its type.
    #[error("the body of a {name} cannot be read")]
    Body {
        /// As stored.
        name: String,
        /// What the parser says.
        source: serde_json::Error,
    },
    /// The body is not what the header commits to.
    #[error("the body does not match the header's commitment")]
    Commitment,
}

/// The canonical bytes of an event's body.
///
/// # Errors
/// When the body is over the bound or not representable, for example a number that JSON does not carry exactly.
pub fn encode_body(event: &Event) -> Result<Vec<u8>, EncodeError> {
    let value = event.body_value()?;
    if !numbers_are_exact(&value) {
        return Err(EncodeError::Json(<serde_json::Error as serde::ser::Error>::custom(
            "a number is no integer below 2^53",
        )));
    }
    let bytes = serde_json_canonicalizer::to_vec(&value)?;
    if bytes.len() > EVENT_BYTES_MAX { Err(EncodeError::TooLarge { bytes: bytes.len() }) } else { Ok(bytes) }
}

/// RFC 8785 writes every number as an IEEE 754 double, so a larger integer would silently become another one.
fn numbers_are_exact(value: &Value) -> bool {
    match value {
        Value::Number(number) => {
            number.as_u64().is_some_and(|integer| integer <= INTEGER_MAX)
                || number.as_i64().is_some_and(|integer| integer.unsigned_abs() <= INTEGER_MAX)
        }
        Value::Array(items) => items.iter().all(numbers_are_exact),
        Value::Object(fields) => fields.values().all(numbers_are_exact),
        Value::Null | Value::Bool(_) | Value::String(_) => true,
    }
}

/// Chains an event to its stream and hashes it. `body` is the output of [`encode_body`], `salt` 32 random bytes.
///
/// # Errors
/// When header and body together are over the bound.
pub fn seal(
    log_id: LogId,
    stream: &StreamName,
    version: Version,
    prev_leaf: &[u8; 32],
    new: &NewEvent,
    salt: &[u8; 32],
    body: &[u8],
) -> Result<Sealed, EncodeError> {
    let kind = new.event.event_type();
    let header = Header {
        v: 1,
        log_id,
        event_id: new.event_id,
        tenant: new.tenant,
        stream: stream.clone(),
        version,
        prev_leaf: hex::encode(prev_leaf),
        kind: kind.name().to_owned(),
        schema: kind.schema(),
        recorded_at: new.recorded_at,
        actor: new.actor.clone(),
        correlation_id: new.correlation_id,
        causation_id: new.causation_id,
        body_commit: hex::encode(body_commitment(salt, body)),
    };
    let bytes = header.to_canonical()?;
    let total = bytes.len() + body.len();
    if total > EVENT_BYTES_MAX {
        return Err(EncodeError::TooLarge { bytes: total });
    }
    let leaf = leaf_hash(&bytes);
    Ok(Sealed { header: bytes, leaf })
}

/// Key order, repeated keys, unknown keys, other forms of a number: bytes that we would not write were not written by us.
fn is_stored_as(event: &Event, body: &[u8]) -> bool {
    encode_body(event).is_ok_and(|bytes| bytes == body)
}

/// Reads a stored event. `salt_and_body` is `None` when the body was erased.
///
/// # Errors
/// When the bytes are not what this version can read, or the body is not the committed one.
pub fn decode(
    position: Position,
    header: &[u8],
    salt_and_body: Option<(&[u8; 32], &[u8])>,
) -> Result<Recorded, DecodeError> {
    let leaf = leaf_hash(header);
    let header = Header::from_canonical(header)?;
    let Some(kind) = EventType::from_name(&header.kind) else {
        return Err(DecodeError::UnknownType { name: header.kind });
    };
    if header.schema != kind.schema() {
        return Err(DecodeError::UnknownSchema { name: header.kind, schema: header.schema });
    }
    let event = match salt_and_body {
        None => None,
        Some((salt, body)) => {
            if hex::encode(body_commitment(salt, body)) != header.body_commit {
                return Err(DecodeError::Commitment);
            }
            match Event::from_body(kind, body) {
                None => return Err(DecodeError::UnknownType { name: header.kind }),
                Some(Err(source)) => return Err(DecodeError::Body { name: header.kind, source }),
                Some(Ok(event)) if is_stored_as(&event, body) => Some(event),
                Some(Ok(_)) => {
                    let source = <serde_json::Error as serde::de::Error>::custom("not in canonical form");
                    return Err(DecodeError::Body { name: header.kind, source });
                }
            }
        }
    };
    Ok(Recorded { position, header, leaf, event })
}
