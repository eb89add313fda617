//! What the container adapter is told at start.

use std::ops::Range;
use std::path::PathBuf;
use std::time::Duration;

use events::ids::{EnvironmentId, LogId, NodeId, derived_uuid};
use events::spec::{Limits, Mechanism};

use crate::crash::CrashPoints;

/// Smallest number of user ids that environments are spread over.
const UIDS_MIN: u32 = 1 << 16;

/// What holds an environment's workspace.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Backing {
    /// A volume on the engine's disk: limits are watched, and can be passed for a moment.
    #[default]
    Volume,
    /// Memory: limits are the kernel's and exact. The workspace is charged to the containers' memory, and lost with the
    /// files container.
    Tmpfs,
}

impl Backing {
    /// What of an environment's memory the workspace must leave to programs in it, in bytes: else the memory limit would come
    /// before the workspace's.
    pub const TMPFS_MEMORY_RESERVE_BYTES: u64 = 256 << 20;

    /// Whether the limits go together.
    #[must_use]
    pub fn allows(self, limits: &Limits) -> bool {
        match self {
            Self::Volume => true,
            Self::Tmpfs => {
                let needed = limits.workspace_bytes.checked_add(Self::TMPFS_MEMORY_RESERVE_BYTES);
                needed.is_some_and(|needed| needed <= limits.memory_bytes)
            }
        }
    }
}

/// Configuration of [`super::ContainerAdapter`].
#[derive(Clone, Debug)]
pub struct ContainerConfig {
    /// Whose objects these are: everything is labelled with it, and nothing with another id is ever touched.
    pub log_id: LogId,
    /// The log's epoch, as a label.
    pub log_epoch: i32,
    /// The node that owns the engine's objects; its events are the ones listened to.
    pub node_id: NodeId,
    /// Absolute path of the engine's client; `None` looks in `/usr/bin` and `/usr/local/bin`.
    pub docker_path: Option<PathBuf>,
    /// The engine's address (`unix:///…`, `tcp://…`); `None` is the client's default socket.
    pub docker_host: Option<String>,
    /// The image that commands run in, as a reference; resolved once at start.
    pub execution_image: String,
    /// The image of the files container; resolved once at start.
    pub files_image: String,
    /// How environments are isolated: [`Mechanism::Docker`] or [`Mechanism::Gvisor`]; no other can be started.
    pub mechanism: Mechanism,
    /// What holds workspaces.
    pub backing: Backing,
    /// The engine's name for gVisor; sandboxes of [`Mechanism::Gvisor`] run in it, files containers never.
    pub gvisor_runtime: String,
    /// gVisor may be registered with `--network=host`: the sandbox's network is then the container's own on the host kernel.
    pub gvisor_allow_host_network: bool,
    /// Releases of the engine and of runc with known ways out of a container are used none the less.
    pub allow_old_engine: bool,
    /// User ids of commands. Each environment has its own: a function of its id, so that it is known after a restart too.
    pub uids: Range<u32>,
    /// Size of `/tmp` in bytes; charged to the environment's memory.
    pub tmp_bytes: u64,
    /// Size of `/dev/shm` in bytes; charged to the environment's memory.
    pub shm_bytes: u64,
    /// Open files of one process of a command.
    pub open_files_max: u64,
    /// Memory of the files container in bytes; with [`Backing::Tmpfs`] the workspace comes on top.
    pub files_memory_bytes: u64,
    /// Room on the engine's disk in bytes below which nothing new begins; 0 asks for none.
    pub disk_reserve_bytes: u64,
    /// How long making an environment may take in all.
    pub provision_budget: Duration,
    /// A private directory of this process for the client's empty configuration and the seccomp files, kept for its life;
    /// `None` makes a temporary one.
    pub state_dir: Option<PathBuf>,
    /// Where a debug build ends itself.
    pub crash_points: CrashPoints,
}

impl ContainerConfig {
    /// The defaults of everything that has one.
    #[must_use]
    pub fn new(log_id: LogId, log_epoch: i32, node_id: NodeId) -> Self {
        Self {
            log_id,
            log_epoch,
            node_id,
            docker_path: None,
            docker_host: None,
            execution_image: "leasehold/execution:dev".to_owned(),
            files_image: "leasehold/files:dev".to_owned(),
            mechanism: Mechanism::Docker,
            backing: Backing::Volume,
            gvisor_runtime: "runsc".to_owned(),
            gvisor_allow_host_network: false,
            allow_old_engine: false,
            uids: 1_000_000_000..2_000_000_000,
            tmp_bytes: 256 << 20,
            shm_bytes: 64 << 20,
            open_files_max: 8192,
            files_memory_bytes: 512 << 20,
            disk_reserve_bytes: 1 << 30,
            provision_budget: Duration::from_secs(30),
            state_dir: None,
            crash_points: CrashPoints::default(),
        }
    }

    /// The range holds enough ids, and none of a system account.
    pub(super) fn uids_are_sound(&self) -> bool {
        self.uids.start >= UIDS_MIN && self.uids.end.saturating_sub(self.uids.start) >= UIDS_MIN
    }

    /// The user id of an environment's commands.
    pub(super) fn uid(&self, environment_id: EnvironmentId) -> u32 {
        let derived = derived_uuid(&[b"uid", environment_id.as_uuid().as_bytes()]).as_u128();
        let count = u128::from(self.uids.end.saturating_sub(self.uids.start).max(1));
        self.uids.start + u32::try_from(derived % count).unwrap_or(0)
    }

    /// What the workspace of an environment must hold to be that workspace. No secret: it tells a lost tree from the right
    /// one, and sandboxed code cannot write where it is kept.
    pub(super) fn nonce(&self, environment_id: EnvironmentId) -> Vec<u8> {
        let (log, environment) = (self.log_id.as_uuid(), environment_id.as_uuid());
        let parts = [&b"workspace"[..], log.as_bytes(), environment.as_bytes()];
        derived_uuid(&parts).as_bytes().to_vec()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use uuid::Uuid;

    fn id(number: u128) -> EnvironmentId {
        EnvironmentId(Uuid::from_u128(number))
    }

    #[test]
    fn an_environment_keeps_its_uid_and_nonce() {
        let config = ContainerConfig::new(LogId(Uuid::from_u128(1)), 0, NodeId(Uuid::from_u128(2)));
        assert!(config.uids_are_sound());
        assert_eq!(config.uid(id(7)), config.uid(id(7)));
        assert_ne!(config.uid(id(7)), config.uid(id(8)));
        assert!((0..500).all(|number| config.uids.contains(&config.uid(id(number)))));
        assert_eq!(config.nonce(id(7)), config.nonce(id(7)));
        assert_ne!(config.nonce(id(7)), config.nonce(id(8)));
        assert!(config.nonce(id(7)).len() <= guest::protocol::MAX_NONCE_BYTES);
    }

    #[test]
    fn ids_of_system_accounts_are_refused() {
        let mut config = ContainerConfig::new(LogId(Uuid::nil()), 0, NodeId(Uuid::nil()));
        config.uids = 1000..200_000;
        assert!(!config.uids_are_sound());
        config.uids = 200_000..200_100;
        assert!(!config.uids_are_sound());
    }
}
