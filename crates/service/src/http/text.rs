//! Foreign text in our own sentences: bounded, and with nothing in it that a terminal or a reader could mistake.

use std::fmt::Write as _;

/// Characters of foreign text that a message repeats at most.
const QUOTED_CHARS_MAX: usize = 200;

/// `text` as a message may repeat it: control, direction and line-separator characters written as `\u{..}`, cut after
/// 200 characters.
pub(super) fn quoted(text: &str) -> String {
    let mut out = String::with_capacity(text.len().min(QUOTED_CHARS_MAX) + 2);
    let mut chars = text.chars();
    for c in chars.by_ref().take(QUOTED_CHARS_MAX) {
        if is_plain(c) {
            out.push(c);
        } else {
            // Writing to a String cannot fail.
            let _ = write!(out, "{}", c.escape_unicode());
        }
    }
    if chars.next().is_some() {
        out.push('…');
    }
    out
}

/// Neither a control character (C0, C1, DEL), nor one that changes the direction or the line of the text around it.
fn is_plain(c: char) -> bool {
    !c.is_control()
        && !matches!(
            c,
            '\u{061c}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{2069}' | '\u{feff}'
        )
}

/// One reference token of a JSON pointer (RFC 6901), bounded like [`quoted`].
pub(super) fn pointer_token(text: &str) -> String {
    quoted(text).replace('~', "~0").replace('/', "~1")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_that_moves_a_cursor_survives() {
        assert_eq!(quoted("a\u{1b}[2Jb"), "a\\u{1b}[2Jb");
        assert_eq!(quoted("x\u{202e}y\u{2028}\u{9b}\n"), "x\\u{202e}y\\u{2028}\\u{9b}\\u{a}");
        assert_eq!(quoted("plain äöü 漢字"), "plain äöü 漢字");
    }

    #[test]
    fn long_text_is_cut_and_says_so() {
        let text = "ä".repeat(201);
        assert_eq!(quoted(&text), format!("{}…", "ä".repeat(200)));
        assert_eq!(quoted(&"b".repeat(200)), "b".repeat(200));
    }

    #[test]
    fn pointers_escape_their_separators() {
        assert_eq!(pointer_token("a/b~c"), "a~1b~0c");
    }
}
