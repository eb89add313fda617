//! What a case works with.

use std::collections::BTreeMap;
use std::panic::AssertUnwindSafe;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use bytes::Bytes;
use events::event::command::KillReason;
use events::ids::{CommandId, EnvironmentId, Epoch, RunId, TenantId};
use events::spec::{ImageDigest, Limits, Mechanism};
use events::time::Timestamp;
use futures::FutureExt as _;
use futures::future::BoxFuture;
use policy::WorkspacePath;
use uuid::Uuid;

use crate::Clock;
use crate::ports::{
    ByteStream, Cancel, CancelHandle, EnvironmentHandle, EnvironmentSpec, ExecuteError, ExecutionCommand,
    ExecutionEnvironment, ExecutionResult, Inventory, OutputSink, OutputStream, StdinSource, Workspace,
    WorkspaceError, WriteOutcome, cancel_pair,
};

/// 2026-01-01T00:00:00Z, where every test's time begins.
const START_MICROS: i64 = 1_767_225_600_000_000;

/// A clock that runs with the process and can be moved ahead.
#[derive(Clone, Debug)]
pub struct TestClock {
    since: Instant,
    ahead_ms: Arc<AtomicU64>,
}

impl Default for TestClock {
    fn default() -> Self {
        Self { since: Instant::now(), ahead_ms: Arc::default() }
    }
}

impl TestClock {
    /// The time now.
    ///
    /// # Panics
    /// Never: the start is a valid time.
    #[must_use]
    pub fn now(&self) -> Timestamp {
        let elapsed_ms = u64::try_from(self.since.elapsed().as_millis()).unwrap_or(u64::MAX);
        let start = Timestamp::try_from_unix_micros(START_MICROS).unwrap_or_else(|_| unreachable!());
        start.plus_ms(elapsed_ms + self.ahead_ms.load(Ordering::SeqCst))
    }

    /// Moves it ahead.
    pub fn advance(&self, ms: u64) {
        self.ahead_ms.fetch_add(ms, Ordering::SeqCst);
    }

    /// As the adapters take it.
    #[must_use]
    pub fn as_clock(&self) -> Clock {
        let clock = self.clone();
        Arc::new(move || clock.now())
    }
}

/// One adapter behind its three ports.
#[derive(Clone)]
pub struct Adapter {
    /// Sandboxes.
    pub execution: Arc<dyn ExecutionEnvironment>,
    /// Files.
    pub workspace: Arc<dyn Workspace>,
    /// Objects.
    pub inventory: Arc<dyn Inventory>,
}

impl Adapter {
    /// All three ports of one value.
    pub fn new<A>(adapter: A) -> Self
    where
        A: ExecutionEnvironment + Workspace + Inventory + 'static,
    {
        let adapter = Arc::new(adapter);
        Self {
            execution: Arc::clone(&adapter) as Arc<dyn ExecutionEnvironment>,
            workspace: Arc::clone(&adapter) as Arc<dyn Workspace>,
            inventory: adapter,
        }
    }
}

/// Makes the adapter that a restarted process would make over the same runtime.
pub type Restart = Box<dyn Fn() -> BoxFuture<'static, Adapter> + Send + Sync>;

/// An adapter under test.
pub struct Subject {
    /// Its ports.
    pub adapter: Adapter,
    /// Its clock.
    pub clock: TestClock,
    /// How it isolates: what only a kernel shows differs with it.
    pub mechanism: Mechanism,
    /// The image to use.
    pub image: ImageDigest,
    /// A second process over the same runtime.
    pub restart: Restart,
    made: Mutex<Vec<EnvironmentId>>,
}

/// Limits that are small enough for a test and large enough for a shell.
#[must_use]
pub fn limits() -> Limits {
    Limits {
        cpu_millicores: 2000,
        memory_bytes: 512 << 20,
        pids_max: 256,
        workspace_bytes: 256 << 20,
        inodes_max: 100_000,
        wall_clock_seconds: 300,
    }
}

