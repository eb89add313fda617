//! `guest files`: what changed, and how much there is.

use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::time::{Duration, Instant};

use guest::protocol::files::{Change, ChangeKind, ChangedPath, EntryKind, Request, Response, WALK_MAX_MS};
use rustix::fs::{CWD, FileType, Mode, mknodat};
use sha2::{Digest, Sha256};

use crate::files_host::Files;

fn change(path: &[u8], change: ChangeKind, content: Option<&[u8]>) -> Change {
    Change {
        path: ChangedPath::Path(path.to_vec()),
        change,
        kind: EntryKind::File,
        size_bytes: content.map_or(0, |content| content.len() as u64),
        sha256: content.map(|content| Sha256::digest(content).into()),
    }
}

#[test]
fn created_modified_deleted() {
    let mut files = Files::open();
    assert_eq!(files.diff().changes, []);
    for name in ["a", "b", "sub/c"] {
        std::fs::create_dir_all(files.at(name).parent().unwrap()).unwrap();
        std::fs::write(files.at(name), name).unwrap();
    }
    let diff = files.diff();
    assert_eq!(
        diff.changes,
        [
            change(b"a", ChangeKind::Created, Some(b"a")),
            change(b"b", ChangeKind::Created, Some(b"b")),
            change(b"sub/c", ChangeKind::Created, Some(b"sub/c")),
        ],
        "directories are no change"
    );
    assert_eq!((diff.total_changes, diff.truncated), (3, false));
    assert_eq!(files.diff().changes, [], "the baseline has moved");

    std::fs::write(files.at("a"), "other").unwrap();
    std::fs::remove_file(files.at("b")).unwrap();
    std::fs::rename(files.at("sub"), files.at("moved")).unwrap();
    assert_eq!(
        files.diff().changes,
        [
            change(b"a", ChangeKind::Modified, Some(b"other")),
            change(b"b", ChangeKind::Deleted, None),
            change(b"moved/c", ChangeKind::Created, Some(b"sub/c")),
            change(b"sub/c", ChangeKind::Deleted, None),
        ]
    );
}

#[test]
fn what_only_looks_changed_is_no_change() {
    let mut files = Files::open();
    std::fs::write(files.at("f"), "same").unwrap();
    symlink("t", files.at("l")).unwrap();
    files.diff();
    std::fs::write(files.at("f"), "same").unwrap();
    std::fs::set_permissions(files.at("f"), std::fs::Permissions::from_mode(0o0)).unwrap();
    std::fs::remove_file(files.at("l")).unwrap();
    symlink("t", files.at("l")).unwrap();
    assert_eq!(files.diff().changes, []);
}

#[test]
fn same_size_and_restored_mtime_do_not_hide_a_change() {
    let mut files = Files::open();
    std::fs::write(files.at("f"), "aaaa").unwrap();
    files.diff();
    let before = std::fs::metadata(files.at("f")).unwrap().modified().unwrap();
    std::fs::write(files.at("f"), "bbbb").unwrap();
    std::fs::File::options().write(true).open(files.at("f")).unwrap().set_modified(before).unwrap();
    assert_eq!(files.diff().changes, [change(b"f", ChangeKind::Modified, Some(b"bbbb"))]);
}

#[test]
fn links_and_special_files_are_changes_without_content() {
    let mut files = Files::open();
    symlink("one", files.at("link")).unwrap();
    mknodat(CWD, files.at("pipe"), FileType::Fifo, Mode::from_raw_mode(0o666), 0).unwrap();
    let seen = |files: &mut Files| -> Vec<_> {
        let changes = files.diff().changes;
        assert!(changes.iter().all(|change| change.sha256.is_none() && change.size_bytes == 0));
        changes.into_iter().map(|change| (change.change, change.kind)).collect()
    };
    assert_eq!(
        seen(&mut files),
        [(ChangeKind::Created, EntryKind::Symlink), (ChangeKind::Created, EntryKind::Other)]
    );
    std::fs::remove_file(files.at("link")).unwrap();
    symlink("two", files.at("link")).unwrap();
    std::fs::remove_file(files.at("pipe")).unwrap();
    symlink("x", files.at("pipe")).unwrap();
    assert_eq!(
        seen(&mut files),
        [(ChangeKind::Modified, EntryKind::Symlink), (ChangeKind::Modified, EntryKind::Symlink)]
    );
}

#[test]
fn the_apis_own_writes_and_removals_are_no_changes() {
    let mut files = Files::open();
    std::fs::create_dir(files.at("gone")).unwrap();
    std::fs::write(files.at("gone/f"), "").unwrap();
    std::fs::write(files.at("gone-not"), "").unwrap();
    files.diff();
    files.write("new/file", b"x").unwrap();
    files.write("gone-not", b"y").unwrap();
    files.remove("gone", true).unwrap();
    assert_eq!(files.diff().changes, []);
    std::fs::write(files.at("new/file"), "by a command").unwrap();
    assert_eq!(files.diff().changes, [change(b"new/file", ChangeKind::Modified, Some(b"by a command"))]);
}

#[test]
fn another_process_on_the_same_workspace_takes_what_is_there_as_given() {
    let mut files = Files::open();
    std::fs::write(files.at("f"), "x").unwrap();
    let mut files = files.reopen_adopted();
    assert_eq!(files.diff().changes, []);
    std::fs::remove_file(files.at("f")).unwrap();
    assert_eq!(files.diff().changes, [change(b"f", ChangeKind::Deleted, None)]);
    assert_eq!(files.diff().usage.inodes, 0);
}

impl Files {
    fn reopen_adopted(&mut self) -> Self {
        let fresh = Self::open();
        let mut files = std::mem::replace(self, fresh).reopen();
        files.adopt();
        files
    }
}

