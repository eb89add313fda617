//! What a verification found, for people and as JSON.

use std::fmt;

use event_log::verify::{Report as LogReport, Seal};
use events::{LogId, Position};
use projections::timeline::Escaped;
use projections::{Comparison, Difference, DifferenceKind};
use serde_json::{Value, json};

use super::seal;
use crate::verdict::Verdict;

/// What the projections say about the log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Projections {
    /// Every row was compared with a fresh fold.
    Compared {
        /// Up to here (not including).
        position: Position,
        /// What was found.
        comparison: Comparison,
    },
    /// They could not be compared.
    NotCompared {
        /// Why.
        reason: String,
    },
}

/// The whole result. `Display` is for people.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Report {
    /// The outcome.
    pub verdict: Verdict,
    /// Which log.
    pub log_id: LogId,
    /// Its next position.
    pub head: Position,
    /// Events checked.
    pub events_checked: u64,
    /// Streams checked.
    pub streams_checked: u64,
    /// Bytes hashed.
    pub bytes_hashed: u64,
    /// Faults of the log.
    pub faults_found: u64,
    /// The first of them, by position.
    pub faults: Vec<(Option<Position>, String)>,
    /// The projections.
    pub projections: Projections,
    /// What is signed.
    pub seal: Seal,
}

impl Report {
    pub(super) fn new(log: &LogReport, seal: Seal, projections: Projections) -> Self {
        Self {
            verdict: verdict(log, &seal, &projections),
            log_id: log.log_id,
            head: log.head,
            events_checked: log.events,
            streams_checked: log.streams,
            bytes_hashed: log.bytes,
            faults_found: log.faults_found,
            faults: log.faults.iter().map(|fault| (fault.position, fault.what.to_string())).collect(),
            projections,
            seal,
        }
    }

    /// The JSON form: one object.
    #[must_use]
    pub fn to_json(&self) -> Value {
        let faults: Vec<Value> = self
            .faults
            .iter()
            .map(|(position, detail)| json!({ "position": position, "detail": detail }))
            .collect();
        let projections = match &self.projections {
            Projections::Compared { position, comparison } => json!({
                "position": position,
                "rows_checked": comparison.rows_total(),
                "rows": comparison.rows,
                "differences_found": comparison.differences_total,
                "differences": comparison.differences.iter().map(difference_json).collect::<Vec<_>>(),
            }),
            Projections::NotCompared { reason } => json!({ "not_compared": reason }),
        };
        let mut report = json!({
            "verdict": self.verdict.as_str(),
            "log_id": self.log_id,
            "head": self.head,
            "events_checked": self.events_checked,
            "streams_checked": self.streams_checked,
            "bytes_hashed": self.bytes_hashed,
            "faults_found": self.faults_found,
            "faults": faults,
            "projections": projections,
        });
        if let (Value::Object(report), Value::Object(mut seal)) =
            (&mut report, seal::to_json(&self.seal, self.events_checked))
        {
            report.append(&mut seal);
        }
        report
    }
}

fn verdict(log: &LogReport, seal: &Seal, projections: &Projections) -> Verdict {
    match projections {
        _ if !log.is_unchanged() => Verdict::Tampered,
        Projections::Compared { comparison, .. } if !comparison.is_equal() => Verdict::Tampered,
        Projections::NotCompared { .. } if log.faults_found == 0 => Verdict::Tampered,
        _ if log.faults_found > 0 => Verdict::Unreadable,
        _ if log.events == 0 => Verdict::Empty,
        _ if !seal.is_absent() && !seal.is_current() => Verdict::Unanchored,
        _ => Verdict::Valid,
    }
}

fn difference_json(difference: &Difference) -> Value {
    let (kind, columns, detail) = match &difference.kind {
        DifferenceKind::Missing => ("missing", None, None),
        DifferenceKind::Surplus => ("surplus", None, None),
        DifferenceKind::Differs { columns } => ("differs", Some(columns), None),
        DifferenceKind::Unreadable { detail } => ("unreadable", None, Some(detail)),
    };
    json!({ "view": difference.view, "row": difference.row, "kind": kind, "columns": columns, "detail": detail })
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "log {}, next position {}", self.log_id, self.head)?;
        writeln!(
            f,
            "checked {} events in {} streams, {} bytes: every leaf and chain from stored bytes, every column against its \
             header",
            self.events_checked, self.streams_checked, self.bytes_hashed
        )?;
        for (position, detail) in &self.faults {
            match position {
                Some(position) => writeln!(f, "  FAULT at position {position}: {}", Escaped(detail))?,
                None => writeln!(f, "  FAULT: {}", Escaped(detail))?,
            }
        }
        more(f, self.faults_found, self.faults.len())?;
        match &self.projections {
            Projections::Compared { position, comparison } => {
                writeln!(
                    f,
                    "compared {} rows of {} views with a fresh fold of the events before position {position}",
                    comparison.rows_total(),
                    comparison.rows.len()
                )?;
                for difference in &comparison.differences {
                    writeln!(f, "  DIFFERENCE {}", difference_words(difference))?;
                }
                more(f, comparison.differences_total, comparison.differences.len())?;
            }
            Projections::NotCompared { reason } => {
                writeln!(f, "projections not compared: {}", Escaped(reason))?;
            }
        }
        seal::describe(f, &self.seal, self.events_checked)?;
        let words = match self.verdict {
            Verdict::Valid if self.seal.anchor.is_some() => {
                match seal::unanchored(&self.seal, self.events_checked) {
                    0 => "valid",
                    _ => "valid up to the checkpoint; the events behind it are unanchored",
                }
            }
            Verdict::Valid => "valid",
            Verdict::Unanchored if self.seal.anchor.is_none() => {
                "UNANCHORED: whole in itself, and no signed head covers any of it"
            }
            Verdict::Unanchored => {
                "UNANCHORED: whole in itself, and the last signed head is more than 10 s older than the newest event"
            }
            Verdict::Tampered => "TAMPERED: the database is not what was recorded",
            Verdict::Unreadable => "UNREADABLE: this version does not know every event",
            Verdict::Empty => "EMPTY: no event was checked, which proves nothing",
        };
        writeln!(f, "{words}")
    }
}

fn difference_words(difference: &Difference) -> String {
    let what = match &difference.kind {
        DifferenceKind::Missing => "is missing".to_owned(),
        DifferenceKind::Surplus => "is not in the log".to_owned(),
        DifferenceKind::Differs { columns } => format!("has another {}", columns.join(", ")),
        DifferenceKind::Unreadable { detail } => format!("cannot be read: {}", Escaped(detail)),
    };
    format!("in {}: {} {what}", difference.view, difference.row)
}

fn more(f: &mut fmt::Formatter<'_>, found: u64, told: usize) -> fmt::Result {
    let untold = found.saturating_sub(told as u64);
    if untold > 0 { writeln!(f, "  and {untold} more") } else { Ok(()) }
}
