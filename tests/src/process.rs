//! The real thing as a child process: `leasehold serve --dev --json`, driven over HTTP, stopped or killed, and what is left of it.

use std::path::{Path, PathBuf};
use std::process::{Output, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use reqwest::{Method, RequestBuilder, Response};
use serde_json::Value;
use tempfile::TempDir;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::process::{Child, Command};
use uuid::Uuid;

/// Longest wait for any condition in a test; reaching it is a failure.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// One service process on a data directory of its own.
pub struct Service {
    child: Child,
    data: PathBuf,
    runs_its_database: bool,
    /// `http://127.0.0.1:PORT`.
    pub url: String,
    /// The development token.
    pub token: String,
    /// Audit role's address of the database.
    pub database_url: String,
    /// The start-up line.
    pub ready: Value,
    client: reqwest::Client,
    /// The highest position of any answer so far: what a reader must have folded to see everything that was answered.
    seen: AtomicU64,
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
    /// Append, project and audit addresses of a database that the test runs; without them the service runs its own (`--dev`).
    pub database: Option<[String; 3]>,
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
            Some([append, project, audit]) => {
                command
                    .env("LEASEHOLD_DATABASE_APPEND_URL", append)
                    .env("LEASEHOLD_DATABASE_PROJECT_URL", project)
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
            url: text("url"),
            token: text("token"),
            database_url: text("database_url"),
            ready,
            client: reqwest::Client::new(),
            seen: AtomicU64::new(0),
        }
    }

    /// A request with the token.
    pub fn request(&self, method: Method, path: &str) -> RequestBuilder {
        self.client.request(method, format!("{}{path}", self.url)).bearer_auth(&self.token)
    }

    /// POST of a JSON body; answers status and JSON.
    ///
    /// # Panics
    /// When no answer comes.
    pub async fn post(&self, path: &str, body: &Value) -> (u16, Value) {
        self.noted(answer(self.request(Method::POST, path).json(body).send().await.expect("an answer")).await)
    }

    /// GET; answers status and JSON.
    ///
    /// # Panics
    /// When no answer comes.
    pub async fn get(&self, path: &str) -> (u16, Value) {
        self.noted(answer(self.request(Method::GET, path).send().await.expect("an answer")).await)
    }

    fn noted(&self, (status, value): (u16, Value)) -> (u16, Value) {
        if let Some(position) = value["position"].as_u64() {
            self.seen.fetch_max(position, Ordering::SeqCst);
        }
        (status, value)
    }

    /// A lease on a fresh run: (run id, lease).
    ///
    /// # Panics
    /// When it is refused.
    pub async fn lease(&self, ttl_seconds: u64) -> (Uuid, Value) {
        let run = Uuid::now_v7();
        let (status, lease) = self
            .post(&format!("/v1/runs/{run}/leases"), &serde_json::json!({ "ttl_seconds": ttl_seconds }))
            .await;
        assert_eq!(status, 201, "{lease}");
        (run, lease)
    }

    /// A command under a lease, waited for.
    ///
    /// # Panics
    /// When it is refused or does not finish.
    pub async fn run(&self, lease: &Value, body: &Value) -> Value {
        let (status, command) =
            self.post(&format!("/v1/leases/{}/commands", id(lease, "lease_id")), body).await;
        assert_eq!(status, 200, "{command}");
        command
    }

    /// Every event of a run, in order, those behind every answer so far among them.
    ///
    /// # Panics
    /// When they cannot be read.
    pub async fn events(&self, run: Uuid) -> Vec<Value> {
        let mut events = Vec::new();
        let mut path = format!("/v1/runs/{run}/events");
        loop {
            let request = self
                .request(Method::GET, &path)
                .header("Leasehold-Min-Position", self.seen.load(Ordering::SeqCst));
            let (status, page) = answer(request.send().await.expect("an answer")).await;
            assert_eq!(status, 200, "{page}");
            events.extend(page["items"].as_array().expect("items").iter().cloned());
            match page["next_cursor"].as_str() {
                Some(cursor) => path = format!("/v1/runs/{run}/events?cursor={cursor}"),
                None => return events,
            }
        }
    }

    /// Waits until `condition` holds of the JSON at `path`; answers that JSON.
    ///
    /// # Panics
    /// When it does not come to hold in time.
    pub async fn wait_for(&self, path: &str, what: &str, condition: impl Fn(&Value) -> bool) -> Value {
        let start = Instant::now();
        loop {
            let (status, value) = self.get(path).await;
            if status == 200 && condition(&value) {
                return value;
            }
            assert!(start.elapsed() < PATIENCE, "waited in vain for {what}: {status} {value}");
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }

    /// SIGKILL, and gone.
    ///
    /// # Panics
    /// When it cannot be killed.
    pub async fn kill_hard(mut self) {
        self.child.kill().await.expect("the child can be killed");
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

    /// The whole log is proven: every leaf, every chain, every projection.
    ///
    /// # Panics
    /// When verification fails.
    pub async fn assert_verified(&self) {
        let output = self.replay(&["--json", "verify"]).await;
        assert!(
            output.status.success(),
            "verify: {}\n{}",
            String::from_utf8_lossy(&output.stdout),
            String::from_utf8_lossy(&output.stderr)
        );
    }
}

/// Status and JSON of an answer.
///
/// # Panics
/// When the body is not JSON.
pub async fn answer(response: Response) -> (u16, Value) {
    let status = response.status().as_u16();
    let text = response.text().await.expect("a body");
    let value = serde_json::from_str(&text).unwrap_or_else(|_| panic!("{status}, not JSON: {text}"));
    (status, value)
}

/// A UUID field as text.
///
/// # Panics
/// When the field is missing.
#[must_use]
pub fn id(value: &Value, field: &str) -> String {
    value[field].as_str().unwrap_or_else(|| panic!("{field} in {value}")).to_owned()
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
