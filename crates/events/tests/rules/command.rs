//! Commands: what is accepted, with which time limit, and when they start.

use std::collections::BTreeMap;

use events::bounds::{ARGV_BYTES_MAX, STDIN_BYTES_MAX};
use events::event::command::{KillReason, StdinRecord};
use events::event::environment::TeardownCause;
use events::run::{AcceptCommand, Rejection, RunCommand};

use crate::story::{
    Story, accept, acquire, command_request, exits, instance, kill, ready, release, renew, request, run,
    start, take_over, tear_down,
};

fn with(change: impl FnOnce(&mut AcceptCommand)) -> RunCommand {
    let mut request = command_request(1, 1);
    change(&mut request);
    RunCommand::AcceptCommand(request)
}

fn argv(arguments: &[&str]) -> RunCommand {
    with(|request| request.argv = arguments.iter().map(|argument| (*argument).to_owned()).collect())
}

#[test]
fn accepted_then_started_or_both_at_once() {
    ready()
        .then(accept(1, 1), &["CommandAccepted C1 E1 e1 TIMEOUT 60000 ms"])
        .then(start(1, 1), &["CommandStarted C1 I1 after 7 ms"])
        .already(start(1, 1))
        .refuses_field(start(1, 2), "command_id")
        .already(accept(1, 1));
    ready()
        .then(run(1, 1), &["CommandAccepted C1 E1 e1 TIMEOUT 60000 ms", "CommandStarted C1 I1 after 0 ms"])
        .already(run(1, 1))
        .does(exits(1, 0))
        .refuses_field(start(1, 1), "command_id")
        .already(run(1, 1));
}

#[test]
fn the_environment_must_be_ready() {
    Story::new().does(acquire(1, 300)).refuses(accept(1, 1), &Rejection::EnvironmentNotReady);
    Story::new()
        .does(acquire(1, 300))
        .does(request(1, 1))
        .refuses(accept(1, 1), &Rejection::EnvironmentNotReady);
    ready().does(tear_down(1, TeardownCause::Lost)).refuses(accept(1, 1), &Rejection::EnvironmentLost);
}

#[test]
fn nothing_is_accepted_or_started_under_a_dead_epoch() {
    ready().does(release(1)).refuses(accept(1, 1), &Rejection::LeaseLost);
    ready().does(take_over(2, 60)).refuses(accept(1, 1), &Rejection::LeaseLost);
    ready().does(accept(1, 1)).does(release(1)).refuses(start(1, 1), &Rejection::LeaseLost);
    ready().does(accept(1, 1)).at(300).refuses(start(1, 1), &Rejection::LeaseLost);
    ready()
        .does(accept(1, 1))
        .does(tear_down(1, TeardownCause::Lost))
        .refuses(start(1, 1), &Rejection::EnvironmentLost);
}

#[test]
fn the_smallest_bound_is_the_time_limit_and_only_the_leases_end_is_called_expired() {
    let limit = |now_s: u64, timeout_ms: u64, expected: &str| {
        let command = with(|request| request.timeout_ms = timeout_ms);
        let expected = format!("CommandAccepted C1 E1 e1 {expected} ms");
        ready().does(renew(1, 400)).at(now_s).then(command, &[&expected]);
    };
    limit(0, 1, "TIMEOUT 1");
    limit(0, 300_000, "TIMEOUT 300000");
    limit(0, 300_001, "TIMEOUT 300000");
    limit(0, u64::MAX, "TIMEOUT 300000");
    limit(100, u64::MAX, "TIMEOUT 300000");
    limit(101, u64::MAX, "EXPIRED 299000");
    limit(340, 60_000, "TIMEOUT 60000");
    limit(340, 60_001, "EXPIRED 60000");
    limit(395, 5_000, "TIMEOUT 5000");
    limit(395, 5_001, "EXPIRED 5000");
    ready().refuses_field(with(|request| request.timeout_ms = 0), "/timeout_seconds");
}

#[test]
fn under_five_seconds_of_lease_nothing_is_accepted() {
    ready().at(295).does(accept(1, 1));
    ready().at(296).refuses(accept(1, 1), &Rejection::LeaseTooShort);
    ready().at(296).does(renew(1, 60)).does(accept(1, 1));
}

#[test]
fn argv_names_a_program() {
    for (bad, pointer) in [
        (vec![], "/argv"),
        (vec![""], "/argv/0"),
        (vec!["", "x"], "/argv/0"),
        (vec!["./run.sh"], "/argv/0"),
        (vec!["bin/tool"], "/argv/0"),
        (vec!["../x"], "/argv/0"),
        (vec!["a\0b"], "/argv"),
        (vec!["true", "\0"], "/argv"),
    ] {
        ready().refuses_field(argv(&bad), pointer);
    }
    let many = vec!["x"; 1025];
    ready().refuses_field(argv(&many), "/argv");
    for good in [
        vec!["true"],
        vec!["/workspace/run.sh"],
        vec!["true", "a\nb", "", " ", "é", "x/y"],
        vec!["A=B", "echo"],
        many[..1024].to_vec(),
    ] {
        ready().does(argv(&good));
    }
}

