//! The views against a fresh fold, row by row, at one position.

use std::collections::BTreeMap;

use events::Position;
use futures::TryStreamExt as _;
use tokio_postgres::GenericClient;
use tokio_postgres::types::ToSql;

use crate::environments::EnvironmentRow;
use crate::error::ViewsError;
use crate::fold::Folded;
use crate::leases::LeaseRow;
use crate::rows::Rows;
use crate::run_events::RunEventRow;
use crate::runs::RunRow;
use crate::sealed::{ColumnDigests, Sealed};
use crate::session::{CONSUMER, to_leaf};
use crate::sql::Table;

/// Differences that are told one by one; the others are only counted.
const TOLD_MAX: usize = 100;

/// How far the views are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Checkpoint {
    /// Next position to be applied.
    pub position: Position,
    /// Leaf of the last applied event.
    pub leaf: Option<[u8; 32]>,
}

/// The checkpoint of the views; `None` when no runner ever claimed them.
///
/// # Errors
/// When the database does not answer or holds what this version cannot read.
pub async fn checkpoint(client: &impl GenericClient) -> Result<Option<Checkpoint>, ViewsError> {
    let sql = "SELECT position, leaf_at_position FROM views.consumers WHERE name = $1";
    let Some(row) = client.query_opt(sql, &[&CONSUMER]).await? else { return Ok(None) };
    let position: i64 = row.try_get(0)?;
    let position = u64::try_from(position).map_err(|error| ViewsError::Stored {
        view: "consumers",
        column: "position",
        detail: error.to_string(),
    })?;
    Ok(Some(Checkpoint { position: Position(position), leaf: to_leaf(row.try_get(1)?)? }))
}

/// One row that is not what the log says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Difference {
    /// Which view.
    pub view: &'static str,
    /// Which row, by its key.
    pub row: String,
    /// What is wrong with it.
    pub kind: DifferenceKind,
}

/// Kinds of difference.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DifferenceKind {
    /// The log says it, the view lacks it.
    Missing,
    /// The view has it, the log does not say it.
    Surplus,
    /// Other values.
    Differs {
        /// In which columns.
        columns: Vec<&'static str>,
    },
    /// The row holds what this version cannot read.
    Unreadable {
        /// What is wrong.
        detail: String,
    },
}

/// What a comparison found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Comparison {
    /// Rows of the fresh fold, by view: all of them were looked for.
    pub rows: BTreeMap<&'static str, u64>,
    /// Number of differences.
    pub differences_total: u64,
    /// The first of them.
    pub differences: Vec<Difference>,
}

impl Comparison {
    /// Everything is as the log says.
    #[must_use]
    pub const fn is_equal(&self) -> bool {
        self.differences_total == 0
    }

    /// All rows of the fresh fold.
    #[must_use]
    pub fn rows_total(&self) -> u64 {
        self.rows.values().sum()
    }

    fn found(&mut self, difference: Difference) {
        self.differences_total += 1;
        if self.differences.len() < TOLD_MAX {
            self.differences.push(difference);
        }
    }
}

/// Compares every table with `folded`, which must be folded from position 0 exactly up to the [`checkpoint`]. Both must be read
/// in one snapshot: `client` is a transaction at REPEATABLE READ, or nobody writes meanwhile.
///
/// # Errors
/// When the database does not answer. A row that cannot be read is a difference, not an error.
pub async fn compare(client: &impl GenericClient, folded: Folded) -> Result<Comparison, ViewsError> {
    let mut comparison = Comparison::default();
    let checkpoint = checkpoint(client).await?;
    let (position, leaf) = checkpoint.map_or((Position(0), None), |found| (found.position, found.leaf));
    if position != folded.next || leaf != folded.leaf {
        let column = if position == folded.next { "leaf_at_position" } else { "position" };
        comparison.found(Difference {
            view: "consumers",
            row: CONSUMER.to_owned(),
            kind: DifferenceKind::Differs { columns: vec![column] },
        });
    }
    compare_view(client, folded.leases, Sealed::<LeaseRow>::new(), &mut comparison).await?;
    compare_view(client, folded.environments, Sealed::<EnvironmentRow>::new(), &mut comparison).await?;
    compare_view(client, folded.commands, folded.sealed_commands, &mut comparison).await?;
    compare_view(client, folded.runs, Sealed::<RunRow>::new(), &mut comparison).await?;
    compare_view(client, folded.run_events, Sealed::<RunEventRow>::new(), &mut comparison).await?;
    Ok(comparison)
}

async fn compare_view<R: Table>(
    client: &impl GenericClient,
    mut fresh: Rows<R>,
    mut sealed: Sealed<R>,
    comparison: &mut Comparison,
) -> Result<(), ViewsError> {
    // A row that is there again after it was sealed is the newer one.
    sealed.retain(|key, _| fresh.get(*key).is_none());
    comparison.rows.insert(R::NAME, (fresh.len() + sealed.len()) as u64);
    let sql = format!("SELECT {} FROM views.{} ORDER BY {}", R::select_list(""), R::NAME, R::KEY.join(", "));
    let none: [&(dyn ToSql + Sync); 0] = [];
    let rows = client.query_raw(&sql, none).await?;
    let mut rows = std::pin::pin!(rows);
    while let Some(row) = rows.try_next().await? {
        let live = match R::from_sql(&row) {
            Ok(live) => live,
            Err(ViewsError::Stored { column, detail, .. }) => {
                let row = format!("column {column}");
                let kind = DifferenceKind::Unreadable { detail };
                comparison.found(Difference { view: R::NAME, row, kind });
                continue;
            }
            Err(error) => return Err(error),
        };
        let expected = match fresh.remove(live.key()) {
            Some(fresh) if fresh == live => continue,
            Some(fresh) => Some(ColumnDigests::of(&fresh)?),
            None => sealed.remove(&live.key()),
        };
        let kind = match expected {
            Some(expected) => {
                let columns = expected.differing::<R>(&ColumnDigests::of(&live)?);
                if columns.is_empty() {
                    continue;
                }
                DifferenceKind::Differs { columns }
            }
            None => DifferenceKind::Surplus,
        };
        comparison.found(Difference { view: R::NAME, row: R::key_name(live.key()), kind });
    }
    for row in fresh.iter().map(|row| R::key_name(row.key())).chain(sealed.into_keys().map(R::key_name)) {
        comparison.found(Difference { view: R::NAME, row, kind: DifferenceKind::Missing });
    }
    Ok(())
}
