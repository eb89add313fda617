//! `guest files`: removing.

use std::os::unix::fs::{PermissionsExt, symlink};

use guest::protocol::files::{FilesErrorCode as Code, Request, Response};

use crate::files_host::Files;

#[test]
fn removal_takes_whole_trees() {
    let mut files = Files::open();
    std::fs::create_dir_all(files.at("t/a/b/c")).unwrap();
    std::fs::create_dir_all(files.at("t/a/b2")).unwrap();
    for path in ["t/f", "t/a/f", "t/a/b/f", "t/a/b/c/f"] {
        std::fs::write(files.at(path), "x").unwrap();
    }
    symlink("/etc", files.at("t/a/out")).unwrap();
    std::fs::set_permissions(files.at("t/a/b"), std::fs::Permissions::from_mode(0o0)).unwrap();
    assert_eq!(files.remove("t", true), Ok(10));
    assert!(!files.at("t").exists());
    assert!(std::fs::metadata("/etc/passwd").is_ok());
    std::fs::create_dir(files.at("empty")).unwrap();
    assert_eq!(files.remove("empty", false), Ok(1));
    assert!(std::fs::read_dir(files.at(".leasehold")).unwrap().count() == 1);
}

#[test]
fn a_cancelled_removal_is_finished_by_the_next_takeover() {
    let mut files = Files::open();
    std::fs::create_dir(files.at("tree")).unwrap();
    for index in 0..3_000 {
        std::fs::write(files.at(&format!("tree/{index}")), "").unwrap();
    }
    let id = files.next_id();
    let mut frames = Vec::new();
    let remove = Request::Remove { id, path: b"tree".to_vec(), recursive: true };
    guest::protocol::encode(&remove, &mut frames);
    guest::protocol::encode(&Request::Cancel { id }, &mut frames);
    files.send_raw(&frames);
    let answer = files.finish(id).1;
    assert!(matches!(answer, Response::Error { code: Code::Cancelled, .. }), "{answer:?}");
    assert!(!files.at("tree").exists(), "it left the workspace in one step");
    assert_eq!(std::fs::read_dir(files.at(".leasehold")).unwrap().count(), 2, "and is not deleted yet");
    let mut files = files.reopen();
    files.adopt();
    assert_eq!(std::fs::read_dir(files.at(".leasehold")).unwrap().count(), 1);
}

/// Deeper than descriptors may be open: gone, but for what says whose workspace it was.
#[test]
fn a_workspace_is_emptied_whatever_is_in_it() {
    let files = Files::open();
    let deep =
        "for _ in $(seq 400); do mkdir d && cd -P d || exit 1; done; mkfifo p; ln -s / l; touch -- -rf";
    assert!(run(&["sh", "-c", &format!("cd \"$0\" && {deep}"), files.at("").to_str().unwrap()]));
    std::fs::write(files.at("f"), "x").unwrap();
    std::fs::create_dir(files.at("hidden")).unwrap();
    std::fs::set_permissions(files.at("hidden"), std::fs::Permissions::from_mode(0o0)).unwrap();
    let workspace = files.at("");
    let guest = [env!("CARGO_BIN_EXE_guest"), "empty", "--workspace", workspace.to_str().unwrap()];
    // Fewer descriptors than levels.
    assert!(run(&[&["prlimit", "--nofile=64:64"], &guest[..]].concat()));
    let left: Vec<_> =
        std::fs::read_dir(&workspace).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(left, [".leasehold"]);
    assert_eq!(std::fs::read_dir(files.at(".leasehold")).unwrap().count(), 1);
    assert!(std::fs::metadata("/etc/passwd").is_ok());
    // Nothing to do is done at once.
    assert!(run(&guest));
}

#[expect(clippy::disallowed_methods, reason = "the test plays the container engine")]
fn run(words: &[&str]) -> bool {
    std::process::Command::new(words[0]).args(&words[1..]).status().unwrap().success()
}