#[test]
fn bounds_are_kept_and_said() {
    let mut files = Files::open();
    for index in 0..20 {
        std::fs::write(files.at(&format!("f{index:02}")), "").unwrap();
    }
    let diff = files.diff_bounded(7, 1000);
    assert_eq!((diff.changes.len(), diff.total_changes, diff.truncated), (7, 20, true));
    for index in 0..20 {
        std::fs::remove_file(files.at(&format!("f{index:02}"))).unwrap();
    }
    let diff = files.diff_bounded(1000, 10);
    assert_eq!((diff.changes.len(), diff.total_changes, diff.truncated), (3, 20, true), "3 bytes each");
}

#[test]
fn hostile_trees_are_walked() {
    let mut files = Files::open();
    // Deeper than a path can name, entered from within.
    let mut directory = rustix::fs::open(
        files.path(),
        rustix::fs::OFlags::DIRECTORY | rustix::fs::OFlags::CLOEXEC,
        Mode::empty(),
    )
    .unwrap();
    let name = "d".repeat(200);
    for _ in 0..100 {
        rustix::fs::mkdirat(&directory, &name, Mode::from_raw_mode(0o000)).unwrap();
        let flags = rustix::fs::OFlags::DIRECTORY | rustix::fs::OFlags::CLOEXEC;
        directory = rustix::fs::openat(&directory, &name, flags, Mode::empty()).unwrap();
    }
    rustix::fs::symlinkat("t", &directory, "bottom").unwrap();
    let odd = files.path().join(std::ffi::OsStr::from_bytes(b"\xff\n"));
    std::fs::write(odd, "x").unwrap();
    let path = [format!("{name}/").repeat(100).as_bytes(), b"bottom"].concat();
    let diff = files.diff();
    let changed: Vec<_> = diff.changes.into_iter().map(|change| change.path).collect();
    let deep = ChangedPath::Digest { sha256: Sha256::digest(&path).into(), path_bytes: path.len() as u64 };
    assert_eq!(changed, [deep, ChangedPath::Path(b"\xff\n".to_vec())]);
    assert_eq!(diff.usage.inodes, 102);
    assert_eq!(files.diff().changes, []);
    assert_eq!(files.remove(&name, true), Ok(101));
    assert_eq!(files.diff().usage.inodes, 1);
}

#[test]
fn usage_counts_everything_once() {
    let mut files = Files::open();
    assert_eq!(files.diff().usage.inodes, 0, "the private directory is not the workspace's");
    std::fs::create_dir(files.at("d")).unwrap();
    std::fs::write(files.at("d/f"), vec![1; 100_000]).unwrap();
    std::fs::hard_link(files.at("d/f"), files.at("d/g")).unwrap();
    std::fs::hard_link(files.at("d/f"), files.at("h")).unwrap();
    symlink("12345", files.at("l")).unwrap();
    std::fs::File::create(files.at("sparse")).unwrap().set_len(1 << 30).unwrap();
    std::fs::File::open(files.at("d/f")).unwrap().sync_all().unwrap();
    let blocks = |path: &str| std::fs::symlink_metadata(files.at(path)).unwrap().blocks() * 512;
    let allocated = blocks("d") + blocks("d/f") + blocks("l") + blocks("sparse");
    let usage = files.diff().usage;
    assert_eq!((usage.inodes, usage.apparent_bytes), (4, 100_000 + 5 + (1 << 30)));
    assert_eq!(usage.allocated_bytes, allocated);
    std::fs::set_permissions(files.at("d"), std::fs::Permissions::from_mode(0o0)).unwrap();
    assert_eq!(files.diff().usage, usage, "a locked directory hides nothing");
}

#[test]
fn a_cancelled_diff_moves_nothing() {
    let mut files = Files::open();
    files.write("a-kept", b"x").unwrap();
    std::fs::write(files.at("a-kept"), "changed").unwrap();
    for index in 0..3_000 {
        std::fs::write(files.at(&format!("f{index:04}")), "content").unwrap();
    }
    let id = files.next_id();
    let mut frames = Vec::new();
    let diff = Request::Diff { id, max_changes: 10, max_path_bytes: 1000 };
    guest::protocol::encode(&diff, &mut frames);
    guest::protocol::encode(&Request::Cancel { id }, &mut frames);
    files.send_raw(&frames);
    let answer = files.finish(id).1;
    let Response::Error { code, .. } = answer else { panic!("{answer:?}") };
    assert_eq!(code, guest::protocol::files::FilesErrorCode::Cancelled);
    let diff = files.diff();
    assert_eq!(diff.total_changes, 3_001);
    assert!(diff.changes.contains(&change(b"a-kept", ChangeKind::Modified, Some(b"changed"))));
}

#[test]
fn huge_sparse_files_do_not_stall_a_walk() {
    let mut files = Files::open();
    let size_bytes = 4 << 30;
    for index in 0..1000 {
        let file = std::fs::File::create(files.at(&format!("f{index:03}"))).unwrap();
        file.set_len(size_bytes).unwrap();
    }
    std::fs::write(files.at("small"), "content").unwrap();
    let started = Instant::now();
    let diff = files.diff_bounded(2000, 128 * 1024);
    assert!(started.elapsed() < Duration::from_millis(WALK_MAX_MS), "4 TB were not read");
    assert_eq!((diff.total_changes, diff.truncated), (1001, false), "each is told");
    let (small, large) = diff.changes.split_last().unwrap();
    assert!(large.iter().all(|change| change.size_bytes == size_bytes && change.sha256.is_none()));
    assert_eq!(*small, change(b"small", ChangeKind::Created, Some(b"content")));
    let mut files = files.reopen_adopted();
    assert_eq!(files.diff().changes, []);
}
