//! `guest files`: reading, writing, listing, and what is refused.

use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::os::unix::net::UnixListener;

use guest::protocol::files::{
    CREDIT_WINDOW_BYTES, EntryKind, FilesErrorCode as Code, GRANT_BYTES, MAX_DATA_BYTES, Quota, Request,
    Response, WIDE_WINDOW_BYTES, WIDE_WINDOWS,
};
use rustix::fs::{CWD, FileType, Mode, mknodat};
use rustix::io::Errno;
use sha2::{Digest, Sha256};

use crate::files_host::{Files, NONCE, OWNER};
use crate::wire::{eventually, pattern};

/// What a reader is sent without a word from it.
const WINDOW: usize = CREDIT_WINDOW_BYTES as usize;

fn sha256(bytes: &[u8]) -> [u8; 32] {
    Sha256::digest(bytes).into()
}

fn fifo(files: &Files, path: &str) {
    mknodat(CWD, files.at(path), FileType::Fifo, Mode::from_raw_mode(0o666), 0).unwrap();
}

#[test]
fn init_makes_a_workspace_that_code_cannot_break() {
    let files = Files::open();
    let root = std::fs::metadata(files.path()).unwrap();
    assert_eq!((root.uid(), root.gid(), root.mode() & 0o7777), (0, 0, 0o1777));
    let private = std::fs::metadata(files.at(".leasehold")).unwrap();
    assert_eq!((private.uid(), private.gid(), private.mode() & 0o7777), (0, 0, 0o700));
    assert_eq!(std::fs::read(files.at(".leasehold/nonce")).unwrap(), NONCE);
    assert!(files.hello.openat2, "this kernel has it");
}

#[test]
fn the_nonce_decides_whether_it_is_the_same_workspace() {
    let mut files = Files::open();
    assert!(files.write("kept", b"x").is_ok());
    std::fs::write(files.at(".leasehold/write-1-1"), "unfinished").unwrap();
    std::fs::create_dir_all(files.at(".leasehold/removed-1-2/a/b")).unwrap();
    let mut files = files.reopen();
    let code = |answer: Response| match answer {
        Response::Error { code, .. } => Some(code),
        _ => None,
    };
    for path in ["kept", "."] {
        assert_eq!(files.stat(path.as_bytes()), Err(Code::NotReady));
    }
    let (uid, gid) = (OWNER, OWNER);
    let answer =
        files.ask(|id| Request::Adopt { id, uid, gid, quota: Quota::UNBOUNDED, nonce: b"other".to_vec() });
    assert_eq!(code(answer.1), Some(Code::NonceMismatch));
    let answer =
        files.ask(|id| Request::Init { id, uid, gid, quota: Quota::UNBOUNDED, nonce: b"other".to_vec() });
    assert_eq!(code(answer.1), Some(Code::NonceMismatch));
    let answer =
        files.ask(|id| Request::Adopt { id, uid, gid, quota: Quota::UNBOUNDED, nonce: NONCE.to_vec() });
    let Response::Ready { usage, .. } = answer.1 else { panic!("{answer:?}") };
    assert_eq!((usage.inodes, usage.apparent_bytes), (1, 1));
    assert_eq!(files.read("kept").unwrap().bytes, b"x");
    let left: Vec<_> =
        std::fs::read_dir(files.at(".leasehold")).unwrap().map(|e| e.unwrap().file_name()).collect();
    assert_eq!(left, ["nonce"], "unfinished work is tidied up");

    std::fs::remove_dir_all(files.at(".leasehold")).unwrap();
    let answer =
        files.ask(|id| Request::Adopt { id, uid, gid, quota: Quota::UNBOUNDED, nonce: NONCE.to_vec() });
    assert_eq!(code(answer.1), Some(Code::NonceMismatch), "a lost workspace");
    let answer = files.ask(|id| Request::Diff { id, max_changes: 10, max_path_bytes: 1000 });
    assert_eq!(code(answer.1), Some(Code::NonceMismatch), "is never an emptied one");
}

