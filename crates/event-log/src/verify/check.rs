//! The checks, on plain values: no database here.

use std::collections::HashMap;

use events::event::EventType;
use events::stored::{DecodeError, Header, Recorded, StreamName, ZERO_LEAF, decode, leaf_hash};
use events::{LogId, Position, Version};
use uuid::Uuid;

use super::report::{Fault, Finding, Report};

/// A row as it is stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct StoredEvent<'a> {
    pub(super) position: Position,
    pub(super) stream_id: i64,
    pub(super) version: i64,
    pub(super) type_id: i16,
    pub(super) event_id: Uuid,
    pub(super) tenant: Uuid,
    pub(super) recorded_at_micros: i64,
    pub(super) leaf: &'a [u8],
    pub(super) header: &'a [u8],
    pub(super) salt: Option<&'a [u8]>,
    pub(super) body: Option<&'a [u8]>,
}

/// A row of the table of streams.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct StoredStream {
    pub(super) id: i64,
    pub(super) name: StreamName,
    pub(super) version: i64,
    pub(super) tip: Vec<u8>,
}

/// Walks the rows in order of their position.
#[derive(Debug)]
pub(super) struct Checker {
    log_id: LogId,
    faults_max: usize,
    next: Position,
    /// Last version and leaf per stream, from the headers alone.
    ends: HashMap<StreamName, (Version, [u8; 32])>,
    /// Names by the id that rows refer to.
    names: HashMap<i64, StreamName>,
    streams: Vec<StoredStream>,
    report: Report,
}

impl Checker {
    pub(super) fn new(log_id: LogId, head: Position, streams: Vec<StoredStream>, faults_max: usize) -> Self {
        let names = streams.iter().map(|stream| (stream.id, stream.name.clone())).collect();
        let report =
            Report { log_id, events: 0, streams: 0, bytes: 0, head, faults_found: 0, faults: Vec::new() };
        Self { log_id, faults_max, next: Position(0), ends: HashMap::new(), names, streams, report }
    }

    /// How many events were checked so far.
    pub(super) const fn events(&self) -> u64 {
        self.report.events
    }

    /// Notes a fault; beyond the first few it is only counted.
    pub(super) fn note(&mut self, position: Option<Position>, what: Fault) {
        self.report.faults_found += 1;
        if self.report.faults.len() < self.faults_max {
            self.report.faults.push(Finding { position, what });
        }
    }

    /// Checks one event; answers it when it can be read at all.
    pub(super) fn check(&mut self, row: &StoredEvent<'_>) -> Option<Recorded> {
        let position = row.position;
        if position > self.next {
            self.note(Some(self.next), Fault::Missing { found: position });
        }
        self.next = position.next();
        self.report.events += 1;
        let bytes = row.header.len() + row.body.map_or(0, <[u8]>::len);
        self.report.bytes += u64::try_from(bytes).unwrap_or(u64::MAX);

        let leaf = leaf_hash(row.header);
        if row.leaf != leaf {
            self.note(Some(position), Fault::Leaf);
        }
        let header = match Header::from_canonical(row.header) {
            Ok(header) => header,
            Err(error) => {
                self.note(Some(position), error.into());
                return None;
            }
        };
        if header.log_id != self.log_id {
            self.note(Some(position), Fault::ForeignLog { log_id: header.log_id });
        }
        self.columns(row, &header);
        self.chain(position, &header, leaf);
        self.body(row)
    }

    fn columns(&mut self, row: &StoredEvent<'_>, header: &Header) {
        // A name of a newer version has a number that we do not know: the body's check says so.
        let type_id = EventType::from_name(&header.kind).map_or(row.type_id, EventType::id);
        let equal = [
            ("stream_id", self.names.get(&row.stream_id) == Some(&header.stream)),
            ("version", u64::try_from(row.version) == Ok(header.version.get())),
            ("type_id", type_id == row.type_id),
            ("event_id", row.event_id == header.event_id.as_uuid()),
            ("tenant", row.tenant == header.tenant.as_uuid()),
            ("recorded_at", row.recorded_at_micros == header.recorded_at.unix_micros()),
        ];
        for (column, equal) in equal {
            if !equal {
                self.note(Some(row.position), Fault::Column { column });
            }
        }
    }

    fn chain(&mut self, position: Position, header: &Header, leaf: [u8; 32]) {
        let stream = &header.stream;
        let (version, previous) = self.ends.get(stream).copied().unwrap_or((Version(0), ZERO_LEAF));
        let expected = version.next();
        if header.version != expected {
            let fault = Fault::Version { stream: stream.clone(), expected, found: header.version };
            self.note(Some(position), fault);
        }
        if header.prev_leaf != hex::encode(previous) {
            self.note(Some(position), Fault::Chain { stream: stream.clone() });
        }
        // Go on from what is there: one damaged event is one fault, not one per event behind it.
        match self.ends.get_mut(stream) {
            Some(end) => *end = (header.version, leaf),
            None => {
                self.ends.insert(stream.clone(), (header.version, leaf));
            }
        }
    }

    fn body(&mut self, row: &StoredEvent<'_>) -> Option<Recorded> {
        let position = Some(row.position);
        let (Some(salt), Some(body)) = (row.salt, row.body) else {
            self.note(position, Fault::BodyMissing);
            return decode(row.position, row.header, None).ok();
        };
        let Ok(salt) = salt.try_into() else {
            self.note(position, Fault::BodyCommitment);
            return None;
        };
        match decode(row.position, row.header, Some((salt, body))) {
            Ok(recorded) => Some(recorded),
            Err(DecodeError::Commitment) => {
                self.note(position, Fault::BodyCommitment);
                None
            }
            Err(error) => {
                let reason = match std::error::Error::source(&error) {
                    Some(source) => format!("{error}: {source}"),
                    None => error.to_string(),
                };
                self.note(position, Fault::Body { reason });
                None
            }
        }
    }

    /// After the last row: the head, the tips, and bodies that belong to nothing.
    pub(super) fn finish(mut self, bodies: u64, bodies_seen: u64) -> Report {
        let head = self.report.head;
        if self.next != head {
            self.note(None, Fault::Head { head, end: self.next });
        }
        for stream in std::mem::take(&mut self.streams) {
            let end = self.ends.get(&stream.name);
            let equal = end.is_some_and(|(version, leaf)| {
                u64::try_from(stream.version) == Ok(version.get()) && stream.tip == leaf
            });
            if !equal {
                self.note(None, Fault::Tip { stream: stream.name });
            }
        }
        if bodies > bodies_seen {
            self.note(None, Fault::OrphanBodies { count: bodies - bodies_seen });
        }
        self.report.streams = u64::try_from(self.ends.len()).unwrap_or(u64::MAX);
        self.report
    }
}
