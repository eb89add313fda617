//! What goes out: JSON that holds no character that could forge a line or move a cursor.

use std::io::{self, Write};

use projections::timeline::is_unsafe;
use serde::Serialize;
use serde_json::ser::{CompactFormatter, Formatter, Serializer};

use crate::error::ReplayError;

/// Compact JSON in which what a terminal would act on is escaped, beyond what JSON asks for. Parsed again it is the same text.
struct Safe;

impl Formatter for Safe {
    fn write_string_fragment<W: ?Sized + Write>(&mut self, writer: &mut W, fragment: &str) -> io::Result<()> {
        let mut plain_from = 0;
        for (index, character) in fragment.char_indices().filter(|(_, character)| is_unsafe(*character)) {
            CompactFormatter.write_string_fragment(writer, &fragment[plain_from..index])?;
            for unit in character.encode_utf16(&mut [0; 2]) {
                write!(writer, "\\u{unit:04x}")?;
            }
            plain_from = index + character.len_utf8();
        }
        CompactFormatter.write_string_fragment(writer, &fragment[plain_from..])
    }
}

/// Writes one value on one line.
///
/// # Errors
/// When it cannot be written.
pub fn json_line(out: &mut impl Write, value: &impl Serialize) -> Result<(), ReplayError> {
    value.serialize(&mut Serializer::with_formatter(&mut *out, Safe))?;
    writeln!(out)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn json_is_exact_and_holds_nothing_that_acts() {
        let hostile = "a\u{0}\u{1b}[2J\u{7f}\u{85}\u{9b}\u{202e}\u{2028}\u{feff}\u{e0041}\r\n\"\\ größer 🦀";
        let mut line = Vec::new();
        json_line(&mut line, &[hostile]).unwrap();
        let line = String::from_utf8(line).unwrap();
        assert_eq!(serde_json::from_str::<[String; 1]>(&line).unwrap()[0], hostile);
        let shown = line.strip_suffix('\n').unwrap();
        assert!(!shown.chars().any(is_unsafe), "{shown}");
        assert!(shown.contains("\\udb40\\udc41") && shown.contains("größer 🦀"), "{shown}");
    }
}
