//! What is refused before anything runs.

use events::ids::{Epoch, TenantId};
use uuid::Uuid;

use super::subject::{Call, RecordingSink, Subject};
use crate::ports::{ExecuteError, PortError};
use std::sync::Arc;

fn rejected(code: &'static str) -> ExecuteError {
    ExecuteError::Port(PortError::Rejected { code })
}

/// No program, or an empty name, is refused.
pub async fn empty_programs_are_refused(subject: &Subject) {
    let handle = subject.environment().await;
    assert_eq!(subject.run(&handle, Call::argv(&[])).await, Err(rejected("argv_empty")));
    assert_eq!(subject.run(&handle, Call::argv(&["", "x"])).await, Err(rejected("argv_empty")));
    assert_eq!(subject.run(&handle, Call::argv(&["echo", "a\0b"])).await, Err(rejected("argv_nul")));
}

/// A path with a slash that does not begin with one is refused: it would be looked up in the workspace.
pub async fn relative_programs_are_refused(subject: &Subject) {
    let handle = subject.environment().await;
    for program in ["./tool", "bin/tool", "../tool"] {
        assert_eq!(subject.run(&handle, Call::argv(&[program])).await, Err(rejected("argv_relative")));
    }
    let mut call = Call::sh("true");
    call.command.cwd = "../etc".to_owned();
    assert_eq!(subject.run(&handle, call).await, Err(rejected("cwd_invalid")));
}

/// Arguments over 64 KiB, or more than 1,024 of them, are refused; what is larger goes through a file.
pub async fn oversized_arguments_are_refused(subject: &Subject) {
    let handle = subject.environment().await;
    let large = "x".repeat(130 * 1024);
    assert_eq!(subject.run(&handle, Call::argv(&["echo", &large])).await, Err(rejected("argv_too_large")));
    let many = vec!["x"; 1025];
    assert_eq!(subject.run(&handle, Call::argv(&many)).await, Err(rejected("argv_too_large")));
    let most = "x".repeat(60 * 1024);
    let result = subject.run(&handle, Call::argv(&["echo", &most])).await.expect("a large argument runs");
    assert_eq!(result.stdout.bytes_total, 60 * 1024 + 1);
}

/// An empty name, or one with `=`, is no variable; too many or too long ones are refused.
pub async fn bad_environment_names_are_refused(subject: &Subject) {
    let handle = subject.environment().await;
    for name in ["", "A=B", "A\0"] {
        let mut call = Call::argv(&["true"]);
        call.command.env.insert(name.to_owned(), "x".to_owned());
        assert_eq!(subject.run(&handle, call).await, Err(rejected("env_invalid")));
    }
    let mut large = Call::argv(&["true"]);
    large.command.env.insert("LARGE".to_owned(), "x".repeat(129 * 1024));
    assert_eq!(subject.run(&handle, large).await, Err(rejected("env_too_large")));
    let mut many = Call::argv(&["true"]);
    many.command.env = (0..1025).map(|number| (format!("V{number}"), String::new())).collect();
    assert_eq!(subject.run(&handle, many).await, Err(rejected("env_too_large")));
    let mut most = Call::argv(&["true"]);
    most.command.env = (0..1024).map(|number| (format!("V{number}"), "x".repeat(100))).collect();
    assert_eq!(subject.run(&handle, most).await.expect("a result").exit_code, Some(0));
}

/// An argument is data: a newline is part of it.
pub async fn a_newline_in_an_argument_is_kept(subject: &Subject) {
    let handle = subject.environment().await;
    let result = subject.run(&handle, Call::argv(&["echo", "a\nb"])).await.expect("a result");
    assert_eq!(result.stdout.head, b"a\nb\n");
}

/// After destroy nothing runs and nothing is read.
pub async fn destroyed_environments_refuse(subject: &Subject) {
    let handle = subject.environment().await;
    subject.adapter.execution.destroy(handle.environment_id).await.expect("destroyed");
    assert_eq!(subject.run(&handle, Call::sh("true")).await, Err(rejected("environment_gone")));
    let read = subject.read(&handle, "a").await;
    assert_eq!(read, Err(PortError::Rejected { code: "environment_gone" }.into()));
}

/// Gone is success.
pub async fn destroy_twice_is_quiet(subject: &Subject) {
    let handle = subject.environment().await;
    for _ in 0..2 {
        subject.adapter.execution.destroy(handle.environment_id).await.expect("destroyed");
    }
}

/// A handle is checked against the owner that the environment was made for.
pub async fn another_tenant_is_refused(subject: &Subject) {
    let handle = subject.environment().await;
    let mut stolen = handle.clone();
    stolen.tenant = TenantId(Uuid::now_v7());
    assert_eq!(subject.run(&stolen, Call::sh("true")).await, Err(rejected("wrong_tenant")));
    let read = subject.read(&stolen, "a").await;
    assert_eq!(read, Err(PortError::Rejected { code: "wrong_tenant" }.into()));
    let mut stale = handle;
    stale.epoch = Epoch(2);
    assert_eq!(subject.run(&stale, Call::sh("true")).await, Err(rejected("wrong_tenant")));
}

/// Past the hard cap nothing starts.
pub async fn an_expired_handle_is_refused(subject: &Subject) {
    let handle = subject.environment().await;
    subject.clock.advance(3_600_001);
    assert_eq!(subject.run(&handle, Call::sh("true")).await, Err(rejected("expired")));
}

/// A digest that names no image is the caller's mistake, and leaves nothing.
pub async fn an_unknown_image_is_refused(subject: &Subject) {
    let mut spec = subject.spec();
    spec.image_digest = format!("sha256:{}", "0123456789abcdef".repeat(4)).parse().expect("a digest");
    let refused = subject.adapter.execution.provision(spec).await;
    assert_eq!(refused, Err(PortError::Rejected { code: "unknown_image" }));
    assert!(subject.adapter.inventory.list().await.expect("inventory").is_empty());
}

/// Foreground commands run one at a time; the queue is the caller's.
pub async fn a_second_foreground_command_is_refused(subject: &Subject) {
    let handle = subject.environment().await;
    let sink = Arc::new(RecordingSink::default());
    let first = Call::sh("echo up; sleep 30").sink(&sink).timeout_ms(60_000);
    let cancel = first.cancel_handle();
    let second = async {
        sink.shows("up").await;
        let refused = subject.run(&handle, Call::sh("true")).await;
        cancel.cancel(super::kills::client_cancel());
        refused
    };
    let (first, second) = tokio::join!(subject.run(&handle, first), second);
    assert_eq!(second, Err(rejected("busy")));
    assert!(matches!(first, Err(ExecuteError::Cancelled { .. })));
    assert_eq!(subject.sh(&handle, "true").await.exit_code, Some(0));
}

/// Ten background commands at once: each sees its own arguments, output and variables.
pub async fn many_at_once_do_not_mix(subject: &Subject) {
    let handle = subject.environment().await;
    let runs = (0..10).map(|number| {
        let mut call = Call::sh("echo \"$N\"; echo \"$N\" 1>&2; exit $N").background();
        call.command.env.insert("N".to_owned(), number.to_string());
        subject.run(&handle, call)
    });
    for (number, result) in futures::future::join_all(runs).await.into_iter().enumerate() {
        let result = result.expect("a result");
        let expected = format!("{number}\n").into_bytes();
        assert_eq!((result.stdout.head, result.stderr.head), (expected.clone(), expected));
        assert_eq!(result.exit_code, i32::try_from(number).ok());
    }
}