#[test]
fn files_round_trip() {
    let mut files = Files::open();
    for (name, size) in [("empty", 0), ("small", 5), ("edge", MAX_DATA_BYTES), ("big", (20 << 20) + 3)] {
        let content = pattern(size);
        let written = files.write(name, &content).unwrap();
        assert_eq!((written.size_bytes, written.created), (size as u64, true));
        assert_eq!(written.sha256, sha256(&content));
        let read = files.read(name).unwrap();
        assert!(read.bytes == content && read.sha256 == written.sha256 && read.end_of_file, "{name}");
        let made = std::fs::metadata(files.at(name)).unwrap();
        assert_eq!((made.uid(), made.gid(), made.mode() & 0o7777), (OWNER, OWNER, 0o644));
    }
    let again = files.write("small", &pattern(5)).unwrap();
    assert_eq!((again.sha256, again.created), (sha256(&pattern(5)), false));
    assert!(std::fs::read_dir(files.at(".leasehold")).unwrap().count() == 1, "nothing is left of the writes");
}

#[test]
fn parents_are_made_for_the_owner() {
    let mut files = Files::open();
    assert!(files.write("a/b/c", b"x").unwrap().created);
    for path in ["a", "a/b"] {
        let made = std::fs::metadata(files.at(path)).unwrap();
        assert_eq!((made.uid(), made.gid(), made.mode() & 0o7777), (OWNER, OWNER, 0o755));
    }
}

#[test]
fn replacing_carries_nothing_over() {
    let mut files = Files::open();
    files.write("tool", b"old").unwrap();
    std::fs::set_permissions(files.at("tool"), std::fs::Permissions::from_mode(0o6755)).unwrap();
    std::fs::hard_link(files.at("tool"), files.at("other")).unwrap();
    assert!(!files.write("tool", b"new").unwrap().created);
    assert_eq!(std::fs::metadata(files.at("tool")).unwrap().mode() & 0o7777, 0o644);
    assert_eq!(std::fs::read(files.at("other")).unwrap(), b"old", "another name keeps its content");
}

#[test]
fn nothing_shows_before_the_end_of_a_write() {
    let mut files = Files::open();
    let id = files.next_id();
    files.send(&Request::Write { id, path: b"late".to_vec(), max_bytes: 100, create_only: false });
    files.send(&Request::WriteData { id, bytes: b"half".to_vec() });
    assert_eq!(files.stat(b"late"), Err(Code::NotFound));
    assert_eq!(files.list("", true, 10), Vec::<Vec<u8>>::new());
    files.send(&Request::Cancel { id });
    let answer = files.finish(id).1;
    assert!(matches!(answer, Response::Error { code: Code::Cancelled, .. }));
    files.send(&Request::WriteData { id, bytes: b"after the end".to_vec() });
    files.send(&Request::WriteEnd { id });
    assert_eq!(files.stat(b"late"), Err(Code::NotFound));
    eventually("the tidying", || std::fs::read_dir(files.at(".leasehold")).unwrap().count() == 1);
}

#[test]
fn write_limits() {
    let mut files = Files::open();
    assert_eq!(files.write_with(b"f", b"12345", 4, false), Err(Code::TooLarge));
    assert_eq!(files.stat(b"f"), Err(Code::NotFound));
    assert!(files.write_with(b"f", b"1234", 4, true).is_ok());
    assert_eq!(files.write_with(b"f", b"1234", 4, true), Err(Code::Exists));
}

#[test]
fn read_ranges() {
    let mut files = Files::open();
    files.write("f", b"0123456789").unwrap();
    let read = files.read_range(b"f", 3, 4, true).unwrap();
    assert_eq!((read.bytes.as_slice(), read.size_bytes, read.end_of_file), (b"3456".as_slice(), 10, false));
    assert_eq!(read.sha256, sha256(b"3456"));
    let read = files.read_range(b"f", 6, 4, false).unwrap();
    assert_eq!((read.bytes.as_slice(), read.end_of_file), (b"6789".as_slice(), true));
    let read = files.read_range(b"f", 50, 4, false).unwrap();
    assert_eq!((read.bytes.as_slice(), read.end_of_file), (b"".as_slice(), true));
    assert_eq!(files.read_range(b"f", 0, 9, false), Err(Code::TooLarge));
}

