//! A workspace in memory: paths to nodes, and the baseline that changes are reported against.

use std::collections::BTreeMap;

use events::event::command::{ChangeKind, FileChange};
use events::event::workspace::PathText;
use events::time::Timestamp;
use sha2::{Digest, Sha256};

use crate::ports::{Provenance, WorkspaceEntry, WorkspaceEntryKind, WorkspaceError};
use crate::quota::Used;

/// One thing in the tree.
#[derive(Clone, Debug)]
pub(super) enum Node {
    File(Vec<u8>),
    Directory,
    Symlink(Vec<u8>),
    Fifo,
}

#[derive(Clone, Debug)]
struct Entry {
    node: Node,
    modified_at: Timestamp,
    tool_written: bool,
}

/// What a node is compared by. The digest is of a file's bytes or a link's target.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Fingerprint {
    is_file: bool,
    size_bytes: u64,
    sha256: [u8; 32],
}

/// All paths of one workspace, relative to its root.
#[derive(Debug, Default)]
pub(super) struct Tree {
    entries: BTreeMap<Vec<u8>, Entry>,
    baseline: BTreeMap<Vec<u8>, Fingerprint>,
}

impl Tree {
    /// Every component before the last is a directory.
    fn check_parents(&self, path: &[u8]) -> Result<(), WorkspaceError> {
        for (index, _) in path.iter().enumerate().filter(|(_, byte)| **byte == b'/') {
            match self.entries.get(&path[..index]).map(|entry| &entry.node) {
                Some(Node::Directory) => {}
                Some(Node::Symlink(_)) => return Err(WorkspaceError::Symlink),
                Some(Node::File(_) | Node::Fifo) => return Err(WorkspaceError::NotADirectory),
                None => return Err(WorkspaceError::NotFound),
            }
        }
        Ok(())
    }

    fn get(&self, path: &[u8]) -> Result<&Entry, WorkspaceError> {
        self.check_parents(path)?;
        self.entries.get(path).ok_or(WorkspaceError::NotFound)
    }

    /// The bytes of a regular file.
    pub(super) fn read(&self, path: &[u8]) -> Result<&[u8], WorkspaceError> {
        match &self.get(path)?.node {
            Node::File(bytes) => Ok(bytes),
            Node::Directory => Err(WorkspaceError::IsADirectory),
            Node::Symlink(_) => Err(WorkspaceError::Symlink),
            Node::Fifo => Err(WorkspaceError::NotRegular),
        }
    }

    /// Makes the missing directories above `path`.
    pub(super) fn make_parents(&mut self, path: &[u8], now: Timestamp) -> Result<(), WorkspaceError> {
        for (index, _) in path.iter().enumerate().filter(|(_, byte)| **byte == b'/') {
            match self.check_parents(&path[..=index]) {
                Err(WorkspaceError::NotFound) => self.put(&path[..index], Node::Directory, false, now),
                other => other?,
            }
        }
        Ok(())
    }

    /// Writes a file in an existing directory; true when it did not exist.
    pub(super) fn write(
        &mut self,
        path: &[u8],
        bytes: Vec<u8>,
        tool_written: bool,
        now: Timestamp,
    ) -> Result<bool, WorkspaceError> {
        let created = match self.read(path) {
            Ok(_) => false,
            Err(WorkspaceError::NotFound) => {
                self.check_parents(path)?;
                true
            }
            Err(error) => return Err(error),
        };
        self.put(path, Node::File(bytes), tool_written, now);
        if tool_written {
            self.accept(path);
        }
        Ok(created)
    }

    /// What it holds: sizes of files and links, and everything that has a name.
    pub(super) fn used(&self) -> Used {
        let bytes = self.entries.values().map(|entry| match &entry.node {
            Node::File(bytes) | Node::Symlink(bytes) => bytes.len() as u64,
            Node::Directory | Node::Fifo => 0,
        });
        Used { bytes: bytes.sum(), inodes: self.entries.len() as u64 }
    }

    /// Whether a file of this size fits at `path`, with the directories that are missing above it.
    pub(super) fn has_room(&self, path: &[u8], size_bytes: u64, limit: Used) -> bool {
        let exists = |path: &[u8]| self.entries.contains_key(path);
        let above = path.iter().enumerate().filter(|(_, byte)| **byte == b'/').map(|(end, _)| &path[..end]);
        let missing = above.chain([path]).filter(|path| !exists(path)).count() as u64;
        let used = self.used();
        used.bytes.saturating_add(size_bytes) <= limit.bytes && used.inodes + missing <= limit.inodes
    }

    /// Puts any node, whatever was there; its parent exists.
    pub(super) fn put(&mut self, path: &[u8], node: Node, tool_written: bool, now: Timestamp) {
        self.entries.insert(path.to_vec(), Entry { node, modified_at: now, tool_written });
    }

