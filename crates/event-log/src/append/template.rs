//! A header that lacks only its place: version and previous leaf.
//!
//! The appender is one task, so what it does per event bounds the whole log. Callers therefore write the canonical header once, in
//! parallel, with the place left blank; the appender copies it and fills in the place. The result is byte for byte what sealing
//! would give (a test compares them).

use events::Version;
use events::bounds::POSITION_END;
use events::stored::{Sealed, leaf_hash};

/// The version that stands for a blank: the largest that can be, so its digits are the longest (versions count positions).
pub(super) const BLANK: Version = Version(POSITION_END - 1);

/// A canonical header with a blank place.
#[derive(Debug)]
pub(crate) struct HeaderTemplate {
    bytes: Vec<u8>,
    /// Where the 64 hex digits of `prev_leaf` begin.
    leaf_at: usize,
    /// Where the digits of `version` begin: the last member, so that only `}` follows.
    version_at: usize,
}

impl HeaderTemplate {
    /// From a header that was sealed with [`BLANK`]; `None` when it has another form than the one this file knows.
    pub(super) fn new(blank_header: Vec<u8>) -> Option<Self> {
        // Inside a string the quotes would be escaped, so this is the member itself.
        const LEAF: &[u8] = b"\"prev_leaf\":\"";
        let leaf_at = blank_header.windows(LEAF.len()).position(|window| window == LEAF)? + LEAF.len();
        let end = format!(",\"version\":{BLANK}}}");
        let version_at = blank_header.len().checked_sub(BLANK.to_string().len() + 1)?;
        (blank_header.ends_with(end.as_bytes()) && leaf_at + 64 < version_at).then_some(Self {
            bytes: blank_header,
            leaf_at,
            version_at,
        })
    }

    /// The header at its place, and its leaf.
    pub(super) fn fill(&self, version: Version, prev_leaf: &[u8; 32]) -> Sealed {
        let mut header = Vec::with_capacity(self.bytes.len());
        header.extend_from_slice(&self.bytes[..self.version_at]);
        for (digits, byte) in header[self.leaf_at..].chunks_exact_mut(2).zip(prev_leaf) {
            const HEX: &[u8; 16] = b"0123456789abcdef";
            digits[0] = HEX[usize::from(byte >> 4)];
            digits[1] = HEX[usize::from(byte & 15)];
        }
        header.extend_from_slice(format!("{version}}}").as_bytes());
        let leaf = leaf_hash(&header);
        Sealed { header, leaf }
    }
}

#[cfg(test)]
mod tests {
    use events::event::lease::RunCloseRequested;
    use events::stored::{NewEvent, StreamName, ZERO_LEAF, encode_body, seal};
    use events::{Event, EventId, LogId, RunId, TenantId, Timestamp};
    use uuid::Uuid;

    use super::*;

    #[test]
    fn a_filled_template_is_what_sealing_gives() {
        let stream = StreamName::try_new("run", "version/prev-leaf").unwrap();
        for actor in ["service:x", "\"prev_leaf\":\"", "\\\"version\":1}", "\u{0}\u{1f600}"] {
            let new = NewEvent {
                event_id: EventId(Uuid::from_u128(1)),
                tenant: TenantId(Uuid::from_u128(2)),
                recorded_at: Timestamp::try_from_unix_micros(1_700_000_000_123_457).unwrap(),
                actor: actor.to_owned(),
                correlation_id: Some(RunId(Uuid::from_u128(3))),
                causation_id: None,
                event: Event::RunCloseRequested(RunCloseRequested {}),
            };
            let body = encode_body(&new.event).unwrap();
            let sealed = |version, leaf: &[u8; 32]| {
                seal(LogId(Uuid::from_u128(4)), &stream, version, leaf, &new, &[9; 32], &body).unwrap()
            };
            let template = HeaderTemplate::new(sealed(BLANK, &ZERO_LEAF).header).unwrap();
            for version in [1, 9, 10, 4_294_967_296, (1 << 53) - 1] {
                for leaf in [ZERO_LEAF, [0xa5; 32], std::array::from_fn(|i| i as u8)] {
                    assert_eq!(template.fill(Version(version), &leaf), sealed(Version(version), &leaf));
                }
            }
        }
        assert!(HeaderTemplate::new(b"{}".to_vec()).is_none());
    }
}
