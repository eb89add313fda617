//! One value of a row, in its two forms: as the driver writes it, and as JSON for whoever looks at it.

use bytes::BytesMut;
use serde_json::Value;
use tokio_postgres::types::{IsNull, ToSql, Type, to_sql_checked};
use uuid::Uuid;

use super::SqlTime;

/// A value of a column.
pub(crate) trait Cell: ToSql + Sync + Send {
    /// The value as the interface writes it: ids and times as text, stored JSON as what it says.
    fn to_json(&self) -> Value;
}

/// The values of one row, in the order of its columns.
pub(crate) type Cells = Vec<Box<dyn Cell>>;

/// Canonical JSON text.
#[derive(Clone, Debug)]
pub(crate) struct JsonText(pub(crate) String);

impl ToSql for JsonText {
    fn to_sql(
        &self,
        ty: &Type,
        out: &mut BytesMut,
    ) -> Result<IsNull, Box<dyn std::error::Error + Sync + Send>> {
        self.0.to_sql(ty, out)
    }

    fn accepts(ty: &Type) -> bool {
        <String as ToSql>::accepts(ty)
    }

    to_sql_checked!();
}

impl Cell for JsonText {
    fn to_json(&self) -> Value {
        // It was written by a serialiser a moment ago.
        serde_json::from_str(&self.0).unwrap_or(Value::Null)
    }
}

impl Cell for SqlTime {
    fn to_json(&self) -> Value {
        self.0.to_string().into()
    }
}

impl Cell for Uuid {
    fn to_json(&self) -> Value {
        self.to_string().into()
    }
}

impl<T: Cell> Cell for Option<T> {
    fn to_json(&self) -> Value {
        self.as_ref().map_or(Value::Null, T::to_json)
    }
}

/// Values that JSON writes as they are.
macro_rules! plain_cells {
    ($($plain:ty),+) => {
        $(impl Cell for $plain {
            fn to_json(&self) -> Value {
                Value::from(self.clone())
            }
        })+
    };
}

plain_cells!(bool, i16, i32, i64, String, &'static str);