    /// Removes anything but a directory with entries.
    pub(super) fn remove(&mut self, path: &[u8]) -> Result<(), WorkspaceError> {
        if matches!(self.get(path)?.node, Node::Directory) && self.below(path).next().is_some() {
            return Err(WorkspaceError::IsADirectory);
        }
        self.entries.remove(path);
        Ok(())
    }

    /// What is at `path` now is no command's change.
    pub(super) fn accept(&mut self, path: &[u8]) {
        match self.entries.get(path).map(|entry| fingerprint(&entry.node)) {
            Some(print) => self.baseline.insert(path.to_vec(), print),
            None => self.baseline.remove(path),
        };
    }

    fn below<'a>(&'a self, directory: &'a [u8]) -> impl Iterator<Item = (&'a Vec<u8>, &'a Entry)> {
        self.entries.iter().filter(move |(path, _)| {
            directory.is_empty() || path.strip_prefix(directory).is_some_and(|rest| rest.starts_with(b"/"))
        })
    }

    /// One entry, links not followed.
    pub(super) fn stat(&self, path: &[u8]) -> Result<WorkspaceEntry, WorkspaceError> {
        Ok(described(path, self.get(path)?))
    }

    /// What is in a directory (the empty path is the workspace), sorted.
    pub(super) fn list(
        &self,
        directory: &[u8],
        recursive: bool,
    ) -> Result<Vec<WorkspaceEntry>, WorkspaceError> {
        if !directory.is_empty() {
            match self.get(directory)?.node {
                Node::Directory => {}
                Node::Symlink(_) => return Err(WorkspaceError::Symlink),
                Node::File(_) | Node::Fifo => return Err(WorkspaceError::NotADirectory),
            }
        }
        let skip = if directory.is_empty() { 0 } else { directory.len() + 1 };
        let shown = |path: &[u8]| recursive || !path[skip..].contains(&b'/');
        Ok(self
            .below(directory)
            .filter(|(path, _)| shown(path))
            .map(|(path, entry)| described(path, entry))
            .collect())
    }

    /// What changed since the baseline, sorted by path; the baseline moves to now.
    pub(super) fn take_changes(&mut self) -> Vec<FileChange> {
        let current: BTreeMap<Vec<u8>, Fingerprint> = self
            .entries
            .iter()
            .filter(|(_, entry)| !matches!(entry.node, Node::Directory))
            .map(|(path, entry)| (path.clone(), fingerprint(&entry.node)))
            .collect();
        let before = std::mem::replace(&mut self.baseline, current);
        let mut changes = Vec::new();
        for (path, print) in &self.baseline {
            let change = match before.get(path) {
                None => ChangeKind::Created,
                Some(earlier) if earlier != print => ChangeKind::Modified,
                Some(_) => continue,
            };
            changes.push(changed(path, change, Some(*print)));
            if let Some(entry) = self.entries.get_mut(path) {
                entry.tool_written = false;
            }
        }
        for path in before.keys().filter(|path| !self.baseline.contains_key(*path)) {
            changes.push(changed(path, ChangeKind::Deleted, None));
        }
        changes.sort_by(|a, b| a.path.cmp(&b.path));
        changes
    }
}

fn changed(path: &[u8], change: ChangeKind, now: Option<Fingerprint>) -> FileChange {
    let file = now.filter(|print| print.is_file);
    FileChange {
        path: PathText::from_bytes(path),
        change,
        size_bytes: now.map(|_| file.map_or(0, |print| print.size_bytes)),
        sha256: file.map(|print| hex::encode(print.sha256)),
    }
}

fn fingerprint(node: &Node) -> Fingerprint {
    let (is_file, bytes) = match node {
        Node::File(bytes) => (true, bytes.as_slice()),
        Node::Symlink(target) => (false, target.as_slice()),
        Node::Directory | Node::Fifo => (false, &[][..]),
    };
    Fingerprint { is_file, size_bytes: bytes.len() as u64, sha256: Sha256::digest(bytes).into() }
}

fn described(path: &[u8], entry: &Entry) -> WorkspaceEntry {
    let (kind, size_bytes, mode) = match &entry.node {
        Node::File(bytes) => (WorkspaceEntryKind::File, bytes.len() as u64, 0o644),
        Node::Directory => (WorkspaceEntryKind::Directory, 0, 0o755),
        Node::Symlink(_) => (WorkspaceEntryKind::Symlink, 0, 0o777),
        Node::Fifo => (WorkspaceEntryKind::Other, 0, 0o644),
    };
    let provenance = match kind {
        WorkspaceEntryKind::File if entry.tool_written => Provenance::ToolWritten,
        WorkspaceEntryKind::File => Provenance::SandboxWritten,
        _ => Provenance::Unknown,
    };
    WorkspaceEntry {
        path: path.to_vec(),
        kind,
        size_bytes,
        modified_at: Some(entry.modified_at),
        mode,
        provenance,
    }
}
