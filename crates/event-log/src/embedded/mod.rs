//! A PostgreSQL server of our own for development: the locally installed programs on a private data directory.
//!
//! ```text
//!   DATA/postgres.lock    held while an owner lives: a second start is refused, a killed owner's lock is free again
//!   DATA/postgres.json    where cluster and socket are, so that other processes (the audit tool) find a running server
//!   DATA/postgres.log     what the server says
//!   DATA/postgres/data    the cluster; elsewhere when the server's account cannot reach DATA
//! ```
//! The server listens on no TCP port. Its socket is in a short private 0700 directory, with trust inside it. Roles are those of
//! production ([`crate::DatabaseUrls`]); the administrator is used only to create them. An owner that was killed leaves its
//! server running: the next start takes it over if it answers, and stops it if it does not.

mod account;
mod binaries;
mod cluster;
mod error;
mod settings;

use std::fs::{File, TryLockError};
use std::ops::Deref;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

pub use binaries::{Installed, installed};
#[cfg(any(test, feature = "test-support"))]
pub(crate) use cluster::{ADMINISTRATOR, connect};
pub use error::EmbeddedError;
pub(crate) use settings::Settings;

use crate::urls::DatabaseUrls;
use account::Account;
use cluster::{Cluster, answers};

/// Name of the database that holds the log.
pub(crate) const DATABASE: &str = "leasehold";

/// What other processes need to know of a running server.
#[derive(Debug, Serialize, Deserialize)]
struct Record {
    cluster: PathBuf,
    socket_dir: PathBuf,
    settings: String,
}

/// A running server that this process owns. Dropping it asks the server to stop; [`EmbeddedPostgres::stop`] also waits.
#[derive(Debug)]
pub struct EmbeddedPostgres {
    cluster: Cluster,
    urls: DatabaseUrls,
    running: bool,
    _lock: File,
}

impl EmbeddedPostgres {
    /// Starts (or takes over) the server of `data_dir`, makes the directory, the cluster, the roles and the empty database
    /// `leasehold` when they are missing. The schema is not its business: see [`crate::migrate`].
    ///
    /// # Errors
    /// No server installed, the directory in use by another process, or the server did not come up (with the end of its log).
    pub async fn start(data_dir: &Path) -> Result<Self, EmbeddedError> {
        Self::start_with(data_dir, &Settings::durable()).await
    }

    pub(crate) async fn start_with(data_dir: &Path, settings: &Settings) -> Result<Self, EmbeddedError> {
        let data_dir = make_data_dir(data_dir)?;
        let lock = lock(&data_dir)?;
        let account = Account::choose()?;
        let home = account.home(&data_dir).await?;
        let cluster = Cluster::open(account, home, data_dir.join("postgres.log")).await?;
        let urls = bring_up(&data_dir, &cluster, settings).await?;
        Ok(Self { cluster, urls, running: true, _lock: lock })
    }

    /// Connection strings by role; also reached without this call.
    #[must_use]
    pub const fn urls(&self) -> &DatabaseUrls {
        &self.urls
    }

    /// Stops the server: open sessions are ended, data is flushed, at most 30 s; then it is stopped hard (it recovers from its
    /// journal at the next start).
    ///
    /// # Errors
    /// When the server is still there afterwards.
    pub async fn stop(mut self) -> Result<(), EmbeddedError> {
        self.running = false;
        self.cluster.stop().await?;
        // A socket directory that stays behind is empty and private: nothing to report.
        let _ = std::fs::remove_dir_all(self.urls.socket_dir());
        Ok(())
    }
}

#[cfg(any(test, feature = "test-support"))]
impl EmbeddedPostgres {
    /// Leaves as a killed owner would: nothing is stopped, only the lock is free.
    pub fn vanish(mut self) {
        self.running = false;
    }

    /// Gives up ownership: the server keeps running. Answers its process id.
    pub(crate) fn detach(mut self) -> Option<u32> {
        self.running = false;
        cluster::live_postmaster(self.cluster.data())
    }
}

impl Deref for EmbeddedPostgres {
    type Target = DatabaseUrls;

    fn deref(&self) -> &DatabaseUrls {
        &self.urls
    }
}

