//! Times between the log's form and `timestamptz`: both count microseconds.

use bytes::BytesMut;
use events::Timestamp;
use tokio_postgres::types::{FromSql, IsNull, ToSql, Type, to_sql_checked};

/// `timestamptz` in microseconds, without a detour over another time type.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SqlTime(pub(crate) Timestamp);

/// Microseconds from the Unix epoch to PostgreSQL's (2000-01-01T00:00:00Z).
const POSTGRES_EPOCH_UNIX_MICROS: i64 = 946_684_800_000_000;

impl ToSql for SqlTime {
    fn to_sql(
        &self,
        _: &Type,
        out: &mut BytesMut,
    ) -> Result<IsNull, Box<dyn std::error::Error + Sync + Send>> {
        out.extend_from_slice(&(self.0.unix_micros() - POSTGRES_EPOCH_UNIX_MICROS).to_be_bytes());
        Ok(IsNull::No)
    }

    fn accepts(ty: &Type) -> bool {
        *ty == Type::TIMESTAMPTZ
    }

    to_sql_checked!();
}

impl FromSql<'_> for SqlTime {
    fn from_sql(_: &Type, raw: &[u8]) -> Result<Self, Box<dyn std::error::Error + Sync + Send>> {
        let micros = i64::from_be_bytes(raw.try_into()?);
        let unix = micros.checked_add(POSTGRES_EPOCH_UNIX_MICROS).ok_or("a time out of range")?;
        Ok(Self(Timestamp::try_from_unix_micros(unix)?))
    }

    fn accepts(ty: &Type) -> bool {
        *ty == Type::TIMESTAMPTZ
    }
}
