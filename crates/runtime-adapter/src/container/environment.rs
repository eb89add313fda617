//! One environment as this process holds it: its two channels, whether it can still be used, and why its sandbox stopped.
//!
//! ```text
//!            kill, supervisor lost            restart
//!  open ------------------------------> closed --------> open      (same container, same workspace)
//!   |                                      |
//!   +---- destroyed, container gone, nonce wrong, protocol broken ----> gone (final)
//! ```
//! A channel that is closed is opened again by whoever needs it next; before any use the workspace's nonce is compared.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use events::event::command::InterruptCause;
use events::ids::CommandId;
use events::spec::Mechanism;
use guest::protocol::files::{FilesErrorCode, Quota, Request, Response, Usage};
use tokio::sync::{Semaphore, watch};

use super::cli_error::CliError;
use super::config::Backing;
use super::engine::Engine;
use super::files::{FilesChannel, FilesFailure};
use super::link::LinkEnd;
use super::quota::Look;
use super::spawn::{SpawnChannel, Stop};
use super::writers::{Writers, Writing};
use crate::changes::ChangeTracker;
use crate::naming;
use crate::ports::{EnvironmentHandle, EnvironmentSpec, PortError};
use crate::quota::{Allowance, Measured, Used};

/// How long a killed container's channel may take to close.
const CLOSE_DEADLINE: Duration = Duration::from_secs(2);

/// How often, and how far apart, a container is looked at before it counts as alive.
const STATE_POLLS: u32 = 4;
const STATE_POLL: Duration = Duration::from_millis(100);

/// Requests about files of one environment that are sent at the same time.
const FILE_REQUESTS_MAX: usize = 32;
/// How long the files container may take to look at a whole workspace before it counts as lost.
const ADOPT_DEADLINE: Duration = Duration::from_secs(60);

/// What the engine told of kills by the kernel.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct OomEvents {
    pub(super) kills: u64,
    pub(super) last_at: Option<Instant>,
}

/// One environment.
#[derive(Debug)]
pub(super) struct Environment {
    pub(super) engine: Arc<Engine>,
    pub(super) spec: EnvironmentSpec,
    pub(super) handle: EnvironmentHandle,
    pub(super) uid: u32,
    pub(super) nonce: Vec<u8>,
    mechanism: Mechanism,
    backing: Backing,
    pub(super) sandbox_name: String,
    pub(super) files_name: String,
    pub(super) volume_name: String,
    /// Held by the foreground command.
    pub(super) foreground: Arc<tokio::sync::Mutex<()>>,
    /// The foreground command that runs: the sandbox's counters are its own to answer for.
    foreground_command: Mutex<Option<CommandId>>,
    /// Commands that run (count).
    pub(super) running_commands: AtomicU32,
    /// Requests about files at the same time; the container's own threads are fewer than its clients may be many.
    pub(super) file_requests: Arc<Semaphore>,
    /// The spawn channel while it is open. Held while the container is stopped and started, so that nobody starts a
    /// command in between.
    pub(super) sandbox: tokio::sync::Mutex<Option<Arc<SpawnChannel>>>,
    /// The files channel while it is open.
    pub(super) files: tokio::sync::Mutex<Option<Arc<FilesChannel>>>,
    pub(super) changes: tokio::sync::Mutex<ChangeTracker>,
    writers: Mutex<Writers>,
    gone: Mutex<Option<PortError>>,
    /// What the workspace was last known to hold; `None` when it could not be measured.
    usage: Mutex<Option<Usage>>,
    /// Kills in a row that left the workspace over its limit (count).
    pub(super) strikes: AtomicU32,
    pub(super) last_look: tokio::sync::Mutex<Option<Look>>,
    /// The sandbox was stopped by us and not started again: its `die` event is no news.
    pub(super) stopped_by_us: AtomicBool,
    /// Kills by the kernel that the engine told of, since the environment was opened.
    pub(super) oom_events: watch::Sender<OomEvents>,
}