#[test]
fn links_are_refused_everywhere() {
    let mut files = Files::open();
    std::fs::create_dir(files.at("d")).unwrap();
    std::fs::write(files.at("d/f"), "x").unwrap();
    symlink("/etc", files.at("out")).unwrap();
    symlink("/etc/passwd", files.at("file")).unwrap();
    symlink("d", files.at("in")).unwrap();
    symlink("nowhere", files.at("dangling")).unwrap();
    symlink("loop", files.at("loop")).unwrap();
    symlink("/etc", files.at("d/out")).unwrap();
    for path in ["out/passwd", "file", "in/f", "dangling", "loop", "loop/x", "d/out/passwd", "in/out/passwd"]
    {
        assert_eq!(files.read(path), Err(Code::Symlink), "read {path}");
        assert_eq!(files.write(path, b"y"), Err(Code::Symlink), "write {path}");
    }
    for path in ["out", "in", "d/out", "dangling", "loop", "in/out"] {
        assert_eq!(files.page(path, false, 10, b""), Err(Code::Symlink), "list {path}");
    }
    for path in ["in/f", "out/passwd"] {
        assert_eq!(files.stat(path.as_bytes()), Err(Code::Symlink));
        assert_eq!(files.remove(path, true), Err(Code::Symlink));
    }
    assert_eq!(files.stat(b"file").unwrap().kind, EntryKind::Symlink, "the link itself is described");
    assert_eq!(files.remove("in", true), Ok(1), "and removed");
    assert!(files.at("d/f").exists() && std::fs::metadata("/etc/passwd").unwrap().len() > 1);
}

#[test]
fn only_regular_files_are_opened() {
    let mut files = Files::open();
    fifo(&files, "fifo");
    let _socket = UnixListener::bind(files.at("socket")).unwrap();
    mknodat(
        CWD,
        files.at("null"),
        FileType::CharacterDevice,
        Mode::from_raw_mode(0o666),
        rustix::fs::makedev(1, 3),
    )
    .unwrap();
    for path in ["fifo", "socket", "null"] {
        assert_eq!(files.read(path), Err(Code::NotRegular), "{path}");
        assert_eq!(files.write(path, b"x"), Err(Code::NotRegular), "{path}");
        assert_eq!(files.stat(path.as_bytes()).unwrap().kind, EntryKind::Other, "{path}");
        assert_eq!(files.remove(path, false), Ok(1));
    }
}

#[test]
fn errors_are_told_apart() {
    let mut files = Files::open();
    files.write("d/f", b"x").unwrap();
    assert_eq!(files.read("missing"), Err(Code::NotFound));
    assert_eq!(files.read("missing/f"), Err(Code::NotFound));
    assert_eq!(files.read("d"), Err(Code::IsADirectory));
    assert_eq!(files.write("d", b"x"), Err(Code::IsADirectory));
    assert_eq!(files.read("d/f/below"), Err(Code::NotADirectory));
    assert_eq!(files.write("d/f/below", b"x"), Err(Code::NotADirectory));
    assert_eq!(files.page("d/f", false, 10, b""), Err(Code::NotADirectory));
    assert_eq!(files.page("missing", false, 10, b""), Err(Code::NotFound));
    assert_eq!(files.remove("d", false), Err(Code::NotEmpty));
    assert_eq!(files.remove("missing", true), Err(Code::NotFound));
}

