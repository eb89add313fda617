//! Files through the port.

use bytes::Bytes;
use events::spec::Mechanism;
use policy::WorkspacePath;
use sha2::{Digest, Sha256};

use super::subject::{Subject, path_of};
use crate::ports::{ByteStream, Provenance, WorkspaceEntryKind, WorkspaceError};

/// The same bytes come back; writing twice gives the same digest, created first and replaced then.
pub async fn write_and_read_back(subject: &Subject) {
    let handle = subject.environment().await;
    let content = "a,b\n1,2\n".repeat(2_500).into_bytes();
    let first = subject.write(&handle, "data.csv", &content).await.expect("written");
    let second = subject.write(&handle, "data.csv", &content).await.expect("written");
    assert_eq!((first.created, second.created), (true, false));
    assert_eq!((first.size_bytes, first.sha256), (20_000, Sha256::digest(&content).into()));
    assert_eq!(first.sha256, second.sha256);
    assert!(subject.read(&handle, "data.csv").await.expect("read") == content);
    let shown = subject.sh(&handle, "cat data.csv").await;
    assert_eq!(shown.stdout.sha256, first.sha256);
}

/// Nothing is something.
pub async fn an_empty_file_round_trips(subject: &Subject) {
    let handle = subject.environment().await;
    let written = subject.write(&handle, "empty", b"").await.expect("written");
    assert_eq!((written.size_bytes, written.created), (0, true));
    assert_eq!(subject.read(&handle, "empty").await, Ok(Vec::new()));
}