impl Subject {
    /// A subject that has made nothing yet.
    #[must_use]
    pub fn new(
        adapter: Adapter,
        clock: TestClock,
        mechanism: Mechanism,
        image: ImageDigest,
        restart: Restart,
    ) -> Self {
        Self { adapter, clock, mechanism, image, restart, made: Mutex::default() }
    }

    /// A spec with an owner of its own, good for an hour.
    pub fn spec(&self) -> EnvironmentSpec {
        let spec = EnvironmentSpec {
            environment_id: EnvironmentId(Uuid::now_v7()),
            tenant: TenantId(Uuid::now_v7()),
            run_id: RunId(Uuid::now_v7()),
            epoch: Epoch(1),
            image_digest: self.image.clone(),
            limits: limits(),
            expires_at: self.clock.now().plus_ms(3_600_000),
            files_changed_max: 100,
        };
        self.made.lock().unwrap_or_else(PoisonError::into_inner).push(spec.environment_id);
        spec
    }

    /// An environment.
    pub async fn environment(&self) -> EnvironmentHandle {
        self.adapter.execution.provision(self.spec()).await.expect("an environment is provisioned")
    }

    /// Runs a shell script to its end.
    pub async fn sh(&self, handle: &EnvironmentHandle, script: &str) -> ExecutionResult {
        self.run(handle, Call::sh(script)).await.expect("a command has a result")
    }

    /// Runs a call to its end.
    pub async fn run(&self, handle: &EnvironmentHandle, call: Call) -> Result<ExecutionResult, ExecuteError> {
        let Call { command, stdin, sink, cancel, handle: _keep } = call;
        self.adapter.execution.execute(handle, command, stdin, sink, cancel).await
    }

    /// Writes a file through the port.
    pub async fn write(
        &self,
        handle: &EnvironmentHandle,
        path: &str,
        content: &[u8],
    ) -> Result<WriteOutcome, WorkspaceError> {
        let pieces: Vec<_> = content.chunks(100_000).map(|piece| Ok(Bytes::copy_from_slice(piece))).collect();
        let bytes: ByteStream = Box::pin(futures::stream::iter(pieces));
        self.adapter.workspace.write(handle, &path_of(path), bytes, 64 << 20).await
    }

    /// Reads a file through the port.
    pub async fn read(&self, handle: &EnvironmentHandle, path: &str) -> Result<Vec<u8>, WorkspaceError> {
        use futures::StreamExt as _;
        let mut file = self.adapter.workspace.read(handle, &path_of(path), 64 << 20).await?;
        let mut content = Vec::new();
        while let Some(piece) = file.bytes.next().await {
            content.extend_from_slice(&piece?);
        }
        assert_eq!(content.len() as u64, file.size_bytes, "the size announced is the size read");
        Ok(content)
    }
}

/// A workspace path that is one.
#[must_use]
pub fn path_of(path: &str) -> WorkspacePath {
    WorkspacePath::try_new(path.as_bytes()).expect("a workspace path")
}

/// Runs one case, removes what it made and makes sure that nothing is left.
///
/// # Panics
/// When the case does, or when something is left.
pub async fn check(subject: Subject, case: impl AsyncFnOnce(&Subject)) {
    let outcome = AssertUnwindSafe(case(&subject)).catch_unwind().await;
    let made = std::mem::take(&mut *subject.made.lock().unwrap_or_else(PoisonError::into_inner));
    for environment_id in made {
        let destroyed = subject.adapter.execution.destroy(environment_id).await;
        assert!(destroyed.is_ok() || outcome.is_err(), "not destroyed: {destroyed:?}");
    }
    if let Err(panic) = outcome {
        std::panic::resume_unwind(panic);
    }
    let left = subject.adapter.inventory.list().await.expect("the inventory answers");
    assert!(left.is_empty(), "left behind: {left:?}");
}

/// One command with everything that goes with it.
pub struct Call {
    /// What to execute.
    pub command: ExecutionCommand,
    stdin: StdinSource,
    sink: Arc<dyn OutputSink>,
    cancel: Cancel,
    handle: CancelHandle,
}