#[test]
fn paths_that_break_the_rules_are_refused() {
    let mut files = Files::open();
    std::fs::write(files.at(".leasehold/secret"), "x").unwrap();
    let long_component = "x".repeat(256);
    let long_path = "x/".repeat(2048) + "xx";
    for path in [
        "..",
        ".",
        "",
        "/etc/passwd",
        "a/../b",
        "a/./b",
        "a//b",
        "a/",
        "../x",
        "a\0b",
        ".leasehold",
        ".leasehold/secret",
        ".leasehold/nonce",
        &long_component,
        &long_path,
    ] {
        assert_eq!(files.stat(path.as_bytes()), Err(Code::PathRefused), "{path:?}");
        assert_eq!(files.write(path, b"x"), Err(Code::PathRefused), "{path:?}");
        assert_eq!(files.remove(path, true), Err(Code::PathRefused), "{path:?}");
    }
    assert_eq!(files.page(".leasehold", true, 10, b""), Err(Code::PathRefused));
    assert!(files.write("a/.leasehold/x", b"x").is_ok(), "the name is free below the root");
}

#[test]
fn the_longest_path_works() {
    let mut files = Files::open();
    let path = format!("{}{}", format!("{}/", "d".repeat(255)).repeat(15), "f".repeat(256 - 1));
    assert_eq!(path.len(), 4095);
    assert!(files.write(&path, b"deep").is_ok());
    assert_eq!(files.read(&path).unwrap().bytes, b"deep");
    let path = format!("{}{}/f", format!("{}/", "e".repeat(255)).repeat(15), "e".repeat(254));
    assert_eq!(path.len(), 4096);
    assert!(files.write(&path, b"deeper").is_ok());
    assert_eq!(files.read(&path).unwrap().bytes, b"deeper");
}

#[test]
fn a_file_that_changes_while_it_is_read_is_said() {
    let mut files = Files::open();
    let content = pattern(2 * WINDOW);
    std::fs::write(files.at("f"), &content).unwrap();
    let id = files.next_id();
    let request =
        Request::Read { id, path: b"f".to_vec(), offset: 0, max_bytes: u64::MAX, allow_partial: false };
    files.send(&request);
    // Without credit it stops at the window: the file is open and half read.
    let mut received = 0;
    while received < WINDOW {
        if let Response::ReadData { bytes, .. } = files.receive() {
            received += bytes.len();
        }
    }
    std::fs::write(files.at("f"), &content[..content.len() - 1]).unwrap();
    files.send(&Request::Credit { id, bytes: CREDIT_WINDOW_BYTES });
    let answer = files.finish(id).1;
    assert!(matches!(answer, Response::Error { code: Code::ChangedDuringRead, .. }), "{answer:?}");
}

#[test]
fn a_stalled_read_stops_nobody_else_and_can_be_cancelled() {
    let mut files = Files::open();
    files.write("f", &pattern(2 * WINDOW)).unwrap();
    let id = files.next_id();
    let request =
        Request::Read { id, path: b"f".to_vec(), offset: 0, max_bytes: u64::MAX, allow_partial: false };
    files.send(&request);
    let mut received = 0;
    while received < WINDOW {
        if let Response::ReadData { bytes, .. } = files.receive() {
            received += bytes.len();
        }
    }
    assert_eq!(files.stat(b"f").unwrap().size_bytes, 2 * WINDOW as u64);
    assert_eq!(files.diff().total_changes, 0);
    files.send(&Request::Cancel { id });
    let answer = files.finish(id).1;
    assert!(matches!(answer, Response::Error { code: Code::Cancelled, .. }), "{answer:?}");
}

#[test]
fn a_few_long_writes_have_the_wider_window_and_pass_it_on() {
    let mut files = Files::open();
    let portion = |files: &mut Files, id| {
        for _ in 0..GRANT_BYTES as usize / MAX_DATA_BYTES {
            files.send(&Request::WriteData { id, bytes: vec![1; MAX_DATA_BYTES] });
        }
        let Response::Credit { id: granted, bytes } = files.receive() else {
            panic!("a write of half a window")
        };
        assert_eq!(granted, id);
        bytes
    };
    let ids: Vec<_> = (0..=WIDE_WINDOWS)
        .map(|number| {
            let id = files.next_id();
            let path = format!("f{number}").into_bytes();
            files.send(&Request::Write { id, path, max_bytes: u64::MAX, create_only: false });
            id
        })
        .collect();
    let granted: Vec<_> = ids.iter().map(|id| portion(&mut files, *id)).collect();
    let mut expected = vec![GRANT_BYTES + WIDE_WINDOW_BYTES; WIDE_WINDOWS];
    expected.push(GRANT_BYTES);
    assert_eq!(granted, expected);
    assert_eq!(portion(&mut files, ids[0]), GRANT_BYTES, "once each");
    files.send(&Request::Cancel { id: ids[0] });
    let _ = files.finish(ids[0]);
    assert_eq!(portion(&mut files, ids[WIDE_WINDOWS]), GRANT_BYTES + WIDE_WINDOW_BYTES);
}

