//! The file alone: every leaf anew, each chained to the one before, versions from 1 on without a gap, bodies as committed.

use std::fmt;
use std::fs::File;
use std::io::{BufRead, BufReader, Read as _};
use std::path::Path;

use event_log::verify::{HistoryCheck, Report, StoredBytes};
use events::{Event, Position};
use projections::timeline::Escaped;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::{EventLine, FORM, Head, KIND};
use crate::error::ReplayError;

/// Longest line: an event of the largest size in base64, with room for a proof.
const LINE_BYTES_MAX: u64 = 2 << 20;
/// Faults that are told one by one.
const FAULTS_TOLD_MAX: usize = 100;

/// What a file proves by itself, in words.
const PROOF: &str = "chain intact; not anchored in a signed head";

/// The outcome in one word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The history is whole in itself, and nothing outside the file vouches for it.
    Unanchored,
    /// Something is not as it was recorded.
    Tampered,
    /// Whole bytes that this version does not know.
    Unreadable,
    /// No event was checked, which proves nothing.
    Empty,
}

impl Verdict {
    /// The word.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Unanchored => "unanchored",
            Self::Tampered => "tampered",
            Self::Unreadable => "unreadable",
            Self::Empty => "empty",
        }
    }
}

/// The whole result. `Display` is for people.
#[derive(Debug)]
pub struct BundleReport {
    /// The outcome.
    pub verdict: Verdict,
    head: Head,
    /// Events of the run's stream end with `RunClosed`.
    closed: bool,
    /// A checkpoint or a proof is there, which this version does not check.
    proofs_unchecked: bool,
    report: Report,
}

/// Checks a file that an export has written.
///
/// # Errors
/// When the file cannot be read or is none of these. What is wrong with the history in it is in the report.
pub fn check(path: &Path) -> Result<BundleReport, ReplayError> {
    let file = File::open(path).map_err(|source| ReplayError::File { path: path.to_owned(), source })?;
    let mut lines = Lines { file: BufReader::new(file), path, number: 0 };
    let head: Head = lines.next()?.ok_or_else(|| lines.malformed("it is empty"))?;
    if head.bundle != KIND || head.v != FORM {
        return Err(lines.malformed("another form than this version reads"));
    }
    let mut check = HistoryCheck::new(head.log_id, FAULTS_TOLD_MAX);
    let (mut closed, mut events) = (false, 0_u64);
    let mut proofs_unchecked = head.checkpoint.is_some();
    while let Some(line) = lines.next::<EventLine>()? {
        let stored = StoredBytes {
            position: line.position,
            header: &line.header.0,
            salt: line.salt.as_ref().map(|salt| salt.0.as_slice()),
            body: line.body.as_ref().map(|body| body.0.as_slice()),
        };
        let recorded = check.follow(&stored);
        closed = recorded.is_some_and(|recorded| matches!(recorded.event, Some(Event::RunClosed(_))));
        proofs_unchecked |= line.proof.is_some();
        events += 1;
    }
    let tips: Vec<_> = head.streams.iter().map(|end| (end.stream.clone(), end.version, end.tip.0)).collect();
    let report = check.finish(&tips);
    let verdict = verdict(&head, &report, events);
    Ok(BundleReport { verdict, head, closed, proofs_unchecked, report })
}

fn verdict(head: &Head, report: &Report, events: u64) -> Verdict {
    if !report.is_unchanged() || head.events != events || !names_its_run(head) {
        Verdict::Tampered
    } else if report.faults_found > 0 {
        Verdict::Unreadable
    } else if events == 0 {
        Verdict::Empty
    } else {
        Verdict::Unanchored
    }
}

/// The first line speaks of the run whose stream it names.
fn names_its_run(head: &Head) -> bool {
    let run = events::stored::StreamName::run(head.tenant, head.run_id);
    head.streams.iter().any(|end| end.stream == run)
}

/// The lines of a file, one value each.
struct Lines<'a> {
    file: BufReader<File>,
    path: &'a Path,
    number: u64,
}

