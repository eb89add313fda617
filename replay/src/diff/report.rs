//! What a comparison found, for people and as JSON.

use std::fmt;

use event_log::verify::Meta;
use events::{LogId, Position};
use projections::timeline::Escaped;
use projections::{Comparison, Difference, DifferenceKind, ShownRow};
use serde_json::{Value, json};

use crate::state::shown;

/// The outcome in one word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Every row is as a fresh fold says.
    Equal,
    /// Some row is not.
    Different,
    /// Nothing was compared, which proves nothing.
    Empty,
}

/// One column that differs.
#[derive(Clone, Debug, PartialEq)]
pub struct Changed {
    /// Which.
    pub column: &'static str,
    /// What the table holds.
    pub live: Value,
    /// What the log says.
    pub folded: Value,
}

/// One row that differs.
#[derive(Clone, Debug, PartialEq)]
pub struct Found {
    /// Where, and how.
    pub difference: Difference,
    /// Its columns, when both sides have the row.
    pub changed: Vec<Changed>,
    /// The row of the table.
    pub live: Option<ShownRow>,
    /// The row that the log says.
    pub folded: Option<ShownRow>,
}

/// The whole result. `Display` is for people.
#[derive(Clone, Debug, PartialEq)]
pub struct Report {
    /// The outcome.
    pub verdict: Verdict,
    log_id: LogId,
    head: Position,
    position: Position,
    reached: Position,
    rows: Vec<(&'static str, u64)>,
    differences_found: u64,
    found: Vec<Found>,
}

impl Report {
    pub(super) fn new(
        meta: &Meta,
        position: Position,
        reached: Position,
        comparison: &Comparison,
        found: Vec<Found>,
    ) -> Self {
        let verdict = match comparison.is_equal() {
            false => Verdict::Different,
            true if position == Position(0) => Verdict::Empty,
            true => Verdict::Equal,
        };
        Self {
            verdict,
            log_id: meta.log_id,
            head: meta.head,
            position,
            reached,
            rows: comparison.rows.iter().map(|(view, rows)| (*view, *rows)).collect(),
            differences_found: comparison.differences_total,
            found,
        }
    }

    fn rows_checked(&self) -> u64 {
        self.rows.iter().map(|(_, rows)| rows).sum()
    }

    /// The JSON form: one object. Each difference is one column, or one whole row that only one side has.
    #[must_use]
    pub fn to_json(&self) -> Value {
        json!({
            "verdict": match self.verdict {
                Verdict::Equal => "equal",
                Verdict::Different => "different",
                Verdict::Empty => "empty",
            },
            "log_id": self.log_id,
            "head": self.head,
            "position": self.position,
            "folded_to": self.reached,
            "rows_checked": self.rows_checked(),
            "rows": self.rows.iter().copied().collect::<std::collections::BTreeMap<_, _>>(),
            "differences_found": self.differences_found,
            "differences": self.found.iter().flat_map(found_json).collect::<Vec<_>>(),
        })
    }
}

fn found_json(found: &Found) -> Vec<Value> {
    let Difference { view, row, kind } = &found.difference;
    let (kind, detail) = match kind {
        DifferenceKind::Missing => ("missing", None),
        DifferenceKind::Surplus => ("surplus", None),
        DifferenceKind::Differs { .. } => ("differs", None),
        DifferenceKind::Unreadable { detail } => ("unreadable", Some(detail)),
    };
    if found.changed.is_empty() {
        let (live, folded) = (&found.live, &found.folded);
        return vec![json!({
            "view": view, "row": row, "kind": kind, "column": null, "live": live, "folded": folded, "detail": detail
        })];
    }
    let column = |changed: &Changed| {
        let Changed { column, live, folded } = changed;
        json!({
            "view": view, "row": row, "kind": kind, "column": column, "live": live, "folded": folded, "detail": detail
        })
    };
    found.changed.iter().map(column).collect()
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "log {}, next position {}", self.log_id, self.head)?;
        writeln!(
            f,
            "compared {} rows of {} views with a fresh fold of the events before position {}",
            self.rows_checked(),
            self.rows.len(),
            self.position
        )?;
        if self.reached < self.position {
            writeln!(f, "  the log ends before position {}", self.reached)?;
        }
        for found in &self.found {
            let Difference { view, row, kind } = &found.difference;
            match kind {
                DifferenceKind::Missing => writeln!(f, "  {view}: {row} is missing")?,
                DifferenceKind::Surplus => writeln!(f, "  {view}: {row} is not in the log")?,
                DifferenceKind::Unreadable { detail } => {
                    writeln!(f, "  {view}: {row} cannot be read: {}", Escaped(detail))?;
                }
                DifferenceKind::Differs { .. } => {
                    for Changed { column, live, folded } in &found.changed {
                        let (live, folded) = (shown(Some(live)), shown(Some(folded)));
                        // Long values are cut, and may differ only behind the cut.
                        let more =
                            if live == folded { " (they differ further on: --json has all)" } else { "" };
                        writeln!(f, "  {view}: {row}, {column}: live {live}, folded {folded}{more}")?;
                    }
                }
            }
        }
        let untold = self.differences_found.saturating_sub(self.found.len() as u64);
        if untold > 0 {
            writeln!(f, "  and {untold} more rows")?;
        }
        let words = match self.verdict {
            Verdict::Equal => "equal",
            Verdict::Different => "DIFFERENT: the views are not what the log says",
            Verdict::Empty => "EMPTY: no event was folded, which proves nothing",
        };
        writeln!(f, "{words}")
    }
}
