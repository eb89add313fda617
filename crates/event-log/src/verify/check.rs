//! The checks that need the order of the log, on plain values: no database here.

use events::stored::{Recorded, StreamName};
use events::{LogId, Position, Version};

use super::chains::Chains;
use super::event::{Checked, Read, StoredBytes};
use super::report::{Fault, Finding, Report};

/// A row of the table of streams.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct StoredStream {
    pub(super) id: i64,
    pub(super) name: StreamName,
    pub(super) version: i64,
    pub(super) tip: Vec<u8>,
}

/// Takes the events of a whole log in the order of their positions.
#[derive(Debug)]
pub(super) struct Checker {
    faults_max: usize,
    next: Position,
    chains: Chains,
    bodies: u64,
    report: Report,
}

impl Checker {
    pub(super) fn new(log_id: LogId, head: Position, faults_max: usize) -> Self {
        let (faults, seal) = (Vec::new(), None);
        let report = Report { log_id, events: 0, streams: 0, bytes: 0, head, faults_found: 0, faults, seal };
        Self { faults_max, next: Position(0), chains: Chains::default(), bodies: 0, report }
    }

    /// How many events were checked so far.
    pub(super) const fn events(&self) -> u64 {
        self.report.events
    }

    /// The position after the last event so far.
    pub(super) const fn next(&self) -> Position {
        self.next
    }

    /// Notes a fault; beyond the first few it is only counted.
    pub(super) fn note(&mut self, position: Option<Position>, what: Fault) {
        self.report.faults_found += 1;
        if self.report.faults.len() < self.faults_max {
            self.report.faults.push(Finding { position, what });
        }
    }

    /// The next event of the log; answers it when it can be read at all.
    pub(super) fn follow(&mut self, checked: Checked) -> Option<Recorded> {
        if checked.position > self.next {
            self.note(Some(self.next), Fault::Missing { found: checked.position });
        }
        self.next = checked.position.next();
        self.take(checked)
    }

    fn take(&mut self, checked: Checked) -> Option<Recorded> {
        let position = Some(checked.position);
        self.report.events += 1;
        self.report.bytes += checked.bytes;
        self.bodies += u64::from(checked.has_body);
        for fault in checked.faults {
            self.note(position, fault);
        }
        if let Some(header) = checked.read.header() {
            for fault in self.chains.follow(header, checked.leaf) {
                self.note(position, fault);
            }
        }
        match checked.read {
            Read::Event(recorded) => Some(*recorded),
            Read::HeaderOnly(_) | Read::Nothing => None,
        }
    }

    /// After the last event: the head, the tips, and bodies that belong to nothing. `bodies` is how many are stored.
    pub(super) fn finish(mut self, streams: Vec<StoredStream>, bodies: u64) -> Report {
        let head = self.report.head;
        if self.next != head {
            self.note(None, Fault::Head { head, end: self.next });
        }
        for stream in streams {
            let version = Version(u64::try_from(stream.version).unwrap_or(0));
            if !self.chains.ends_with(&stream.name, version, &stream.tip) {
                self.note(None, Fault::Tip { stream: stream.name });
            }
        }
        if bodies > self.bodies {
            self.note(None, Fault::OrphanBodies { count: bodies - self.bodies });
        }
        self.report.streams = self.chains.len();
        self.report
    }
}

/// Checks the whole history of chosen streams, outside of a database: every leaf anew, each chained to the one before, bodies
/// as committed. What lies between the events is not looked at.
#[derive(Debug)]
pub struct HistoryCheck {
    log_id: LogId,
    last: Option<Position>,
    checker: Checker,
}

impl HistoryCheck {
    /// For events of this log. At most `faults_max` faults are described; the rest is counted.
    #[must_use]
    pub fn new(log_id: LogId, faults_max: usize) -> Self {
        Self { log_id, last: None, checker: Checker::new(log_id, Position(0), faults_max) }
    }

    /// The next event, by position; answers it when it can be read at all.
    pub fn follow(&mut self, stored: &StoredBytes<'_>) -> Option<Recorded> {
        let position = stored.position;
        if let Some(last) = self.last
            && position <= last
        {
            self.checker.note(Some(position), Fault::Order { last });
        }
        self.last = Some(position);
        self.checker.take(Checked::bytes(self.log_id, stored))
    }

    /// After the last event: each of `tips` is the end of a stream, and no other stream was met. The report's head is the
    /// position after the last event.
    #[must_use]
    pub fn finish(mut self, tips: &[(StreamName, Version, [u8; 32])]) -> Report {
        for (stream, version, leaf) in tips {
            if !self.checker.chains.ends_with(stream, *version, leaf) {
                self.checker.note(None, Fault::Tip { stream: stream.clone() });
            }
        }
        let foreign: Vec<StreamName> = self
            .checker
            .chains
            .streams()
            .filter(|met| !tips.iter().any(|(stream, ..)| stream == *met))
            .cloned()
            .collect();
        for stream in foreign {
            self.checker.note(None, Fault::ForeignStream { stream });
        }
        self.checker.report.head = self.last.map_or(Position(0), Position::next);
        self.checker.report.streams = self.checker.chains.len();
        self.checker.report
    }
}
