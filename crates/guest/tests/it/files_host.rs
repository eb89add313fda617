//! The host's side of a files channel: one request at a time unless a test drives the frames itself.

use std::ops::{Deref, DerefMut};
use std::path::{Path, PathBuf};

use guest::protocol::Hello;
use guest::protocol::files::{
    CREDIT_WINDOW_BYTES, Change, Entry, FilesErrorCode, MAX_DATA_BYTES, Quota, Request, Response, Usage,
};

use crate::wire::Wire;

pub(crate) const OWNER: u32 = 61_235;
pub(crate) const NONCE: &[u8] = b"\x00nonce\xff";

pub(crate) struct Files {
    wire: Wire<Response>,
    workspace: tempfile::TempDir,
    next_id: u32,
    pub(crate) hello: Hello,
}

impl Deref for Files {
    type Target = Wire<Response>;
    fn deref(&self) -> &Self::Target {
        &self.wire
    }
}

impl DerefMut for Files {
    fn deref_mut(&mut self) -> &mut Self::Target {
        &mut self.wire
    }
}

#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Written {
    pub(crate) size_bytes: u64,
    pub(crate) sha256: [u8; 32],
    pub(crate) created: bool,
}

#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Contents {
    pub(crate) size_bytes: u64,
    pub(crate) bytes: Vec<u8>,
    pub(crate) sha256: [u8; 32],
    pub(crate) end_of_file: bool,
}

#[derive(Debug)]
pub(crate) struct Diff {
    pub(crate) changes: Vec<Change>,
    pub(crate) usage: Usage,
    pub(crate) total_changes: u64,
    pub(crate) truncated: bool,
}

impl Files {
    /// A fresh workspace, initialised, without a bound.
    pub(crate) fn open() -> Self {
        Self::open_with(Quota::UNBOUNDED)
    }

    /// A fresh workspace, initialised.
    pub(crate) fn open_with(quota: Quota) -> Self {
        let mut files = Self::open_bare(tempfile::tempdir().unwrap());
        let ready =
            files.ask(|id| Request::Init { id, uid: OWNER, gid: OWNER, quota, nonce: NONCE.to_vec() });
        assert!(matches!(ready.1, Response::Ready { .. }), "{ready:?}");
        files
    }

    /// A channel that has only greeted.
    pub(crate) fn open_bare(workspace: tempfile::TempDir) -> Self {
        let mut wire = Wire::open("files", workspace.path());
        wire.send(&Request::Hello(Hello::host()));
        let Response::Hello(hello) = wire.receive() else { panic!("the first frame is not a hello") };
        Self { wire, workspace, next_id: 0, hello }
    }

    /// Takes over a workspace that was initialised before, without a bound.
    pub(crate) fn adopt(&mut self) {
        let (uid, gid, nonce) = (OWNER, OWNER, NONCE.to_vec());
        let answer = self.ask(|id| Request::Adopt { id, uid, gid, quota: Quota::UNBOUNDED, nonce });
        assert!(matches!(answer.1, Response::Ready { .. }), "{answer:?}");
    }

    /// Another process on the same workspace; this one ends.
    pub(crate) fn reopen(mut self) -> Self {
        self.wire.close_stdin();
        assert_eq!(self.wire.wait_for_end(), Some(0));
        let workspace = std::mem::replace(&mut self.workspace, tempfile::tempdir().unwrap());
        Self::open_bare(workspace)
    }

    pub(crate) fn path(&self) -> &Path {
        self.workspace.path()
    }

    pub(crate) fn at(&self, path: &str) -> PathBuf {
        self.path().join(path)
    }

    pub(crate) fn next_id(&mut self) -> u32 {
        self.next_id += 1;
        self.next_id
    }

    /// One request to its end, with credit for what comes: everything before the final frame, and that.
    pub(crate) fn ask(&mut self, request: impl FnOnce(u32) -> Request) -> (Vec<Response>, Response) {
        let id = self.next_id();
        let request = request(id);
        self.send(&request);
        self.finish(id)
    }

    pub(crate) fn finish(&mut self, id: u32) -> (Vec<Response>, Response) {
        let mut frames = Vec::new();
        loop {
            let frame = self.receive();
            let credit = match &frame {
                Response::ReadData { bytes, .. } => u32::try_from(bytes.len()).unwrap(),
                Response::Entry { entry, .. } => entry.credit_bytes(),
                _ => 0,
            };
            if frame.is_final() {
                return (frames, frame);
            }
            frames.push(frame);
            if credit > 0 {
                self.send(&Request::Credit { id, bytes: credit });
            }
        }
    }

    pub(crate) fn write(&mut self, path: &str, bytes: &[u8]) -> Result<Written, FilesErrorCode> {
        self.write_with(path.as_bytes(), bytes, u64::MAX, false)
    }

