//! Time as the log stores it: microseconds since the Unix epoch, UTC, written as RFC 3339 with six digits.
//!
//! Nothing here asks what time it is: `now` is always an argument, and comes from the log clock.

use std::fmt;
use std::str::FromStr;

use chrono::{DateTime, SecondsFormat, Utc};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

/// A point in time, truncated to microseconds so that the hashed value equals the stored one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Timestamp(i64);

/// The text is not an RFC 3339 time in UTC between the years 1970 and 9999.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not an RFC 3339 UTC time between 1970 and 9999")]
pub struct InvalidTimestamp;

/// 9999-12-31T23:59:59.999999Z: the last time RFC 3339 can write with four year digits.
const MAX_UNIX_MICROS: i64 = 253_402_300_799_999_999;

impl Timestamp {
    /// From microseconds since the Unix epoch; refuses times that RFC 3339 cannot write.
    pub const fn try_from_unix_micros(micros: i64) -> Result<Self, InvalidTimestamp> {
        if micros < 0 || micros > MAX_UNIX_MICROS { Err(InvalidTimestamp) } else { Ok(Self(micros)) }
    }

    /// Microseconds since the Unix epoch.
    #[must_use]
    pub const fn unix_micros(self) -> i64 {
        self.0
    }

    /// This time and `ms` milliseconds, at most the largest time that can be written.
    #[must_use]
    pub const fn plus_ms(self, ms: u64) -> Self {
        let micros = self.0.saturating_add_unsigned(ms.saturating_mul(1000));
        if micros > MAX_UNIX_MICROS { Self(MAX_UNIX_MICROS) } else { Self(micros) }
    }

    /// Whole milliseconds from `earlier` to this time; 0 when `earlier` is later.
    #[must_use]
    pub const fn ms_since(self, earlier: Self) -> u64 {
        let micros = self.0.saturating_sub(earlier.0);
        if micros <= 0 { 0 } else { micros.unsigned_abs() / 1000 }
    }
}

impl fmt::Display for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let time: DateTime<Utc> = DateTime::from_timestamp_micros(self.0).unwrap_or(DateTime::UNIX_EPOCH);
        f.write_str(&time.to_rfc3339_opts(SecondsFormat::Micros, true))
    }
}

impl FromStr for Timestamp {
    type Err = InvalidTimestamp;

    /// Accepts any RFC 3339 offset and truncates below the microsecond; a leap second is refused, as it has no place in
    /// Unix time.
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let time = DateTime::parse_from_rfc3339(text).map_err(|_| InvalidTimestamp)?;
        if time.timestamp_subsec_nanos() >= 1_000_000_000 {
            return Err(InvalidTimestamp);
        }
        Self::try_from_unix_micros(time.timestamp_micros())
    }
}

impl Serialize for Timestamp {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Timestamp {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        text.parse().map_err(de::Error::custom)
    }
}