impl Drop for EmbeddedPostgres {
    fn drop(&mut self) {
        if self.running {
            self.cluster.request_stop();
            // Open sessions do not need it any more, and new ones are not wanted.
            let _ = std::fs::remove_dir_all(self.urls.socket_dir());
        }
    }
}

/// The server that runs on `data_dir`, whoever started it; `None` when none does.
#[must_use]
pub fn find_running(data_dir: &Path) -> Option<DatabaseUrls> {
    let record = read_record(data_dir)?;
    cluster::live_postmaster(&record.cluster)?;
    Some(DatabaseUrls::new(&record.socket_dir, DATABASE))
}

/// Stops what runs on `data_dir` and removes it with all its data.
#[cfg(any(test, feature = "test-support"))]
pub(crate) async fn discard(data_dir: &Path) -> Result<(), EmbeddedError> {
    let data_dir = make_data_dir(data_dir)?;
    let _lock = lock(&data_dir)?;
    let account = Account::choose()?;
    let home = account.home(&data_dir).await?;
    // It may be half removed: nothing is opened, only what runs is stopped.
    Cluster::at(account, &home, data_dir.join("postgres.log"))?.stop().await?;
    if let Some(old) = read_record(&data_dir) {
        // Gone is as good.
        let _ = std::fs::remove_dir_all(old.socket_dir);
    }
    for dir in [home, data_dir] {
        match std::fs::remove_dir_all(&dir) {
            Err(source) if source.kind() != std::io::ErrorKind::NotFound => {
                return Err(EmbeddedError::Io { what: "remove a data directory", path: dir, source });
            }
            _ => {}
        }
    }
    Ok(())
}

fn make_data_dir(data_dir: &Path) -> Result<PathBuf, EmbeddedError> {
    std::fs::create_dir_all(data_dir).and_then(|()| data_dir.canonicalize()).map_err(|source| {
        EmbeddedError::Io { what: "make the data directory", path: data_dir.to_owned(), source }
    })
}

fn lock(data_dir: &Path) -> Result<File, EmbeddedError> {
    let path = data_dir.join("postgres.lock");
    let io = |source| EmbeddedError::Io { what: "lock the data directory", path: path.clone(), source };
    let file = File::options().create(true).truncate(false).write(true).open(&path).map_err(io)?;
    match file.try_lock() {
        Ok(()) => Ok(file),
        Err(TryLockError::WouldBlock) => Err(EmbeddedError::InUse { data_dir: data_dir.to_owned() }),
        Err(TryLockError::Error(source)) => Err(io(source)),
    }
}

fn read_record(data_dir: &Path) -> Option<Record> {
    serde_json::from_slice(&std::fs::read(data_dir.join("postgres.json")).ok()?).ok()
}

/// Takes over a live server with the same settings, else starts one; then makes roles and database.
async fn bring_up(
    data_dir: &Path,
    cluster: &Cluster,
    settings: &Settings,
) -> Result<DatabaseUrls, EmbeddedError> {
    let settings_text = settings.to_conf();
    if let Some(record) = read_record(data_dir)
        && record.cluster == cluster.data()
        && cluster::live_postmaster(cluster.data()).is_some()
        && record.settings == settings_text
    {
        let urls = DatabaseUrls::new(&record.socket_dir, DATABASE);
        if answers(&urls).await {
            cluster::prepare(&urls).await?;
            return Ok(urls);
        }
    }
    cluster.stop().await?;
    // The same address as before when it can be had: whoever is connected finds the server again.
    let old = read_record(data_dir).map(|record| record.socket_dir);
    let socket_dir = match old.filter(|dir| cluster.account().private_dir(dir).is_ok()) {
        Some(dir) => dir,
        None => cluster.account().socket_dir().await?,
    };
    let record = Record {
        cluster: cluster.data().to_owned(),
        socket_dir: socket_dir.clone(),
        settings: settings_text.clone(),
    };
    let path = data_dir.join("postgres.json");
    serde_json::to_vec(&record)
        .map_err(std::io::Error::from)
        .and_then(|json| std::fs::write(&path, json))
        .map_err(|source| EmbeddedError::Io { what: "record where the server is", path, source })?;
    let urls = DatabaseUrls::new(&socket_dir, DATABASE);
    cluster.start(&urls, &settings_text).await?;
    cluster::prepare(&urls).await?;
    Ok(urls)
}