/// Large files stream through bounded windows in both directions.
pub async fn twenty_megabytes_round_trip(subject: &Subject) {
    let handle = subject.environment().await;
    let content: Vec<u8> =
        (0..20_000_000_u32).map(|index| (index.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
    let written = subject.write(&handle, "large", &content).await.expect("written");
    assert_eq!(written.sha256, <[u8; 32]>::from(Sha256::digest(&content)));
    assert!(subject.read(&handle, "large").await.expect("read") == content);
}

/// Missing directories above a written file are made, and code may use them.
pub async fn parents_are_made(subject: &Subject) {
    let handle = subject.environment().await;
    subject.write(&handle, "a/b/c.txt", b"deep").await.expect("written");
    let result = subject.sh(&handle, "cat a/b/c.txt; echo beside > a/b/d.txt").await;
    assert_eq!((result.exit_code, result.stdout.head.as_slice()), (Some(0), &b"deep"[..]));
    assert_eq!(subject.read(&handle, "a/b/d.txt").await.expect("read"), b"beside\n");
}

/// A bound is a bound in both directions, and what is refused leaves nothing.
pub async fn bounds_are_kept(subject: &Subject) {
    let handle = subject.environment().await;
    let bytes: ByteStream = Box::pin(futures::stream::iter([Ok(Bytes::from_static(b"0123456789"))]));
    let refused = subject.adapter.workspace.write(&handle, &path_of("f"), bytes, 9).await;
    assert_eq!(refused, Err(WorkspaceError::TooLarge { limit_bytes: 9 }));
    assert_eq!(subject.read(&handle, "f").await, Err(WorkspaceError::NotFound));
    subject.write(&handle, "f", b"0123456789").await.expect("written");
    let refused = subject.adapter.workspace.read(&handle, &path_of("f"), 9).await.map(|file| file.size_bytes);
    assert_eq!(refused, Err(WorkspaceError::TooLarge { limit_bytes: 9 }));
    let fits = subject.adapter.workspace.read(&handle, &path_of("f"), 10).await.map(|file| file.size_bytes);
    assert_eq!(fits, Ok(10));
}

/// Missing, directory, below a file, FIFO: each its own error, and none of them hangs.
pub async fn wrong_kinds_have_their_own_errors(subject: &Subject) {
    let handle = subject.environment().await;
    subject.sh(&handle, "mkdir d; echo x > f; mkfifo p; echo y > d/g").await;
    // A FIFO made under gVisor exists only in its own kernel.
    let fifo = match subject.mechanism {
        Mechanism::Gvisor => WorkspaceError::NotFound,
        _ => WorkspaceError::NotRegular,
    };
    for (path, error) in [
        ("missing", WorkspaceError::NotFound),
        ("missing/x", WorkspaceError::NotFound),
        ("d", WorkspaceError::IsADirectory),
        ("f/x", WorkspaceError::NotADirectory),
        ("p", fifo.clone()),
    ] {
        assert_eq!(subject.read(&handle, path).await, Err(error), "read {path}");
    }
    for (path, error) in [
        ("d", WorkspaceError::IsADirectory),
        ("f/x", WorkspaceError::NotADirectory),
        ("p", WorkspaceError::NotRegular),
    ] {
        if path == "p" && fifo == WorkspaceError::NotFound {
            assert_eq!(subject.write(&handle, path, b"z").await.map(drop), Ok(()), "nothing is there");
            continue;
        }
        assert_eq!(subject.write(&handle, path, b"z").await, Err(error), "write {path}");
    }
    let list = async |path: &str| {
        let listed = subject.adapter.workspace.list(&handle, Some(&path_of(path)), false, None, 10).await;
        listed.map(|page| page.entries.len())
    };
    assert_eq!(list("f").await, Err(WorkspaceError::NotADirectory));
    assert_eq!(list("missing").await, Err(WorkspaceError::NotFound));
    assert_eq!(list("d").await, Ok(1));
    for reserved in [".leasehold", ".leasehold/nonce"] {
        assert!(WorkspacePath::try_new(reserved.as_bytes()).is_err());
    }
}

/// No link is followed, wherever it stands and wherever it points.
pub async fn links_are_never_followed(subject: &Subject) {
    let handle = subject.environment().await;
    let script =
        "mkdir d; echo x > d/f; ln -s /etc/passwd out; ln -s d in; ln -s d/f file; ln -s nowhere dangling";
    assert_eq!(subject.sh(&handle, script).await.exit_code, Some(0));
    for path in ["out", "in/f", "file", "dangling", "in"] {
        assert_eq!(subject.read(&handle, path).await, Err(WorkspaceError::Symlink), "read {path}");
    }
    for path in ["out", "in/new", "file", "dangling"] {
        assert_eq!(subject.write(&handle, path, b"z").await, Err(WorkspaceError::Symlink), "write {path}");
    }
    let listed = subject.adapter.workspace.list(&handle, Some(&path_of("in")), true, None, 10).await;
    assert_eq!(listed.map(|page| page.entries.len()), Err(WorkspaceError::Symlink));
    let entry = subject.adapter.workspace.stat(&handle, &path_of("out")).await.expect("described");
    assert_eq!((entry.kind, entry.size_bytes), (WorkspaceEntryKind::Symlink, 0));
    subject.adapter.workspace.remove(&handle, &path_of("in")).await.expect("the link is removed");
    assert_eq!(subject.read(&handle, "d/f").await.expect("its target is not"), b"x\n");
}

/// Directories and files, relative, sorted by their bytes, page after page.
pub async fn listings_are_sorted_and_paged(subject: &Subject) {
    let handle = subject.environment().await;
    subject.sh(&handle, "mkdir b; echo 1 > b/2; echo 1 > b/1; echo 1 > c; echo 1 > a; echo 1 > b.txt").await;
    let workspace = &subject.adapter.workspace;
    let names = |entries: &[crate::ports::WorkspaceEntry]| {
        entries.iter().map(|entry| String::from_utf8_lossy(&entry.path).into_owned()).collect::<Vec<_>>()
    };
    let flat = workspace.list(&handle, None, false, None, 10).await.expect("listed");
    assert_eq!(names(&flat.entries), ["a", "b", "b.txt", "c"]);
    assert_eq!((flat.entries[1].kind, flat.next_after), (WorkspaceEntryKind::Directory, None));
    assert_eq!((flat.entries[0].kind, flat.entries[0].size_bytes), (WorkspaceEntryKind::File, 2));
    assert!(flat.entries[0].modified_at.is_some());

    let mut all = Vec::new();
    let mut after = None;
    loop {
        let page = workspace.list(&handle, None, true, after, 2).await.expect("listed");
        assert!(page.entries.len() <= 2);
        all.extend(names(&page.entries));
        after = page.next_after;
        if after.is_none() {
            break;
        }
    }
    assert_eq!(all, ["a", "b", "b.txt", "b/1", "b/2", "c"]);
}

/// A newline, or a byte that is no text, is part of a name.
pub async fn any_name_is_listed_exactly(subject: &Subject) {
    let handle = subject.environment().await;
    let odd = WorkspacePath::try_new(b"a\nb").expect("a path");
    let bytes = || -> ByteStream { Box::pin(futures::stream::iter([Ok(Bytes::from_static(b"x"))])) };
    subject.adapter.workspace.write(&handle, &odd, bytes(), 10).await.expect("written");
    let raw = WorkspacePath::try_new(b"\xff -rf").expect("a path");
    subject.adapter.workspace.write(&handle, &raw, bytes(), 10).await.expect("written");
    let page = subject.adapter.workspace.list(&handle, None, true, None, 10).await.expect("listed");
    let names: Vec<_> = page.entries.iter().map(|entry| entry.path.as_slice()).collect();
    assert_eq!(names, [&b"a\nb"[..], &b"\xff -rf"[..]]);
}

/// Files, links and empty directories can be removed; a full directory and a missing path cannot.
pub async fn removal(subject: &Subject) {
    let handle = subject.environment().await;
    subject.sh(&handle, "mkdir full; echo x > full/f; mkdir empty").await;
    let remove = async |path: &str| subject.adapter.workspace.remove(&handle, &path_of(path)).await;
    assert_eq!(remove("full").await, Err(WorkspaceError::IsADirectory));
    assert_eq!(remove("full/f").await, Ok(()));
    assert_eq!(remove("full/f").await, Err(WorkspaceError::NotFound));
    assert_eq!(remove("empty").await, Ok(()));
    assert_eq!(subject.sh(&handle, "cat full/f").await.exit_code, Some(1));
}

/// A file is the tool's as long as only the tool wrote it.
pub async fn provenance_follows_the_writer(subject: &Subject) {
    let handle = subject.environment().await;
    subject.write(&handle, "mine", b"1").await.expect("written");
    subject.sh(&handle, "echo 2 > theirs").await;
    let provenance = async |path: &str| {
        subject.adapter.workspace.stat(&handle, &path_of(path)).await.expect("described").provenance
    };
    assert_eq!(provenance("mine").await, Provenance::ToolWritten);
    assert_eq!(provenance("theirs").await, Provenance::SandboxWritten);
    subject.sh(&handle, "echo 3 > mine").await;
    assert_eq!(provenance("mine").await, Provenance::SandboxWritten);
    subject.sh(&handle, "mkdir d").await;
    assert_eq!(provenance("d").await, Provenance::Unknown);
}

/// What is changed and not listed is nobody's to claim.
pub async fn provenance_is_never_claimed_beyond_the_list(subject: &Subject) {
    let handle = subject.environment().await;
    for path in ["aaa", "zzz"] {
        subject.write(&handle, path, b"mine").await.expect("written");
    }
    let many: String = (0..150).map(|number| format!("echo x > m{number}; ")).collect();
    let result = subject.sh(&handle, &format!("{many}echo evil > aaa; echo evil > zzz")).await;
    assert!(result.files_changed_truncated && result.files_changed.len() == 100, "{result:?}");
    for path in ["aaa", "zzz"] {
        let entry = subject.adapter.workspace.stat(&handle, &path_of(path)).await.expect("described");
        assert_ne!(entry.provenance, Provenance::ToolWritten, "{path}");
    }
}

/// A source that fails leaves no file, and no part of one.
pub async fn a_broken_upload_leaves_nothing(subject: &Subject) {
    let handle = subject.environment().await;
    let pieces = [Ok(Bytes::from_static(b"half")), Err(WorkspaceError::DeadlineExceeded)];
    let bytes: ByteStream = Box::pin(futures::stream::iter(pieces));
    let refused = subject.adapter.workspace.write(&handle, &path_of("f"), bytes, 100).await;
    assert_eq!(refused, Err(WorkspaceError::DeadlineExceeded));
    let page = subject.adapter.workspace.list(&handle, None, true, None, 10).await.expect("listed");
    assert_eq!(page.entries, []);
    assert_eq!(subject.sh(&handle, "true").await.files_changed, []);
}
