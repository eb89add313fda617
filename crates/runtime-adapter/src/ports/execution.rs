//! Provision, execute, destroy.

use std::collections::BTreeMap;
use std::pin::Pin;
use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;
use events::event::command::{Evidence, FileChange, KillReason, Usage};
use events::ids::{CommandId, EnvironmentId, Epoch, RunId, TenantId};
use events::spec::{ImageDigest, Limits};
use events::time::Timestamp;
use tokio::io::AsyncRead;
use tokio::sync::watch;

use super::error::PortError;

/// What to provision.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EnvironmentSpec {
    /// Its id.
    pub environment_id: EnvironmentId,
    /// Whose it is.
    pub tenant: TenantId,
    /// For which run.
    pub run_id: RunId,
    /// Under which epoch.
    pub epoch: Epoch,
    /// The image, by engine id.
    pub image_digest: ImageDigest,
    /// What it may use.
    pub limits: Limits,
    /// The hard cap, absolute.
    pub expires_at: Timestamp,
    /// Largest number of entries in `files_changed`.
    pub files_changed_max: u64,
}

/// A provisioned environment, as its owner holds it. A plain value: it can be made again from the log after a restart.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EnvironmentHandle {
    /// Its id.
    pub environment_id: EnvironmentId,
    /// Whose it is.
    pub tenant: TenantId,
    /// For which run.
    pub run_id: RunId,
    /// Under which epoch.
    pub epoch: Epoch,
    /// When it was requested.
    pub created_at: Timestamp,
    /// The hard cap; `execute` refuses past it.
    pub expires_at: Timestamp,
}

/// One command to execute. The environment map is complete and already built (policy).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExecutionCommand {
    /// Its id.
    pub command_id: CommandId,
    /// Program and arguments; `argv[0]` is absolute or a bare name.
    pub argv: Vec<String>,
    /// Relative to `/workspace`; `.` is the workspace itself.
    pub cwd: String,
    /// The child's whole environment.
    pub env: BTreeMap<String, String>,
    /// Time limit in ms, standard input included.
    pub timeout_ms: u64,
    /// What a passed limit is called: TIMEOUT or EXPIRED.
    pub timeout_reason: KillReason,
    /// The end of the lease, for EXPIRED's evidence.
    pub lease_expires_at: Timestamp,
    /// Bytes of both streams together past which the command is killed.
    pub output_bytes_max: u64,
    /// Runs beside the foreground command.
    pub background: bool,
}

/// Standard input: nothing (end of file at once), or a stream.
pub enum StdinSource {
    /// End of file at once.
    Empty,
    /// Bytes until end of file.
    Stream(Pin<Box<dyn AsyncRead + Send>>),
}

/// Which output.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[expect(missing_docs, reason = "the names say it")]
pub enum OutputStream {
    Stdout,
    Stderr,
}

/// Receives output as it arrives. Never blocks and never fails: a slow reader is the sink's own matter.
pub trait OutputSink: Send + Sync {
    /// Bytes of one stream, in order.
    fn write(&self, stream: OutputStream, bytes: Bytes);
}

/// Why the caller ends a command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CancelRequest {
    /// What the kill is called: CANCELLED, EXPIRED or SERVICE_SHUTDOWN.
    pub reason: KillReason,
    /// Evidence known to the caller (`by`, `expires_at`, `deadline_ms`).
    pub evidence: Evidence,
}

/// The sending half of a cancellation; the first request wins. Dropping it cancels nothing.
#[derive(Clone, Debug)]
pub struct CancelHandle(Arc<watch::Sender<Option<CancelRequest>>>);

/// The receiving half of a cancellation.
#[derive(Clone, Debug)]
pub struct Cancel(watch::Receiver<Option<CancelRequest>>);

/// A connected pair.
#[must_use]
pub fn cancel_pair() -> (CancelHandle, Cancel) {
    let (sender, receiver) = watch::channel(None);
    (CancelHandle(Arc::new(sender)), Cancel(receiver))
}

