//! The ports in memory: real semantics of admission, limits, kills, evidence, files and changes; programs from a small
//! built-in set instead of a kernel. It isolates nothing and is refused in production.
//!
//! Clones share everything, so that a test can hand the same "engine" to a second service process.

mod environment;
mod execute;
mod faults;
mod inventory;
mod program;
mod shell;
mod tree;
mod workspace;

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use async_trait::async_trait;
use events::event::command::InterruptCause;
use events::ids::{CommandId, EnvironmentId};
use events::spec::ImageDigest;
use uuid::Uuid;

pub use faults::Faults;

use environment::{Environment, Halt};

use crate::admission::{check_command, check_handle};
use crate::ports::{
    Cancel, EnvironmentHandle, EnvironmentSpec, ExecuteError, ExecutionCommand, ExecutionEnvironment,
    ExecutionResult, ObservedObject, OutputSink, PortError, StdinSource,
};
use crate::supervise::to_end;
use crate::{Clock, naming};

/// The fake runtime.
#[derive(Clone)]
pub struct FakeAdapter {
    clock: Clock,
    faults: Arc<Faults>,
    image_digest: ImageDigest,
    environments: Arc<Mutex<HashMap<EnvironmentId, Arc<Environment>>>>,
    planted: Arc<Mutex<Vec<ObservedObject>>>,
}

impl FakeAdapter {
    /// An empty runtime that knows one image, [`FakeAdapter::image_digest`].
    #[must_use]
    pub fn new(clock: Clock, image_digest: ImageDigest) -> Self {
        Self {
            clock,
            faults: Arc::default(),
            image_digest,
            environments: Arc::default(),
            planted: Arc::default(),
        }
    }

    /// The only image whose digest a spec may name.
    #[must_use]
    pub fn image_digest(&self) -> &ImageDigest {
        &self.image_digest
    }

    /// What it will do wrong.
    #[must_use]
    pub fn faults(&self) -> &Faults {
        &self.faults
    }

    /// Puts an object there that no environment of this process made.
    pub fn plant(&self, object: ObservedObject) {
        self.planted().push(object);
    }

    /// The sandbox of an environment dies: everything that runs in it is interrupted.
    pub fn lose(&self, environment_id: EnvironmentId, cause: InterruptCause) {
        if let Some(environment) = self.environments().get(&environment_id) {
            environment.halt(Halt::Lost(cause));
        }
    }

    fn environments(&self) -> MutexGuard<'_, HashMap<EnvironmentId, Arc<Environment>>> {
        self.environments.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn planted(&self) -> MutexGuard<'_, Vec<ObservedObject>> {
        self.planted.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The environment that a handle names, when it may be used with it now.
    fn admitted(&self, handle: &EnvironmentHandle) -> Result<Arc<Environment>, PortError> {
        self.faults.check_outage()?;
        let found = self.environments().get(&handle.environment_id).map(Arc::clone);
        let environment = found.ok_or(PortError::Rejected { code: "environment_gone" })?;
        check_handle(handle, &environment.handle, (self.clock)())?;
        match environment.lost() {
            Some(cause) => Err(PortError::Lost { cause }),
            None => Ok(environment),
        }
    }

    fn remove_environment(&self, environment_id: EnvironmentId) {
        if let Some(environment) = self.environments().remove(&environment_id) {
            environment.halt(Halt::Lost(InterruptCause::SandboxLost));
        }
        let sandbox = naming::sandbox_container(environment_id);
        self.planted()
            .retain(|object| object.environment_id != Some(environment_id) && object.name != sandbox);
    }
}

#[async_trait]
impl ExecutionEnvironment for FakeAdapter {
    async fn provision(&self, spec: EnvironmentSpec) -> Result<EnvironmentHandle, PortError> {
        self.faults.before_provision().await?;
        self.faults.check_disk()?;
        if spec.image_digest != self.image_digest {
            return Err(PortError::Rejected { code: "unknown_image" });
        }
        let handle = EnvironmentHandle {
            environment_id: spec.environment_id,
            tenant: spec.tenant,
            run_id: spec.run_id,
            epoch: spec.epoch,
            created_at: (self.clock)(),
            expires_at: spec.expires_at,
        };
        let mut environments = self.environments();
        if environments.contains_key(&spec.environment_id) {
            return Err(PortError::Rejected { code: "environment_exists" });
        }
        environments.insert(spec.environment_id, Arc::new(Environment::new(spec, handle.clone())));
        Ok(handle)
    }

    async fn adopt(&self, spec: EnvironmentSpec) -> Result<EnvironmentHandle, PortError> {
        self.faults.check_outage()?;
        let found = self.environments().get(&spec.environment_id).map(Arc::clone);
        let Some(environment) = found else {
            return Err(PortError::Lost { cause: InterruptCause::SandboxLost });
        };
        if let Some(cause) = environment.lost() {
            return Err(PortError::Lost { cause });
        }
        environment.halt(Halt::StoppedWith(CommandId(Uuid::nil())));
        environment.shared.tree().take_changes();
        Ok(environment.handle.clone())
    }

    async fn execute(
        &self,
        handle: &EnvironmentHandle,
        command: ExecutionCommand,
        stdin: StdinSource,
        sink: Arc<dyn OutputSink>,
        cancel: Cancel,
    ) -> Result<ExecutionResult, ExecuteError> {
        let environment = self.admitted(handle)?;
        check_command(&command)?;
        self.faults.before_execute()?;
        let turn = if command.background {
            None
        } else {
            let turn = Arc::clone(&environment.foreground).try_lock_owned();
            Some(turn.map_err(|_| PortError::Rejected { code: "busy" })?)
        };
        let now = (self.clock)();
        let run = async move {
            let _turn = turn;
            execute::run(&environment, command, stdin, sink, cancel, now).await
        };
        let internal = PortError::Unavailable { code: "internal", effect_possible: true };
        to_end("command", run).await.unwrap_or(Err(internal.into()))
    }

    async fn check_room(&self, _handle: &EnvironmentHandle) -> Result<(), PortError> {
        self.faults.check_disk()
    }

    async fn destroy(&self, environment_id: EnvironmentId) -> Result<(), PortError> {
        self.faults.before_destroy().await?;
        self.remove_environment(environment_id);
        Ok(())
    }

    async fn ping(&self) -> Result<(), PortError> {
        self.faults.check_outage()
    }
}
