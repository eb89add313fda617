//! Foreign text made safe to show on one line of a terminal or a page (design: security, trust).

use std::fmt::{self, Write as _};

/// Shows text with everything escaped that could move the cursor, break the line, colour, or reorder what is read: C0, DEL, C1,
/// line and paragraph separators, bidirectional and other invisible format characters. A backslash is doubled, so that what is
/// shown names one text only.
#[derive(Clone, Copy, Debug)]
pub struct Escaped<'a>(pub &'a str);

impl fmt::Display for Escaped<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for character in self.0.chars() {
            match character {
                '\\' => f.write_str("\\\\")?,
                '\n' => f.write_str("\\n")?,
                '\r' => f.write_str("\\r")?,
                '\t' => f.write_str("\\t")?,
                plain if !is_unsafe(plain) => f.write_char(plain)?,
                other => write!(f, "\\u{{{:x}}}", u32::from(other))?,
            }
        }
        Ok(())
    }
}

/// Whether a character could move the cursor, break the line, colour or reorder what is read.
#[must_use]
pub fn is_unsafe(character: char) -> bool {
    character.is_control()
        || matches!(
            character,
            '\u{ad}' // soft hyphen
            | '\u{61c}' // Arabic letter mark
            | '\u{180e}' // Mongolian vowel separator
            | '\u{200b}'..='\u{200f}' // zero width, left-to-right and right-to-left marks
            | '\u{2028}'..='\u{202e}' // line, paragraph separator; embeddings and overrides
            | '\u{2060}'..='\u{206f}' // word joiner, isolates, deprecated format characters
            | '\u{feff}' // byte order mark
            | '\u{fff9}'..='\u{fffb}' // interlinear annotation
            | '\u{e0000}'..='\u{e007f}' // tags
        )
}

/// Escaped, in double quotes, cut after `characters_max` characters of the text (a cut is shown as `…`).
#[must_use]
pub fn quoted(text: &str, characters_max: usize) -> String {
    let mut shown = String::from("\"");
    let cut = text.char_indices().nth(characters_max).map_or(text.len(), |(index, _)| index);
    for piece in text[..cut].split_inclusive('"') {
        match piece.strip_suffix('"') {
            Some(before) => shown.push_str(&format!("{}\\\"", Escaped(before))),
            None => shown.push_str(&Escaped(piece).to_string()),
        }
    }
    if cut < text.len() {
        shown.push('…');
    }
    shown.push('"');
    shown
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_dangerous_stays() {
        for code in
            (0..0x20).chain(0x7f..0xa0).chain([0xad, 0x61c, 0x200f, 0x2028, 0x2029, 0x202e, 0x2066, 0xfeff])
        {
            let character = char::from_u32(code).unwrap();
            let shown = Escaped(&format!("a{character}b")).to_string();
            assert!(
                shown.starts_with("a\\") && shown.ends_with('b') && shown.is_ascii(),
                "{code:x}: {shown}"
            );
        }
    }

    #[test]
    fn plain_text_of_any_script_stays() {
        let text = "größer 世界 مرحبا 🦀 ~ {}[]";
        assert_eq!(Escaped(text).to_string(), text);
    }

    #[test]
    fn what_is_shown_names_one_text() {
        assert_ne!(Escaped("\\n").to_string(), Escaped("\n").to_string());
        assert_eq!(quoted("a\"b\\", 9), r#""a\"b\\""#);
        assert_ne!(quoted("a\\\"", 9), quoted("a\"", 9));
    }

    #[test]
    fn long_text_is_cut_between_characters() {
        assert_eq!(quoted("äöüß", 3), "\"äöü…\"");
        assert_eq!(quoted("äöü", 3), "\"äöü\"");
    }
}
