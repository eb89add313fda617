//! Pure policy, one evaluation each: workspace paths and environment variable tiers.

mod path;

pub use path::{COMPONENT_BYTES_MAX, PATH_BYTES_MAX, PRIVATE_DIRECTORY, PathRefusal, WorkspacePath};
