//! The newest signed head, kept outside of the database: what a database that was set back cannot take back.
//!
//! A store holds one note and changes it by compare-and-swap, so two sealers that both believe to be the only one cannot write over
//! each other. It never goes back to a smaller size. It believes nothing: the sealer verifies what it reads.

use std::fs::File;
use std::io::{ErrorKind, Read as _, Write as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use async_trait::async_trait;

use crate::proof::checkpoint::Checkpoint;
use crate::proof::note::{NOTE_BYTES_MAX, Note};

/// Where the newest head is kept. Other credentials than the database's are the point of it.
#[async_trait]
pub trait HeadStore: Send + Sync + std::fmt::Debug {
    /// The note that is kept; `None` before the first.
    ///
    /// # Errors
    /// When the store does not answer.
    async fn read(&self) -> Result<Option<String>, HeadStoreError>;

    /// Puts `note` in the place of `expected`, durably. Repeating it changes nothing.
    ///
    /// # Errors
    /// When another note than `expected` is kept, the new one is of a smaller tree, or the store does not answer: then it may or may
    /// not have happened.
    async fn replace(&self, expected: Option<&str>, note: &str) -> Result<(), HeadStoreError>;
}

/// The store did not do what it was asked.
#[derive(Debug, thiserror::Error)]
pub enum HeadStoreError {
    /// Not to be reached, read or written.
    #[error("could not {what} {}", path.display())]
    Io {
        /// What failed.
        what: &'static str,
        /// Which file.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// What is kept is no signed head.
    #[error("what is kept is no signed head")]
    Malformed,
    /// Another note is kept than the expected one.
    #[error("another head is kept than the expected one")]
    Changed,
    /// The new head is of a smaller tree than the one that is kept.
    #[error("a head of {new} events cannot replace one of {kept}")]
    Backwards {
        /// Size of the kept head.
        kept: u64,
        /// Size of the new one.
        new: u64,
    },
    /// No answer in time.
    #[error("the store does not answer")]
    Timeout,
}

/// The head in a local file. Writers take turns by a lock file beside it; a reader needs none, for the file is replaced whole.
#[derive(Clone, Debug)]
pub struct FileHead {
    path: Arc<Path>,
}

impl FileHead {
    /// The head in the file `path`; its directory exists.
    #[must_use]
    pub fn new(path: &Path) -> Self {
        Self { path: path.into() }
    }

    async fn blocking<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Path) -> Result<T, HeadStoreError> + Send + 'static,
    ) -> Result<T, HeadStoreError> {
        let path = Arc::clone(&self.path);
        let name = Arc::clone(&self.path);
        let done = tokio::task::spawn_blocking(move || work(&path)).await;
        done.unwrap_or_else(|error| Err(io("work on", &name)(std::io::Error::other(error))))
    }
}

#[async_trait]
impl HeadStore for FileHead {
    async fn read(&self) -> Result<Option<String>, HeadStoreError> {
        self.blocking(read).await
    }

    async fn replace(&self, expected: Option<&str>, note: &str) -> Result<(), HeadStoreError> {
        let (expected, note) = (expected.map(str::to_owned), note.to_owned());
        self.blocking(move |path| replace(path, expected.as_deref(), &note)).await
    }
}

fn io(what: &'static str, path: &Path) -> impl FnOnce(std::io::Error) -> HeadStoreError {
    move |source| HeadStoreError::Io { what, path: path.to_owned(), source }
}

fn read(path: &Path) -> Result<Option<String>, HeadStoreError> {
    let file = match File::open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(io("open", path)(error)),
    };
    let mut note = String::new();
    let bound = u64::try_from(NOTE_BYTES_MAX).unwrap_or(u64::MAX) + 1;
    match file.take(bound).read_to_string(&mut note) {
        Ok(_) => Ok(Some(note)),
        Err(error) if error.kind() == ErrorKind::InvalidData => Err(HeadStoreError::Malformed),
        Err(error) => Err(io("read", path)(error)),
    }
}

fn replace(path: &Path, expected: Option<&str>, note: &str) -> Result<(), HeadStoreError> {
    let lock = beside(path, "lock");
    let locked = File::options().create(true).truncate(false).write(true).open(&lock);
    // Never waited for: whoever hangs with it would take our threads along. The caller comes again.
    let _locked = locked.and_then(|file| Ok(file.try_lock().map(|()| file)?)).map_err(io("lock", &lock))?;
    let kept = read(path)?;
    if kept.as_deref() == Some(note) {
        // A repeat: it may have been renamed and not yet be on the disk.
        return sync_dir(path);
    }
    if kept.as_deref() != expected {
        return Err(HeadStoreError::Changed);
    }
    let new = size(note)?;
    if let Some(kept) = kept.as_deref().map(size).transpose()?
        && new < kept
    {
        return Err(HeadStoreError::Backwards { kept, new });
    }
    let temporary = beside(path, "new");
    let written = File::create(&temporary).and_then(|mut file| {
        file.write_all(note.as_bytes())?;
        file.sync_all()
    });
    written.map_err(io("write", &temporary))?;
    std::fs::rename(&temporary, path).map_err(io("replace", path))?;
    sync_dir(path)
}