impl Lines<'_> {
    fn next<T: DeserializeOwned>(&mut self) -> Result<Option<T>, ReplayError> {
        let mut line = Vec::new();
        let mut bounded = self.file.by_ref().take(LINE_BYTES_MAX);
        let read = bounded.read_until(b'\n', &mut line);
        read.map_err(|source| ReplayError::File { path: self.path.to_owned(), source })?;
        if line.is_empty() {
            return Ok(None);
        }
        self.number += 1;
        if line.pop() != Some(b'\n') {
            return Err(self.malformed("it is cut off, or longer than any event"));
        }
        serde_json::from_slice(&line).map(Some).map_err(|error| self.malformed(&error.to_string()))
    }

    fn malformed(&self, detail: &str) -> ReplayError {
        let detail = format!("line {}: {detail}", self.number.max(1));
        ReplayError::Bundle { path: self.path.to_owned(), detail }
    }
}

impl BundleReport {
    /// The JSON form: one object.
    #[must_use]
    pub fn to_json(&self) -> Value {
        let position_and_detail = |(position, detail)| json!({ "position": position, "detail": detail });
        let faults: Vec<Value> = self.faults().into_iter().map(position_and_detail).collect();
        let end = |end: &super::StreamEnd| json!({ "stream": end.stream, "version": end.version });
        json!({
            "verdict": self.verdict.as_str(),
            "proof": "chain",
            "proves": (self.verdict == Verdict::Unanchored).then_some(PROOF),
            "log_id": self.head.log_id,
            "tenant": self.head.tenant,
            "run_id": self.head.run_id,
            "closed": self.closed,
            "streams": self.head.streams.iter().map(end).collect::<Vec<_>>(),
            "events_checked": self.report.events,
            "bytes_hashed": self.report.bytes,
            "proofs_unchecked": self.proofs_unchecked,
            "faults_found": self.report.faults_found + self.head_faults().len() as u64,
            "faults": faults,
        })
    }

    /// What the first line says and the others do not.
    fn head_faults(&self) -> Vec<String> {
        let mut faults = Vec::new();
        if self.head.events != self.report.events {
            let (said, found) = (self.head.events, self.report.events);
            faults.push(format!("the first line announces {said} events, {found} are there"));
        }
        if !names_its_run(&self.head) {
            faults.push("the first line names a run whose stream is not there".to_owned());
        }
        faults
    }

    fn faults(&self) -> Vec<(Option<Position>, String)> {
        let of_file = self.head_faults().into_iter().map(|detail| (None, detail));
        let of_history = self.report.faults.iter().map(|fault| (fault.position, fault.what.to_string()));
        of_file.chain(of_history).collect()
    }
}

impl fmt::Display for BundleReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Head { log_id, tenant, run_id, .. } = &self.head;
        writeln!(f, "run {run_id} of tenant {tenant}, log {log_id}")?;
        writeln!(
            f,
            "checked {} events, {} bytes: every leaf from stored bytes, each chained to the one before, bodies as committed",
            self.report.events, self.report.bytes
        )?;
        let faults = self.faults();
        for (position, detail) in &faults {
            match position {
                Some(position) => writeln!(f, "  FAULT at position {position}: {}", Escaped(detail))?,
                None => writeln!(f, "  FAULT: {}", Escaped(detail))?,
            }
        }
        let untold = self.report.faults_found.saturating_sub(self.report.faults.len() as u64);
        if untold > 0 {
            writeln!(f, "  and {untold} more")?;
        }
        if self.verdict == Verdict::Unanchored {
            for end in &self.head.streams {
                let version = end.version;
                let more =
                    if self.closed { "closed: nothing may follow" } else { "not closed: more may follow" };
                writeln!(f, "complete from version 1 to {version} of {}; {more}", end.stream)?;
            }
        }
        if self.proofs_unchecked {
            writeln!(f, "the file holds a checkpoint or proofs, which this version does not check")?;
        }
        let words = match self.verdict {
            Verdict::Unanchored => {
                writeln!(
                    f,
                    "positions are as the file names them: only a signed head binds them to the events"
                )?;
                return writeln!(
                    f,
                    "UNANCHORED: {PROOF}: whoever wrote the file could have made all of it up"
                );
            }
            Verdict::Tampered => "TAMPERED: the file is not what was recorded",
            Verdict::Unreadable => "UNREADABLE: this version does not know every event",
            Verdict::Empty => "EMPTY: no event was checked, which proves nothing",
        };
        writeln!(f, "{words}")
    }
}