#[test]
fn the_refusal_of_a_relative_program_teaches() {
    let Err(rejection) = events::run::decide(&ready().state, &argv(&["./secret-tool"]), crate::story::s(0))
    else {
        panic!("accepted");
    };
    let message = rejection.to_string();
    assert!(message.contains("absolute path") && message.contains("bare name"), "{message}");
    assert!(!message.contains("secret"), "the value is not repeated: {message}");
}

#[test]
fn argv_and_environment_are_bounded_in_bytes() {
    let too_large = Rejection::TooLarge { field: "/argv", bytes_max: ARGV_BYTES_MAX };
    ready().refuses(argv(&["true", &"x".repeat(130 * 1024)]), &too_large);
    ready().refuses(argv(&["true", &"x".repeat(ARGV_BYTES_MAX - 3)]), &too_large);
    ready().does(argv(&["true", &"x".repeat(ARGV_BYTES_MAX - 4)]));
    // Within the raw bound, past the encoded one.
    ready().refuses_field(argv(&["true", &"\u{1}".repeat(30_000)]), "/argv");
    let big = BTreeMap::from([("A".to_owned(), "x".repeat(131 * 1024))]);
    ready().refuses_field(with(|request| request.env = big), "/argv");
    for (name, value) in [("", "v"), ("A=B", "v"), ("A\0", "v"), ("A", "\0")] {
        let env = BTreeMap::from([(name.to_owned(), value.to_owned())]);
        ready().refuses_field(with(|request| request.env = env), "/env");
    }
}

#[test]
fn the_working_directory_is_plain_and_relative() {
    for bad in ["", "/", "/workspace", "..", "a/..", "./a", "a//b", "a/", "a\0", &"a/".repeat(3000)] {
        ready().refuses_field(with(|request| request.cwd = bad.to_owned()), "/cwd");
    }
    for good in [".", "a", "a/b c/é", "...", ".hidden"] {
        ready().does(with(|request| request.cwd = good.to_owned()));
    }
}

#[test]
fn standard_input_is_bounded() {
    let stdin = |bytes: u64, sha256: &str, inline: Option<String>| {
        let record = StdinRecord { bytes, sha256: sha256.to_owned(), inline_base64: inline };
        with(|request| request.stdin = Some(record))
    };
    let digest = "0".repeat(64);
    ready().does(stdin(STDIN_BYTES_MAX as u64, &digest, None));
    ready().refuses_field(stdin(STDIN_BYTES_MAX as u64 + 1, &digest, None), "/stdin");
    ready().refuses_field(stdin(1, "0", None), "/stdin");
    ready().does(stdin(66_000, &digest, Some("A".repeat(88_000))));
    ready().refuses_field(stdin(70_000, &digest, Some("A".repeat(93_336))), "/stdin");
}

#[test]
fn a_kill_is_asked_for_once_also_under_a_dead_epoch() {
    ready()
        .does(run(1, 1))
        .then(kill(1, KillReason::Cancelled), &["CommandKillRequested C1 CANCELLED"])
        .already(kill(1, KillReason::Expired))
        .does(exits(1, 0))
        .already(kill(1, KillReason::Cancelled));
    ready()
        .does(run(1, 1))
        .does(release(1))
        .then(kill(1, KillReason::Expired), &["CommandKillRequested C1 EXPIRED"]);
}

#[test]
fn the_state_knows_who_started_a_command_and_forgets_its_input_at_the_end() {
    let stdin = StdinRecord { bytes: 1, sha256: "0".repeat(64), inline_base64: Some("QQ==".to_owned()) };
    let story = ready().does(with(|request| {
        request.stdin = Some(stdin);
        request.start_now = Some(instance(4));
    }));
    let command = story.state.open_commands().next().expect("running");
    assert_eq!(command.started_by, Some(instance(4)));
    assert!(command.accepted.stdin.as_ref().is_some_and(|stdin| stdin.inline_base64.is_some()));
    let story = story.does(exits(1, 0));
    let command = story.state.commands.values().next().expect("ended");
    assert!(!command.is_open());
    let accepted = &command.accepted;
    assert!(accepted.argv.is_empty() && accepted.env.is_empty() && accepted.stdin.is_none());
}

#[test]
fn unknown_commands_are_not_found() {
    let unknown = Rejection::NotFound { what: "command" };
    ready()
        .refuses(start(7, 1), &unknown)
        .refuses(kill(7, KillReason::Cancelled), &unknown)
        .refuses(exits(7, 0), &unknown);
}
