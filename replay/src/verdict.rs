//! The outcome of a verification in one word, of a log and of a bundle alike.

use crate::cli::exit;

/// What was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Everything that was checked is as it was recorded, and a believed key vouches for it as far as that is asked for.
    Valid,
    /// Whole in itself, and no believed key vouches for all of it, or none recently enough.
    Unanchored,
    /// Something is not as it was recorded.
    Tampered,
    /// Bytes and chains are whole, but this version does not know all of what they say.
    Unreadable,
    /// No event was checked, which proves nothing.
    Empty,
}

impl Verdict {
    /// The word.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Valid => "valid",
            Self::Unanchored => "unanchored",
            Self::Tampered => "tampered",
            Self::Unreadable => "unreadable",
            Self::Empty => "empty",
        }
    }

    /// The exit code.
    #[must_use]
    pub const fn exit_code(self) -> u8 {
        match self {
            Self::Valid => exit::VALID,
            Self::Unanchored => exit::UNANCHORED,
            Self::Tampered => exit::TAMPERED,
            Self::Unreadable | Self::Empty => exit::UNREADABLE,
        }
    }
}
