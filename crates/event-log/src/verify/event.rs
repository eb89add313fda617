//! One event by itself: its bytes, and its columns against its header. Needs no neighbour, so any thread can do it.

use std::collections::HashMap;

use events::event::EventType;
use events::stored::{DecodeError, Header, Recorded, StreamName, decode, leaf_hash};
use events::{LogId, Position};
use uuid::Uuid;

use super::report::Fault;

/// The bytes of an event. `salt` and `body` are absent together when the body was erased.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StoredBytes<'a> {
    /// Its place in the log.
    pub position: Position,
    /// Canonical header.
    pub header: &'a [u8],
    /// 32 bytes.
    pub salt: Option<&'a [u8]>,
    /// Canonical body.
    pub body: Option<&'a [u8]>,
}

/// A row as it is stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct StoredEvent<'a> {
    pub(super) bytes: StoredBytes<'a>,
    pub(super) stream_id: i64,
    pub(super) version: i64,
    pub(super) type_id: i16,
    pub(super) event_id: Uuid,
    pub(super) tenant: Uuid,
    pub(super) recorded_at_micros: i64,
    pub(super) leaf: &'a [u8],
}

/// What the checks of one event need to know of the log.
#[derive(Debug)]
pub(super) struct Context {
    pub(super) log_id: LogId,
    /// Names by the id that rows refer to.
    pub(super) names: HashMap<i64, StreamName>,
}

/// An event that was checked by itself.
#[derive(Debug)]
pub(super) struct Checked {
    pub(super) position: Position,
    pub(super) bytes: u64,
    pub(super) has_body: bool,
    pub(super) leaf: [u8; 32],
    pub(super) read: Read,
    pub(super) faults: Vec<Fault>,
}

/// How much of an event can be read.
#[derive(Debug)]
pub(super) enum Read {
    Event(Box<Recorded>),
    HeaderOnly(Box<Header>),
    Nothing,
}

impl Read {
    pub(super) fn header(&self) -> Option<&Header> {
        match self {
            Self::Event(recorded) => Some(&recorded.header),
            Self::HeaderOnly(header) => Some(header),
            Self::Nothing => None,
        }
    }

    fn header_of(bytes: &[u8], faults: &mut Vec<Fault>, what: Fault) -> Self {
        match Header::from_canonical(bytes) {
            Ok(header) => {
                faults.push(what);
                Self::HeaderOnly(Box::new(header))
            }
            Err(error) => {
                faults.push(error.into());
                Self::Nothing
            }
        }
    }
}

impl Checked {
    /// Header, body and commitment.
    pub(super) fn bytes(log_id: LogId, stored: &StoredBytes<'_>) -> Self {
        let mut faults = Vec::new();
        let read = read(stored, &mut faults);
        if let Some(header) = read.header()
            && header.log_id != log_id
        {
            faults.push(Fault::ForeignLog { log_id: header.log_id });
        }
        let bytes = stored.header.len() + stored.body.map_or(0, <[u8]>::len);
        let leaf = match &read {
            Read::Event(recorded) => recorded.leaf,
            Read::HeaderOnly(_) | Read::Nothing => leaf_hash(stored.header),
        };
        Self {
            position: stored.position,
            bytes: u64::try_from(bytes).unwrap_or(u64::MAX),
            has_body: stored.body.is_some(),
            leaf,
            read,
            faults,
        }
    }

    /// The same, and every column against the header.
    pub(super) fn row(context: &Context, row: &StoredEvent<'_>) -> Self {
        let mut checked = Self::bytes(context.log_id, &row.bytes);
        if row.leaf != checked.leaf {
            checked.faults.insert(0, Fault::Leaf);
        }
        let Some(header) = checked.read.header() else { return checked };
        // A name of a newer version has a number that we do not know: the body's check says so.
        let type_id = EventType::from_name(&header.kind).map_or(row.type_id, EventType::id);
        let equal = [
            ("stream_id", context.names.get(&row.stream_id) == Some(&header.stream)),
            ("version", u64::try_from(row.version) == Ok(header.version.get())),
            ("type_id", type_id == row.type_id),
            ("event_id", row.event_id == header.event_id.as_uuid()),
            ("tenant", row.tenant == header.tenant.as_uuid()),
            ("recorded_at", row.recorded_at_micros == header.recorded_at.unix_micros()),
        ];
        let differ = equal.into_iter().filter(|(_, equal)| !equal);
        checked.faults.extend(differ.map(|(column, _)| Fault::Column { column }));
        checked
    }
}

fn read(stored: &StoredBytes<'_>, faults: &mut Vec<Fault>) -> Read {
    let (Some(salt), Some(body)) = (stored.salt, stored.body) else {
        return match decode(stored.position, stored.header, None) {
            Ok(recorded) => {
                faults.push(Fault::BodyMissing);
                Read::Event(Box::new(recorded))
            }
            Err(_) => Read::header_of(stored.header, faults, Fault::BodyMissing),
        };
    };
    let Ok(salt) = salt.try_into() else {
        return Read::header_of(stored.header, faults, Fault::BodyCommitment);
    };
    match decode(stored.position, stored.header, Some((salt, body))) {
        Ok(recorded) => Read::Event(Box::new(recorded)),
        Err(DecodeError::Commitment) => Read::header_of(stored.header, faults, Fault::BodyCommitment),
        Err(error) => {
            let reason = match std::error::Error::source(&error) {
                Some(source) => format!("{error}: {source}"),
                None => error.to_string(),
            };
            Read::header_of(stored.header, faults, Fault::Body { reason })
        }
    }
}
