//! Rows as a table for people: the columns that matter, aligned, every text escaped and cut. All columns are in the JSON.

use std::io::Write;

use projections::timeline::quoted;
use projections::{ShownRow, View, ViewsError};
use serde_json::Value;

use crate::error::ReplayError;

/// Characters of one value that are shown.
const VALUE_CHARACTERS_MAX: usize = 48;

const fn columns(view: View) -> &'static [&'static str] {
    match view {
        View::Runs => &["run_id", "tenant", "phase", "last_epoch", "position"],
        View::Leases => {
            &["lease_id", "run_id", "epoch", "state", "holder", "expires_at", "ended_at", "position"]
        }
        View::Environments => &[
            "environment_id",
            "lease_id",
            "epoch",
            "mechanism",
            "state",
            "teardown_cause",
            "ready_at",
            "destroyed_at",
            "position",
        ],
        View::Commands => &[
            "command_id",
            "lease_id",
            "state",
            "exit_code",
            "killed_by",
            "cause",
            "duration_ms",
            "position",
            "argv",
        ],
        View::RunEvents => &["position", "run_id", "type"],
    }
}

/// Writes one view.
pub(super) fn write(
    view: View,
    rows: impl Iterator<Item = Result<ShownRow, ViewsError>>,
    out: &mut impl Write,
) -> Result<(), ReplayError> {
    let columns = columns(view);
    let mut lines = vec![columns.iter().map(|column| (*column).to_owned()).collect::<Vec<_>>()];
    for row in rows {
        let row = row?;
        lines.push(columns.iter().map(|column| shown(row.get(column))).collect());
    }
    let count = lines.len() - 1;
    writeln!(out, "\n{view}: {}", if count == 0 { "none".to_owned() } else { count.to_string() })?;
    if count == 0 {
        return Ok(());
    }
    let width = |index: usize| lines.iter().map(|line| line[index].chars().count()).max().unwrap_or(0);
    let widths: Vec<usize> = (0..columns.len()).map(width).collect();
    for line in &lines {
        let cells = line.iter().zip(&widths).map(|(text, width)| format!("{text:<width$}"));
        writeln!(out, "  {}", cells.collect::<Vec<_>>().join("  ").trim_end())?;
    }
    Ok(())
}

/// A value on one line; foreign text is in quotes and escaped. What is absent is a dash.
pub(crate) fn shown(value: Option<&Value>) -> String {
    match value {
        None | Some(Value::Null) => "-".to_owned(),
        Some(Value::String(text)) if is_word(text) => text.clone(),
        Some(Value::String(text)) => quoted(text, VALUE_CHARACTERS_MAX),
        Some(Value::Array(items)) if items.is_empty() => "[]".to_owned(),
        Some(Value::Array(items)) => {
            let texts: Option<Vec<&str>> = items.iter().map(Value::as_str).collect();
            match texts {
                Some(texts) => quoted(&texts.join(" "), VALUE_CHARACTERS_MAX),
                None => quoted(&Value::from(items.clone()).to_string(), VALUE_CHARACTERS_MAX),
            }
        }
        Some(Value::Object(fields)) => quoted(&Value::from(fields.clone()).to_string(), VALUE_CHARACTERS_MAX),
        Some(Value::Bool(_) | Value::Number(_)) => value.map(Value::to_string).unwrap_or_default(),
    }
}

/// Ids, times, names of ours: nothing that needs quotes, and nothing that looks like an absent value.
fn is_word(text: &str) -> bool {
    text.starts_with(|first: char| first.is_ascii_alphanumeric())
        && text.len() <= 80
        && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b':' | b'.'))
}
