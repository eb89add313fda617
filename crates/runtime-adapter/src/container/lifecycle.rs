//! Making, taking over and removing environments.
//!
//! Making: both containers beside each other (each says what the volume is like, so the engine makes it for whichever comes
//! first, without a call of its own); the client that makes and starts a container stays attached to it and carries its first
//! channel, but for a gVisor sandbox, whose channel is an exec. Then the nonce is compared as the sandbox sees it. A failure at any step
//! removes what was made; what cannot be removed is found by its labels later.

use std::sync::Arc;

use events::event::command::InterruptCause;
use events::ids::EnvironmentId;

use super::cli_error::CliError;
use super::environment::Environment;
use super::files::FilesChannel;
use super::labels::{self, Role};
use super::profile::WorkspaceVolume;
use super::spawn::SpawnChannel;
use super::{Inner, profile};
use crate::naming;
use crate::ports::{EnvironmentHandle, EnvironmentSpec, PortError};

impl Inner {
    fn handle(&self, spec: &EnvironmentSpec, created: Option<events::time::Timestamp>) -> EnvironmentHandle {
        EnvironmentHandle {
            environment_id: spec.environment_id,
            tenant: spec.tenant,
            run_id: spec.run_id,
            epoch: spec.epoch,
            created_at: created.unwrap_or_else(|| (self.clock)()),
            expires_at: spec.expires_at,
        }
    }

    fn environment(&self, spec: EnvironmentSpec, handle: EnvironmentHandle) -> Arc<Environment> {
        let id = spec.environment_id;
        let (uid, nonce) = (self.config.uid(id), self.config.nonce(id));
        let kind = (self.config.mechanism, self.config.backing);
        Arc::new(Environment::new(Arc::clone(&self.engine), spec, handle, uid, nonce, kind))
    }

    /// No two environments of this process share a user id: limits per user would be shared with it.
    fn check_uid(&self, environment_id: EnvironmentId) -> Result<(), PortError> {
        let uid = self.config.uid(environment_id);
        let taken = self.environments().values().any(|other| other.uid == uid);
        if taken {
            Err(PortError::Unavailable { code: "uid_in_use", effect_possible: false })
        } else {
            Ok(())
        }
    }

    pub(super) async fn provision(&self, spec: EnvironmentSpec) -> Result<EnvironmentHandle, PortError> {
        let id = spec.environment_id;
        let _turn = self.lifecycle_turn(id).await;
        if self.environments().contains_key(&id) {
            return Err(PortError::Rejected { code: "environment_exists" });
        }
        if !self.config.backing.allows(&spec.limits) {
            return Err(PortError::Rejected { code: "workspace_exceeds_memory" });
        }
        self.check_uid(id)?;
        self.engine.check_image(&spec.image_digest).await.map_err(CliError::to_port)?;
        let handle = self.handle(&spec, None);
        let environment = self.environment(spec, handle.clone());
        let made = tokio::time::timeout(self.config.provision_budget, self.make(&environment))
            .await
            .unwrap_or(Err(PortError::Unavailable { code: "provision_timeout", effect_possible: true }));
        match made {
            Ok(()) => {
                self.environments().insert(id, environment);
                Ok(handle)
            }
            // Somebody else's environment of that name stays.
            Err(error @ PortError::Rejected { code: "environment_exists" }) => Err(error),
            Err(error) => {
                if let Err(left) = self.remove_all(id).await {
                    tracing::warn!(error = %left, environment = %id, "a failed provision left something behind");
                }
                Err(error)
            }
        }
    }

    async fn make(&self, environment: &Arc<Environment>) -> Result<(), PortError> {
        let (spec, crash_points) = (&environment.spec, &self.config.crash_points);
        let labels = |role| {
            let (created, deadline) = (environment.handle.created_at, spec.expires_at);
            labels::all(&self.config, spec.environment_id, role, created, deadline)
        };
        let (name, backing) = (&environment.volume_name, self.config.backing);
        let volume = &WorkspaceVolume::new(name, labels(Role::Workspace), backing, &spec.limits);
        let files = async {
            let name = &environment.files_name;
            let labels = labels(Role::Files);
            let image = &self.files_image;
            let memory_bytes = profile::files_memory_bytes(&self.config, &spec.limits);
            let arguments = profile::files(&self.private, memory_bytes, image, name, volume, labels);
            let channel = FilesChannel::run(&self.engine.cli, arguments).await.map_err(CliError::to_port)?;
            crash_points.reach("after_files");
            environment.ready_workspace(&channel, true).await?;
            self.engine.disk.check(&channel).await?;
            Ok(channel)
        };
        let sandbox = async {
            let name = &environment.sandbox_name;
            let labels = labels(Role::Sandbox);
            let (limits, image) = (&spec.limits, &spec.image_digest);
            let arguments =
                profile::sandbox(&self.config, &self.private, limits, image, name, volume, labels);
            if !profile::sandbox_is_attached(self.config.mechanism) {
                self.engine.cli.run(arguments).await.map_err(CliError::to_port)?;
                crash_points.reach("after_sandbox");
                return environment.open_sandbox().await;
            }
            let channel = SpawnChannel::run(&self.engine.cli, arguments).await.map_err(CliError::to_port)?;
            crash_points.reach("after_sandbox");
            Ok(Arc::new(channel))
        };
        // A client that is dropped while the engine works for it leaves what appears afterwards: one's failure waits for the other.
        let (files, sandbox) = tokio::join!(files, sandbox);
        let (files, sandbox) = (files?, sandbox?);
        environment.check_sandbox_nonce(&sandbox).await?;
        crash_points.reach("after_spawn");
        *environment.files.lock().await = Some(files);
        *environment.sandbox.lock().await = Some(sandbox);
        Ok(())
    }

