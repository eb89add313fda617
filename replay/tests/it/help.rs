//! The help of every subcommand: what is promised, word for word.

use crate::log::{replay, text};

#[test]
fn every_subcommand_says_what_it_does_and_how_it_ends() {
    let mut all = String::new();
    for command in ["", "verify", "timeline", "state-at", "diff", "export", "watch"] {
        let arguments: Vec<&str> =
            [command, "--help"].into_iter().filter(|argument| !argument.is_empty()).collect();
        let output = replay(&arguments);
        assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
        all.push_str(&format!("$ leasehold-replay {}\n{}\n", arguments.join(" "), text(&output.stdout)));
    }
    // Without a terminal nothing is wrapped; only trailing white space is no part of the promise.
    let lines: Vec<&str> = all.lines().map(str::trim_end).collect();
    insta::assert_snapshot!(lines.join("\n"));
}
