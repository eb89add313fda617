//! The view of an output stream that goes on record: all bytes, or the first 60 % and the last 20 % of 64 KiB around a marker
//! that says how much is missing (decision D9). Cuts fall between characters; bytes that are not UTF-8 are kept in base64.
//!
//! [`split`] takes a recorded view apart again, so that a reader who comes later gets the same bytes at the same offsets.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use events::bounds::{VIEW_BYTES_MAX, VIEW_ENCODED_BYTES_MAX, json_text_bytes};
use events::event::command::{OutputRecord, TextEncoding};
use runtime_adapter::ports::Captured;

/// First bytes of a view that does not hold everything.
const HEAD_BYTES: usize = VIEW_BYTES_MAX / 100 * 60;
/// Last bytes of a view that does not hold everything.
const TAIL_BYTES: usize = VIEW_BYTES_MAX / 100 * 20;
/// A UTF-8 character has at most this many bytes.
const CHARACTER_BYTES_MAX: usize = 4;

/// What goes on record for a captured stream.
#[must_use]
pub fn record(captured: &Captured) -> OutputRecord {
    let whole = captured.tail.is_none() && captured.head.len() <= VIEW_BYTES_MAX;
    let bytes = if whole { captured.head.clone() } else { cut(captured) };
    let (text, encoding) = encode(bytes);
    OutputRecord {
        text,
        encoding,
        bytes_total: captured.bytes_total,
        sha256: hex::encode(captured.sha256),
        truncated: !whole,
    }
}

/// An empty stream, for a command that never ran.
#[must_use]
pub fn empty() -> OutputRecord {
    use sha2::{Digest, Sha256};
    OutputRecord {
        text: String::new(),
        encoding: TextEncoding::Utf8,
        bytes_total: 0,
        sha256: hex::encode(Sha256::digest([])),
        truncated: false,
    }
}

fn cut(captured: &Captured) -> Vec<u8> {
    let tail = captured.tail.as_deref().unwrap_or(&captured.head);
    let head = trim_end(&captured.head[..captured.head.len().min(HEAD_BYTES)]);
    let tail = trim_start(&tail[tail.len().saturating_sub(TAIL_BYTES)..]);
    let elided = captured.bytes_total.saturating_sub((head.len() + tail.len()) as u64);
    let mut bytes = head.to_vec();
    bytes.extend_from_slice(marker(elided).as_bytes());
    bytes.extend_from_slice(tail);
    bytes
}

/// Text when the bytes are UTF-8 and their JSON form fits; base64 is never larger than the bound.
fn encode(bytes: Vec<u8>) -> (String, TextEncoding) {
    match String::from_utf8(bytes) {
        Ok(text) if json_text_bytes(&text) <= VIEW_ENCODED_BYTES_MAX => (text, TextEncoding::Utf8),
        Ok(text) => (STANDARD.encode(text), TextEncoding::Base64),
        Err(error) => (STANDARD.encode(error.as_bytes()), TextEncoding::Base64),
    }
}

/// Stands for `elided` bytes.
fn marker(elided: u64) -> String {
    let digits = elided.to_string();
    let mut grouped = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            grouped.push(',');
        }
        grouped.push(digit);
    }
    format!("\n[… {grouped} bytes elided …]\n")
}

/// Without an incomplete character at the end. Bytes that are no UTF-8 at all stay as they are.
fn trim_end(bytes: &[u8]) -> &[u8] {
    match std::str::from_utf8(bytes) {
        Err(error) if error.error_len().is_none() => &bytes[..error.valid_up_to()],
        _ => bytes,
    }
}

/// Without the rest of a character at the start; text that is valid from there on shows that it was one.
fn trim_start(bytes: &[u8]) -> &[u8] {
    (0..CHARACTER_BYTES_MAX.min(bytes.len()))
        .map(|skip| &bytes[skip..])
        .find(|rest| std::str::from_utf8(rest).is_ok())
        .unwrap_or(bytes)
}

/// A recorded view as bytes: `head` at offset 0, `tail` at the end, the gap between them held nowhere.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Split {
    /// From offset 0.
    pub head: Vec<u8>,
    /// Up to the last byte; empty when nothing was left out.
    pub tail: Vec<u8>,
}

/// Takes a view apart. The place of the marker follows from how it was made, so that a program that prints a marker of its own
/// cannot move it; a view that was not made here is all head.
#[must_use]
pub fn split(record: &OutputRecord) -> Split {
    let bytes = match record.encoding {
        TextEncoding::Utf8 => record.text.clone().into_bytes(),
        TextEncoding::Base64 => STANDARD.decode(&record.text).unwrap_or_default(),
    };
    if record.truncated {
        for head_bytes in (HEAD_BYTES.saturating_sub(CHARACTER_BYTES_MAX)..=HEAD_BYTES).rev() {
            if let Some(parts) = split_at(&bytes, head_bytes, record.bytes_total) {
                return parts;
            }
        }
    }
    Split { head: bytes, tail: Vec::new() }
}

