//! The directory that only this process uses: the client's empty configuration and the seccomp files.
//!
//! They are needed for as long as the process lives, so they belong where nobody cleans up: a configured directory. Without
//! one, a temporary directory that goes with the value.

use std::fs::{DirBuilder, remove_dir_all, write};
use std::io::{self, ErrorKind};
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};

use tempfile::TempDir;

const SANDBOX_SECCOMP: &str = include_str!("../../../../images/seccomp/sandbox.json");
const FILES_SECCOMP: &str = include_str!("../../../../images/seccomp/files.json");

/// The directory, made anew.
#[derive(Debug)]
pub(super) struct PrivateFiles {
    root: PathBuf,
    _temporary: Option<TempDir>,
}

impl PrivateFiles {
    /// Makes it in `state_dir`, in place of an earlier process's, or somewhere temporary.
    pub(super) fn make(state_dir: Option<&Path>) -> io::Result<Self> {
        let (root, temporary) = match state_dir {
            Some(state_dir) => (state_dir.join("engine-client"), None),
            None => {
                let temporary = tempfile::Builder::new().prefix("leasehold-").tempdir()?;
                (temporary.path().join("engine-client"), Some(temporary))
            }
        };
        match remove_dir_all(&root) {
            Ok(()) => {}
            Err(error) if error.kind() == ErrorKind::NotFound => {}
            Err(error) => return Err(error),
        }
        let files = Self { root, _temporary: temporary };
        DirBuilder::new().mode(0o700).recursive(true).create(files.config_dir())?;
        write(files.sandbox_seccomp(), SANDBOX_SECCOMP)?;
        write(files.files_seccomp(), FILES_SECCOMP)?;
        Ok(files)
    }

    /// An empty configuration of the client.
    pub(super) fn config_dir(&self) -> PathBuf {
        self.root.join("config")
    }

    /// The filter of the sandbox.
    pub(super) fn sandbox_seccomp(&self) -> PathBuf {
        self.root.join("sandbox-seccomp.json")
    }

    /// The filter of the files container.
    pub(super) fn files_seccomp(&self) -> PathBuf {
        self.root.join("files-seccomp.json")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_configured_directory_is_made_anew_and_kept() {
        let state = tempfile::tempdir().unwrap();
        for _ in 0..2 {
            let files = PrivateFiles::make(Some(state.path())).unwrap();
            assert_eq!(std::fs::read_dir(files.config_dir()).unwrap().count(), 0);
            write(files.config_dir().join("config.json"), "{}").unwrap();
            drop(files);
        }
        let kept = std::fs::read_to_string(state.path().join("engine-client/sandbox-seccomp.json")).unwrap();
        assert_eq!(kept, SANDBOX_SECCOMP);
    }

    #[test]
    fn a_temporary_directory_goes_with_the_value() {
        let files = PrivateFiles::make(None).unwrap();
        let path = files.files_seccomp();
        assert!(path.exists());
        drop(files);
        assert!(!path.exists());
    }
}