#[test]
fn stalled_downloads_refuse_no_diff_and_no_takeover() {
    let mut files = Files::open();
    files.write("f", &pattern(2 * WINDOW)).unwrap();
    let mut ids = Vec::new();
    for _ in 0..64 {
        let id = files.next_id();
        let path = b"f".to_vec();
        files.send(&Request::Read { id, path, offset: 0, max_bytes: u64::MAX, allow_partial: false });
        ids.push(id);
    }
    // Each stalls when its window is used up, or is refused.
    let (mut refused, mut received) = (Vec::new(), 0);
    while refused.len() < 16 || received < 48 * WINDOW {
        match files.receive() {
            Response::ReadData { bytes, .. } => received += bytes.len(),
            Response::ReadMeta { .. } => {}
            Response::Error { id, code: Code::Io, errno } => {
                assert_eq!(errno, Errno::AGAIN.raw_os_error());
                refused.push(id);
            }
            frame => panic!("unexpected {frame:?}"),
        }
    }
    assert_eq!(refused, ids[48..], "the last ones, and no others");
    std::fs::write(files.at("g"), "x").unwrap();
    assert_eq!(files.diff().total_changes, 1);
    for _ in 0..2 {
        files.adopt();
    }
    assert_eq!(files.stat(b"f"), Err(Code::Io), "places for others are taken");
    for id in &ids[..48] {
        files.send(&Request::Cancel { id: *id });
        let answer = files.finish(*id).1;
        assert!(matches!(answer, Response::Error { code: Code::Cancelled, .. }), "{answer:?}");
    }
    assert_eq!(files.stat(b"f").unwrap().size_bytes, 2 * WINDOW as u64);
}

#[test]
fn locked_trees_and_odd_names_are_listed() {
    let mut files = Files::open();
    std::fs::create_dir_all(files.at("locked/deep")).unwrap();
    std::fs::write(files.at("locked/deep/f"), "12345").unwrap();
    for path in ["locked/deep/f", "locked/deep", "locked"] {
        std::fs::set_permissions(files.at(path), std::fs::Permissions::from_mode(0o0)).unwrap();
    }
    for name in [b"a\nb".as_slice(), b"\xff\xfe", b" lead", b"-rf"] {
        std::fs::write(files.path().join(std::ffi::OsStr::from_bytes(name)), "").unwrap();
    }
    symlink("/etc/passwd", files.at("link")).unwrap();
    fifo(&files, "pipe");
    let (entries, next) = files.page("", true, 100, b"").unwrap();
    assert_eq!(next, None);
    let seen: Vec<_> =
        entries.iter().map(|entry| (entry.path.as_slice(), entry.kind, entry.size_bytes)).collect();
    let directory = |path: &'static [u8]| {
        let size = entries.iter().find(|entry| entry.path == path).unwrap().size_bytes;
        (path, EntryKind::Directory, size)
    };
    let expected = [
        (b" lead".as_slice(), EntryKind::File, 0),
        (b"-rf", EntryKind::File, 0),
        (b"a\nb", EntryKind::File, 0),
        (b"link", EntryKind::Symlink, 11),
        directory(b"locked"),
        directory(b"locked/deep"),
        (b"locked/deep/f", EntryKind::File, 5),
        (b"pipe", EntryKind::Other, 0),
        (b"\xff\xfe", EntryKind::File, 0),
    ];
    assert_eq!(seen, expected);
    assert_eq!(entries[6].mode, 0);
    assert_eq!(files.read("locked/deep/f").unwrap().bytes, b"12345");
    assert_eq!(files.stat(b"\xff\xfe").unwrap().kind, EntryKind::File);
}

