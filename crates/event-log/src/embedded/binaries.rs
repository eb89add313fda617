//! Where the locally installed PostgreSQL server is.

use std::path::{Path, PathBuf};

use super::EmbeddedError;

/// A server version that is installed here.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Installed {
    /// Its major version.
    pub major: u32,
    /// Where its programs are.
    pub bin_dir: PathBuf,
}

/// The server that a new cluster would be made with.
///
/// # Errors
/// When none is installed.
pub fn installed() -> Result<Installed, EmbeddedError> {
    Binaries::locate(None).map(|binaries| binaries.installed)
}

/// The programs of one installed server version.
#[derive(Clone, Debug)]
pub(crate) struct Binaries {
    installed: Installed,
}

/// Oldest major version the log's SQL is written for.
const OLDEST_MAJOR: u32 = 14;

impl Binaries {
    /// The newest installed server, or exactly `major` when a cluster of that version exists already.
    pub(crate) fn locate(major: Option<u32>) -> Result<Self, EmbeddedError> {
        let mut found: Vec<(u32, PathBuf)> = debian_layout().collect();
        if let Some(dir) = on_path()
            && let Some(version) = found_major(&dir)
        {
            found.push((version, dir));
        }
        found.retain(|(version, _)| match major {
            Some(wanted) => *version == wanted,
            None => *version >= OLDEST_MAJOR,
        });
        found.sort();
        match found.pop() {
            Some((major, bin_dir)) => Ok(Self { installed: Installed { major, bin_dir } }),
            None => Err(EmbeddedError::NotInstalled { major }),
        }
    }

    /// Path of one program.
    pub(crate) fn program(&self, name: &str) -> PathBuf {
        self.installed.bin_dir.join(name)
    }
}

/// Debian and Ubuntu keep each major version apart.
fn debian_layout() -> impl Iterator<Item = (u32, PathBuf)> {
    std::fs::read_dir("/usr/lib/postgresql").into_iter().flatten().filter_map(|entry| {
        let entry = entry.ok()?;
        let major = entry.file_name().to_str()?.parse().ok()?;
        let dir = entry.path().join("bin");
        complete(&dir).then_some((major, dir))
    })
}

/// Other systems have one version in PATH.
fn on_path() -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path).find(|dir| dir.is_absolute() && complete(dir))
}

fn complete(dir: &Path) -> bool {
    ["initdb", "postgres", "pg_ctl"].iter().all(|name| dir.join(name).is_file())
}

/// `postgres (PostgreSQL) 15.8 (Debian …)` names the version; the program is small and starts nothing.
#[expect(clippy::disallowed_methods, reason = "the embedded database's starter")]
fn found_major(dir: &Path) -> Option<u32> {
    let output = std::process::Command::new(dir.join("postgres")).arg("--version").output().ok()?;
    let text = String::from_utf8(output.stdout).ok()?;
    let version = text.split_whitespace().find(|word| word.starts_with(|c: char| c.is_ascii_digit()))?;
    version.split(|c: char| !c.is_ascii_digit()).next()?.parse().ok()
}