impl CancelHandle {
    /// Asks for the end; later requests change nothing.
    pub fn cancel(&self, request: CancelRequest) {
        self.0.send_if_modified(|slot| {
            let first = slot.is_none();
            if first {
                *slot = Some(request);
            }
            first
        });
    }
}

impl Cancel {
    /// The request, once there is one; pending for ever when the handle is gone.
    pub async fn requested(&mut self) -> CancelRequest {
        loop {
            if let Some(request) = self.0.borrow_and_update().clone() {
                return request;
            }
            if self.0.changed().await.is_err() {
                std::future::pending::<()>().await;
            }
        }
    }

    /// The request, if there is one already.
    #[must_use]
    pub fn get(&self) -> Option<CancelRequest> {
        self.0.borrow().clone()
    }
}

/// One output stream as captured: the view's raw material, counts and digest of everything.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Captured {
    /// All bytes when `tail` is `None`, else the first ones.
    pub head: Vec<u8>,
    /// The last bytes, when not all were kept.
    pub tail: Option<Vec<u8>>,
    /// All bytes produced.
    pub bytes_total: u64,
    /// SHA-256 of all bytes produced.
    pub sha256: [u8; 32],
}

/// How a command ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExecutionResult {
    /// The program's own exit code, 128 + n for a signal of its own, 126/127 when it could not start; `None` exactly when
    /// it was killed by us.
    pub exit_code: Option<i32>,
    /// Why it was killed.
    pub killed_by: Option<KillReason>,
    /// What proves it.
    pub evidence: Option<Evidence>,
    /// Standard output.
    pub stdout: Captured,
    /// Standard error.
    pub stderr: Captured,
    /// Processes left behind and killed.
    pub stragglers: u32,
    /// Files created, modified, deleted.
    pub files_changed: Vec<FileChange>,
    /// The list was cut.
    pub files_changed_truncated: bool,
    /// What it used.
    pub usage: Usage,
    /// From the start frame to the end, in ms.
    pub duration_ms: u64,
}

/// A command without a plain result.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ExecuteError {
    /// The caller cancelled; clean-up is done, the environment is usable, the partial result is complete.
    #[error("the command was cancelled")]
    Cancelled {
        /// Everything known, with `killed_by` and evidence as requested.
        partial: Box<ExecutionResult>,
    },
    /// The port failed.
    #[error(transparent)]
    Port(#[from] PortError),
}

/// Sandboxes. Every call is bounded in time (decision D15).
#[async_trait]
pub trait ExecutionEnvironment: Send + Sync {
    /// Makes an environment, where [`ExecutionEnvironment::check_room`] would let work begin. On failure nothing is left, or what
    /// is left is listed by the inventory.
    async fn provision(&self, spec: EnvironmentSpec) -> Result<EnvironmentHandle, PortError>;

    /// Takes over an environment after a restart of the service: stops and starts its sandbox, reopens the channels,
    /// takes a new baseline snapshot. `Lost` when it cannot be continued.
    async fn adopt(&self, spec: EnvironmentSpec) -> Result<EnvironmentHandle, PortError>;

    /// Executes one command and reports its end. A second foreground command at the same time is `Rejected` (`busy`).
    /// Dropping the future does not stop the command: cancel it.
    async fn execute(
        &self,
        handle: &EnvironmentHandle,
        command: ExecutionCommand,
        stdin: StdinSource,
        sink: Arc<dyn OutputSink>,
        cancel: Cancel,
    ) -> Result<ExecutionResult, ExecuteError>;

    /// Whether new work may begin in the environment: `Unavailable` (`disk_reserve`) while the runtime's disk has less room than
    /// is kept for outcomes, kills and removals, which go on. Says nothing of the environment itself.
    async fn check_room(&self, handle: &EnvironmentHandle) -> Result<(), PortError>;

    /// Removes everything of the environment; gone is success. Works for ids that this process never saw.
    async fn destroy(&self, environment_id: EnvironmentId) -> Result<(), PortError>;

    /// The runtime answers (readiness).
    async fn ping(&self) -> Result<(), PortError>;
}
