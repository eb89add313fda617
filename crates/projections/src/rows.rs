//! Rows in memory: what a fold reads and writes. A page of events and a whole log are folded by the same code; they differ
//! only in which rows are there before (loaded by key, or none) and in what happens with the changed ones (upserted, or kept).

use std::collections::{BTreeMap, BTreeSet};

/// A row of a view.
pub trait Row: Clone + PartialEq + std::fmt::Debug {
    /// What names it.
    type Key: Copy + Ord + std::fmt::Debug;

    /// Its key.
    fn key(&self) -> Self::Key;

    /// A key for people.
    fn key_name(key: Self::Key) -> String;
}

/// Rows of one view by key, with the keys that were changed.
#[derive(Clone, Debug)]
pub struct Rows<R: Row> {
    rows: BTreeMap<R::Key, R>,
    changed: BTreeSet<R::Key>,
}

impl<R: Row> Default for Rows<R> {
    fn default() -> Self {
        Self { rows: BTreeMap::new(), changed: BTreeSet::new() }
    }
}

impl<R: Row> Rows<R> {
    /// Rows as they stand in the table; none of them counts as changed.
    pub fn from_table(rows: impl IntoIterator<Item = R>) -> Self {
        Self { rows: rows.into_iter().map(|row| (row.key(), row)).collect(), changed: BTreeSet::new() }
    }

    /// Adds or replaces a row.
    pub fn put(&mut self, row: R) {
        let key = row.key();
        self.changed.insert(key);
        self.rows.insert(key, row);
    }

    /// Changes a row. One that is not there stays absent: history is never refused, also when the rules could not have
    /// produced it.
    pub fn change(&mut self, key: R::Key, change: impl FnOnce(&mut R)) {
        if let Some(row) = self.rows.get_mut(&key) {
            change(row);
            self.changed.insert(key);
        }
    }

    /// The row of that key.
    #[must_use]
    pub fn get(&self, key: R::Key) -> Option<&R> {
        self.rows.get(&key)
    }

    /// Takes a row out.
    pub fn remove(&mut self, key: R::Key) -> Option<R> {
        self.changed.remove(&key);
        self.rows.remove(&key)
    }

    /// Number of rows.
    #[must_use]
    pub fn len(&self) -> usize {
        self.rows.len()
    }

    /// No row at all.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// All rows, by key.
    pub fn iter(&self) -> impl Iterator<Item = &R> {
        self.rows.values()
    }

    /// The changed rows, by key.
    pub fn changed(&self) -> impl Iterator<Item = &R> {
        self.changed.iter().filter_map(|key| self.rows.get(key))
    }
}
