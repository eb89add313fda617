//! Workspace paths: for any bytes, the result lies under the root or the path is refused.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path};

use policy::{PathRefusal, WorkspaceCwd, WorkspacePath};
use proptest::prelude::*;

#[test]
fn plain_paths_are_kept_byte_for_byte() {
    let plain: [&[u8]; 9] =
        [b"a", b"a/b/c", b"a\nb", b"\xff\xfe", b"...", b"..a/b..", b"-rf", b" ", b"sub/.leasehold"];
    for bytes in plain {
        assert_eq!(WorkspacePath::try_new(bytes).expect("plain").as_bytes(), bytes);
    }
}

#[test]
fn everything_else_is_refused_with_its_reason() {
    let long_component = [b'a'; 256];
    let long_path = b"ab/".repeat(1366);
    let table: [(&[u8], PathRefusal); 16] = [
        (b"", PathRefusal::Empty),
        (b"/", PathRefusal::Absolute),
        (b"/etc/passwd", PathRefusal::Absolute),
        (b"//a", PathRefusal::Absolute),
        (b"a//b", PathRefusal::EmptyComponent),
        (b"a/", PathRefusal::EmptyComponent),
        (b".", PathRefusal::DotComponent),
        (b"..", PathRefusal::DotComponent),
        (b"./a", PathRefusal::DotComponent),
        (b"a/../b", PathRefusal::DotComponent),
        (b"a/..", PathRefusal::DotComponent),
        (b"a\0b", PathRefusal::Nul),
        (b".leasehold", PathRefusal::Reserved),
        (b".leasehold/nonce", PathRefusal::Reserved),
        (&long_component, PathRefusal::TooLong),
        (&long_path, PathRefusal::TooLong),
    ];
    for (bytes, refusal) in table {
        assert_eq!(WorkspacePath::try_new(bytes), Err(refusal), "{:?}", String::from_utf8_lossy(bytes));
    }
}

#[test]
fn the_bounds_themselves_are_allowed() {
    assert!(WorkspacePath::try_new(&[b'a'; 255]).is_ok());
    let path = [[b'a'; 255].as_slice(); 16].join(&b'/');
    assert_eq!(path.len(), 4095);
    assert!(WorkspacePath::try_new(&path).is_ok());
}

#[test]
fn a_working_directory_is_the_root_or_a_path_below_it() {
    assert_eq!(WorkspaceCwd::try_new(".").expect("the root").absolute(), "/workspace");
    let below = WorkspaceCwd::try_new("a/b").expect("a path");
    assert_eq!((below.absolute().as_str(), below.as_bytes()), ("/workspace/a/b", b"a/b".as_slice()));
    assert_eq!(WorkspaceCwd::try_new(""), Err(PathRefusal::Empty));
    assert_eq!(WorkspaceCwd::try_new("./a"), Err(PathRefusal::DotComponent));
    assert_eq!(WorkspaceCwd::try_new(".."), Err(PathRefusal::DotComponent));
    assert_eq!(WorkspaceCwd::try_new("/workspace"), Err(PathRefusal::Absolute));
    assert_eq!(WorkspaceCwd::try_new(".leasehold"), Err(PathRefusal::Reserved));
}

/// Bytes that look like paths more often than random ones do.
fn path_like() -> impl Strategy<Value = Vec<u8>> {
    let piece = prop_oneof![
        Just(b"/".to_vec()),
        Just(b".".to_vec()),
        Just(b"..".to_vec()),
        Just(b"\0".to_vec()),
        Just(b".leasehold".to_vec()),
        Just(vec![b'x'; 255]),
        proptest::collection::vec(any::<u8>(), 0..4),
    ];
    proptest::collection::vec(piece, 0..24).prop_map(|pieces| pieces.concat())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2048))]

    /// The standard library's own reading of the path is the oracle.
    #[test]
    fn any_bytes_lie_under_the_root_or_are_refused(bytes in path_like()) {
        let root = Path::new("/workspace");
        match WorkspacePath::try_new(&bytes) {
            Ok(path) => {
                let joined = root.join(OsStr::from_bytes(path.as_bytes()));
                let below = joined.strip_prefix(root).expect("under the root");
                let components: Vec<_> = below.components().collect();
                prop_assert!(!components.is_empty());
                prop_assert!(components.iter().all(|component| matches!(component, Component::Normal(_))));
                prop_assert_eq!(components.len(), path.components().count());
                prop_assert_eq!(path.as_bytes(), bytes.as_slice());
                prop_assert!(!bytes.contains(&0));
            }
            Err(refusal) => {
                let plain = Path::new(OsStr::from_bytes(&bytes))
                    .components()
                    .all(|component| matches!(component, Component::Normal(name) if name.len() <= 255));
                let written_plainly = !bytes.is_empty()
                    && !bytes.contains(&0)
                    && bytes.len() <= 4096
                    && bytes.split(|byte| *byte == b'/').all(|component| !matches!(component, b"" | b"."));
                let reserved = bytes == b".leasehold" || bytes.starts_with(b".leasehold/");
                prop_assert!(!(plain && written_plainly) || reserved, "{refusal:?} for a plain path");
            }
        }
    }
}
