//! The fake's command language: the part of `sh` that tests and evaluations need. Words with quotes and `$NAME`, statements
//! joined by `;`, newline, `&&`, `||` and `&`, and redirections of the two outputs.

/// How a statement follows the one before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Joint {
    Always,
    IfOk,
    IfFailed,
}

/// Where an output goes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Redirect {
    Stdout,
    Stderr,
    File { path: String, append: bool },
}

/// One simple command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Statement {
    pub(super) joint: Joint,
    pub(super) words: Vec<String>,
    pub(super) stdout: Redirect,
    pub(super) stderr: Redirect,
    pub(super) left_running: bool,
}

/// The script cannot be read; the message is the shell's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct SyntaxError(pub(super) &'static str);

#[derive(Debug, PartialEq, Eq)]
enum Token {
    Word(String),
    Operator(&'static str),
}

/// Longest first: `2>&1` must not be read as `2` and `>`.
const OPERATORS: [&str; 13] =
    ["2>&1", "1>&2", ">&2", "2>>", "1>>", "2>", "1>", ">>", ">", "&&", "||", ";", "&"];

/// Reads a whole script; `variable` gives the value of a name.
pub(super) fn parse(script: &str, variable: &dyn Fn(&str) -> String) -> Result<Vec<Statement>, SyntaxError> {
    let mut statements = Vec::new();
    let mut current = empty(Joint::Always);
    let mut tokens = tokens(script, variable)?.into_iter();
    while let Some(token) = tokens.next() {
        let operator = match token {
            Token::Word(word) => {
                current.words.push(word);
                continue;
            }
            Token::Operator(operator) => operator,
        };
        match operator {
            "2>&1" => current.stderr = current.stdout.clone(),
            "1>&2" | ">&2" => current.stdout = current.stderr.clone(),
            ">" | ">>" | "1>" | "1>>" | "2>" | "2>>" => {
                let Some(Token::Word(path)) = tokens.next() else {
                    return Err(SyntaxError("syntax error: a file name is missing"));
                };
                let target = Redirect::File { path, append: operator.ends_with(">>") };
                if operator.starts_with('2') { current.stderr = target } else { current.stdout = target }
            }
            _ => {
                current.left_running = operator == "&";
                let joint = match operator {
                    "&&" => Joint::IfOk,
                    "||" => Joint::IfFailed,
                    _ => Joint::Always,
                };
                let finished = std::mem::replace(&mut current, empty(joint));
                if !finished.words.is_empty() {
                    statements.push(finished);
                }
            }
        }
    }
    if !current.words.is_empty() {
        statements.push(current);
    }
    Ok(statements)
}

fn empty(joint: Joint) -> Statement {
    Statement {
        joint,
        words: Vec::new(),
        stdout: Redirect::Stdout,
        stderr: Redirect::Stderr,
        left_running: false,
    }
}

fn tokens(script: &str, variable: &dyn Fn(&str) -> String) -> Result<Vec<Token>, SyntaxError> {
    let mut tokens = Vec::new();
    let mut word: Option<String> = None;
    let mut rest = script;
    while let Some(first) = rest.chars().next() {
        let at_word_start = word.is_none();
        let operator = OPERATORS.iter().find(|operator| {
            // A digit is part of an operator only where a word could begin.
            rest.starts_with(**operator) && (at_word_start || !operator.starts_with(['1', '2']))
        });
        if let Some(operator) = operator {
            tokens.extend(word.take().map(Token::Word));
            tokens.push(Token::Operator(operator));
            rest = &rest[operator.len()..];
            continue;
        }
        rest = &rest[first.len_utf8()..];
        match first {
            '\n' => {
                tokens.extend(word.take().map(Token::Word));
                tokens.push(Token::Operator(";"));
            }
            c if c.is_whitespace() => tokens.extend(word.take().map(Token::Word)),
            '\'' => {
                let end = rest.find('\'').ok_or(UNTERMINATED)?;
                word.get_or_insert_default().push_str(&rest[..end]);
                rest = &rest[end + 1..];
            }
            '"' => rest = double_quoted(rest, word.get_or_insert_default(), variable)?,
            '\\' => {
                let escaped = rest.chars().next().ok_or(UNTERMINATED)?;
                word.get_or_insert_default().push(escaped);
                rest = &rest[escaped.len_utf8()..];
            }
            '$' => rest = expanded(rest, word.get_or_insert_default(), variable),
            other => word.get_or_insert_default().push(other),
        }
    }
    tokens.extend(word.map(Token::Word));
    Ok(tokens)
}

const UNTERMINATED: SyntaxError = SyntaxError("syntax error: unterminated quoted string");

fn double_quoted<'a>(
    mut rest: &'a str,
    word: &mut String,
    variable: &dyn Fn(&str) -> String,
) -> Result<&'a str, SyntaxError> {
    loop {
        let first = rest.chars().next().ok_or(UNTERMINATED)?;
        rest = &rest[first.len_utf8()..];
        match first {
            '"' => return Ok(rest),
            '$' => rest = expanded(rest, word, variable),
            '\\' if rest.starts_with(['"', '\\', '$']) => {
                word.push_str(&rest[..1]);
                rest = &rest[1..];
            }
            other => word.push(other),
        }
    }
}

fn expanded<'a>(rest: &'a str, word: &mut String, variable: &dyn Fn(&str) -> String) -> &'a str {
    if let Some(after) = rest.strip_prefix('$') {
        word.push_str("$$");
        return after;
    }
    let end = rest.find(|c: char| !c.is_ascii_alphanumeric() && c != '_').unwrap_or(rest.len());
    if end == 0 {
        word.push('$');
    } else {
        word.push_str(&variable(&rest[..end]));
    }
    &rest[end..]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(script: &str) -> Vec<Vec<String>> {
        let value = |name: &str| format!("<{name}>");
        parse(script, &value).unwrap().into_iter().map(|statement| statement.words).collect()
    }

    #[test]
    fn quotes_and_variables() {
        assert_eq!(words(r#"echo 'a $X' "b $X" c\ d $X"#), [["echo", "a $X", "b <X>", "c d", "<X>"]]);
        assert_eq!(words("echo '' x"), [["echo", "", "x"]]);
    }

    #[test]
    fn statements_and_redirections() {
        let statements = parse("a 2>&1 && b >f; c >>g & d || e >&2", &|_| String::new()).unwrap();
        let joints: Vec<_> = statements.iter().map(|statement| statement.joint).collect();
        assert_eq!(joints, [Joint::Always, Joint::IfOk, Joint::Always, Joint::Always, Joint::IfFailed]);
        assert_eq!(statements[0].stderr, Redirect::Stdout);
        assert_eq!(statements[1].stdout, Redirect::File { path: "f".into(), append: false });
        assert_eq!(statements[2].stdout, Redirect::File { path: "g".into(), append: true });
        assert!(statements[2].left_running);
        assert_eq!(statements[4].stdout, Redirect::Stderr);
    }

    #[test]
    fn unfinished_scripts_are_refused() {
        for script in ["echo 'a", "echo \"a", "echo a >"] {
            assert!(parse(script, &|_| String::new()).is_err(), "{script}");
        }
    }
}
