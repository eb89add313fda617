//! Foreign text in our own sentences: bounded, and with nothing in it that a terminal or a reader could mistake.

use projections::timeline::Escaped;

/// Characters of foreign text that a message repeats at most.
const QUOTED_CHARS_MAX: usize = 200;

/// `text` as a message may repeat it: escaped as everywhere in the house, cut after 200 characters.
pub(super) fn quoted(text: &str) -> String {
    match text.char_indices().nth(QUOTED_CHARS_MAX) {
        None => Escaped(text).to_string(),
        Some((end, _)) => format!("{}…", Escaped(&text[..end])),
    }
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
        assert_eq!(quoted("x\u{202e}y\u{2028}\u{9b}\n"), "x\\u{202e}y\\u{2028}\\u{9b}\\n");
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
