//! Pages of lists: newest first, by the position at which an object came into being, so that a page never shifts.

use std::fmt;
use std::str::FromStr;

use events::Position;

/// Items of a page when the client does not say.
pub const PAGE_ITEMS_DEFAULT: usize = 100;
/// Most items of a page.
pub const PAGE_ITEMS_MAX: usize = 1_000;

/// Where the next page starts; opaque to clients.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cursor(pub Position);

/// The text is not a cursor of ours.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not a cursor of a page")]
pub struct InvalidCursor;

impl fmt::Display for Cursor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "p{}", self.0)
    }
}

impl FromStr for Cursor {
    type Err = InvalidCursor;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let digits = text.strip_prefix('p').ok_or(InvalidCursor)?;
        if digits.is_empty() || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
            return Err(InvalidCursor);
        }
        let position: u64 = digits.parse().map_err(|_| InvalidCursor)?;
        if position < events::bounds::POSITION_END {
            Ok(Self(Position(position)))
        } else {
            Err(InvalidCursor)
        }
    }
}

/// Which page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PageRequest {
    /// Where it starts; `None` is the first page.
    pub cursor: Option<Cursor>,
    /// At most this many items, 1 to [`PAGE_ITEMS_MAX`]; what is outside is brought inside.
    pub items_max: usize,
}

impl Default for PageRequest {
    fn default() -> Self {
        Self { cursor: None, items_max: PAGE_ITEMS_DEFAULT }
    }
}

impl PageRequest {
    /// The number of items within its bounds.
    pub(crate) fn limit(&self) -> usize {
        clamp_items(self.items_max)
    }
}

/// A number of items within the bounds of a page.
pub(crate) fn clamp_items(items: usize) -> usize {
    items.clamp(1, PAGE_ITEMS_MAX)
}

/// Part of a list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Page<T> {
    /// The items.
    pub items: Vec<T>,
    /// Where the next page starts; `None` on the last one.
    pub next_cursor: Option<Cursor>,
}

impl<T> Page<T> {
    /// From one row more than was asked for: the surplus says that there is a next page.
    pub(crate) fn cut(mut items: Vec<T>, limit: usize, place: impl Fn(&T) -> Position) -> Self {
        let more = items.len() > limit;
        items.truncate(limit);
        let next_cursor = if more { items.last().map(|item| Cursor(place(item))) } else { None };
        Self { items, next_cursor }
    }
}
