//! Files through the interface: recorded as long as their environment exists.

use events::bounds::PATH_BYTES_MAX;
use events::event::workspace::PathText;
use events::run::{FileWritten, Rejection, RunCommand};

use crate::story::{
    Story, acquire, destroyed, environment, expire, ready, release, removed, request, take_over, wrote,
};

#[test]
fn writes_and_removals_are_recorded_each_time() {
    ready()
        .then(wrote(1, "a\nb"), &["WorkspaceFileWritten E1 e1 a\nb"])
        .then(wrote(1, "a\nb"), &["WorkspaceFileWritten E1 e1 a\nb"])
        .then(removed(1, "a\nb"), &["WorkspaceFileRemoved E1 e1 a\nb"]);
}

#[test]
fn what_happened_just_before_the_leases_end_is_still_recorded() {
    ready().does(release(1)).then(wrote(1, "a"), &["WorkspaceFileWritten E1 e1 a"]);
    ready().does(take_over(2, 60)).then(removed(1, "a"), &["WorkspaceFileRemoved E1 e1 a"]);
    ready().at(300).does(expire(1)).then(wrote(1, "a"), &["WorkspaceFileWritten E1 e1 a"]);
    ready()
        .does(destroyed(1))
        .refuses(wrote(1, "a"), &Rejection::EnvironmentLost)
        .refuses(removed(1, "a"), &Rejection::EnvironmentLost);
}

#[test]
fn nothing_is_written_where_nothing_is() {
    Story::new()
        .does(acquire(1, 300))
        .does(request(1, 1))
        .refuses(wrote(1, "a"), &Rejection::EnvironmentNotReady)
        .refuses(wrote(7, "a"), &Rejection::NotFound { what: "environment" });
}

#[test]
fn a_digest_is_a_digest() {
    for sha256 in [String::new(), "0".repeat(63), "G".repeat(64), "A".repeat(64)] {
        let fact = FileWritten {
            environment_id: environment(1),
            path: PathText::from_bytes(b"a"),
            size_bytes: 1,
            sha256,
            created: false,
        };
        ready().refuses_field(RunCommand::RecordFileWritten(fact), "sha256");
    }
}

#[test]
fn paths_keep_their_bytes_or_are_named_by_digest_and_length() {
    let exact = PathText::from_bytes(b"caf\xe9");
    assert_eq!((exact.path.as_str(), exact.path_base64.as_deref()), ("caf\u{fffd}", Some("Y2Fm6Q==")));
    assert_eq!(exact.to_bytes().expect("base64"), b"caf\xe9");
    let longest = PathText::from_bytes(&vec![b'a'; PATH_BYTES_MAX]);
    assert_eq!(longest.path.len(), PATH_BYTES_MAX);
    let long = PathText::from_bytes(&vec![b'a'; PATH_BYTES_MAX + 1]);
    assert!(long.path.starts_with("<4097 bytes, sha256 ") && long.path.len() < 100, "{long:?}");
    for path in [exact, longest, long] {
        assert_eq!(path.bounded(), path, "already in form");
    }
    let forged = PathText { path: "x".repeat(1 << 20), path_base64: Some("not base64".to_owned()) };
    assert!(forged.bounded().json_value_bytes() < 200);
}
