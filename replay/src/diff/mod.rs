//! The live views against a fresh fold, row by row and column by column, in one snapshot.
//!
//! Two passes over the log, and the second only when the first found something: to compare, digests of ended commands are
//! enough; to tell what differs, the values of the few rows concerned are folded again.

mod report;

use std::collections::{BTreeMap, BTreeSet};

use event_log::verify::{events, meta};
use events::{CommandId, Position};
use futures::{StreamExt as _, TryStreamExt as _};
use projections::{
    CONSUMER, Checkpoint, Comparison, Difference, DifferenceKind, Folded, ShownRow, View, ViewsError,
    checkpoint, compare, live,
};
use serde_json::Value;
use tokio_postgres::Transaction;

use crate::error::ReplayError;
use crate::source::{Source, snapshot};
use crate::verify::SEAL_EVERY;
pub use report::{Changed, Found, Report, Verdict};

/// Compares the views with the log.
///
/// # Errors
/// When the log cannot be read up to where the views are, or the database does not answer. A difference is not an error.
pub async fn diff(source: &Source) -> Result<Report, ReplayError> {
    source
        .with(async |client| {
            let transaction = snapshot(client).await?;
            let meta = meta(&transaction).await?;
            let live =
                checkpoint(&transaction).await?.unwrap_or(Checkpoint { position: Position(0), leaf: None });
            let folded = fold(&transaction, live.position, &BTreeSet::new()).await?;
            let reached = Checkpoint { position: folded.next, leaf: folded.leaf };
            let comparison = compare(&transaction, folded).await?;
            let found = explain(&transaction, live, reached, &comparison).await?;
            Ok(Report::new(&meta, live.position, reached.position, &comparison, found))
        })
        .await
}

/// The log from its start up to `until`, or to its end when that comes first. Ended commands keep their values only when `kept`.
async fn fold(
    transaction: &Transaction<'_>,
    until: Position,
    kept: &BTreeSet<CommandId>,
) -> Result<Folded, ReplayError> {
    let mut folded = Folded::default();
    let mut events = std::pin::pin!(events(transaction, Position(0)).await?);
    while folded.next < until
        && let Some(recorded) = events.try_next().await?
    {
        folded.apply(&recorded)?;
        if recorded.position.get().is_multiple_of(SEAL_EVERY) {
            folded.seal_but(kept)?;
        }
    }
    Ok(folded)
}

type Values = BTreeMap<(&'static str, String), ShownRow>;

/// The values behind each difference, live and folded.
async fn explain(
    transaction: &Transaction<'_>,
    checkpoint: Checkpoint,
    reached: Checkpoint,
    comparison: &Comparison,
) -> Result<Vec<Found>, ReplayError> {
    if comparison.differences.is_empty() {
        return Ok(Vec::new());
    }
    let wanted: BTreeSet<(&str, &str)> =
        comparison.differences.iter().map(|found| (found.view, found.row.as_str())).collect();
    let kept = wanted
        .iter()
        .filter(|(view, _)| *view == View::Commands.as_str())
        .filter_map(|(_, row)| row.parse().ok());
    let again = fold(transaction, checkpoint.position, &kept.collect()).await?;
    let (mut there, mut here) = (Values::new(), Values::new());
    for (values, shown) in [(&mut there, checkpoint), (&mut here, reached)] {
        let row = checkpoint_row(shown);
        values.insert(("consumers", row.key.clone()), row);
    }
    for view in View::ALL {
        let concerned = |row: &ShownRow| wanted.contains(&(view.as_str(), row.key.as_str()));
        if !wanted.iter().any(|(name, _)| *name == view.as_str()) {
            continue;
        }
        for row in again.shown(view) {
            let row = row?;
            if concerned(&row) {
                here.insert((view.as_str(), row.key.clone()), row);
            }
        }
        let mut rows = live(transaction, view).await?;
        while let Some(row) = rows.next().await {
            match row {
                Ok(row) if concerned(&row) => {
                    there.insert((view.as_str(), row.key.clone()), row);
                }
                // A row that cannot be read is a difference already.
                Ok(_) | Err(ViewsError::Stored { .. }) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }
    let values = |values: &Values, found: &Difference| values.get(&(found.view, found.row.clone())).cloned();
    let found = comparison
        .differences
        .iter()
        .map(|found| told(found, values(&there, found), values(&here, found)))
        .collect();
    Ok(found)
}

fn told(difference: &Difference, live: Option<ShownRow>, folded: Option<ShownRow>) -> Found {
    let value = |row: &Option<ShownRow>, column: &str| row.as_ref().and_then(|row| row.get(column)).cloned();
    let changed = match &difference.kind {
        DifferenceKind::Differs { columns } => columns
            .iter()
            .map(|column| Changed {
                column,
                live: value(&live, column).unwrap_or(Value::Null),
                folded: value(&folded, column).unwrap_or(Value::Null),
            })
            .collect(),
        DifferenceKind::Missing | DifferenceKind::Surplus | DifferenceKind::Unreadable { .. } => Vec::new(),
    };
    Found { difference: difference.clone(), changed, live, folded }
}

fn checkpoint_row(checkpoint: Checkpoint) -> ShownRow {
    let columns = vec![
        ("position", checkpoint.position.get().into()),
        ("leaf_at_position", checkpoint.leaf.map(hex::encode).into()),
    ];
    ShownRow { key: CONSUMER.to_owned(), columns }
}
