//! Measuring a workspace and what its quota leaves to the API, as root over the real channel.

use std::os::unix::fs::PermissionsExt;

use guest::protocol::NONCE_FILE;
use guest::protocol::files::{FilesErrorCode as Code, GRANT_BYTES, MAX_DATA_BYTES, Quota, Request, Response};

use crate::files_host::Files;

const MIB: u64 = 1 << 20;

fn quota(bytes_max: u64, inodes_max: u64) -> Quota {
    Quota { bytes_max, inodes_max }
}

#[test]
fn every_kind_counts_once_whatever_its_mode() {
    let mut files = Files::open();
    std::fs::create_dir_all(files.at("locked/deep")).unwrap();
    std::fs::write(files.at("locked/deep/f"), vec![1; 10_000]).unwrap();
    std::fs::hard_link(files.at("locked/deep/f"), files.at("again")).unwrap();
    std::os::unix::fs::symlink("/etc", files.at("link")).unwrap();
    rustix::fs::mknodat(
        rustix::fs::CWD,
        files.at("fifo"),
        rustix::fs::FileType::Fifo,
        rustix::fs::Mode::from_raw_mode(0),
        0,
    )
    .unwrap();
    for path in ["locked/deep/f", "locked/deep", "locked"] {
        std::fs::set_permissions(files.at(path), std::fs::Permissions::from_mode(0o0)).unwrap();
    }
    let (usage, complete) = files.measure(Quota::UNBOUNDED).unwrap();
    assert!(complete);
    assert_eq!((usage.inodes, usage.largest_bytes), (5, 10_000), "two directories, a file, a link, a fifo");
    assert!(usage.allocated_bytes >= 10_000 && usage.apparent_bytes >= 10_000, "{usage:?}");
    assert_eq!(usage, files.diff().usage, "both walks count alike");
    assert_eq!(files.measure(quota(u64::MAX, 3)).map(|(usage, all)| (usage.inodes, all)), Ok((4, false)));
}

#[test]
fn room_on_the_disk_is_what_the_host_says() {
    let mut files = Files::open();
    let (_, Response::Room { free_bytes, .. }) = files.ask(|id| Request::Room { id }) else {
        panic!("no answer")
    };
    let at = |path: &std::path::Path| {
        let found = rustix::fs::statvfs(path).unwrap();
        found.f_bavail * found.f_frsize
    };
    let expected = at("/".as_ref()).min(at(files.path()));
    // Others write meanwhile.
    assert!(free_bytes > 0 && free_bytes.abs_diff(expected) < 4 << 30, "{free_bytes} {expected}");
}

#[test]
fn a_workspace_that_is_not_the_one_is_not_measured_as_empty() {
    let mut files = Files::open();
    std::fs::rename(files.at(NONCE_FILE), files.at("elsewhere")).unwrap();
    assert_eq!(files.measure(Quota::UNBOUNDED), Err(Code::NonceMismatch));
}

#[test]
fn a_tree_that_moves_all_the_time_is_measured_and_nothing_else() {
    use std::sync::atomic::{AtomicBool, Ordering};
    let mut files = Files::open();
    let outside = tempfile::tempdir_in(files.path().parent().unwrap()).unwrap();
    std::fs::write(outside.path().join("large"), vec![1; 4 << 20]).unwrap();
    std::fs::create_dir_all(files.at("a/b/c/d")).unwrap();
    for index in 0..200 {
        std::fs::write(files.at(&format!("a/b/c/d/{index}")), "x").unwrap();
    }
    let (root, away) = (files.path().to_owned(), outside.path().join("taken"));
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !stop.load(Ordering::SeqCst) {
                // Out of the tree and back, under another name and with a link in its place.
                if std::fs::rename(root.join("a/b"), &away).is_ok() {
                    let _ = std::os::unix::fs::symlink(&outside, root.join("a/b"));
                    let _ = std::fs::remove_file(root.join("a/b"));
                    std::fs::rename(&away, root.join("a/b")).unwrap();
                }
            }
        });
        for _ in 0..300 {
            let (usage, _) = files.measure(Quota::UNBOUNDED).unwrap();
            assert!(usage.inodes <= 205 && usage.apparent_bytes < 10_000, "nothing outside: {usage:?}");
        }
        stop.store(true, Ordering::SeqCst);
    });
    assert_eq!(files.measure(Quota::UNBOUNDED).unwrap().0.inodes, 204);
}

#[test]
fn what_moves_ahead_of_the_walk_counts_once() {
    use std::sync::atomic::{AtomicBool, Ordering};
    let mut files = Files::open();
    for directory in ["a", "m", "z"] {
        std::fs::create_dir(files.at(directory)).unwrap();
        for index in 0..500 {
            std::fs::write(files.at(&format!("{directory}/{index}")), "").unwrap();
        }
    }
    let [a, z] = ["a/tree", "z/tree"].map(|path| files.at(path));
    std::fs::create_dir(&a).unwrap();
    std::fs::write(a.join("large"), vec![1; 4 << 20]).unwrap();
    let (root, stop) = (files.path().to_owned(), AtomicBool::new(false));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !stop.load(Ordering::SeqCst) {
                std::fs::rename(&a, &z).unwrap();
                std::fs::rename(z.join("large"), root.join("m/large")).unwrap();
                std::fs::rename(root.join("m/large"), z.join("large")).unwrap();
                std::fs::rename(&z, &a).unwrap();
            }
        });
        for _ in 0..300 {
            let (usage, complete) = files.measure(Quota::UNBOUNDED).unwrap();
            assert!(complete && usage.inodes <= 1_505 && usage.apparent_bytes <= 4 << 20, "{usage:?}");
        }
        stop.store(true, Ordering::SeqCst);
    });
    assert_eq!(files.measure(Quota::UNBOUNDED).unwrap().0.inodes, 1_505);
}

