//! What can be done before a request is queued, in the caller's own task.

use events::bounds::EVENT_BYTES_MAX;
use events::event::EventType;
use events::stored::{self, EncodeError, Header, NewEvent, StreamName};
use events::{Event, LogId};
use rand::Rng as _;

use super::template::{BLANK, HeaderTemplate};
use super::{AppendRequest, Expected, REQUEST_BYTES_MAX, REQUEST_EVENTS_MAX, RequestKey, Tip};
use crate::error::AppendError;

/// Bytes of a key: what fits into a header line is enough.
const KEY_BYTES_MAX: usize = 255;

/// A request whose events only lack their place in the log.
#[derive(Debug)]
pub(crate) struct Prepared {
    pub(crate) stream: StreamName,
    pub(crate) expected: Expected,
    pub(crate) guards: Vec<(StreamName, Tip)>,
    pub(crate) key: Option<RequestKey>,
    pub(crate) events: Vec<PreparedEvent>,
    /// Headers and bodies, within a few bytes: a version takes up to 19 digits.
    pub(crate) bytes: usize,
}

/// An event with its body as it will be stored.
#[derive(Debug)]
pub(crate) struct PreparedEvent {
    pub(crate) new: NewEvent,
    pub(crate) salt: [u8; 32],
    pub(crate) body: Vec<u8>,
    pub(crate) header: HeaderTemplate,
}

/// Checks every bound, encodes, and proves that the result reads back as what it is: input never becomes poison.
pub(crate) fn prepare(log_id: LogId, request: AppendRequest) -> Result<Prepared, AppendError> {
    let AppendRequest { stream, expected, guards, key, events } = request;
    if events.is_empty() {
        return Err(AppendError::Refused { reason: "a request without events".to_owned() });
    }
    if events.len() > REQUEST_EVENTS_MAX {
        return Err(AppendError::TooLarge { bytes: events.len(), max: REQUEST_EVENTS_MAX });
    }
    if let Some(key) = &key
        && (key.key.is_empty() || key.key.len() > KEY_BYTES_MAX || key.key.contains('\0'))
    {
        return Err(AppendError::Refused { reason: "a key must have 1 to 255 bytes and no NUL".to_owned() });
    }
    let mut bytes = 0;
    let mut prepared = Vec::with_capacity(events.len());
    for new in events {
        let body = stored::encode_body(&new.event).map_err(too_large)?;
        let mut salt = [0_u8; 32];
        rand::rng().fill_bytes(&mut salt);
        // The longest version, so that the real header is never larger than this one.
        let sealed = stored::seal(log_id, &stream, BLANK, &stored::ZERO_LEAF, &new, &salt, &body)
            .map_err(too_large)?;
        if !reads_back(log_id, &stream, &new, &salt, &sealed.header, &body) {
            return Err(AppendError::NotReadable);
        }
        bytes += sealed.header.len() + body.len();
        let header = HeaderTemplate::new(sealed.header).ok_or(AppendError::NotReadable)?;
        prepared.push(PreparedEvent { new, salt, body, header });
    }
    if bytes > REQUEST_BYTES_MAX {
        return Err(AppendError::TooLarge { bytes, max: REQUEST_BYTES_MAX });
    }
    Ok(Prepared { stream, expected, guards, key, events: prepared, bytes })
}

/// Whether header and body, as a reader parses them, are exactly what they were written from. What they are equal to was
/// written canonically, so their form needs no second look: equal values are written as equal bytes.
fn reads_back(
    log_id: LogId,
    stream: &StreamName,
    new: &NewEvent,
    salt: &[u8; 32],
    header: &[u8],
    body: &[u8],
) -> bool {
    let kind = new.event.event_type();
    let Ok(read) = serde_json::from_slice::<Header>(header) else { return false };
    let Header {
        v,
        log_id: read_log_id,
        event_id,
        tenant,
        stream: read_stream,
        version,
        prev_leaf,
        kind: name,
        schema,
        recorded_at,
        actor,
        correlation_id,
        causation_id,
        body_commit,
    } = &read;
    let same_header = *v == 1
        && *read_log_id == log_id
        && *event_id == new.event_id
        && *tenant == new.tenant
        && read_stream == stream
        && *version == BLANK
        && *prev_leaf == hex::encode(stored::ZERO_LEAF)
        && EventType::from_name(name) == Some(kind)
        && *schema == kind.schema()
        && *recorded_at == new.recorded_at
        && *actor == new.actor
        && *correlation_id == new.correlation_id
        && *causation_id == new.causation_id
        && *body_commit == hex::encode(stored::body_commitment(salt, body));
    same_header && matches!(Event::from_body(kind, body), Some(Ok(event)) if event == new.event)
}

fn too_large(error: EncodeError) -> AppendError {
    match error {
        EncodeError::TooLarge { bytes } => AppendError::TooLarge { bytes, max: EVENT_BYTES_MAX },
        other => AppendError::Encode(other),
    }
}
