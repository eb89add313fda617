//! Whose the files of a workspace are, as far as it is known: what went through the port, less what code has changed since.

use std::collections::HashSet;
use std::sync::{Mutex, PoisonError};

use guest::protocol::files::{Change, ChangedPath};

use crate::ports::Provenance;

/// Most paths that are kept of what nobody can say; beyond it that is everything.
const PERHAPS_MAX: usize = 100_000;

/// See the module. Paths are raw bytes.
#[derive(Debug, Default)]
pub(super) struct Writers {
    /// Written through the port and not changed by code since.
    tool: HashSet<Vec<u8>>,
    /// Written through the port; whether code has changed it since is not known.
    perhaps: HashSet<Vec<u8>>,
    /// Another process looked after the workspace before: what it was told of the rest is lost.
    had_another: bool,
}

impl Writers {
    /// The port wrote a file.
    pub(super) fn wrote(&mut self, path: &[u8]) {
        self.perhaps.remove(path);
        self.tool.insert(path.to_vec());
    }

    /// The port may have written a file.
    fn may_have_written(&mut self, path: &[u8]) {
        self.tool.remove(path);
        if self.perhaps.len() >= PERHAPS_MAX {
            self.perhaps.clear();
            self.had_another = true;
        }
        self.perhaps.insert(path.to_vec());
    }

    /// The port removed a file.
    pub(super) fn removed(&mut self, path: &[u8]) {
        self.perhaps.remove(path);
        self.tool.remove(path);
    }

    /// Code changed these, and others too when the list is cut.
    pub(super) fn changed(&mut self, changes: &[Change], is_cut: bool) {
        for change in changes {
            if let ChangedPath::Path(path) = &change.path {
                self.removed(path);
            }
        }
        if is_cut {
            self.perhaps.extend(self.tool.drain());
        }
    }

    /// There was a workspace before this process knew it.
    pub(super) fn were_there_before(&mut self) {
        self.had_another = true;
    }

    /// Whose a file is. What code that runs has done to it is told when it ends.
    pub(super) fn of(&self, path: &[u8], code_runs: bool) -> Provenance {
        if self.tool.contains(path) {
            if code_runs { Provenance::Unknown } else { Provenance::ToolWritten }
        } else if self.had_another || self.perhaps.contains(path) {
            Provenance::Unknown
        } else {
            Provenance::SandboxWritten
        }
    }
}

/// A write under way: given up, or ended without a definite answer, it leaves nobody the file's writer.
pub(super) struct Writing<'a> {
    writers: &'a Mutex<Writers>,
    path: &'a [u8],
    is_settled: bool,
}

impl<'a> Writing<'a> {
    pub(super) fn begin(writers: &'a Mutex<Writers>, path: &'a [u8]) -> Self {
        Self { writers, path, is_settled: false }
    }

    /// The file is as written, or as it was.
    pub(super) fn settle(mut self, is_written: bool) {
        self.is_settled = true;
        if is_written {
            self.writers.lock().unwrap_or_else(PoisonError::into_inner).wrote(self.path);
        }
    }
}

impl Drop for Writing<'_> {
    fn drop(&mut self) {
        if !self.is_settled {
            self.writers.lock().unwrap_or_else(PoisonError::into_inner).may_have_written(self.path);
        }
    }
}

#[cfg(test)]
mod tests {
    use guest::protocol::files::{ChangeKind, EntryKind};

    use super::*;

    fn modified(path: &str) -> Change {
        let path = ChangedPath::Path(path.as_bytes().to_vec());
        Change { path, change: ChangeKind::Modified, kind: EntryKind::File, size_bytes: 1, sha256: None }
    }

    #[test]
    fn a_cut_list_says_nothing_of_what_is_not_on_it() {
        let mut writers = Writers::default();
        for path in ["a", "b", "c"] {
            writers.wrote(path.as_bytes());
        }
        writers.changed(&[modified("a")], false);
        assert_eq!(writers.of(b"a", false), Provenance::SandboxWritten);
        assert_eq!(writers.of(b"b", false), Provenance::ToolWritten);
        writers.changed(&[modified("b")], true);
        assert_eq!(writers.of(b"b", false), Provenance::SandboxWritten);
        assert_eq!(writers.of(b"c", false), Provenance::Unknown);
        writers.wrote(b"c");
        assert_eq!(writers.of(b"c", false), Provenance::ToolWritten);
        assert_eq!(writers.of(b"c", true), Provenance::Unknown, "code may be at it");
        writers.removed(b"c");
        assert_eq!(writers.of(b"c", false), Provenance::SandboxWritten);
    }

    #[test]
    fn a_write_without_an_answer_is_nobodys() {
        let writers = Mutex::new(Writers::default());
        Writing::begin(&writers, b"a").settle(true);
        Writing::begin(&writers, b"a").settle(false);
        assert_eq!(writers.lock().unwrap().of(b"a", false), Provenance::ToolWritten);
        drop(Writing::begin(&writers, b"a"));
        assert_eq!(writers.lock().unwrap().of(b"a", false), Provenance::Unknown);
    }

    #[test]
    fn what_was_there_before_is_nobodys() {
        let mut writers = Writers::default();
        writers.were_there_before();
        writers.wrote(b"new");
        assert_eq!(
            (writers.of(b"new", false), writers.of(b"old", false)),
            (Provenance::ToolWritten, Provenance::Unknown)
        );
    }
}