#[test]
fn a_tree_that_is_removed_meanwhile_is_measured() {
    use std::sync::atomic::{AtomicBool, Ordering};
    let mut files = Files::open();
    std::fs::write(files.at("kept"), "x").unwrap();
    let root = files.path().to_owned();
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !stop.load(Ordering::SeqCst) {
                let mut path = root.join("t");
                for _ in 0..30 {
                    std::fs::create_dir(&path).unwrap();
                    std::fs::create_dir(path.join("e")).unwrap();
                    path.push("d");
                }
                std::fs::remove_dir_all(root.join("t")).unwrap();
            }
        });
        for _ in 0..1_000 {
            let (usage, complete) = files.measure(Quota::UNBOUNDED).unwrap();
            assert!(complete && (1..=62).contains(&usage.inodes), "{usage:?}");
        }
        stop.store(true, Ordering::SeqCst);
    });
    assert_eq!(files.measure(Quota::UNBOUNDED).unwrap().0.inodes, 1);
}

#[test]
fn fifty_thousand_levels_are_measured_and_removed() {
    let mut files = Files::open();
    let mut directory = std::fs::File::open(files.path()).unwrap();
    for _ in 0..50_000 {
        rustix::fs::mkdirat(&directory, "d", 0o755.into()).unwrap();
        directory =
            rustix::fs::openat(&directory, "d", rustix::fs::OFlags::DIRECTORY, rustix::fs::Mode::empty())
                .unwrap()
                .into();
    }
    let (usage, _) = files.measure(Quota::UNBOUNDED).unwrap();
    assert_eq!(usage.inodes, 50_000);
    assert_eq!(files.remove("d", true), Ok(50_000));
    assert_eq!(files.measure(Quota::UNBOUNDED).unwrap().0.inodes, 0);
}

#[test]
fn writes_are_refused_beyond_the_quota_and_only_there() {
    let mut files = Files::open_with(quota(MIB, 4));
    files.write("a", &vec![1; 600_000]).unwrap();
    assert_eq!(files.write("b", &vec![1; 600_000]), Err(Code::NoSpace), "no room for bytes");
    assert!(!files.at("b").exists());
    files.write("b", &vec![1; 300_000]).unwrap();
    assert_eq!(files.write("x/y/z", b"1"), Err(Code::NoSpace), "two directories and a file are three inodes");
    assert!(!files.at("x").exists(), "what is refused makes no directory either");
    files.write("x/y", b"1").unwrap();
    assert_eq!(files.write("c", b""), Err(Code::NoSpace), "no inode left");
    assert!(!files.write("b", b"smaller").unwrap().created, "what is there may be replaced");
    files.write("b", &vec![1; 300_000]).unwrap();
    assert_eq!(files.remove("a", false), Ok(1));
    files.write("c", &vec![1; 500_000]).unwrap();
    assert!(files.diff().usage.used_bytes() <= MIB);
}

#[test]
fn what_commands_wrote_leaves_less_to_the_api() {
    let mut files = Files::open_with(quota(MIB, 100));
    std::fs::write(files.at("theirs"), vec![1; 900_000]).unwrap();
    files.measure(Quota::UNBOUNDED).unwrap();
    assert_eq!(files.write("mine", &vec![1; 200_000]), Err(Code::NoSpace));
    files.write("mine", &vec![1; 100_000]).unwrap();
    std::fs::write(files.at("theirs"), vec![1; 2 << 20]).unwrap();
    files.diff();
    assert_eq!(files.write("empty", b""), Err(Code::NoSpace), "over its limit it takes nothing");
    assert_eq!(files.remove("theirs", false), Ok(1));
    files.write("empty", b"").unwrap();
}

#[test]
fn unfinished_writes_hold_their_room() {
    let mut files = Files::open_with(quota(MIB, 100));
    let first = files.next_id();
    let begin =
        |id, path: &[u8]| Request::Write { id, path: path.to_vec(), max_bytes: MIB, create_only: false };
    files.send(&begin(first, b"first"));
    for _ in 0..3 {
        for _ in 0..GRANT_BYTES as usize / MAX_DATA_BYTES {
            files.send(&Request::WriteData { id: first, bytes: vec![1; MAX_DATA_BYTES] });
        }
        // What is granted again was taken.
        let Response::Credit { bytes, .. } = files.receive() else { panic!("it is within its room") };
        assert!(bytes >= GRANT_BYTES);
    }
    assert_eq!(files.write("second", &vec![1; 500_000]), Err(Code::NoSpace));
    files.send(&Request::Cancel { id: first });
    while !matches!(files.receive(), Response::Error { id, code: Code::Cancelled, .. } if id == first) {}
    files.write("second", &vec![1; 500_000]).unwrap();
}