fn split_at(bytes: &[u8], head_bytes: usize, total: u64) -> Option<Split> {
    let (head, rest) = bytes.split_at_checked(head_bytes)?;
    // The marker's length depends on the count it names, and the count on the marker's length: few lengths are possible.
    (marker(0).len()..=marker(u64::MAX).len()).find_map(|marker_bytes| {
        let tail = rest.get(marker_bytes..)?;
        let elided = total.checked_sub((head.len() + tail.len()) as u64)?;
        let expected = marker(elided);
        (expected.len() == marker_bytes && rest.starts_with(expected.as_bytes()))
            .then(|| Split { head: head.to_vec(), tail: tail.to_vec() })
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use sha2::{Digest, Sha256};

    fn captured(all: &[u8], keep: usize) -> Captured {
        let whole = all.len() <= keep * 2;
        Captured {
            head: if whole { all.to_vec() } else { all[..keep].to_vec() },
            tail: (!whole).then(|| all[all.len() - keep..].to_vec()),
            bytes_total: all.len() as u64,
            sha256: Sha256::digest(all).into(),
        }
    }

    #[test]
    fn small_output_is_kept_exactly() {
        let view = record(&captured("grüße\n".as_bytes(), 100));
        assert_eq!(
            (view.text.as_str(), view.encoding, view.truncated),
            ("grüße\n", TextEncoding::Utf8, false)
        );
        assert_eq!(view.bytes_total, 8);
    }

    #[test]
    fn a_byte_that_is_no_text_keeps_everything_in_base64() {
        let view = record(&captured(b"a\xffb", 100));
        assert_eq!((view.text.as_str(), view.encoding), ("Yf9i", TextEncoding::Base64));
    }

    #[test]
    fn large_text_is_head_marker_tail_cut_between_characters() {
        let all = "日本語🦀".repeat(20_000);
        let view = record(&captured(all.as_bytes(), VIEW_BYTES_MAX));
        assert_eq!(view.encoding, TextEncoding::Utf8);
        assert!(view.truncated && view.text.len() <= VIEW_BYTES_MAX);
        let parts = split(&view);
        assert!(all.as_bytes().starts_with(&parts.head) && all.as_bytes().ends_with(&parts.tail));
        let elided = all.len() - parts.head.len() - parts.tail.len();
        assert!(view.text.contains(&marker(elided as u64)));
    }

    #[test]
    fn a_program_that_prints_markers_cannot_move_the_gap() {
        let all = marker(31_415).repeat(8_000);
        let parts = split(&record(&captured(all.as_bytes(), VIEW_BYTES_MAX)));
        assert!(all.as_bytes().starts_with(&parts.head) && all.as_bytes().ends_with(&parts.tail));
        assert!(parts.head.len() + CHARACTER_BYTES_MAX > HEAD_BYTES);
    }

    #[test]
    fn control_characters_that_would_escape_too_large_become_base64() {
        let view = record(&captured(&[1_u8; 60_000], VIEW_BYTES_MAX));
        assert_eq!(view.encoding, TextEncoding::Base64);
        assert!(view.text.len() <= VIEW_ENCODED_BYTES_MAX);
        assert_eq!(split(&view).head, vec![1_u8; 60_000]);
    }

    #[test]
    fn markers_group_their_digits() {
        assert_eq!(marker(41_882), "\n[… 41,882 bytes elided …]\n");
        assert_eq!(marker(7), "\n[… 7 bytes elided …]\n");
        assert_eq!(marker(1_000_000), "\n[… 1,000,000 bytes elided …]\n");
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]
        #[test]
        fn any_output_is_recordable_and_splits_into_its_own_ends(
            unit in proptest::collection::vec(any::<u8>(), 1..40),
            times in 1_usize..6_000,
        ) {
            let all = unit.repeat(times);
            let view = record(&captured(&all, VIEW_BYTES_MAX));
            prop_assert!(json_text_bytes(&view.text) <= VIEW_ENCODED_BYTES_MAX);
            let parts = split(&view);
            prop_assert!(all.starts_with(&parts.head));
            prop_assert!(all.ends_with(&parts.tail));
            prop_assert_eq!(view.truncated, parts.head.len() + parts.tail.len() < all.len());
        }
    }
}