#[test]
fn pages_join_without_gap_or_repeat() {
    let mut files = Files::open();
    let mut expected = Vec::new();
    // Names around the slash in byte order: '-' < '.' < '/' < '0'.
    for directory in ["a", "a-", "a0", "b", "b/c", "b/c.d"] {
        std::fs::create_dir(files.at(directory)).unwrap();
        expected.push(directory.as_bytes().to_vec());
        for index in 0..7 {
            let path = format!("{directory}/f{index}");
            std::fs::write(files.at(&path), "").unwrap();
            expected.push(path.into_bytes());
        }
    }
    expected.sort();
    for limit in [1, 2, 3, 7, 48, 100] {
        assert_eq!(files.list("", true, limit), expected, "limit {limit}");
    }
    let below: Vec<_> = expected.iter().filter(|path| path.starts_with(b"b/")).cloned().collect();
    assert_eq!(files.list("b", true, 5), below, "paths stay relative to the workspace");
    let direct: Vec<_> =
        below.iter().filter(|path| path.iter().filter(|b| **b == b'/').count() == 1).cloned().collect();
    assert_eq!(files.list("b", false, 2), direct);
}

#[test]
fn a_large_directory_is_listed_by_pages() {
    let mut files = Files::open();
    for index in 0..5_000 {
        std::fs::write(files.at(&format!("f{index:05}")), "").unwrap();
    }
    let (entries, next) = files.page("", false, 1000, b"f01999").unwrap();
    assert_eq!((entries.len(), entries[0].path.as_slice()), (1000, b"f02000".as_slice()));
    assert_eq!(next.as_deref(), Some(b"f02999".as_slice()));
    assert_eq!(files.list("", false, 1500).len(), 5_000);
}

#[test]
fn a_broken_protocol_ends_the_channel() {
    let violations: [&[u8]; 3] = [
        &[0xff; 16],
        // Credit for a request never made.
        &[4, 0, 0, 0, 14, 99, 0, 0, 0, 1, 0, 0, 0],
        // The first request's id again.
        &[0, 0, 0, 0, 5, 1, 0, 0, 0],
    ];
    for violation in violations {
        let mut files = Files::open();
        files.send_raw(violation);
        assert_eq!(files.wait_for_end(), Some(3));
    }
}

#[test]
fn write_data_without_credit_is_a_violation() {
    let mut files = Files::open();
    let id = files.next_id();
    let mut frames = Vec::new();
    guest::protocol::encode(
        &Request::Read { id, path: b"missing".to_vec(), offset: 0, max_bytes: 1, allow_partial: true },
        &mut frames,
    );
    files.send_raw(&frames);
    let _ = files.finish(id);
    let id = files.next_id();
    let mut frames = Vec::new();
    let write = Request::Write { id, path: b"f".to_vec(), max_bytes: u64::MAX, create_only: false };
    guest::protocol::encode(&write, &mut frames);
    assert!(files.send_raw(&frames));
    // On and on without waiting for credit: sooner or later the reader is a window ahead of who writes the file.
    let mut data = Vec::new();
    for _ in 0..64 {
        guest::protocol::encode(&Request::WriteData { id, bytes: vec![0; MAX_DATA_BYTES] }, &mut data);
    }
    let begun = std::time::Instant::now();
    while files.send_raw(&data) {
        assert!(begun.elapsed() < std::time::Duration::from_secs(50), "it takes whatever comes");
    }
    assert_eq!(files.wait_for_end(), Some(3));
}

#[test]
fn a_host_that_fell_silent_is_gone() {
    let mut files = Files::open();
    files.send(&Request::Ping { token: 1 });
    assert_eq!(files.receive(), Response::Pong { token: 1 });
    assert_eq!(files.wait_for_end(), Some(0), "its end of the channel is still open");
}
