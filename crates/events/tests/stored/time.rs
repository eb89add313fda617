//! Times: what is hashed is what is stored (T-29). No fixture has zero sub-seconds.

use events::Timestamp;
use proptest::prelude::*;

fn read(text: &str) -> Option<String> {
    text.parse::<Timestamp>().ok().map(|time| time.to_string())
}

#[test]
fn times_are_read_truncated_to_microseconds_in_utc() {
    let table = [
        ("2026-03-04T05:06:07.123456789Z", Some("2026-03-04T05:06:07.123456Z")),
        ("2026-03-04T05:06:07.999999999Z", Some("2026-03-04T05:06:07.999999Z")),
        ("2026-03-04T05:06:07.1Z", Some("2026-03-04T05:06:07.100000Z")),
        ("2026-03-04T05:06:07Z", Some("2026-03-04T05:06:07.000000Z")),
        ("2026-03-04T05:06:07.000001+02:00", Some("2026-03-04T03:06:07.000001Z")),
        ("2026-03-04T05:06:07.000001-23:59", Some("2026-03-05T05:05:07.000001Z")),
        ("1970-01-01T00:00:00.000000Z", Some("1970-01-01T00:00:00.000000Z")),
        ("9999-12-31T23:59:59.999999Z", Some("9999-12-31T23:59:59.999999Z")),
        ("9999-12-31T23:59:59.999999999Z", Some("9999-12-31T23:59:59.999999Z")),
        // Past what RFC 3339 can write, before the epoch, no place in Unix time, no offset, no time.
        ("9999-12-31T23:59:59.999999-00:01", None),
        ("+10000-01-01T00:00:00.000001Z", None),
        ("1969-12-31T23:59:59.999999Z", None),
        ("1970-01-01T00:00:00.000001+00:01", None),
        ("2016-12-31T23:59:60.000001Z", None),
        ("2016-12-31T23:59:60Z", None),
        ("2026-02-29T05:06:07.123456Z", None),
        ("2026-03-04T05:06:07.123456", None),
        ("2026-03-04", None),
        ("1772600767", None),
        ("", None),
    ];
    for (text, expected) in table {
        assert_eq!(read(text).as_deref(), expected, "{text}");
    }
}

#[test]
fn arithmetic_stays_within_what_can_be_written() {
    let last: Timestamp = "9999-12-31T23:59:59.999999Z".parse().expect("the last time");
    assert_eq!(last.plus_ms(u64::MAX), last);
    let time: Timestamp = "2026-03-04T05:06:07.123456Z".parse().expect("a time");
    assert_eq!(time.plus_ms(1_001).to_string(), "2026-03-04T05:06:08.124456Z");
    assert_eq!((time.plus_ms(1_001).ms_since(time), time.ms_since(time.plus_ms(1_001))), (1_001, 0));
    assert!(Timestamp::try_from_unix_micros(-1).is_err());
    assert!(Timestamp::try_from_unix_micros(last.unix_micros() + 1).is_err());
}

proptest! {
    #[test]
    fn written_times_are_read_back_as_they_were(micros in 0_i64..=253_402_300_799_999_999) {
        let time = Timestamp::try_from_unix_micros(micros).expect("in range");
        let text = time.to_string();
        prop_assert_eq!(text.len(), 27);
        prop_assert_eq!(text.parse::<Timestamp>(), Ok(time));
    }
}
