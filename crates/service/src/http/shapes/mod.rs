//! What clients receive, field by field. A field that does not apply is null, not absent; fields are added, never renamed.
//!
//! These types are written for JSON and for the OpenAPI document; they are made from rows and events, and nothing is decided
//! on them.

mod command;
mod event;
mod file;
mod lease;
mod proof;

pub(super) use command::{Command, CommandState};
pub(super) use event::EventJson;
pub(super) use file::{FileEntry, FileWritten};
pub(super) use lease::{Lease, LeaseState, RunClosing};
pub(super) use proof::{ConsistencyProof, InclusionProof};
use serde::Serialize;
use utoipa::ToSchema;

/// A part of a list.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub(in crate::http) struct Page<T> {
    /// The entries, at most `limit`.
    pub items: Vec<T>,
    /// Where the next page starts; null on the last one.
    #[schema(required)]
    pub next_cursor: Option<String>,
}

impl<T> Page<T> {
    /// A page of rows, each in its JSON form.
    pub(super) fn of<R>(page: crate::api::Page<R>, json: impl Fn(R) -> T) -> Self {
        Self { items: page.items.into_iter().map(json).collect(), next_cursor: page.next_cursor }
    }
}

/// Declares an enum of JSON words and how it is made from a domain enum, exhaustively.
macro_rules! words {
    ($(#[$doc:meta])* $name:ident from $source:ty { $($(#[$variant_doc:meta])* $variant:ident = $word:literal),+ $(,)? }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
        pub(in crate::http) enum $name { $($(#[$variant_doc])* #[serde(rename = $word)] $variant),+ }

        // By hand: the derive does not see words that a macro passes on.
        impl utoipa::PartialSchema for $name {
            fn schema() -> utoipa::openapi::RefOr<utoipa::openapi::Schema> {
                utoipa::openapi::ObjectBuilder::new()
                    .schema_type(utoipa::openapi::schema::Type::String)
                    .enum_values(Some([$($word),+]))
                    .into()
            }
        }

        impl utoipa::ToSchema for $name {
            fn name() -> std::borrow::Cow<'static, str> {
                stringify!($name).into()
            }
        }

        impl From<$source> for $name {
            fn from(value: $source) -> Self {
                type Source = $source;
                match value { $(Source::$variant => Self::$variant),+ }
            }
        }

        impl From<$name> for $source {
            fn from(value: $name) -> Self {
                type Source = $source;
                match value { $($name::$variant => Source::$variant),+ }
            }
        }
    };
}
pub(in crate::http) use words;
