//! Pure policy, one evaluation each: workspace paths, working directories and environment variable tiers.

mod cwd;
pub mod environment;
mod path;

pub use cwd::{WORKSPACE_ROOT, WorkspaceCwd};
pub use environment::{EnvRefusal, Tier1Config, Tier1Fault, build_environment};
pub use path::{COMPONENT_BYTES_MAX, PATH_BYTES_MAX, PRIVATE_DIRECTORY, PathRefusal, WorkspacePath};