    pub(super) async fn adopt(&self, spec: EnvironmentSpec) -> Result<EnvironmentHandle, PortError> {
        let id = spec.environment_id;
        let _turn = self.lifecycle_turn(id).await;
        let known = self.environments().remove(&id);
        if let Some(known) = known {
            known.abandon().await;
        }
        self.check_uid(id)?;
        let lost = |cause| PortError::Lost { cause };
        let sandbox_name = naming::sandbox_container(id);
        let state = self.engine.container(&sandbox_name).await.map_err(CliError::to_port)?;
        let state = state
            .filter(|state| state.log_id == Some(self.config.log_id))
            .ok_or(lost(InterruptCause::SandboxLost))?;
        let environment = self.environment(spec.clone(), self.handle(&spec, state.created));
        environment.writers().were_there_before();
        // Whatever runs in it belongs to a process that is gone: it is stopped before anything else.
        self.engine.kill(&sandbox_name).await.map_err(CliError::to_port)?;
        environment.files_channel().await?;
        environment.spawn_channel().await?;
        let handle = environment.handle.clone();
        self.environments().insert(id, environment);
        Ok(handle)
    }

    pub(super) async fn destroy(&self, environment_id: EnvironmentId) -> Result<(), PortError> {
        let _turn = self.lifecycle_turn(environment_id).await;
        let known = self.environments().get(&environment_id).map(Arc::clone);
        if let Some(environment) = &known {
            environment.abandon().await;
        }
        self.remove_all(environment_id).await?;
        self.environments().remove(&environment_id);
        Ok(())
    }

    /// Removes everything of an environment, by name and then by label, and makes sure that it is gone.
    async fn remove_all(&self, environment_id: EnvironmentId) -> Result<(), PortError> {
        let (sandbox, files) =
            (naming::sandbox_container(environment_id), naming::files_container(environment_id));
        let (sandbox, files) =
            tokio::join!(self.engine.remove_container(&sandbox), self.engine.remove_container(&files));
        // Both are attempted whatever becomes of the other.
        sandbox.and(files).map_err(CliError::to_port)?;
        let volume = naming::workspace_volume(environment_id);
        self.remove_volume(Some(environment_id), &volume).await.map_err(CliError::to_port)?;
        let left = self.observed(Some(environment_id)).await?;
        for object in &left {
            self.remove_object(object).await?;
        }
        if left.is_empty() || self.observed(Some(environment_id)).await?.is_empty() {
            Ok(())
        } else {
            Err(PortError::Unavailable { code: "teardown_incomplete", effect_possible: true })
        }
    }

    /// Removes the volume of an environment whose containers are gone. An engine gives up on a tree that is deeper than it
    /// may open files: then the tree is taken out by our own hands first.
    pub(super) async fn remove_volume(
        &self,
        environment_id: Option<EnvironmentId>,
        name: &str,
    ) -> Result<(), CliError> {
        let removed = self.engine.remove_volume(name).await;
        // One that is still at it is left to it: the container below would make a volume of this name again.
        let (Err(CliError::Other), Some(id)) = (removed, environment_id) else {
            return removed;
        };
        let now = (self.clock)();
        let labels = labels::all(&self.config, id, Role::Files, now, now);
        let container = naming::files_container(id);
        // An earlier try may still be at it.
        self.engine.remove_container(&container).await?;
        let (image, memory_bytes) = (&self.files_image, self.config.files_memory_bytes);
        let volume = WorkspaceVolume::existing(name);
        let files = profile::files(&self.private, memory_bytes, image, &container, &volume, labels);
        self.engine.cli.run(profile::emptying(files)).await?;
        self.engine.remove_volume(name).await
    }
}
