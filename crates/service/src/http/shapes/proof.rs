//! Proofs of the log. Hashes are lower-case hex.

use serde::Serialize;
use utoipa::ToSchema;

use crate::api::{ConsistencyAnswer, InclusionAnswer};

/// Proves that an event is the one at a position of the log (RFC 6962, 2.1.1).
#[derive(Clone, Debug, Serialize, ToSchema)]
pub(in crate::http) struct InclusionProof {
    /// The event's position, from 0 on.
    pub position: u64,
    /// Size of the tree that it is proven in, in events.
    pub size: u64,
    /// The event's leaf: SHA-256 of a zero byte and its header.
    pub leaf: String,
    /// Sibling hashes, from the leaf upwards.
    pub hashes: Vec<String>,
    /// The signed head of that tree (C2SP tlog-checkpoint); null when none has exactly this size.
    #[schema(required)]
    pub checkpoint: Option<String>,
}

impl From<InclusionAnswer> for InclusionProof {
    fn from(answer: InclusionAnswer) -> Self {
        Self {
            position: answer.position.get(),
            size: answer.size,
            leaf: hex::encode(answer.leaf),
            hashes: answer.hashes.iter().map(hex::encode).collect(),
            checkpoint: answer.checkpoint,
        }
    }
}

/// Proves that the log's tree extends an older one (RFC 6962, 2.1.2).
#[derive(Clone, Debug, Serialize, ToSchema)]
pub(in crate::http) struct ConsistencyProof {
    /// Size of the older tree, in events.
    pub from: u64,
    /// Size of the newer tree.
    pub to: u64,
    /// The proof's hashes.
    pub hashes: Vec<String>,
    /// The signed head of the newer tree (C2SP tlog-checkpoint); null when none has exactly this size.
    #[schema(required)]
    pub checkpoint: Option<String>,
}

impl From<ConsistencyAnswer> for ConsistencyProof {
    fn from(answer: ConsistencyAnswer) -> Self {
        Self {
            from: answer.from,
            to: answer.to,
            hashes: answer.hashes.iter().map(hex::encode).collect(),
            checkpoint: answer.checkpoint,
        }
    }
}
