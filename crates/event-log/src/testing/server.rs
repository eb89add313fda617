//! The server that all test processes share.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::Stdio;

use tokio_postgres::Client;

use super::Failure;
use crate::embedded::{self, EmbeddedPostgres, Settings};
use crate::urls::DatabaseUrls;

/// Runs beside the server: when no process has held `users.lock` for 30 looks of one second, it stops the server and removes
/// its directory (moved aside first, so that a killed watcher leaves nothing half). `start.lock` keeps it from stopping a server that someone is just joining.
const WATCHER: &str = r#"
idle=0
while kill -0 "$2" 2>/dev/null; do
  sleep 1
  if flock -n -x users.lock true; then idle=$((idle + 1)); else idle=0; fi
  [ "$idle" -lt 30 ] && continue
  exec 9>start.lock
  flock -n 9 || continue
  if flock -n -x users.lock true; then
    kill -INT "$2"
    while kill -0 "$2" 2>/dev/null; do sleep 0.1; done
    mv -- data "gone.$2" && rm -rf -- gone.* "$1"
  fi
done
"#;

/// A place among the users of the server; held as long as the process uses it.
#[derive(Debug)]
pub(super) struct SharedServer {
    socket_dir: PathBuf,
    _user: File,
}

impl SharedServer {
    /// Joins the running server or starts it.
    pub(super) async fn join() -> Result<Self, Failure> {
        let dir =
            std::env::temp_dir().join(format!("leasehold-test-postgres-{}", nix::unistd::geteuid().as_raw()));
        std::fs::create_dir_all(&dir)?;
        let dir = dir.canonicalize()?;
        if std::os::unix::fs::MetadataExt::uid(&dir.metadata()?) != nix::unistd::geteuid().as_raw() {
            return Err(format!("{} belongs to another account", dir.display()).into());
        }
        // Blocking locks wait off the runtime; tests of one process may all be here at once.
        let start = lock(dir.join("start.lock"), File::lock).await?;
        let user = lock(dir.join("users.lock"), File::lock_shared).await?;
        let data = dir.join("data");
        let urls = match embedded::find_running(&data) {
            Some(urls) if answers(&urls).await => urls,
            _ => start_server(&dir, &data).await?,
        };
        let server = Self { socket_dir: urls.socket_dir().to_owned(), _user: user };
        server.ensure_template().await?;
        drop(start);
        Ok(server)
    }

    pub(super) fn socket_dir(&self) -> &Path {
        &self.socket_dir
    }

    /// A session of the administrator.
    pub(super) async fn administrator(&self, database: &str) -> Result<Client, tokio_postgres::Error> {
        embedded::connect(&DatabaseUrls::new(&self.socket_dir, database).role(embedded::ADMINISTRATOR)).await
    }

    /// Migrates under another name and renames: a process killed half-way leaves no half template.
    async fn ensure_template(&self) -> Result<(), Failure> {
        let client = self.administrator("postgres").await?;
        let template = template_name();
        let there = client.query_opt("SELECT FROM pg_database WHERE datname = $1", &[&template]).await?;
        if there.is_some() {
            return Ok(());
        }
        // A server that another version started may lack a role.
        client.batch_execute(crate::schema::ROLES_SQL).await?;
        let unfinished = format!("{template}_unfinished");
        client.batch_execute(&format!("DROP DATABASE IF EXISTS {unfinished} WITH (FORCE)")).await?;
        client.batch_execute(&format!("CREATE DATABASE {unfinished} OWNER leasehold_owner")).await?;
        crate::schema::migrate(&DatabaseUrls::new(&self.socket_dir, &unfinished).migrate_url()).await?;
        client.batch_execute(&format!("ALTER DATABASE {unfinished} RENAME TO {template}")).await?;
        Ok(())
    }
}

/// Name of the migrated template: another for each state of the migrations.
pub(super) fn template_name() -> String {
    format!("template_{}", crate::schema::fingerprint())
}

async fn answers(urls: &DatabaseUrls) -> bool {
    embedded::connect(&urls.role(embedded::ADMINISTRATOR)).await.is_ok()
}

async fn lock(path: PathBuf, how: fn(&File) -> std::io::Result<()>) -> Result<File, Failure> {
    let locked = tokio::task::spawn_blocking(move || {
        let file = File::options().create(true).truncate(false).write(true).open(path)?;
        how(&file)?;
        Ok::<_, std::io::Error>(file)
    });
    Ok(locked.await??)
}

/// Starts a server that outlives this process, and its watcher. What an earlier one left is thrown away.
#[expect(clippy::disallowed_methods, reason = "the embedded database's starter")]
async fn start_server(dir: &Path, data: &Path) -> Result<DatabaseUrls, Failure> {
    use std::os::unix::process::CommandExt as _;
    if data.exists() {
        embedded::discard(data).await?;
    }
    let server = EmbeddedPostgres::start_with(data, &Settings::disposable()).await?;
    let urls = server.urls().clone();
    let pid = server.detach().ok_or("the server is gone already")?;
    std::process::Command::new("/bin/sh")
        .args(["-c", WATCHER, "leasehold-test-postgres"])
        .arg(urls.socket_dir())
        .arg(pid.to_string())
        .current_dir(dir)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .process_group(0)
        .spawn()?;
    Ok(urls)
}