/// A file of ours next to the head.
fn beside(path: &Path, what: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(".");
    name.push(what);
    name.into()
}

fn sync_dir(path: &Path) -> Result<(), HeadStoreError> {
    let dir = match path.parent() {
        Some(dir) if dir != Path::new("") => dir,
        _ => Path::new("."),
    };
    File::open(dir).and_then(|dir| dir.sync_all()).map_err(io("make durable", dir))
}

/// The size that a note claims.
fn size(note: &str) -> Result<u64, HeadStoreError> {
    let note = Note::parse(note.as_bytes()).map_err(|_| HeadStoreError::Malformed)?;
    Checkpoint::parse(note.unverified_text())
        .map(|checkpoint| checkpoint.size)
        .map_err(|_| HeadStoreError::Malformed)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::proof::note::SignerKey;

    fn note(size: u64) -> String {
        let key = SignerKey::from_seed("a/log", &[1; 32]).unwrap();
        Checkpoint { origin: "a/log".to_owned(), size, root: [7; 32], extensions: Vec::new() }
            .sign(&[key])
            .unwrap()
    }

    #[tokio::test]
    async fn is_swapped_only_for_what_is_expected_and_never_goes_back() {
        let dir = tempfile::tempdir().unwrap();
        let head = FileHead::new(&dir.path().join("head"));
        assert_eq!(head.read().await.unwrap(), None);
        let changed = head.replace(Some(&note(1)), &note(2)).await;
        assert!(matches!(changed, Err(HeadStoreError::Changed)), "{changed:?}");
        head.replace(None, &note(2)).await.unwrap();
        // Repeated: the same, whatever was expected.
        head.replace(None, &note(2)).await.unwrap();
        assert_eq!(head.read().await.unwrap(), Some(note(2)));
        assert!(matches!(head.replace(None, &note(3)).await, Err(HeadStoreError::Changed)));
        let back = head.replace(Some(&note(2)), &note(1)).await;
        assert!(matches!(back, Err(HeadStoreError::Backwards { kept: 2, new: 1 })), "{back:?}");
        head.replace(Some(&note(2)), &note(3)).await.unwrap();
        assert_eq!(head.read().await.unwrap(), Some(note(3)));
        let other = head.replace(Some(&note(3)), "no note").await;
        assert!(matches!(other, Err(HeadStoreError::Malformed)), "{other:?}");
        assert_eq!(head.read().await.unwrap(), Some(note(3)));
    }

    #[tokio::test]
    async fn of_writers_with_one_expectation_exactly_one_wins() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("head");
        for round in 0..20 {
            let expected = (round > 0).then(|| std::fs::read_to_string(&path).unwrap());
            let heads = [1, 2, 3, 4].map(|writer| note(round * 10 + writer));
            let store = FileHead::new(&path);
            let writes = heads.iter().map(|note| store.replace(expected.as_deref(), note));
            let results = futures::future::join_all(writes).await;
            let won: Vec<_> = (0..4).filter(|writer| results[*writer].is_ok()).collect();
            assert_eq!(won.len(), 1, "{results:?}");
            assert_eq!(store.read().await.unwrap().as_ref(), Some(&heads[won[0]]));
        }
    }

    #[tokio::test]
    async fn what_is_left_of_a_killed_writer_is_no_obstacle_and_what_is_no_text_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("head");
        std::fs::write(dir.path().join("head.new"), "half a no").unwrap();
        let head = FileHead::new(&path);
        head.replace(None, &note(1)).await.unwrap();
        assert_eq!(head.read().await.unwrap(), Some(note(1)));
        std::fs::write(&path, [0xff, 0xfe]).unwrap();
        assert!(matches!(head.read().await, Err(HeadStoreError::Malformed)));
        let nowhere = FileHead::new(&dir.path().join("missing/head"));
        assert_eq!(nowhere.read().await.unwrap(), None);
        assert!(matches!(nowhere.replace(None, &note(1)).await, Err(HeadStoreError::Io { .. })));
    }
}
