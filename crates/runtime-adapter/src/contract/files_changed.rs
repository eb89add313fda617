//! What a command changed.

use events::event::command::ChangeKind;
use sha2::{Digest, Sha256};

use super::subject::{Call, Subject};

/// Created, modified and deleted files with size and digest; directories are not files.
pub async fn created_modified_deleted(subject: &Subject) {
    let handle = subject.environment().await;
    let first = subject.sh(&handle, "mkdir d; echo one > a; echo two > d/b; ln -s a link").await;
    let seen: Vec<_> = first
        .files_changed
        .iter()
        .map(|change| (change.path.path.as_str(), change.change, change.sha256.clone()))
        .collect();
    let digest = |bytes: &[u8]| Some(hex::encode(Sha256::digest(bytes)));
    assert_eq!(
        seen,
        [
            ("a", ChangeKind::Created, digest(b"one\n")),
            ("d/b", ChangeKind::Created, digest(b"two\n")),
            ("link", ChangeKind::Created, None),
        ]
    );
    assert_eq!(first.files_changed[0].size_bytes, Some(4));

    let second = subject.sh(&handle, "echo three > a; rm d/b; echo four > c").await;
    let seen: Vec<_> = second
        .files_changed
        .iter()
        .map(|change| (change.path.path.as_str(), change.change, change.size_bytes))
        .collect();
    assert_eq!(
        seen,
        [
            ("a", ChangeKind::Modified, Some(6)),
            ("c", ChangeKind::Created, Some(5)),
            ("d/b", ChangeKind::Deleted, None),
        ]
    );
    assert_eq!(subject.sh(&handle, "cat a").await.files_changed, []);
}

/// What the API wrote or removed between commands is no command's change; what a command did to it is.
pub async fn files_of_the_api_are_no_change(subject: &Subject) {
    let handle = subject.environment().await;
    subject.write(&handle, "in/data", b"one").await.expect("written");
    subject.write(&handle, "gone", b"x").await.expect("written");
    assert_eq!(subject.sh(&handle, "cat in/data").await.files_changed, []);
    subject.adapter.workspace.remove(&handle, &super::subject::path_of("gone")).await.expect("removed");
    assert_eq!(subject.sh(&handle, "true").await.files_changed, []);
    let changed = subject.sh(&handle, "echo two > in/data").await.files_changed;
    assert_eq!(changed.len(), 1);
    assert_eq!((changed[0].path.path.as_str(), changed[0].change), ("in/data", ChangeKind::Modified));
}

/// At most as many entries as the spec says, and a flag when there were more.
pub async fn a_long_list_is_cut_and_flagged(subject: &Subject) {
    let mut spec = subject.spec();
    spec.files_changed_max = 3;
    let handle = subject.adapter.execution.provision(spec).await.expect("provisioned");
    let result = subject.sh(&handle, "echo > f1; echo > f2; echo > f3; echo > f4").await;
    assert_eq!((result.files_changed.len(), result.files_changed_truncated), (3, true));
    let result = subject.run(&handle, Call::sh("echo > f5")).await.expect("a result");
    assert_eq!((result.files_changed.len(), result.files_changed_truncated), (1, false));
}
