//! The bytes of an event as the log keeps and hashes them.
//!
//! `header` and `body` are RFC 8785 canonical JSON; the body is bound to the header by a salted commitment, so that it can be
//! erased without breaking the chain; the leaf is the RFC 6962 leaf hash of the header.

mod header;
mod recorded;

pub use header::{Header, HeaderError, StreamName, ZERO_LEAF, body_commitment, leaf_hash};
pub use recorded::{DecodeError, EncodeError, NewEvent, Recorded, Sealed, decode, encode_body, seal};
