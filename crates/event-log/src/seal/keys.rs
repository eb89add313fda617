//! Signing keys: one secret key per file that nobody else can read, and the public halves that a log pins.
//!
//! Rotation: generate a new key, pin it, start the sealer with both, so that verifiers of either believe the heads; later start it
//! with the new one alone. A pinned key stays pinned: old heads are verified with it.

use std::fs::File;
use std::io::{Read as _, Write as _};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use rand::Rng as _;
use zeroize::Zeroizing;

use super::stored;
use crate::error::LogError;
use crate::proof::note::{KeyError, SignerKey, VerifierKey};
use crate::session::{Session, config};

/// A key file is one line; a longer file is none.
const FILE_BYTES_MAX: u64 = 4096;

/// A key file could not be made or used.
#[derive(Debug, thiserror::Error)]
pub enum KeyFileError {
    /// Not to be made, read or written; also when it exists already and was to be made.
    #[error("could not {what} the key file {}", path.display())]
    Io {
        /// What failed.
        what: &'static str,
        /// Which file.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// Others than its owner may read or write it, or it is not our own.
    #[error("the key file {} must be a file of our own account with mode 0600 (it has {mode:04o})", path.display())]
    Permissions {
        /// Which file.
        path: PathBuf,
        /// Its permission bits.
        mode: u32,
    },
    /// It holds no key.
    #[error("the key file {} holds no signing key", path.display())]
    Key {
        /// Which file.
        path: PathBuf,
        /// Why.
        source: KeyError,
    },
    /// The name cannot be a key's.
    #[error("a key cannot have this name")]
    Name(#[source] KeyError),
}

fn io(what: &'static str, path: &Path) -> impl FnOnce(std::io::Error) -> KeyFileError {
    move |source| KeyFileError::Io { what, path: path.to_owned(), source }
}

/// Makes a new key named `name` (the log's origin) in a new file that only our account can read, durably.
///
/// # Errors
/// When the file exists already, or cannot be written.
pub fn generate_key(path: &Path, name: &str) -> Result<SignerKey, KeyFileError> {
    let mut seed = Zeroizing::new([0_u8; 32]);
    rand::rng().fill_bytes(&mut *seed);
    let key = SignerKey::from_seed(name, &seed).map_err(KeyFileError::Name)?;
    let mut line = key.to_text();
    line.push('\n');
    let mut file =
        File::options().write(true).create_new(true).mode(0o600).open(path).map_err(io("make", path))?;
    let written = file.write_all(line.as_bytes()).and_then(|()| file.sync_all()).and_then(|()| {
        let dir = path.parent().filter(|dir| *dir != Path::new("")).unwrap_or(Path::new("."));
        File::open(dir)?.sync_all()
    });
    if let Err(error) = written {
        // Half a key is in nobody's use; if it cannot go, the next attempt says that it is there.
        let _ = std::fs::remove_file(path);
        return Err(io("write", path)(error));
    }
    Ok(key)
}

/// Loads the key of a file.
///
/// # Errors
/// When others may read the file, it is not ours (or root's), or it holds no key.
pub fn load_key(path: &Path) -> Result<SignerKey, KeyFileError> {
    let file = File::open(path).map_err(io("open", path))?;
    // Of the open file: the name may mean another one a moment later.
    let meta = file.metadata().map_err(io("look at", path))?;
    let ours = [0, nix::unistd::geteuid().as_raw()].contains(&meta.uid());
    if !meta.is_file() || meta.mode() & 0o077 != 0 || !ours {
        return Err(KeyFileError::Permissions { path: path.to_owned(), mode: meta.mode() & 0o7777 });
    }
    // Room for all of it: a text that grows leaves copies of itself behind.
    let mut text = Zeroizing::new(String::with_capacity(usize::try_from(FILE_BYTES_MAX).unwrap_or(0) + 1));
    file.take(FILE_BYTES_MAX).read_to_string(&mut text).map_err(io("read", path))?;
    SignerKey::from_text(text.strip_suffix('\n').unwrap_or(&text))
        .map_err(|source| KeyFileError::Key { path: path.to_owned(), source })
}

/// Pins public keys for the log of `migrate_url` (role `leasehold_migrate`): signatures of theirs on its heads count from now on.
/// Pinning one again changes nothing.
///
/// # Errors
/// When the database does not answer, or a key's name is not the log's origin.
pub async fn pin_keys(migrate_url: &str, keys: &[VerifierKey]) -> Result<(), LogError> {
    let session = Session::connect(&config(migrate_url, "leasehold keys")?).await?;
    for key in keys {
        session.client().execute("SELECT log.pin_verifier_key($1)", &[&key.to_string()]).await?;
    }
    Ok(())
}

/// The key of a log could not be made ready.
#[derive(Debug, thiserror::Error)]
pub enum InitKeyError {
    /// The key file.
    #[error(transparent)]
    File(#[from] KeyFileError),
    /// The database.
    #[error("the key cannot be pinned")]
    Log(#[from] LogError),
}

impl From<tokio_postgres::Error> for InitKeyError {
    fn from(error: tokio_postgres::Error) -> Self {
        Self::Log(error.into())
    }
}

/// Makes the file's key the one of the log at `migrate_url`: a file that is missing is made, and the key is pinned. Repeating it
/// changes nothing.
///
/// # Errors
/// When the file cannot be made or used, its key belongs to another log, or the database does not answer.
pub async fn init_key(migrate_url: &str, path: &Path) -> Result<SignerKey, InitKeyError> {
    let session = Session::connect(&config(migrate_url, "leasehold keys")?).await?;
    let meta = stored::pinned(session.client()).await?;
    let key = match load_key(path) {
        Err(KeyFileError::Io { source, .. }) if source.kind() == std::io::ErrorKind::NotFound => {
            generate_key(path, &meta.origin)?
        }
        loaded => loaded?,
    };
    pin_keys(migrate_url, std::slice::from_ref(key.verifier())).await?;
    Ok(key)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    #[test]
    fn a_key_is_made_once_for_its_owner_alone_and_read_back() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("key");
        let key = generate_key(&path, "a/log").unwrap();
        assert_eq!(path.metadata().unwrap().permissions().mode() & 0o7777, 0o600);
        assert_eq!(load_key(&path).unwrap().verifier(), key.verifier());
        let again = generate_key(&path, "a/log").unwrap_err();
        assert!(
            matches!(&again, KeyFileError::Io { source, .. } if source.kind() == std::io::ErrorKind::AlreadyExists),
            "{again:?}"
        );
        assert_eq!(load_key(&path).unwrap().verifier(), key.verifier());
        let other = generate_key(&dir.path().join("other"), "a/log").unwrap();
        assert_ne!(other.verifier(), key.verifier());
        assert!(matches!(generate_key(&dir.path().join("x"), "a log"), Err(KeyFileError::Name(_))));
        assert!(!dir.path().join("x").exists());
    }

    #[test]
    fn a_key_that_others_could_have_read_is_not_used() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("key");
        generate_key(&path, "a/log").unwrap();
        for mode in [0o640, 0o604, 0o620, 0o602, 0o601, 0o644] {
            std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
            let refused = load_key(&path).unwrap_err();
            assert!(matches!(refused, KeyFileError::Permissions { mode: m, .. } if m == mode), "{refused:?}");
        }
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o400)).unwrap();
        load_key(&path).unwrap();
        if nix::unistd::geteuid().is_root() {
            std::os::unix::fs::chown(&path, Some(12_345), None).unwrap();
            assert!(matches!(load_key(&path), Err(KeyFileError::Permissions { .. })));
        }
        assert!(matches!(load_key(dir.path()), Err(KeyFileError::Permissions { .. })));
        assert!(matches!(load_key(&dir.path().join("none")), Err(KeyFileError::Io { .. })));
    }

    #[test]
    fn what_is_no_key_is_named_and_not_shown() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("key");
        let key = generate_key(&path, "a/log").unwrap();
        let text = std::fs::read_to_string(&path).unwrap();
        for content in ["", "\n", &text.replace("PRIVATE", "PUBLIC"), &format!("{text}\n"), &"x".repeat(9000)]
        {
            std::fs::write(&path, content).unwrap();
            let refused = load_key(&path).unwrap_err();
            assert!(matches!(refused, KeyFileError::Key { .. }), "{refused:?}");
            assert!(!format!("{refused:?} {refused}").contains(&text[30..60]));
        }
        assert!(!format!("{key:?}").contains(text.trim().rsplit_once('+').unwrap().1));
    }
}
