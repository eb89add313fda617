//! Names of what an environment consists of. A name is a function of the environment's id, so that a second process finds
//! the same things without being told.

use events::ids::EnvironmentId;

/// What every name of ours starts with.
pub(crate) const PREFIX: &str = "leasehold-";

/// The container in which commands run.
pub(crate) fn sandbox_container(environment_id: EnvironmentId) -> String {
    format!("{PREFIX}{environment_id}-sandbox")
}

/// The container through which files are reached.
pub(crate) fn files_container(environment_id: EnvironmentId) -> String {
    format!("{PREFIX}{environment_id}-files")
}

/// The volume with the workspace.
pub(crate) fn workspace_volume(environment_id: EnvironmentId) -> String {
    format!("{PREFIX}{environment_id}-workspace")
}
