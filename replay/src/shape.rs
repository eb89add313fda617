//! Events as JSON, in the shape of the service's interface.

use events::stored::{Header, Recorded, encode_body};
use events::{Position, Timestamp};
use serde::Serialize;
use serde_json::Value;

use crate::error::ReplayError;

/// An event as the interface shows it. A field that does not apply is null; the body of an erased event is null.
#[derive(Clone, Debug, Serialize)]
#[expect(
    missing_docs,
    reason = "the fields are those of events::stored::Header, plus position, body and leaf"
)]
pub struct EventJson<'a> {
    pub position: Position,
    pub event_id: events::EventId,
    pub stream: String,
    pub version: events::Version,
    #[serde(rename = "type")]
    pub kind: &'a str,
    pub schema: u32,
    pub tenant: events::TenantId,
    pub recorded_at: Timestamp,
    pub actor: &'a str,
    pub correlation_id: Option<events::RunId>,
    pub causation_id: Option<events::EventId>,
    pub body: Value,
    /// Lower-case hex.
    pub leaf: String,
}

impl<'a> EventJson<'a> {
    /// The JSON form of an event.
    ///
    /// # Errors
    /// When its body cannot be written: it was not read from a log.
    pub fn try_new(recorded: &'a Recorded) -> Result<Self, ReplayError> {
        let header: &Header = &recorded.header;
        let body = match &recorded.event {
            Some(event) => serde_json::from_slice(&encode_body(event)?)?,
            None => Value::Null,
        };
        Ok(Self {
            position: recorded.position,
            event_id: header.event_id,
            stream: header.stream.to_string(),
            version: header.version,
            kind: &header.kind,
            schema: header.schema,
            tenant: header.tenant,
            recorded_at: header.recorded_at,
            actor: &header.actor,
            correlation_id: header.correlation_id,
            causation_id: header.causation_id,
            body,
            leaf: hex::encode(recorded.leaf),
        })
    }
}

/// Bytes as text, in base64 with padding.
#[must_use]
pub fn base64(bytes: &[u8]) -> String {
    base64::Engine::encode(&base64::engine::general_purpose::STANDARD, bytes)
}
