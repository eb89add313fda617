//! Workspace paths: relative, plain components, raw bytes (decision D13).

/// Largest path in bytes.
pub const PATH_BYTES_MAX: usize = 4096;
/// Largest component in bytes.
pub const COMPONENT_BYTES_MAX: usize = 255;
/// The private directory in the workspace root; no interface shows or takes it.
pub const PRIVATE_DIRECTORY: &[u8] = b".leasehold";

/// A path relative to `/workspace`: at least one component, none of them empty, `.` or `..`, no NUL, not absolute. Any other
/// byte is allowed.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct WorkspacePath(Vec<u8>);

/// Why a path is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PathRefusal {
    /// No bytes.
    #[error("the path is empty")]
    Empty,
    /// Starts with a slash.
    #[error("the path is absolute")]
    Absolute,
    /// Two slashes in a row, or one at the end.
    #[error("the path has an empty component")]
    EmptyComponent,
    /// A component `.` or `..`.
    #[error("the path has a . or .. component")]
    DotComponent,
    /// A NUL byte.
    #[error("the path has a NUL byte")]
    Nul,
    /// Over [`PATH_BYTES_MAX`], or a component over [`COMPONENT_BYTES_MAX`].
    #[error("the path is too long")]
    TooLong,
    /// Below [`PRIVATE_DIRECTORY`].
    #[error("the path is reserved")]
    Reserved,
}

impl WorkspacePath {
    /// Checks raw bytes.
    ///
    /// # Errors
    /// The first rule that the path breaks.
    pub fn try_new(bytes: &[u8]) -> Result<Self, PathRefusal> {
        if bytes.is_empty() {
            return Err(PathRefusal::Empty);
        }
        if bytes.contains(&0) {
            return Err(PathRefusal::Nul);
        }
        if bytes.len() > PATH_BYTES_MAX {
            return Err(PathRefusal::TooLong);
        }
        if bytes[0] == b'/' {
            return Err(PathRefusal::Absolute);
        }
        for component in bytes.split(|b| *b == b'/') {
            match component {
                b"" => return Err(PathRefusal::EmptyComponent),
                b"." | b".." => return Err(PathRefusal::DotComponent),
                long if long.len() > COMPONENT_BYTES_MAX => return Err(PathRefusal::TooLong),
                _ => {}
            }
        }
        if bytes.split(|b| *b == b'/').next() == Some(PRIVATE_DIRECTORY) {
            return Err(PathRefusal::Reserved);
        }
        Ok(Self(bytes.to_vec()))
    }

    /// The bytes.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// The components, in order.
    pub fn components(&self) -> impl Iterator<Item = &[u8]> {
        self.0.split(|b| *b == b'/')
    }
}
