//! One cluster on disk and its server process.

use std::fs::{self, File};
use std::io::{Read as _, Seek as _, SeekFrom};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use tokio::time::Instant;
use tokio_postgres::NoTls;

use super::account::Account;
use super::binaries::Binaries;
use super::{DATABASE, EmbeddedError};
use crate::urls::DatabaseUrls;

/// The administrator; only this module connects as it.
pub(crate) const ADMINISTRATOR: &str = "leasehold_administrator";
/// How long a start may take: recovery after a hard stop included.
const START_LIMIT: Duration = Duration::from_secs(60);
/// Pause between two looks at a condition.
const LOOK_AGAIN: Duration = Duration::from_millis(50);
/// A log larger than this is begun anew.
const LOG_BYTES_MAX: u64 = 8 << 20;

/// The files of a cluster and the programs that serve them.
#[derive(Debug)]
pub(crate) struct Cluster {
    account: Account,
    binaries: Binaries,
    data: PathBuf,
    log: PathBuf,
}

impl Cluster {
    /// The cluster in `home`, made by `initdb` when it is not there.
    pub(crate) async fn open(account: Account, home: PathBuf, log: PathBuf) -> Result<Self, EmbeddedError> {
        let cluster = Self::at(account, &home, log)?;
        if !cluster.data.exists() {
            cluster.initialise(&home).await?;
        }
        Ok(cluster)
    }

    /// The place of a cluster and the programs of its version; nothing is looked at or made.
    pub(crate) fn at(account: Account, home: &Path, log: PathBuf) -> Result<Self, EmbeddedError> {
        let data = home.join("data");
        let major = match fs::read_to_string(data.join("PG_VERSION")) {
            Ok(text) => text.trim().parse().ok(),
            Err(_) => None,
        };
        Ok(Self { account, binaries: Binaries::locate(major)?, data, log })
    }

    /// Where its files are.
    pub(crate) fn data(&self) -> &Path {
        &self.data
    }

    /// Who runs it.
    pub(crate) const fn account(&self) -> &Account {
        &self.account
    }

    /// `initdb` beside the final place, then a rename: a start that was killed leaves nothing that looks complete.
    async fn initialise(&self, home: &Path) -> Result<(), EmbeddedError> {
        let fresh = home.join("data.new");
        let io = |what, source| EmbeddedError::Io { what, path: fresh.clone(), source };
        if fresh.exists() {
            fs::remove_dir_all(&fresh).map_err(|source| io("remove an unfinished cluster", source))?;
        }
        let mut initdb = self.account.command(&self.binaries.program("initdb"));
        initdb
            .args(["--no-sync", "-E", "UTF8", "--locale=C", "--auth=trust", "-U", ADMINISTRATOR, "-D"])
            .arg(&fresh);
        run("initdb", initdb).await?;
        let conf = fresh.join("postgresql.conf");
        let text = fs::read_to_string(&conf).map_err(|source| io("read the server's settings", source))?;
        fs::write(&conf, format!("{text}\ninclude 'leasehold.conf'\n"))
            .map_err(|source| io("write the server's settings", source))?;
        fs::rename(&fresh, &self.data).map_err(|source| io("put the new cluster in its place", source))
    }

    /// Starts the server and waits until it answers. Its own process group keeps a terminal's interrupt away from it: the
    /// owner stops it when the owner is done.
    pub(crate) async fn start(&self, urls: &DatabaseUrls, settings: &str) -> Result<(), EmbeddedError> {
        let conf = self.data.join("leasehold.conf");
        let socket_dir = urls.socket_dir().display().to_string().replace('\'', "''");
        let text = format!("{settings}unix_socket_directories = '{socket_dir}'\n");
        fs::write(&conf, text).and_then(|()| self.account.own(&conf)).map_err(|source| {
            EmbeddedError::Io { what: "write the server's settings", path: conf, source }
        })?;
        let deadline = Instant::now() + START_LIMIT;
        loop {
            let mut child = self.spawn()?;
            loop {
                if answers(urls).await {
                    return Ok(());
                }
                let ended = child.try_wait().is_ok_and(|status| status.is_some());
                if Instant::now() > deadline {
                    self.request_stop();
                    return Err(EmbeddedError::NotReady { log_tail: self.log_tail() });
                }
                if ended {
                    break;
                }
                tokio::time::sleep(LOOK_AGAIN).await;
            }
            // Sessions of a killed server hold its memory until they notice; nothing else heals by trying again.
            if !self.log_tail().contains("shared memory block") {
                return Err(EmbeddedError::NotReady { log_tail: self.log_tail() });
            }
            tokio::time::sleep(LOOK_AGAIN).await;
        }
    }

    fn spawn(&self) -> Result<tokio::process::Child, EmbeddedError> {
        let io = |source| EmbeddedError::Io { what: "start the server", path: self.log.clone(), source };
        if fs::metadata(&self.log).is_ok_and(|meta| meta.len() > LOG_BYTES_MAX) {
            fs::remove_file(&self.log).map_err(io)?;
        }
        let log = File::options().create(true).append(true).open(&self.log).map_err(io)?;
        let mut postgres = self.account.command(&self.binaries.program("postgres"));
        postgres.arg("-D").arg(&self.data).process_group(0);
        postgres.stdout(log.try_clone().map_err(io)?).stderr(log);
        postgres.spawn().map_err(io)
    }

