//! Whose the files of a workspace are, as far as it is known: what went through the port, less what code has changed since.

use std::collections::HashSet;

use guest::protocol::files::{Change, ChangedPath};

use crate::ports::Provenance;

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

    /// Whose a file is.
    pub(super) fn of(&self, path: &[u8]) -> Provenance {
        if self.tool.contains(path) {
            Provenance::ToolWritten
        } else if self.had_another || self.perhaps.contains(path) {
            Provenance::Unknown
        } else {
            Provenance::SandboxWritten
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
        assert_eq!(writers.of(b"a"), Provenance::SandboxWritten);
        assert_eq!(writers.of(b"b"), Provenance::ToolWritten);
        writers.changed(&[modified("b")], true);
        assert_eq!(writers.of(b"b"), Provenance::SandboxWritten);
        assert_eq!(writers.of(b"c"), Provenance::Unknown);
        writers.wrote(b"c");
        assert_eq!(writers.of(b"c"), Provenance::ToolWritten);
        writers.removed(b"c");
        assert_eq!(writers.of(b"c"), Provenance::SandboxWritten);
    }

    #[test]
    fn what_was_there_before_is_nobodys() {
        let mut writers = Writers::default();
        writers.were_there_before();
        writers.wrote(b"new");
        assert_eq!((writers.of(b"new"), writers.of(b"old")), (Provenance::ToolWritten, Provenance::Unknown));
    }
}
