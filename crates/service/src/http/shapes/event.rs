//! One event of a run, as the log keeps it.

use events::Timestamp;
use events::stored::{EncodeError, Recorded, encode_body};
use serde::Serialize;
use serde_json::Value;
use utoipa::ToSchema;
use uuid::Uuid;

/// An event of the log.
#[derive(Clone, Debug, Serialize, ToSchema)]
#[schema(as = Event)]
pub(in crate::http) struct EventJson {
    /// Its index in the log.
    pub position: u64,
    /// The event.
    pub event_id: Uuid,
    /// Its stream, `category/key`.
    pub stream: String,
    /// Its index in the stream, from 1.
    pub version: u64,
    /// What happened.
    #[schema(example = "CommandFinished")]
    pub r#type: String,
    /// Schema of the body.
    pub schema: u32,
    /// Whose it is.
    pub tenant: Uuid,
    /// Log time.
    #[schema(value_type = String, format = DateTime)]
    pub recorded_at: Timestamp,
    /// Who caused it: `token:{id}` or `service:{instance}`.
    pub actor: String,
    /// The run.
    #[schema(required)]
    pub correlation_id: Option<Uuid>,
    /// The event that caused this one.
    #[schema(required)]
    pub causation_id: Option<Uuid>,
    /// The facts; null when erased.
    #[schema(value_type = Option<Object>, required)]
    pub body: Option<Value>,
    /// SHA-256(0x00 ‖ header) (RFC 6962), lower-case hex.
    pub leaf: String,
}

impl TryFrom<Recorded> for EventJson {
    type Error = EncodeError;

    fn try_from(recorded: Recorded) -> Result<Self, EncodeError> {
        let body = recorded.event.as_ref().map(encode_body).transpose()?;
        let body = body.map(|bytes| serde_json::from_slice(&bytes)).transpose()?;
        let header = recorded.header;
        Ok(Self {
            position: recorded.position.get(),
            event_id: header.event_id.as_uuid(),
            stream: header.stream.to_string(),
            version: header.version.get(),
            r#type: header.kind,
            schema: header.schema,
            tenant: header.tenant.as_uuid(),
            recorded_at: header.recorded_at,
            actor: header.actor,
            correlation_id: header.correlation_id.map(events::RunId::as_uuid),
            causation_id: header.causation_id.map(events::EventId::as_uuid),
            body,
            leaf: recorded.leaf.iter().map(|byte| format!("{byte:02x}")).collect(),
        })
    }
}
