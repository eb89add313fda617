//! Rows that cannot change any more, kept as one digest per column: a comparison of a long log needs no room for outputs.

use std::collections::BTreeMap;

use sha2::{Digest as _, Sha256};

use crate::error::ViewsError;
use crate::rows::Row;
use crate::sql::Table;

/// 128 bits of SHA-256 over each column's value, in the order of the columns.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ColumnDigests(Box<[[u8; 16]]>);

impl ColumnDigests {
    pub(crate) fn of<R: Table>(row: &R) -> Result<Self, ViewsError> {
        let digest = |value: &dyn std::fmt::Debug| {
            let mut short = [0; 16];
            short.copy_from_slice(&Sha256::digest(format!("{value:?}"))[..16]);
            short
        };
        Ok(Self(row.cells()?.iter().map(|value| digest(value)).collect()))
    }

    /// Names of the columns in which two rows differ.
    pub(crate) fn differing<R: Table>(&self, other: &Self) -> Vec<&'static str> {
        let pairs = R::COLUMNS.iter().zip(self.0.iter().zip(other.0.iter()));
        pairs.filter(|(_, (one, other))| one != other).map(|(column, _)| *column).collect()
    }
}

/// Sealed rows by key.
pub(crate) type Sealed<R> = BTreeMap<<R as Row>::Key, ColumnDigests>;