impl Environment {
    pub(super) fn new(
        engine: Arc<Engine>,
        spec: EnvironmentSpec,
        handle: EnvironmentHandle,
        uid: u32,
        nonce: Vec<u8>,
        (mechanism, backing): (Mechanism, Backing),
    ) -> Self {
        let id = spec.environment_id;
        Self {
            engine,
            spec,
            handle,
            uid,
            nonce,
            mechanism,
            backing,
            sandbox_name: naming::sandbox_container(id),
            files_name: naming::files_container(id),
            volume_name: naming::workspace_volume(id),
            foreground: Arc::default(),
            foreground_command: Mutex::default(),
            running_commands: AtomicU32::new(0),
            file_requests: Arc::new(Semaphore::new(FILE_REQUESTS_MAX)),
            sandbox: tokio::sync::Mutex::default(),
            files: tokio::sync::Mutex::default(),
            changes: tokio::sync::Mutex::default(),
            writers: Mutex::default(),
            gone: Mutex::default(),
            usage: Mutex::default(),
            strikes: AtomicU32::new(0),
            last_look: tokio::sync::Mutex::default(),
            stopped_by_us: AtomicBool::new(false),
            oom_events: watch::Sender::default(),
        }
    }

    /// Usable, as far as known.
    pub(super) fn check(&self) -> Result<(), PortError> {
        match lock(&self.gone).clone() {
            Some(error) => Err(error),
            None => Ok(()),
        }
    }

    /// Never usable again; the first reason counts.
    pub(super) fn set_gone(&self, error: PortError) -> PortError {
        lock(&self.gone).get_or_insert(error).clone()
    }

    /// Not used by this process any more: whatever runs or waits in it ends.
    pub(super) async fn abandon(&self) {
        self.set_gone(PortError::Rejected { code: "environment_gone" });
        if let Some(channel) = self.sandbox.lock().await.take() {
            channel.set_stop(Stop::Lost(InterruptCause::SandboxLost));
            if self.end_from_inside(&channel) {
                let _ = tokio::time::timeout(CLOSE_DEADLINE, channel.closed()).await;
            }
            channel.close();
        }
        if let Some(channel) = self.files.lock().await.take() {
            channel.close();
        }
    }

    /// Asks the sandbox to end by itself, ahead of the engine; false where that is not the way. The way of gVisor's runtime into a
    /// sandbox, its kill included, takes descriptors that code can use up: it then waits until the sandbox ends.
    fn end_from_inside(&self, channel: &SpawnChannel) -> bool {
        let is_the_way = self.mechanism == Mechanism::Gvisor;
        if is_the_way {
            channel.shut_down();
        }
        is_the_way
    }