    pub(crate) fn write_with(
        &mut self,
        path: &[u8],
        bytes: &[u8],
        max_bytes: u64,
        create_only: bool,
    ) -> Result<Written, FilesErrorCode> {
        let id = self.next_id();
        self.send(&Request::Write { id, path: path.to_vec(), max_bytes, create_only });
        let mut credit = CREDIT_WINDOW_BYTES as usize;
        for piece in bytes.chunks(MAX_DATA_BYTES) {
            while credit < piece.len() {
                match self.receive() {
                    Response::Credit { bytes, .. } => credit += bytes as usize,
                    Response::Error { code, .. } => return Err(code),
                    frame => panic!("unexpected {frame:?}"),
                }
            }
            credit -= piece.len();
            self.send(&Request::WriteData { id, bytes: piece.to_vec() });
        }
        self.send(&Request::WriteEnd { id });
        match self.finish(id).1 {
            Response::Written { size_bytes, sha256, created, .. } => {
                Ok(Written { size_bytes, sha256, created })
            }
            Response::Error { code, .. } => Err(code),
            frame => panic!("unexpected {frame:?}"),
        }
    }

    pub(crate) fn read(&mut self, path: &str) -> Result<Contents, FilesErrorCode> {
        self.read_range(path.as_bytes(), 0, u64::MAX, false)
    }

    pub(crate) fn read_range(
        &mut self,
        path: &[u8],
        offset: u64,
        max_bytes: u64,
        allow_partial: bool,
    ) -> Result<Contents, FilesErrorCode> {
        let path = path.to_vec();
        let (frames, last) = self.ask(|id| Request::Read { id, path, offset, max_bytes, allow_partial });
        let (sent_bytes, sha256, end_of_file) = match last {
            Response::ReadEnd { sent_bytes, sha256, end_of_file, .. } => (sent_bytes, sha256, end_of_file),
            Response::Error { code, .. } => return Err(code),
            frame => panic!("unexpected {frame:?}"),
        };
        let mut size = None;
        let mut bytes = Vec::new();
        for frame in frames {
            match frame {
                Response::ReadMeta { size_bytes, .. } => size = Some(size_bytes),
                Response::ReadData { bytes: piece, .. } => bytes.extend_from_slice(&piece),
                frame => panic!("unexpected {frame:?}"),
            }
        }
        assert_eq!(bytes.len() as u64, sent_bytes);
        Ok(Contents { size_bytes: size.unwrap(), bytes, sha256, end_of_file })
    }

    pub(crate) fn stat(&mut self, path: &[u8]) -> Result<Entry, FilesErrorCode> {
        let path = path.to_vec();
        match self.ask(|id| Request::Stat { id, path }).1 {
            Response::Stated { entry, .. } => Ok(entry),
            Response::Error { code, .. } => Err(code),
            frame => panic!("unexpected {frame:?}"),
        }
    }

    pub(crate) fn remove(&mut self, path: &str, recursive: bool) -> Result<u64, FilesErrorCode> {
        let path = path.as_bytes().to_vec();
        match self.ask(|id| Request::Remove { id, path, recursive }).1 {
            Response::Removed { entries, .. } => Ok(entries),
            Response::Error { code, .. } => Err(code),
            frame => panic!("unexpected {frame:?}"),
        }
    }

    pub(crate) fn measure(&mut self, stop: Quota) -> Result<(Usage, bool), FilesErrorCode> {
        match self.ask(|id| Request::Measure { id, stop }).1 {
            Response::Measured { usage, complete, .. } => Ok((usage, complete)),
            Response::Error { code, .. } => Err(code),
            frame => panic!("unexpected {frame:?}"),
        }
    }

    pub(crate) fn page(
        &mut self,
        path: &str,
        recursive: bool,
        limit: u32,
        cursor: &[u8],
    ) -> Result<(Vec<Entry>, Option<Vec<u8>>), FilesErrorCode> {
        let (path, cursor) = (path.as_bytes().to_vec(), cursor.to_vec());
        let (frames, last) = self.ask(|id| Request::List { id, path, recursive, limit, cursor });
        let next = match last {
            Response::ListEnd { next_cursor, .. } => next_cursor,
            Response::Error { code, .. } => return Err(code),
            frame => panic!("unexpected {frame:?}"),
        };
        let entries = frames
            .into_iter()
            .map(|frame| match frame {
                Response::Entry { entry, .. } => entry,
                frame => panic!("unexpected {frame:?}"),
            })
            .collect();
        Ok((entries, next))
    }

    /// Every page, as the paths.
    pub(crate) fn list(&mut self, path: &str, recursive: bool, limit: u32) -> Vec<Vec<u8>> {
        let mut all = Vec::new();
        let mut cursor = Some(Vec::new());
        while let Some(from) = cursor {
            let (entries, next) = self.page(path, recursive, limit, &from).unwrap();
            assert!(entries.len() <= limit as usize);
            all.extend(entries.into_iter().map(|entry| entry.path));
            cursor = next;
        }
        all
    }

    pub(crate) fn diff(&mut self) -> Diff {
        self.diff_bounded(1000, 128 * 1024)
    }

    pub(crate) fn diff_bounded(&mut self, max_changes: u32, max_path_bytes: u32) -> Diff {
        let (frames, last) = self.ask(|id| Request::Diff { id, max_changes, max_path_bytes });
        let Response::DiffEnd { usage, total_changes, truncated, .. } = last else {
            panic!("unexpected {last:?}")
        };
        let changes = frames
            .into_iter()
            .map(|frame| match frame {
                Response::Change { change, .. } => change,
                frame => panic!("unexpected {frame:?}"),
            })
            .collect();
        Diff { changes, usage, total_changes, truncated }
    }
}
