//! Figures, ratios and goals, and how they are shown.

use std::fmt::Write as _;

use serde_json::{Value, json};

/// One side of a measure: the median of its runs, the smallest and the largest.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Figures {
    pub(crate) median: f64,
    pub(crate) min: f64,
    pub(crate) max: f64,
    /// How many runs.
    pub(crate) runs: usize,
}

impl Figures {
    /// Of one figure per run.
    pub(crate) fn of(runs: &[f64]) -> Self {
        Self {
            median: quantile(runs, 50),
            min: quantile(runs, 0),
            max: quantile(runs, 100),
            runs: runs.len(),
        }
    }

    fn json(&self) -> Value {
        json!({ "median": self.median, "min": self.min, "max": self.max, "runs": self.runs })
    }
}

/// The smallest value with at least `percent` of all values at or below it (nearest rank); NaN of none.
pub(crate) fn quantile(values: &[f64], percent: usize) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let rank = (sorted.len() * percent).div_ceil(100).max(1);
    sorted.get(rank - 1).copied().unwrap_or(f64::NAN)
}

/// What figures are in.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Unit {
    Microseconds,
    EventsPerSecond,
}

impl Unit {
    fn name(self) -> &'static str {
        match self {
            Self::Microseconds => "us",
            Self::EventsPerSecond => "events/s",
        }
    }

    fn show(self, figures: &Figures) -> String {
        let Figures { median, min, max, .. } = figures;
        match self {
            Self::Microseconds => {
                format!("{:.2} ms ({:.2}-{:.2})", median / 1000.0, min / 1000.0, max / 1000.0)
            }
            Self::EventsPerSecond => format!("{median:.0}/s ({min:.0}-{max:.0})"),
        }
    }
}

/// The ratio that is promised, and which way round it is taken.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Goal {
    /// The reference takes at least this many times our time.
    FasterBy(f64),
    /// Our time is at most this many times the reference's.
    TimeAtMost(f64),
    /// Our rate is at least this many times the reference's.
    RateAtLeast(f64),
    /// Our rate over the reference's, without a goal.
    RateReported,
}

/// Ours beside the reference.
#[derive(Clone, Debug)]
pub(crate) struct Measure {
    /// `P1` and so on.
    pub(crate) name: &'static str,
    pub(crate) what: String,
    pub(crate) against: String,
    pub(crate) unit: Unit,
    pub(crate) ours: Figures,
    pub(crate) reference: Figures,
    pub(crate) goal: Goal,
}

impl Measure {
    pub(crate) fn ratio(&self) -> f64 {
        match self.goal {
            Goal::FasterBy(_) => self.reference.median / self.ours.median,
            Goal::TimeAtMost(_) | Goal::RateAtLeast(_) | Goal::RateReported => {
                self.ours.median / self.reference.median
            }
        }
    }

    /// `None` without a goal.
    pub(crate) fn pass(&self) -> Option<bool> {
        match self.goal {
            Goal::FasterBy(least) | Goal::RateAtLeast(least) => Some(self.ratio() >= least),
            Goal::TimeAtMost(most) => Some(self.ratio() <= most),
            Goal::RateReported => None,
        }
    }

    fn goal_text(&self) -> String {
        match self.goal {
            Goal::FasterBy(least) | Goal::RateAtLeast(least) => format!(">= {least}x"),
            Goal::TimeAtMost(most) => format!("<= {most}x"),
            Goal::RateReported => "reported".to_owned(),
        }
    }

    pub(crate) fn json(&self) -> Value {
        json!({
            "measure": self.name, "what": self.what, "reference_is": self.against, "unit": self.unit.name(),
            "ours": self.ours.json(), "reference": self.reference.json(),
            "ratio": self.ratio(), "goal": self.goal_text(), "pass": self.pass(),
        })
    }
}

/// One line per measure.
pub(crate) fn table(measures: &[Measure]) -> String {
    let mut rows = vec![["measure", "ours", "reference", "ratio", "goal", "pass"].map(str::to_owned)];
    rows.extend(measures.iter().map(|measure| {
        let pass = match measure.pass() {
            Some(true) => "yes",
            Some(false) => "NO",
            None => "-",
        };
        [
            format!("{} {}", measure.name, measure.what),
            measure.unit.show(&measure.ours),
            format!("{}: {}", measure.against, measure.unit.show(&measure.reference)),
            format!("{:.2}x", measure.ratio()),
            measure.goal_text(),
            pass.to_owned(),
        ]
    }));
    let widths: [usize; 6] = std::array::from_fn(|column| {
        rows.iter().filter_map(|row| row.get(column)).map(String::len).max().unwrap_or(0)
    });
    let mut text = String::new();
    for row in &rows {
        let mut line = String::new();
        for (cell, width) in row.iter().zip(widths) {
            // Writing to a string does not fail.
            let _ = write!(line, "{cell:width$}  ");
        }
        text.push_str(line.trim_end());
        text.push('\n');
    }
    text
}
