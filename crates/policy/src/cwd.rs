//! The working directory of a command: the workspace itself, or a directory in it.

use crate::path::{PathRefusal, WorkspacePath};

/// Where the workspace is mounted in every sandbox.
pub const WORKSPACE_ROOT: &str = "/workspace";

/// A working directory relative to [`WORKSPACE_ROOT`]: `.` or a [`WorkspacePath`]. Whether it exists, and that no component is
/// a link, is found out inside the sandbox, component by component.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub enum WorkspaceCwd {
    /// The workspace itself.
    #[default]
    Root,
    /// A directory in it, UTF-8.
    Below(WorkspacePath),
}

impl WorkspaceCwd {
    /// Checks a working directory as requested.
    ///
    /// # Errors
    /// The first rule of workspace paths that it breaks.
    pub fn try_new(text: &str) -> Result<Self, PathRefusal> {
        if text == "." { Ok(Self::Root) } else { WorkspacePath::try_new(text.as_bytes()).map(Self::Below) }
    }

    /// Relative to the workspace; `.` is the workspace itself.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        match self {
            Self::Root => b".",
            Self::Below(path) => path.as_bytes(),
        }
    }

    /// The absolute path inside the sandbox, as in `PWD`.
    #[must_use]
    pub fn absolute(&self) -> String {
        match self {
            Self::Root => WORKSPACE_ROOT.to_owned(),
            Self::Below(path) => format!("{WORKSPACE_ROOT}/{}", String::from_utf8_lossy(path.as_bytes())),
        }
    }
}
