//! What an event about a command says, in words.

use std::collections::BTreeMap;

use events::event::command::{
    CommandAccepted, CommandFinished, CommandInterrupted, CommandKillRequested, CommandStarted, Evidence,
    InterruptCause, KillEnforced, OutputRecord,
};

use super::describe::{TEXT_CHARACTERS_MAX, count, duration, short};
use super::escape::{Escaped, quoted};

/// Arguments that are shown.
const ARGUMENTS_MAX: usize = 12;

pub(super) fn accepted(body: &CommandAccepted) -> String {
    let mut facts = format!("command {}: {}", body.command_id, arguments(&body.argv));
    if body.cwd != "." {
        facts.push_str(&format!(" in {}", quoted(&body.cwd, TEXT_CHARACTERS_MAX)));
    }
    if let Some(stdin) = &body.stdin {
        facts.push_str(&format!(", {} of input", count(stdin.bytes, "byte")));
    }
    facts.push_str(&format!(", at most {}", duration(body.timeout_ms)));
    if body.background {
        facts.push_str(", in the background");
    }
    facts
}

pub(super) fn started(body: &CommandStarted) -> String {
    let mut facts = format!("command {}", short(body.command_id.0));
    if body.queued_ms > 0 {
        facts.push_str(&format!(" after {} in the queue", duration(body.queued_ms)));
    }
    facts
}

pub(super) fn kill_requested(body: &CommandKillRequested) -> String {
    format!("command {} shall end: {}", short(body.command_id.0), body.reason.as_str())
}

pub(super) fn kill_enforced(body: &KillEnforced) -> String {
    let mut facts = format!("command {} killed: {}", short(body.command_id.0), body.reason.as_str());
    let proof = evidence(&body.evidence);
    if !proof.is_empty() {
        facts.push_str(&format!(" ({proof})"));
    }
    facts
}

pub(super) fn finished(body: &CommandFinished) -> String {
    let mut facts = format!("command {} ", short(body.command_id.0));
    match (body.killed_by, body.exit_code) {
        (Some(reason), _) => facts.push_str(&format!("ended by {}", reason.as_str())),
        (None, Some(code)) => facts.push_str(&format!("exited with {code}")),
        (None, None) => facts.push_str("ended without an exit code"),
    }
    facts.push_str(&format!(" after {}", duration(body.duration_ms)));
    facts.push_str(&output("stdout", &body.stdout));
    facts.push_str(&output("stderr", &body.stderr));
    if !body.files_changed.is_empty() {
        facts.push_str(&format!(", {} changed", count(body.files_changed.len() as u64, "file")));
        if body.files_changed_truncated {
            facts.push_str(" at least");
        }
    }
    if body.stragglers > 0 {
        facts.push_str(&format!(", {} left behind and killed", processes(body.stragglers)));
    }
    if let Some(error) = body.evidence.as_ref().and_then(|evidence| evidence.start_error.as_deref()) {
        facts.push_str(&format!(", could not start: {}", quoted(error, TEXT_CHARACTERS_MAX)));
    }
    facts
}

pub(super) fn interrupted(body: &CommandInterrupted) -> String {
    let what = match body.cause {
        InterruptCause::SandboxLost => "the sandbox was lost",
        InterruptCause::ChannelLost => "the channel into the sandbox broke",
        InterruptCause::FilesLost => "the files container was lost",
        InterruptCause::SupervisorLost => "the process that started it was lost",
        InterruptCause::ServiceLost => "the service that ran it is gone",
        InterruptCause::InputLost => "its input was not kept",
    };
    let ran = if body.may_have_run { "it may have run" } else { "it did not run" };
    format!("command {} has no known outcome: {what}; {ran}", short(body.command_id.0))
}

fn processes(number: u32) -> String {
    if number == 1 { "1 process".to_owned() } else { format!("{number} processes") }
}

fn output(stream: &str, record: &OutputRecord) -> String {
    if record.bytes_total == 0 {
        return String::new();
    }
    let cut = if record.truncated { " (cut)" } else { "" };
    format!(", {} on {stream}{cut}", count(record.bytes_total, "byte"))
}

/// Program and arguments, each in quotes unless it is plain.
fn arguments(argv: &[String]) -> String {
    let plain = |text: &str| {
        !text.is_empty()
            && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_./=:,+@%".contains(&byte))
            && text.len() <= TEXT_CHARACTERS_MAX
    };
    let show = |text: &String| if plain(text) { text.clone() } else { quoted(text, TEXT_CHARACTERS_MAX) };
    let mut shown: Vec<String> = argv.iter().take(ARGUMENTS_MAX).map(show).collect();
    if argv.len() > ARGUMENTS_MAX {
        shown.push(format!("… ({})", count((argv.len() - ARGUMENTS_MAX) as u64, "more argument")));
    }
    shown.join(" ")
}

/// The keys that are set, by name, with their values.
fn evidence(evidence: &Evidence) -> String {
    let Ok(serde_json::Value::Object(keys)) = serde_json::to_value(evidence) else { return String::new() };
    let set: BTreeMap<_, _> = keys.iter().filter(|(_, value)| !value.is_null()).collect();
    set.into_iter()
        .map(|(key, value)| match value {
            serde_json::Value::String(text) => format!("{key} {}", Escaped(text)),
            other => format!("{key} {other}"),
        })
        .collect::<Vec<_>>()
        .join(", ")
}
