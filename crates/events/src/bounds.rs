//! Byte bounds of everything of foreign origin, chosen so that no accepted input and no fact from a runtime can make an
//! event larger than [`EVENT_BYTES_MAX`]: no outcome may be unrecordable (design: security, log).

/// Largest encoded event: header plus body, in bytes.
pub const EVENT_BYTES_MAX: usize = 512 * 1024;
/// Encoded bytes of one output view (text or base64, JSON escapes included).
pub const VIEW_ENCODED_BYTES_MAX: usize = 88 * 1024;
/// Raw bytes of a view before encoding: head and tail together.
pub const VIEW_BYTES_MAX: usize = 64 * 1024;
/// Encoded bytes of one command's list of changed files; beyond it the list is cut and flagged.
pub const FILES_CHANGED_BYTES_MAX: usize = 128 * 1024;
/// argv and environment together, encoded; larger requests are refused with 413.
pub const ARGV_ENV_BYTES_MAX: usize = 128 * 1024;
/// Raw bytes of argv, and the largest number of arguments (design: `ExecutionCommand`).
pub const ARGV_BYTES_MAX: usize = 64 * 1024;
/// Largest number of arguments.
pub const ARGV_COUNT_MAX: usize = 1024;
/// Standard input kept inside the event, in encoded bytes; larger input is counted and hashed only.
pub const STDIN_INLINE_BYTES_MAX: usize = 88 * 1024;
/// Standard input accepted over the interface, in bytes.
pub const STDIN_BYTES_MAX: usize = 64 * 1024 * 1024;
/// A workspace path; longer ones appear by digest and length.
pub const PATH_BYTES_MAX: usize = 4096;
/// Lease holder, revocation reason and other short texts.
pub const SHORT_TEXT_BYTES_MAX: usize = 256;
/// Number of labels, and bytes of one label key or value.
pub const LABELS_COUNT_MAX: usize = 32;
/// Bytes of one label key or value.
pub const LABEL_BYTES_MAX: usize = 128;
/// Number of tools on a lease, each at most [`SHORT_TEXT_BYTES_MAX`] bytes.
pub const TOOLS_COUNT_MAX: usize = 64;
/// First position that can no longer be written exactly as a JSON number (RFC 8785, I-JSON).
pub const POSITION_END: u64 = 1 << 53;
/// Largest integer that JSON carries exactly (RFC 8785, I-JSON): 2^53 - 1. Facts above it are recorded as this.
pub const INTEGER_MAX: u64 = POSITION_END - 1;
/// Shortest life of a lease in ms.
pub const LEASE_TTL_MS_MIN: u64 = 1_000;
/// A command is refused when less of its lease is left, in ms.
pub const LEASE_REMAINDER_MS_MIN: u64 = 5_000;

/// Bytes that `text` takes as a JSON string, quotes and escapes included (RFC 8785, section 3.2.2.2).
#[must_use]
pub fn json_text_bytes(text: &str) -> usize {
    let escapes: usize = text
        .bytes()
        .map(|byte| match byte {
            b'"' | b'\\' | 0x08 | b'\t' | b'\n' | 0x0c | b'\r' => 1,
            0..=0x1f => 5,
            _ => 0,
        })
        .sum();
    text.len() + escapes + 2
}

/// The longest beginning of `text` that has at most `bytes_max` bytes and ends between two characters.
#[must_use]
pub fn cut_text(text: &str, bytes_max: usize) -> &str {
    &text[..text.floor_char_boundary(bytes_max)]
}

/// 64 lower-case hex digits.
#[must_use]
pub fn is_sha256_hex(text: &str) -> bool {
    text.len() == 64 && text.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
}
