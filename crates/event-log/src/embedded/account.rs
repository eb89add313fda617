//! The operating system account the server runs as: our own, or `postgres` when we are root (the server refuses root).

use std::fs;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt, chown};
use std::path::{Path, PathBuf};

use nix::unistd::{User, geteuid};
use sha2::{Digest, Sha256};
use tokio::process::Command;

use super::EmbeddedError;

/// Where root keeps the cluster when the server's account cannot reach the data directory (say under `/root`).
const UNREACHABLE_HOME: &str = "/var/lib/leasehold";

/// Account of the server process.
#[derive(Clone, Debug)]
pub(crate) struct Account {
    /// `None`: the account that runs us.
    other: Option<(u32, u32)>,
}

impl Account {
    /// The account the server must run as here.
    pub(crate) fn choose() -> Result<Self, EmbeddedError> {
        if !geteuid().is_root() {
            return Ok(Self { other: None });
        }
        match User::from_name("postgres") {
            Ok(Some(user)) => Ok(Self { other: Some((user.uid.as_raw(), user.gid.as_raw())) }),
            Ok(None) | Err(_) => Err(EmbeddedError::NoAccount),
        }
    }

    /// A command that runs as this account, with a cleared environment, in `/`.
    #[expect(clippy::disallowed_methods, reason = "the embedded database's starter")]
    pub(crate) fn command(&self, program: &Path) -> Command {
        let mut command = Command::new(program);
        command.env_clear().env("PATH", "/usr/bin:/bin").env("LC_ALL", "C").env("TZ", "UTC").current_dir("/");
        command.stdin(std::process::Stdio::null());
        if let Some((uid, gid)) = self.other {
            command.uid(uid).gid(gid);
        }
        command
    }

    /// Gives a path that we made to the account.
    pub(crate) fn own(&self, path: &Path) -> std::io::Result<()> {
        match self.other {
            Some((uid, gid)) => chown(path, Some(uid), Some(gid)),
            None => Ok(()),
        }
    }

    /// Makes `dir` (its parent exists) as a 0700 directory of the account; an existing one must be exactly that already.
    pub(crate) fn private_dir(&self, dir: &Path) -> Result<(), EmbeddedError> {
        let io =
            |source| EmbeddedError::Io { what: "make a private directory", path: dir.to_owned(), source };
        match fs::DirBuilder::new().mode(0o700).create(dir) {
            Ok(()) => self.own(dir).map_err(io),
            Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => {
                let meta = fs::symlink_metadata(dir).map_err(io)?;
                let owner = self.other.map_or_else(|| geteuid().as_raw(), |(uid, _)| uid);
                // Made, but killed before it was given away.
                if meta.uid() == geteuid().as_raw() && meta.is_dir() {
                    self.own(dir).map_err(io)?;
                } else if meta.uid() != owner || !meta.is_dir() {
                    return Err(EmbeddedError::ForeignDirectory { path: dir.to_owned() });
                }
                fs::set_permissions(dir, fs::Permissions::from_mode(0o700)).map_err(io)
            }
            Err(error) => Err(io(error)),
        }
    }

    /// Whether the account can step into `dir`, tried rather than computed: modes, groups, access lists and mount options
    /// all have a say.
    async fn reaches(&self, dir: &Path) -> bool {
        if self.other.is_none() {
            return true;
        }
        let mut probe = self.command(Path::new("/bin/sh"));
        probe.args(["-c", "cd -- \"$1\"", "sh"]).arg(dir);
        probe.stdout(std::process::Stdio::null()).stderr(std::process::Stdio::null());
        probe.status().await.is_ok_and(|status| status.success())
    }

    /// The directory that holds the cluster of `data_dir`: inside it, or a private one keyed by its path when the account
    /// cannot reach it.
    pub(crate) async fn home(&self, data_dir: &Path) -> Result<PathBuf, EmbeddedError> {
        if self.reaches(data_dir).await {
            let home = data_dir.join("postgres");
            self.private_dir(&home)?;
            return Ok(home);
        }
        let base = Path::new(UNREACHABLE_HOME);
        fs::DirBuilder::new().recursive(true).mode(0o755).create(base).map_err(|source| {
            EmbeddedError::Io { what: "make a directory the server can reach", path: base.to_owned(), source }
        })?;
        let digest = hex::encode(Sha256::digest(data_dir.as_os_str().as_encoded_bytes()));
        let home = base.join(format!("postgres-{}", &digest[..16]));
        self.private_dir(&home)?;
        Ok(home)
    }

    /// A new short private directory for the socket: its path and name must stay below 107 bytes.
    pub(crate) async fn socket_dir(&self) -> Result<PathBuf, EmbeddedError> {
        let mut base = std::env::temp_dir();
        if base.as_os_str().len() > 60 || !self.reaches(&base).await {
            base = PathBuf::from("/tmp");
        }
        let io =
            |source| EmbeddedError::Io { what: "make the socket's directory", path: base.clone(), source };
        let dir = tempfile::Builder::new()
            .prefix("lh-pg-")
            .permissions(fs::Permissions::from_mode(0o700))
            .tempdir_in(&base)
            .map_err(io)?
            .keep();
        self.own(&dir).map_err(io)?;
        Ok(dir)
    }
}