impl Call {
    /// A program with its arguments: ten seconds, 16 MiB of output, no input.
    #[must_use]
    pub fn argv(argv: &[&str]) -> Self {
        let (handle, cancel) = cancel_pair();
        let env = [("HOME", "/workspace"), ("PATH", "/usr/local/bin:/usr/bin:/bin"), ("LANG", "C.UTF-8")];
        let command = ExecutionCommand {
            command_id: CommandId(Uuid::now_v7()),
            argv: argv.iter().map(|argument| (*argument).to_owned()).collect(),
            cwd: ".".to_owned(),
            env: env
                .map(|(name, value)| (name.to_owned(), value.to_owned()))
                .into_iter()
                .collect::<BTreeMap<_, _>>(),
            timeout_ms: 10_000,
            timeout_reason: KillReason::Timeout,
            lease_expires_at: Timestamp::try_from_unix_micros(START_MICROS + 1)
                .unwrap_or_else(|_| unreachable!()),
            output_bytes_max: 16 << 20,
            background: false,
        };
        Self { command, stdin: StdinSource::Empty, sink: Arc::new(RecordingSink::default()), cancel, handle }
    }

    /// A shell script.
    #[must_use]
    pub fn sh(script: &str) -> Self {
        Self::argv(&["sh", "-c", script])
    }

    /// With a time limit.
    #[must_use]
    pub fn timeout_ms(mut self, timeout_ms: u64) -> Self {
        self.command.timeout_ms = timeout_ms;
        self
    }

    /// With an output bound.
    #[must_use]
    pub fn output_bytes_max(mut self, bytes: u64) -> Self {
        self.command.output_bytes_max = bytes;
        self
    }

    /// Beside the foreground command.
    #[must_use]
    pub fn background(mut self) -> Self {
        self.command.background = true;
        self
    }

    /// With standard input.
    #[must_use]
    pub fn stdin(self, bytes: Vec<u8>) -> Self {
        self.stdin_from(std::io::Cursor::new(bytes))
    }

    /// With standard input from any source.
    #[must_use]
    pub fn stdin_from(mut self, source: impl tokio::io::AsyncRead + Send + 'static) -> Self {
        self.stdin = StdinSource::Stream(Box::pin(source));
        self
    }

    /// With its output sent to `sink`.
    #[must_use]
    pub fn sink(mut self, sink: &Arc<RecordingSink>) -> Self {
        self.sink = Arc::clone(sink) as Arc<dyn OutputSink>;
        self
    }

    /// What cancels it.
    #[must_use]
    pub fn cancel_handle(&self) -> CancelHandle {
        self.handle.clone()
    }
}

/// Keeps everything, and lets a case wait for it.
#[derive(Debug)]
pub struct RecordingSink {
    chunks: Mutex<Vec<(OutputStream, Bytes)>>,
    count: tokio::sync::watch::Sender<usize>,
}

impl Default for RecordingSink {
    fn default() -> Self {
        Self { chunks: Mutex::default(), count: tokio::sync::watch::Sender::new(0) }
    }
}

impl OutputSink for RecordingSink {
    fn write(&self, stream: OutputStream, bytes: Bytes) {
        self.chunks.lock().unwrap_or_else(PoisonError::into_inner).push((stream, bytes));
        self.count.send_modify(|count| *count += 1);
    }
}

impl RecordingSink {
    /// Everything of one stream so far.
    #[must_use]
    pub fn bytes(&self, stream: OutputStream) -> Vec<u8> {
        let chunks = self.chunks.lock().unwrap_or_else(PoisonError::into_inner);
        chunks.iter().filter(|(from, _)| *from == stream).flat_map(|(_, bytes)| bytes.to_vec()).collect()
    }

    /// Waits until standard output holds `text`.
    pub async fn shows(&self, text: &str) {
        let mut count = self.count.subscribe();
        let shown = || {
            let bytes = self.bytes(OutputStream::Stdout);
            bytes.windows(text.len()).any(|window| window == text.as_bytes())
        };
        while !shown() {
            count.changed().await.expect("the sink lives");
        }
    }
}
