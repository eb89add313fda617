//! Standard input and environment.

use std::pin::Pin;
use std::task::{Context, Poll};

use events::event::command::InterruptCause;
use sha2::{Digest, Sha256};
use tokio::io::{AsyncRead, ReadBuf};

use super::subject::{Call, Subject};
use crate::ports::{ExecuteError, PortError};

/// It reaches the process, and its end does too.
pub async fn standard_input_arrives_and_ends(subject: &Subject) {
    let handle = subject.environment().await;
    let result = subject.run(&handle, Call::argv(&["cat"]).stdin(b"hello".to_vec())).await.expect("a result");
    assert_eq!((result.exit_code, result.stdout.head.as_slice()), (Some(0), &b"hello"[..]));
}

/// Nothing given is end of file at once, not a wait.
pub async fn no_standard_input_is_end_of_file(subject: &Subject) {
    let handle = subject.environment().await;
    let result = subject.run(&handle, Call::argv(&["cat"])).await.expect("a result");
    assert_eq!((result.exit_code, result.stdout.bytes_total), (Some(0), 0));
    assert!(result.duration_ms < 5_000);
}

/// Empty is not absent, and ends as well.
pub async fn empty_standard_input_is_end_of_file(subject: &Subject) {
    let handle = subject.environment().await;
    let result = subject.run(&handle, Call::argv(&["cat"]).stdin(Vec::new())).await.expect("a result");
    assert_eq!((result.exit_code, result.stdout.bytes_total), (Some(0), 0));
}

/// Input is written while output is read: 8 MiB through `cat` within the time limit, byte for byte.
pub async fn eight_mebibytes_reach_cat(subject: &Subject) {
    let handle = subject.environment().await;
    let bytes: Vec<u8> =
        (0..8 << 20).map(|index: u32| (index.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
    let digest: [u8; 32] = Sha256::digest(&bytes).into();
    let result = subject.run(&handle, Call::argv(&["cat"]).stdin(bytes)).await.expect("a result");
    assert_eq!((result.exit_code, result.stdout.bytes_total), (Some(0), 8 << 20));
    assert_eq!(result.stdout.sha256, digest);
    assert_eq!(result.evidence, None);
}

/// A program that reads nothing ends as it likes; what it did not take is evidence.
pub async fn unread_input_is_no_failure(subject: &Subject) {
    let handle = subject.environment().await;
    let call = Call::argv(&["true"]).stdin(vec![7; 4 << 20]);
    let result = subject.run(&handle, call).await.expect("a result");
    assert_eq!((result.exit_code, result.killed_by), (Some(0), None));
    let undelivered = result.evidence.and_then(|evidence| evidence.stdin_undelivered_bytes);
    assert!(undelivered.is_some_and(|bytes| (3 << 20..=4 << 20).contains(&bytes)), "{undelivered:?}");
    let small = subject.run(&handle, Call::argv(&["true"]).stdin(b"x".to_vec())).await.expect("a result");
    assert_eq!(small.exit_code, Some(0));
}

/// Values are data: no expansion, no trimming.
pub async fn the_environment_arrives_byte_for_byte(subject: &Subject) {
    let handle = subject.environment().await;
    let value = "  a=b\n$HOME `id` \"'\t ";
    let mut call = Call::sh("printf %s \"$V\"");
    call.command.env.insert("V".to_owned(), value.to_owned());
    assert_eq!(subject.run(&handle, call).await.expect("a result").stdout.head, value.as_bytes());
    let mut call = Call::argv(&["env"]);
    call.command.env = [("ONLY".to_owned(), "this".to_owned())].into();
    assert_eq!(subject.run(&handle, call).await.expect("a result").stdout.head, b"ONLY=this\n");
}

/// A source that fails must not look like a complete one.
pub async fn broken_input_ends_the_command(subject: &Subject) {
    let handle = subject.environment().await;
    let broken = subject.run(&handle, Call::argv(&["cat"]).stdin_from(Broken)).await;
    let lost = PortError::Lost { cause: InterruptCause::InputLost };
    assert_eq!(broken, Err(ExecuteError::Port(lost)));
    assert_eq!(subject.sh(&handle, "echo on").await.stdout.head, b"on\n");
}

struct Broken;

impl AsyncRead for Broken {
    fn poll_read(
        self: Pin<&mut Self>,
        _: &mut Context<'_>,
        _: &mut ReadBuf<'_>,
    ) -> Poll<std::io::Result<()>> {
        Poll::Ready(Err(std::io::ErrorKind::ConnectionReset.into()))
    }
}
