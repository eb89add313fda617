//! Named points at which a debug build ends itself as if by `kill -9`, so that tests can cut the work at every step and
//! look at what the next process makes of it. A release build has no such points.

use std::sync::Arc;

/// The armed point, if any. Cheap to clone; the name is read from configuration once, at start.
#[derive(Clone, Debug, Default)]
pub struct CrashPoints(Option<Arc<str>>);

/// Points inside this crate, in the order in which they are passed.
pub const ADAPTER_POINTS: [&str; 4] = ["after_files", "after_sandbox", "after_spawn", "after_start_frame"];

impl CrashPoints {
    /// Arms the point `name`; `None` arms nothing.
    #[must_use]
    pub fn armed(name: Option<&str>) -> Self {
        Self(name.map(Arc::from))
    }

    /// Ends the process here, without any clean-up, when `point` is the armed one.
    pub fn reach(&self, point: &str) {
        if cfg!(debug_assertions) && self.0.as_deref() == Some(point) {
            std::process::abort();
        }
    }
}