    pub(super) fn writers(&self) -> MutexGuard<'_, Writers> {
        lock(&self.writers)
    }

    /// A write through the port begins.
    pub(super) fn writing<'a>(&'a self, path: &'a [u8]) -> Writing<'a> {
        Writing::begin(&self.writers, path)
    }

    /// A command runs.
    pub(super) fn code_runs(&self) -> bool {
        self.running_commands.load(Ordering::SeqCst) > 0
    }

    /// The foreground command that runs.
    pub(super) fn foreground(&self) -> Option<CommandId> {
        *lock(&self.foreground_command)
    }

    pub(super) fn set_foreground(&self, command_id: Option<CommandId>) {
        *lock(&self.foreground_command) = command_id;
    }

    /// What the workspace was last known to hold.
    pub(super) fn usage(&self) -> Option<Usage> {
        *lock(&self.usage)
    }

    pub(super) fn set_usage(&self, usage: Option<Usage>) {
        *lock(&self.usage) = usage;
    }

    /// The API wrote or removed something. What could not be measured before still cannot.
    pub(super) fn update_usage(&self, usage: Usage) {
        if let Some(known) = lock(&self.usage).as_mut() {
            *known = usage;
        }
    }

    /// The same as it counts against the limits.
    pub(super) fn used(&self) -> Measured {
        self.usage().map(|usage| Used { bytes: usage.used_bytes(), inodes: usage.inodes })
    }

    /// What a command that begins now may use.
    pub(super) fn allowance(&self) -> Allowance {
        Allowance::of(&self.spec.limits, self.used())
    }

    /// The open spawn channel; a stopped sandbox is started first.
    pub(super) async fn spawn_channel(&self) -> Result<Arc<SpawnChannel>, PortError> {
        let mut slot = self.sandbox.lock().await;
        self.check()?;
        if let Some(channel) = slot.as_ref() {
            if channel.end().is_none() {
                return Ok(Arc::clone(channel));
            }
            self.find_stop(channel).await;
            *slot = None;
            self.check()?;
        }
        if !self.stopped_by_us.load(Ordering::SeqCst) {
            self.engine.kill(&self.sandbox_name).await.map_err(|error| self.sandbox_error(error))?;
        }
        self.engine.start(&self.sandbox_name).await.map_err(|error| self.sandbox_error(error))?;
        let channel = self.open_sandbox().await?;
        self.check_sandbox_nonce(&channel).await?;
        self.stopped_by_us.store(false, Ordering::SeqCst);
        *slot = Some(Arc::clone(&channel));
        Ok(channel)
    }

    /// Opens the channel into the running sandbox.
    pub(super) async fn open_sandbox(&self) -> Result<Arc<SpawnChannel>, PortError> {
        let opened = SpawnChannel::open(&self.engine.cli, &self.sandbox_name).await;
        opened.map(Arc::new).map_err(|error| self.sandbox_error(error))
    }

    /// The sandbox sees the workspace that it should.
    pub(super) async fn check_sandbox_nonce(&self, channel: &SpawnChannel) -> Result<(), PortError> {
        let seen = channel.read_nonce().await.map_err(|error| self.sandbox_error(error))?;
        if seen.as_deref() == Some(&self.nonce) {
            Ok(())
        } else {
            Err(self.set_gone(PortError::Lost { cause: InterruptCause::FilesLost }))
        }
    }

    fn sandbox_error(&self, error: CliError) -> PortError {
        match error {
            CliError::Gone => self.set_gone(PortError::Lost { cause: InterruptCause::SandboxLost }),
            other => other.to_port(),
        }
    }

    /// The open files channel; a stopped files container is started, and the workspace taken over, first.
    pub(super) async fn files_channel(&self) -> Result<Arc<FilesChannel>, PortError> {
        let mut slot = self.files.lock().await;
        self.check()?;
        if let Some(channel) = slot.as_ref() {
            match channel.end() {
                None => return Ok(Arc::clone(channel)),
                Some(LinkEnd::Violation(code)) => {
                    return Err(self.set_gone(PortError::EscapeSuspected { code }));
                }
                Some(LinkEnd::Closed | LinkEnd::Silent) => {}
            }
        }
        *slot = None;
        let lost = PortError::Lost { cause: InterruptCause::FilesLost };
        // A workspace in memory is charged to the container that died, and gone once nobody has it mounted.
        if self.backing == Backing::Tmpfs {
            match self.engine.container(&self.files_name).await {
                Ok(Some(state)) if state.running => {}
                Ok(_) => return Err(self.set_gone(lost)),
                Err(error) => return Err(error.to_port()),
            }
        }
        match self.engine.start(&self.files_name).await {
            Ok(()) => {}
            Err(CliError::Gone) => return Err(self.set_gone(lost)),
            Err(error) => return Err(error.to_port()),
        }
        let channel = self.open_files().await?;
        *slot = Some(Arc::clone(&channel));
        Ok(channel)
    }

    /// Opens the channel into the running files container and takes the workspace over.
    async fn open_files(&self) -> Result<Arc<FilesChannel>, PortError> {
        let opened = FilesChannel::open(&self.engine.cli, &self.files_name).await;
        let channel = opened.map_err(CliError::to_port)?;
        self.ready_workspace(&channel, false).await?;
        Ok(channel)
    }

    /// Makes (`fresh`) or takes over the workspace.
    pub(super) async fn ready_workspace(
        &self,
        channel: &Arc<FilesChannel>,
        fresh: bool,
    ) -> Result<(), PortError> {
        let (uid, gid, nonce) = (self.uid, self.uid, self.nonce.clone());
        let limits = &self.spec.limits;
        let quota = Quota { bytes_max: limits.workspace_bytes, inodes_max: limits.inodes_max };
        let mut exchange = channel.send(|id| {
            if fresh {
                Request::Init { id, uid, gid, quota, nonce }
            } else {
                Request::Adopt { id, uid, gid, quota, nonce }
            }
        });
        let answer = tokio::time::timeout(ADOPT_DEADLINE, exchange.next()).await;
        match answer.unwrap_or(Err(FilesFailure::Refused(FilesErrorCode::CannotMeasure))) {
            Ok(Response::Ready { usage, .. }) => {
                self.set_usage(Some(usage));
                Ok(())
            }
            Err(FilesFailure::Refused(FilesErrorCode::NonceMismatch | FilesErrorCode::CannotMeasure)) => {
                Err(self.set_gone(PortError::Lost { cause: InterruptCause::FilesLost }))
            }
            Err(FilesFailure::Refused(FilesErrorCode::NoSpace)) => Err(CliError::NoSpace.to_port()),
            _ => Err(PortError::Unavailable { code: "files_not_ready", effect_possible: true }),
        }
    }

    /// There is room on the engine's disk for new work, as far as can be found out.
    pub(super) async fn check_disk(&self) -> Result<(), PortError> {
        if self.engine.disk.is_known_roomy() {
            return Ok(());
        }
        // A channel that does not open is its user's to report.
        match self.files_channel().await {
            Ok(files) => self.engine.disk.check(&files).await,
            Err(_) => Ok(()),
        }
    }

    /// Stops the sandbox because of one command; false when it has been stopped already since `channel` was opened. Every
    /// command on the channel ends, and nothing starts until [`Environment::spawn_channel`] has started the container again.
    pub(super) async fn stop(&self, channel: &Arc<SpawnChannel>, stop: Stop) -> bool {
        let mut slot = self.sandbox.lock().await;
        if !slot.as_ref().is_some_and(|current| Arc::ptr_eq(current, channel)) {
            return false;
        }
        channel.set_stop(stop);
        *slot = None;
        self.end_from_inside(channel);
        self.stop_container().await;
        // What was on its way arrives before the end of the stream.
        if tokio::time::timeout(CLOSE_DEADLINE, channel.closed()).await.is_err() {
            channel.close();
        }
        true
    }

    async fn stop_container(&self) {
        self.stopped_by_us.store(true, Ordering::SeqCst);
        let (dead, alive) = (InterruptCause::SandboxLost, InterruptCause::SupervisorLost);
        // A kill that meets the container's own end may fail and have nothing left to do.
        if let Err(error) = self.engine.kill(&self.sandbox_name).await
            && self.cause(&self.sandbox_name, dead, alive).await != dead
        {
            // The guest kills what it started when its channel closes, and the next start stops the container first.
            tracing::warn!(?error, environment = %self.spec.environment_id, "a sandbox could not be stopped");
            self.stopped_by_us.store(false, Ordering::SeqCst);
        }
    }

    /// Why the files channel ended.
    pub(super) async fn files_cause(&self) -> InterruptCause {
        self.cause(&self.files_name, InterruptCause::FilesLost, InterruptCause::FilesLost).await
    }

    /// What became of a container whose channel ended: `dead`, or `alive` when it still runs a while later (the engine is
    /// behind: it calls a container running that is just being removed).
    async fn cause(&self, name: &str, dead: InterruptCause, alive: InterruptCause) -> InterruptCause {
        for _ in 0..STATE_POLLS {
            match self.engine.container(name).await {
                Ok(Some(state)) if state.running => tokio::time::sleep(STATE_POLL).await,
                Ok(_) => return dead,
                Err(_) => return InterruptCause::ChannelLost,
            }
        }
        alive
    }

    /// Why a channel that has ended ended. Whoever asks first finds out, and stops what may still run.
    pub(super) async fn stopped_by(&self, channel: &Arc<SpawnChannel>) -> Stop {
        if let Some(stop) = channel.stop() {
            return stop;
        }
        let mut slot = self.sandbox.lock().await;
        if let Some(stop) = channel.stop() {
            return stop;
        }
        let stop = self.find_stop(channel).await;
        if slot.as_ref().is_some_and(|current| Arc::ptr_eq(current, channel)) {
            *slot = None;
            self.stop_container().await;
        }
        stop
    }

    /// Asks the engine why a channel ended, for every command on it. The caller holds the sandbox lock.
    async fn find_stop(&self, channel: &SpawnChannel) -> Stop {
        if let Some(stop) = channel.stop() {
            return stop;
        }
        let stop = match channel.end() {
            Some(LinkEnd::Violation(code)) => {
                self.set_gone(PortError::EscapeSuspected { code });
                Stop::Suspected(code)
            }
            _ => {
                let (dead, alive) = (InterruptCause::SandboxLost, InterruptCause::SupervisorLost);
                Stop::Lost(self.cause(&self.sandbox_name, dead, alive).await)
            }
        };
        channel.set_foreground_at_stop(self.foreground());
        channel.set_stop(stop);
        stop
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
