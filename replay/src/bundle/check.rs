//! The file alone: every leaf anew, each chained to the one before, versions from 1 on without a gap, bodies as committed; and, by
//! the verifier's own keys, each event in the tree of the signed head.

use std::fs::File;
use std::io::{BufRead, BufReader, Read as _};
use std::path::Path;

use event_log::proof::Hash;
use event_log::proof::note::VerifierKey;
use event_log::verify::{HistoryCheck, Report, StoredBytes};
use events::Event;
use events::stored::leaf_hash;
use serde::de::DeserializeOwned;

use super::anchor::Anchoring;
pub use super::report::BundleReport;
use super::{EventLine, FORM, Head, KIND};
use crate::error::ReplayError;
use crate::verdict::Verdict;

/// Longest line: an event of the largest size in base64, with room for a proof.
const LINE_BYTES_MAX: u64 = 2 << 20;
/// Faults that are told one by one.
const FAULTS_TOLD_MAX: usize = 100;

/// Checks a file that an export has written. Only signatures of `keys` are believed, never of a key that a file names.
///
/// # Errors
/// When the file cannot be read or is none of these. What is wrong with the history in it is in the report.
pub fn check(path: &Path, keys: &[VerifierKey]) -> Result<BundleReport, ReplayError> {
    let file = File::open(path).map_err(|source| ReplayError::File { path: path.to_owned(), source })?;
    let mut lines = Lines { file: BufReader::new(file), path, number: 0 };
    let head: Head = lines.next()?.ok_or_else(|| lines.malformed("it is empty"))?;
    if head.bundle != KIND || head.v != FORM {
        return Err(lines.malformed("another form than this version reads"));
    }
    let mut check = HistoryCheck::new(head.log_id, FAULTS_TOLD_MAX);
    let (mut closed, mut events) = (false, 0_u64);
    let mut anchoring = Anchoring::open(head.checkpoint.as_deref(), &head.origin, keys);
    while let Some(line) = lines.next::<EventLine>()? {
        let stored = StoredBytes {
            position: line.position,
            header: &line.header.0,
            salt: line.salt.as_ref().map(|salt| salt.0.as_slice()),
            body: line.body.as_ref().map(|body| body.0.as_slice()),
        };
        let recorded = check.follow(&stored);
        closed = recorded.is_some_and(|recorded| matches!(recorded.event, Some(Event::RunClosed(_))));
        let proof: Option<Vec<Hash>> = line.proof.map(|proof| proof.into_iter().map(|hash| hash.0).collect());
        anchoring.follow(line.position, &leaf_hash(&line.header.0), proof.as_deref());
        events += 1;
    }
    let tips: Vec<_> = head.streams.iter().map(|end| (end.stream.clone(), end.version, end.tip.0)).collect();
    let report = check.finish(&tips);
    let verdict = verdict(&head, &report, &anchoring, events);
    Ok(BundleReport { verdict, head, closed, keys_given: !keys.is_empty(), anchoring, report })
}

fn verdict(head: &Head, report: &Report, anchoring: &Anchoring, events: u64) -> Verdict {
    let whole = report.is_unchanged() && anchoring.faults_found == 0;
    if !whole || head.events != events || !names_its_run(head) {
        Verdict::Tampered
    } else if report.faults_found > 0 {
        Verdict::Unreadable
    } else if events == 0 {
        Verdict::Empty
    } else if !anchoring.signers.is_empty() && anchoring.proven == events {
        Verdict::Valid
    } else {
        Verdict::Unanchored
    }
}

/// The first line speaks of the run whose stream it names.
pub(super) fn names_its_run(head: &Head) -> bool {
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