    /// Stops whatever serves this cluster; nothing to stop is success.
    pub(crate) async fn stop(&self) -> Result<(), EmbeddedError> {
        for mode in ["fast", "immediate"] {
            if live_postmaster(&self.data).is_none() {
                break;
            }
            let mut pg_ctl = self.pg_ctl_stop(mode);
            pg_ctl.args(["-w", "-t", "30"]);
            // A failure is judged by what is left, below.
            let _ = run("pg_ctl", pg_ctl).await;
        }
        if live_postmaster(&self.data).is_some() {
            return Err(EmbeddedError::Program {
                program: "pg_ctl",
                detail: "the server did not stop".to_owned(),
            });
        }
        self.remove_misleading_lock()
    }

    /// The server itself replaces the lock file of a dead predecessor, once that one's sessions have let go of its memory. Only
    /// a file whose number now belongs to some other process would stop it for ever.
    fn remove_misleading_lock(&self) -> Result<(), EmbeddedError> {
        let path = self.data.join("postmaster.pid");
        let Some(pid) = lock_file_pid(&self.data) else { return Ok(()) };
        if !Path::new(&format!("/proc/{pid}")).exists() {
            return Ok(());
        }
        match fs::remove_file(&path) {
            Err(source) if source.kind() != std::io::ErrorKind::NotFound => {
                Err(EmbeddedError::Io { what: "remove a stale lock", path, source })
            }
            _ => Ok(()),
        }
    }

    /// Asks the server to stop and does not wait.
    pub(crate) fn request_stop(&self) {
        let mut pg_ctl = self.pg_ctl_stop("fast");
        pg_ctl.arg("-W").stdout(Stdio::null()).stderr(Stdio::null());
        if let Err(error) = pg_ctl.as_std_mut().status() {
            tracing::warn!(%error, "the embedded database server could not be asked to stop");
        }
    }

    fn pg_ctl_stop(&self, mode: &str) -> tokio::process::Command {
        let mut pg_ctl = self.account.command(&self.binaries.program("pg_ctl"));
        pg_ctl.args(["stop", "-s", "-m", mode, "-D"]).arg(&self.data);
        pg_ctl
    }

    fn log_tail(&self) -> String {
        let read = || -> std::io::Result<String> {
            let mut file = File::open(&self.log)?;
            let start = file.metadata()?.len().saturating_sub(2048);
            file.seek(SeekFrom::Start(start))?;
            let mut bytes = Vec::new();
            file.read_to_end(&mut bytes)?;
            Ok(String::from_utf8_lossy(&bytes).into_owned())
        };
        read().unwrap_or_else(|error| format!("(no log: {error})"))
    }
}

/// Process id of the server that runs on `data`. The lock file alone proves nothing: after a hard stop its number may belong
/// to any process, so the process itself is asked what it is.
pub(crate) fn live_postmaster(data: &Path) -> Option<u32> {
    let pid = lock_file_pid(data)?;
    let command_line = fs::read(format!("/proc/{pid}/cmdline")).ok()?;
    let mut words = command_line.split(|byte| *byte == 0);
    let is_server = words.next().is_some_and(|program| program.ends_with(b"postgres"));
    let data = data.as_os_str().as_encoded_bytes();
    (is_server && words.any(|word| word == data)).then_some(pid)
}

fn lock_file_pid(data: &Path) -> Option<u32> {
    fs::read_to_string(data.join("postmaster.pid")).ok()?.lines().next()?.trim().parse().ok()
}

/// Whether the server accepts sessions.
pub(crate) async fn answers(urls: &DatabaseUrls) -> bool {
    administrator(urls).await.is_ok()
}

/// A session of the administrator on the maintenance database; ends when the client is dropped.
pub(crate) async fn administrator(
    urls: &DatabaseUrls,
) -> Result<tokio_postgres::Client, tokio_postgres::Error> {
    let url = DatabaseUrls::new(urls.socket_dir(), "postgres").role(ADMINISTRATOR);
    connect(&url).await
}

/// A session on `url` whose connection is driven until the client is dropped.
pub(crate) async fn connect(url: &str) -> Result<tokio_postgres::Client, tokio_postgres::Error> {
    let (client, connection) = tokio_postgres::connect(url, NoTls).await?;
    crate::supervise::spawn("database session", async move {
        // Its end is seen by whoever uses the client.
        let _ = connection.await;
    });
    Ok(client)
}

/// Makes the roles and the database where they are missing.
pub(crate) async fn prepare(urls: &DatabaseUrls) -> Result<(), EmbeddedError> {
    let client = administrator(urls).await?;
    client.batch_execute(crate::schema::ROLES_SQL).await?;
    let there = client.query_opt("SELECT FROM pg_database WHERE datname = $1", &[&DATABASE]).await?;
    if there.is_none() {
        client.batch_execute(&format!("CREATE DATABASE {DATABASE} OWNER leasehold_owner")).await?;
    }
    Ok(())
}

async fn run(name: &'static str, mut command: tokio::process::Command) -> Result<(), EmbeddedError> {
    let output = command.output().await.map_err(|source| EmbeddedError::Io {
        what: "run a program of the database server",
        path: PathBuf::from(name),
        source,
    })?;
    if output.status.success() {
        return Ok(());
    }
    let mut detail = String::from_utf8_lossy(&output.stderr).into_owned();
    detail.push_str(&String::from_utf8_lossy(&output.stdout));
    Err(EmbeddedError::Program { program: name, detail: detail.trim().to_owned() })
}
