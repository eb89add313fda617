//! The adapter over a container engine (mechanisms `docker` and `gvisor`).
//!
//! One environment is a named volume, a *sandbox container* in which `guest spawn` starts commands, and a *files container*
//! through which `guest files` reads, writes and measures the volume; it shares no process with untrusted code and survives
//! kills. One long-lived client process per container carries its channel: at first the one that started the container.
//!
//! - `cli`, `cli_error`: the one place that starts processes, and what they can say.
//! - `disk`: room on the engine's disk.
//! - `engine`, `private`, `profile`, `labels`, `inventory`: single objects, their options, names and labels.
//! - `link`, `outgoing`, `spawn`, `files`: the two framed channels.
//! - `environment`, `lifecycle`: channels and life of one environment; `watch`: the engine's event stream.
//! - `blame`: whose a kill by the kernel was.
//! - `execute`, `follow`, `stdin`, `reports`: one command; `quota`: what it uses of the workspace.
//! - `workspace`: files; `writers`: whose they are; `versions`, `gvisor`: what is verified before the engine and that mechanism are used; `probe`: a look at the engine for diagnosis.

mod blame;
mod cli;
mod cli_error;
mod config;
mod disk;
mod engine;
mod environment;
mod execute;
mod files;
mod follow;
mod gvisor;
mod inventory;
mod labels;
mod lifecycle;
mod link;
mod outgoing;
mod private;
mod probe;
mod profile;
mod quota;
mod reports;
mod spawn;
mod stdin;
mod versions;
mod watch;
mod workspace;
mod writers;

use std::collections::HashMap;
use std::future::Future;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use async_trait::async_trait;
use events::ids::EnvironmentId;
use events::spec::{ImageDigest, Mechanism};

pub use config::{Backing, ContainerConfig};
pub use gvisor::GvisorFacts;
pub use probe::{Probe, ProbedImage, probe, probe_gvisor};

use cli::Cli;
use cli_error::CliError;
use disk::Disk;
use engine::Engine;
use environment::Environment;
use private::PrivateFiles;

use crate::Clock;
use crate::admission::{check_command, check_handle};
use crate::ports::{
    Cancel, EnvironmentHandle, EnvironmentSpec, ExecuteError, ExecutionCommand, ExecutionEnvironment,
    ExecutionResult, OutputSink, PortError, StdinSource,
};
use crate::supervise::{Task, task, to_end, to_end_here};

/// The adapter over a container engine. Clones share everything.
#[derive(Clone)]
pub struct ContainerAdapter {
    inner: Arc<Inner>,
    _watch: Arc<Task>,
}

struct Inner {
    config: ContainerConfig,
    clock: Clock,
    engine: Arc<Engine>,
    private: Arc<PrivateFiles>,
    execution_image: ImageDigest,
    files_image: ImageDigest,
    gvisor: Option<GvisorFacts>,
    environments: Mutex<HashMap<EnvironmentId, Arc<Environment>>>,
    turns: Mutex<HashMap<EnvironmentId, Arc<tokio::sync::Mutex<()>>>>,
}

impl ContainerAdapter {
    /// Finds the engine's client, resolves both images and begins to listen to the engine's events.
    ///
    /// # Errors
    /// `Rejected` (`mechanism_unsupported`, `uids_invalid`, `unknown_image`, `guest_version`) for what no retry can help; `Unavailable` when
    /// the engine does not answer or its client is missing. Unless old engines are allowed also `engine_too_old` and
    /// `runc_too_old` (`Rejected`). With [`Mechanism::Gvisor`] also `gvisor_not_registered`,
    /// `gvisor_is_default_runtime`, `gvisor_host_network`, `gvisor_unsafe_arguments`, `gvisor_not_in_use` (`Rejected`) and
    /// `gvisor_starts_nothing` (`Unavailable`): it is verified before the first environment.
    pub async fn start(config: ContainerConfig, clock: Clock) -> Result<Self, PortError> {
        if !matches!(config.mechanism, Mechanism::Docker | Mechanism::Gvisor) {
            return Err(PortError::Rejected { code: "mechanism_unsupported" });
        }
        if !config.uids_are_sound() {
            return Err(PortError::Rejected { code: "uids_invalid" });
        }
        let private = PrivateFiles::make(config.state_dir.as_deref())
            .map(Arc::new)
            .map_err(|_| PortError::Unavailable { code: "state_dir", effect_possible: false })?;
        let (path, host) = (config.docker_path.as_deref(), config.docker_host.clone());
        let cli = Cli::find(path, host, Arc::clone(&private)).await;
        let engine =
            Arc::new(Engine::new(cli.map_err(CliError::to_port)?, Disk::new(config.disk_reserve_bytes)));
        if !config.allow_old_engine {
            versions::check(&engine.cli).await?;
        }
        let execution_image = engine.image_id(&config.execution_image).await.map_err(CliError::to_port)?;
        let files_image = engine.image_id(&config.files_image).await.map_err(CliError::to_port)?;
        let gvisor = match config.mechanism {
            Mechanism::Gvisor => {
                let labels = labels::probe_arguments(&config, clock());
                let (runtime, host_network) = (&config.gvisor_runtime, config.gvisor_allow_host_network);
                Some(gvisor::verify(&engine, runtime, host_network, &execution_image, labels).await?)
            }
            _ => None,
        };
        let inner = Arc::new(Inner {
            config,
            clock,
            engine,
            private,
            execution_image,
            files_image,
            gvisor,
            environments: Mutex::default(),
            turns: Mutex::default(),
        });
        let watch = Arc::new(task("engine events", watch::run(Arc::downgrade(&inner))));
        Ok(Self { inner, _watch: watch })
    }

