//! Workspace paths from the request target: raw bytes, percent-decoded exactly once.
//!
//! No layer before this one normalises, joins or decodes anything, so `%2e%2e`, `..`, `//` and `%00` all arrive here as what
//! they are, and the workspace rules (`policy::WorkspacePath`) refuse them by one sentence each. What a client can
//! percent-encode it can name, UTF-8 or not.

use base64::Engine as _;
use base64::alphabet;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};

use super::problem::{Code, Problem};

/// Accepts base64 with and without padding.
const LENIENT_PADDING: GeneralPurposeConfig =
    GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent);
const STANDARD: GeneralPurpose = GeneralPurpose::new(&alphabet::STANDARD, LENIENT_PADDING);
const URL_SAFE: GeneralPurpose = GeneralPurpose::new(&alphabet::URL_SAFE, LENIENT_PADDING);

/// The part of a request target behind `/v1/leases/{lease_id}/files/`, still encoded.
pub(super) fn encoded_file_path(target_path: &str) -> Option<&str> {
    let rest = target_path.strip_prefix("/v1/leases/")?;
    let (_lease_id, rest) = rest.split_once('/')?;
    rest.strip_prefix("files/")
}

/// Percent-decodes once (RFC 3986, 2.1). `plus_is_space` reads a query as forms write it.
///
/// # Errors
/// 400 when a `%` is not followed by two hex digits.
pub(super) fn percent_decode(encoded: &str, plus_is_space: bool) -> Result<Vec<u8>, Problem> {
    let mut decoded = Vec::with_capacity(encoded.len());
    let mut bytes = encoded.bytes();
    while let Some(byte) = bytes.next() {
        decoded.push(match byte {
            b'%' => match (bytes.next().and_then(hex_digit), bytes.next().and_then(hex_digit)) {
                (Some(high), Some(low)) => high << 4 | low,
                _ => {
                    return Err(Problem::malformed(
                        "a % in the request target is not followed by two hex digits",
                    ));
                }
            },
            b'+' if plus_is_space => b' ',
            other => other,
        });
    }
    Ok(decoded)
}

fn hex_digit(byte: u8) -> Option<u8> {
    match byte {
        b'0'..=b'9' => Some(byte - b'0'),
        b'a'..=b'f' => Some(byte - b'a' + 10),
        b'A'..=b'F' => Some(byte - b'A' + 10),
        _ => None,
    }
}

/// Bytes of a `path_base64` parameter: standard or URL-safe alphabet, padded or not. A `+` that a form reader turned into a
/// space is taken back.
///
/// # Errors
/// 422 `path_refused`.
pub(super) fn path_from_base64(text: &[u8]) -> Result<Vec<u8>, Problem> {
    let text: Vec<u8> = text.iter().map(|byte| if *byte == b' ' { b'+' } else { *byte }).collect();
    STANDARD
        .decode(&text)
        .or_else(|_| URL_SAFE.decode(&text))
        .map_err(|_| Problem::new(Code::PathRefused, "path_base64 is not base64"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_path_is_what_follows_files() {
        let of = |target| encoded_file_path(target);
        assert_eq!(of("/v1/leases/0/files/a/b"), Some("a/b"));
        assert_eq!(of("/v1/leases/0/files//etc/passwd"), Some("/etc/passwd"));
        assert_eq!(of("/v1/leases/0/files/../x"), Some("../x"));
        assert_eq!(of("/v1/leases/0/files/"), Some(""));
        assert_eq!(of("/v1/leases/0/files"), None);
    }

    #[test]
    fn decoding_happens_once() {
        let once = |text| percent_decode(text, false).unwrap();
        assert_eq!(once("a%2Fb%0Ac"), b"a/b\nc");
        assert_eq!(once("%252e"), b"%2e");
        assert_eq!(once("a+b"), b"a+b");
        assert_eq!(once("%ff%00"), b"\xff\0");
        assert_eq!(percent_decode("a+b", true).unwrap(), b"a b");
        for bad in ["%", "%4", "%zz", "a%4", "%%41"] {
            assert_eq!(percent_decode(bad, false).unwrap_err().code(), Code::MalformedRequest, "{bad}");
        }
    }

    #[test]
    fn base64_in_every_common_dress() {
        for text in ["/+8=", "/ 8=", "_-8", "/+8"] {
            assert_eq!(path_from_base64(text.as_bytes()).unwrap(), b"\xff\xef", "{text}");
        }
        assert_eq!(path_from_base64(b"?").unwrap_err().code(), Code::PathRefused);
    }
}
