//! The real thing as a child process: `leasehold serve --dev --json`, driven over HTTP, stopped or killed, and what is left of it.

use std::ops::Deref;
use std::path::{Path, PathBuf};
use std::process::{Output, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;
use tempfile::TempDir;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::process::{Child, Command};

use crate::api::Client;

/// Longest wait for any condition in a test; reaching it is a failure.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// What the audit tool ends with when no signed head covers what was appended.
const UNANCHORED: i32 = 3;

/// One service process on a data directory of its own.
pub struct Service {
    child: Child,
    data: PathBuf,
    runs_its_database: bool,
    /// `http://127.0.0.1:PORT`.
    pub url: String,
    /// Audit role's address of the database.
    pub database_url: String,
    /// The start-up line.
    pub ready: Value,
    client: Client,
}

/// It is driven by its client.
impl Deref for Service {
    type Target = Client;

    fn deref(&self) -> &Client {
        &self.client
    }
}

/// How to start it.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// `docker`, `gvisor` or `fake`.
    pub mechanism: &'static str,
    /// Abort at this named point (debug builds).
    pub crash_point: Option<&'static str>,
    /// More variables, for example a shorter grace.
    pub variables: Vec<(&'static str, String)>,
    /// Append, project, seal and audit addresses of a database that the test runs; without them the service runs its own (`--dev`).
    pub database: Option<[String; 4]>,
}

impl Options {
    /// Real containers.
    #[must_use]
    pub fn docker() -> Self {
        Self { mechanism: "docker", ..Self::default() }
    }

    /// Real containers on gVisor's kernel.
    #[must_use]
    pub fn gvisor() -> Self {
        Self { mechanism: "gvisor", ..Self::default() }
    }
}

/// A program of this workspace, built in the same profile: tests lie in `target/PROFILE/deps`, programs in `target/PROFILE`.
///
/// # Panics
/// When it was not built.
#[must_use]
pub fn program(name: &str) -> PathBuf {
    let own = std::env::current_exe().expect("the test knows its own path");
    let built = own.ancestors().skip(1).take(2).map(|dir| dir.join(name)).find(|path| path.is_file());
    built.unwrap_or_else(|| panic!("{name} is not built: run `cargo build --workspace --bins` first"))
}

/// A data directory that the database's own user can reach.
///
/// # Panics
/// When it cannot be made.
#[must_use]
pub fn data_dir() -> TempDir {
    use std::os::unix::fs::PermissionsExt as _;
    let dir = tempfile::Builder::new().prefix("leasehold-it-").tempdir().expect("a temporary directory");
    std::fs::set_permissions(dir.path(), std::fs::Permissions::from_mode(0o755)).expect("it is ours");
    dir
}

impl Service {
    /// Starts the service and waits for its start-up line.
    ///
    /// # Panics
    /// When it does not become ready.
    pub async fn start(data: &Path, options: &Options) -> Self {
        let mut command = command(&program("leasehold"));
        command
            .args(["serve", "--json", "--listen", "127.0.0.1:0", "--mechanism", options.mechanism, "--data"])
            .arg(data)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::inherit())
            .kill_on_drop(true);
        match &options.database {
            None => drop(command.arg("--dev")),
            Some([append, project, seal, audit]) => {
                command
                    .env("LEASEHOLD_DATABASE_APPEND_URL", append)
                    .env("LEASEHOLD_DATABASE_PROJECT_URL", project)
                    .env("LEASEHOLD_DATABASE_SEAL_URL", seal)
                    .env("LEASEHOLD_DATABASE_AUDIT_URL", audit);
            }
        }
        if let Some(point) = options.crash_point {
            command.env("LEASEHOLD_CRASH_POINT", point);
        }
        for (name, value) in &options.variables {
            command.env(name, value);
        }
        let mut child = command.spawn().expect("leasehold starts");
        let mut lines = BufReader::new(child.stdout.take().expect("stdout is piped")).lines();
        let line = tokio::time::timeout(PATIENCE * 2, lines.next_line())
            .await
            .expect("the start-up line arrives in time")
            .expect("stdout can be read")
            .expect("the service is ready before it exits");
        let ready: Value = serde_json::from_str(&line).expect("the start-up line is JSON");
        let text = |key: &str| ready[key].as_str().unwrap_or_else(|| panic!("{key} in {ready}")).to_owned();
        Self {
            child,
            data: data.to_path_buf(),
            runs_its_database: options.database.is_none(),
            client: Client::new(
                text("url").strip_prefix("http://").expect("an address").to_owned(),
                text("token"),
            ),
            url: text("url"),
            database_url: text("database_url"),
            ready,
        }
    }

    /// Its process id.
    ///
    /// # Panics
    /// When it has ended.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.child.id().expect("it runs")
    }

    /// SIGKILL, and gone with every client of the engine that it had started.
    ///
    /// # Panics
    /// When it cannot be killed, had no client, or one outlives it.
    pub async fn kill_hard(mut self) {
        let clients = engine_clients_of(self.child.id().expect("it runs"));
        let listens = self.ready["mechanism"] != "fake";
        assert_eq!(!clients.is_empty(), listens, "it listens to the engine, if it has one");
        self.child.kill().await.expect("the child can be killed");
        let start = Instant::now();
        while clients.iter().any(|(pid, line)| command_line(*pid).as_ref() == Some(line)) {
            assert!(start.elapsed() < PATIENCE, "clients of the engine live on: {clients:?}");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    /// Waits until it has ended by itself (an armed crash point).
    ///
    /// # Panics
    /// When it does not end in time.
    pub async fn wait_for_crash(mut self) {
        let status = tokio::time::timeout(PATIENCE, self.child.wait())
            .await
            .expect("it crashes in time")
            .expect("status");
        assert!(!status.success(), "it ended cleanly instead of crashing");
    }

    /// SIGTERM; asserts a clean exit and that nothing of it is left in the engine.
    ///
    /// # Panics
    /// When it exits with another status, or something is left.
    pub async fn stop(mut self) {
        let log_id = self.log_id().await;
        let pid = self.child.id().expect("it runs");
        let killed = command(Path::new("/bin/kill"))
            .args(["-TERM", &pid.to_string()])
            .status()
            .await
            .expect("kill runs");
        assert!(killed.success());
        let status = tokio::time::timeout(PATIENCE, self.child.wait())
            .await
            .expect("it stops in time")
            .expect("status");
        assert!(status.success(), "exit status {status}");
        assert_eq!(left_in_engine(&log_id).await, Vec::<String>::new(), "left behind in the engine");
    }

    /// The log's id, as labels carry it.
    ///
    /// # Panics
    /// When the database cannot be read.
    pub async fn log_id(&self) -> String {
        let (client, connection) = tokio_postgres::connect(&self.database_url, tokio_postgres::NoTls)
            .await
            .expect("the audit role connects");
        let query = async move {
            let row = client.query_one("SELECT log_id::text FROM log.log_meta", &[]).await;
            row.expect("log_meta is readable").get(0)
        };
        // The connection ends when its client is dropped.
        let (log_id, ended) = tokio::join!(query, connection);
        ended.expect("the connection ends well");
        log_id
    }

    /// Runs the audit tool on this service's data.
    ///
    /// # Panics
    /// When it cannot be started.
    pub async fn replay(&self, arguments: &[&str]) -> Output {
        let mut command = command(&program("leasehold-replay"));
        if self.runs_its_database {
            command.arg("--data").arg(&self.data);
        } else {
            command.args(["--database-url", &self.database_url]);
        }
        command.args(arguments).stdin(Stdio::null()).output().await.expect("leasehold-replay runs")
    }

    /// Runs `leasehold` as a user does, pointed at this service, with `stdin` as its standard input.
    ///
    /// # Panics
    /// When it cannot be started.
    pub async fn cli(&self, arguments: &[&str], stdin: &[u8]) -> Output {
        let mut child = command(&program("leasehold"))
            .args(arguments)
            .env("LEASEHOLD_URL", &self.url)
            .env("LEASEHOLD_TOKEN", &self.token)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .expect("leasehold starts");
        let mut input = child.stdin.take().expect("stdin is piped");
        let (_, output) = tokio::join!(
            async move {
                // A program that reads nothing may have ended before.
                let _ = input.write_all(stdin).await;
            },
            tokio::time::timeout(PATIENCE, child.wait_with_output()),
        );
        output.expect("it ends in time").expect("its output can be read")
    }

    /// The whole log is proven: every leaf, every chain, every projection, and the signed head. What was appended a moment ago, or
    /// after a long pause, is sealed within a second or so: until then the log counts as unanchored.
    ///
    /// # Panics
    /// When verification fails.
    pub async fn assert_verified(&self) {
        let begun = Instant::now();
        loop {
            let output = self.replay(&["--json", "verify"]).await;
            if output.status.code() == Some(UNANCHORED) && begun.elapsed() < PATIENCE {
                tokio::time::sleep(Duration::from_millis(50)).await;
                continue;
            }
            assert!(
                output.status.success(),
                "verify: {}\n{}",
                String::from_utf8_lossy(&output.stdout),
                String::from_utf8_lossy(&output.stderr)
            );
            return;
        }
    }
}

/// The engine's clients that a process started: pid and command line.
fn engine_clients_of(parent: u32) -> Vec<(u32, String)> {
    let mut clients = Vec::new();
    for entry in std::fs::read_dir("/proc").expect("processes are listed").flatten() {
        let Some(pid) = entry.file_name().to_str().and_then(|name| name.parse().ok()) else { continue };
        // The fields after the name in parentheses: state, parent.
        let stat = std::fs::read_to_string(entry.path().join("stat")).unwrap_or_default();
        let its_parent =
            stat.rsplit_once(')').and_then(|(_, rest)| rest.split(' ').nth(2)?.parse::<u32>().ok());
        if its_parent == Some(parent) {
            clients.extend(command_line(pid).filter(|line| line.contains("docker")).map(|line| (pid, line)));
        }
    }
    clients
}

/// A process's arguments, each ended by NUL; `None` when it is gone or a zombie.
fn command_line(pid: u32) -> Option<String> {
    std::fs::read_to_string(format!("/proc/{pid}/cmdline")).ok().filter(|line| !line.is_empty())
}

/// Names of containers, volumes and networks that carry this log's label.
///
/// # Panics
/// When the engine does not answer.
pub async fn left_in_engine(log_id: &str) -> Vec<String> {
    let filter = format!("label=leasehold.log={log_id}");
    let mut left = Vec::new();
    for (kind, format) in [("ps", "{{.Names}}"), ("volume", "{{.Name}}"), ("network", "{{.Name}}")] {
        let mut arguments = if kind == "ps" { vec!["ps", "-a"] } else { vec![kind, "ls"] };
        arguments.extend(["--filter", &filter, "--format", format]);
        left.extend(docker(&arguments).await.lines().map(|name| format!("{kind} {name}")));
    }
    left
}

/// Output of one `leasehold` call without a service, with these variables.
///
/// # Panics
/// When it cannot be started.
pub async fn leasehold(arguments: &[&str], variables: &[(&str, &str)]) -> Output {
    command(&program("leasehold"))
        .args(arguments)
        .envs(variables.iter().copied())
        .stdin(Stdio::null())
        .output()
        .await
        .expect("leasehold runs")
}

/// Output of one `docker` call.
///
/// # Panics
/// When the call fails.
pub async fn docker(arguments: &[&str]) -> String {
    let output = command(Path::new("docker"))
        .args(arguments)
        .stdin(Stdio::null())
        .output()
        .await
        .expect("docker runs");
    assert!(output.status.success(), "docker {arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).expect("UTF-8")
}

#[expect(
    clippy::disallowed_methods,
    reason = "the harness plays the operator: it starts the programs under test"
)]
fn command(program: &Path) -> Command {
    Command::new(program)
}