    /// The id of the configured execution image, as resolved at start: what specs name.
    #[must_use]
    pub fn execution_image(&self) -> &ImageDigest {
        &self.inner.execution_image
    }

    /// What was verified of gVisor at start; `None` with another mechanism.
    #[must_use]
    pub fn gvisor(&self) -> Option<&GvisorFacts> {
        self.inner.gvisor.as_ref()
    }

    /// The id of the image that a reference names now.
    ///
    /// # Errors
    /// `Rejected` (`unknown_image`, `guest_version`), or `Unavailable`.
    pub async fn resolve_image(&self, reference: &str) -> Result<ImageDigest, PortError> {
        self.inner.engine.image_id(reference).await.map_err(CliError::to_port)
    }
}

impl Inner {
    fn environments(&self) -> MutexGuard<'_, HashMap<EnvironmentId, Arc<Environment>>> {
        self.environments.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Making, taking over and removing one environment happen one after the other.
    async fn lifecycle_turn(&self, environment_id: EnvironmentId) -> tokio::sync::OwnedMutexGuard<()> {
        let turn = {
            let mut turns = self.turns.lock().unwrap_or_else(PoisonError::into_inner);
            // A turn that nobody holds or waits for is forgotten.
            turns.retain(|_, turn| Arc::strong_count(turn) > 1);
            Arc::clone(turns.entry(environment_id).or_default())
        };
        turn.lock_owned().await
    }

    /// The environment that a handle names, when it may be used with it now.
    fn admitted(&self, handle: &EnvironmentHandle) -> Result<Arc<Environment>, PortError> {
        let found = self.environments().get(&handle.environment_id).map(Arc::clone);
        let environment = found.ok_or(PortError::Rejected { code: "environment_gone" })?;
        check_handle(handle, &environment.handle, (self.clock)())?;
        environment.check()?;
        Ok(environment)
    }
}

/// Runs a port's work to its end, whether or not the caller waits for it.
async fn finished<T: Send + 'static>(
    name: &'static str,
    work: impl Future<Output = Result<T, PortError>> + Send + 'static,
) -> Result<T, PortError> {
    to_end(name, work).await.unwrap_or(Err(INTERNAL))
}

const INTERNAL: PortError = PortError::Unavailable { code: "internal", effect_possible: true };

#[async_trait]
impl ExecutionEnvironment for ContainerAdapter {
    async fn provision(&self, spec: EnvironmentSpec) -> Result<EnvironmentHandle, PortError> {
        let inner = Arc::clone(&self.inner);
        finished("provision", async move { inner.provision(spec).await }).await
    }

    async fn adopt(&self, spec: EnvironmentSpec) -> Result<EnvironmentHandle, PortError> {
        let inner = Arc::clone(&self.inner);
        finished("adopt", async move { inner.adopt(spec).await }).await
    }

    async fn execute(
        &self,
        handle: &EnvironmentHandle,
        command: ExecutionCommand,
        stdin: StdinSource,
        sink: Arc<dyn OutputSink>,
        cancel: Cancel,
    ) -> Result<ExecutionResult, ExecuteError> {
        let environment = self.inner.admitted(handle)?;
        check_command(&command)?;
        let turn = if command.background {
            None
        } else {
            let turn = Arc::clone(&environment.foreground).try_lock_owned();
            Some(turn.map_err(|_| PortError::Rejected { code: "busy" })?)
        };
        let inner = Arc::clone(&self.inner);
        let run = async move {
            let _turn = turn;
            execute::run(&environment, &inner.config, command, stdin, sink, cancel).await
        };
        to_end_here("command", run).await.unwrap_or(Err(ExecuteError::Port(INTERNAL)))
    }

    async fn check_room(&self, handle: &EnvironmentHandle) -> Result<(), PortError> {
        // What else may be wrong with it, its execution says.
        let Ok(environment) = self.inner.admitted(handle) else { return Ok(()) };
        environment.check_disk().await
    }

    async fn destroy(&self, environment_id: EnvironmentId) -> Result<(), PortError> {
        let inner = Arc::clone(&self.inner);
        finished("destroy", async move { inner.destroy(environment_id).await }).await
    }

    async fn ping(&self) -> Result<(), PortError> {
        self.inner.engine.ping().await.map_err(CliError::to_port)
    }
}
