//! Proof, on plain values: no database, no clock, no file.
//!
//! The log's leaves form the Merkle tree of RFC 6962. Its root, signed, is a head: whoever holds one can be shown, by some dozen
//! hashes, that an event is in the log (inclusion), and that a later head extends it (consistency).
//!
//! - [`tree`]: hashes of ranges, proofs made and verified.
//! - [`tiles`]: how the hashes are stored (C2SP tlog-tiles, height 8).
//! - [`note`]: signed text (C2SP signed-note, Ed25519); [`checkpoint`]: the text of a head (C2SP tlog-checkpoint).
//!
//! The formats are public so that verifiers need nothing of ours; a test lets Debian's Go packages check them.

pub mod checkpoint;
pub mod note;
pub mod tiles;
pub mod tree;

/// A SHA-256 hash: of a leaf, or of everything below a node.
pub type Hash = [u8; 32];
