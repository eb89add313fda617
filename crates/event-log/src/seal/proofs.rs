//! Heads, proofs and tiles for readers, from what the sealer has stored and the leaves of the last events. Any role that may read the
//! log may read them.
//!
//! Nothing is believed on the way out: whoever asks verifies the head with a pinned key and the proof with the head.

use std::collections::BTreeSet;
use std::time::Duration;

use deadpool_postgres::Pool;
use events::Position;
use tokio_postgres::GenericClient;

use super::stored::{self, Pinned, StoredCheckpoint};
use crate::error::LogError;
use crate::log::pool;
use crate::proof::Hash;
use crate::proof::tiles::{ReadError, TileId, TileSet};
use crate::proof::tree::{
    Node, ProofError, consistency_nodes, consistency_proof, inclusion_nodes, inclusion_proof,
};
use crate::session::read_only_config;

/// Bound of an answer as the caller sees it.
const READ_LIMIT: Duration = Duration::from_secs(35);

/// A proof is not to be had.
#[derive(Debug, thiserror::Error)]
pub enum ProofsError {
    /// The database does not answer.
    #[error(transparent)]
    Log(#[from] LogError),
    /// There is no such proof for anybody: the event is not in a tree of that size, or the older tree is the larger one.
    #[error(transparent)]
    OutOfRange(#[from] ProofError),
    /// That many events are not sealed yet.
    #[error("{size} events are not sealed yet ({sealed} are)")]
    NotSealed {
        /// The size asked for.
        size: u64,
        /// Size of the last signed head.
        sealed: u64,
    },
    /// A tile is not stored, or an event that would be in it: the log is damaged.
    #[error("{0} is missing")]
    TileMissing(TileId),
}

impl From<tokio_postgres::Error> for ProofsError {
    fn from(error: tokio_postgres::Error) -> Self {
        Self::Log(error.into())
    }
}

impl From<tokio::time::error::Elapsed> for ProofsError {
    fn from(elapsed: tokio::time::error::Elapsed) -> Self {
        Self::Log(elapsed.into())
    }
}

/// Proves that an event is the one at a position of the log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InclusionProof {
    /// The position.
    pub position: Position,
    /// Size of the tree: of the head that it is verified with.
    pub size: u64,
    /// Sibling hashes, from the leaf upwards (RFC 6962, 2.1.1).
    pub hashes: Vec<Hash>,
}

/// Proves that a head extends an older one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConsistencyProof {
    /// Size of the older tree.
    pub old: u64,
    /// Size of the newer tree.
    pub new: u64,
    /// The hashes of RFC 6962, 2.1.2.
    pub hashes: Vec<Hash>,
}

/// Reads heads and proofs through any client: a session, or a transaction of which everything is to be read.
#[derive(Debug)]
pub struct ProofReader<'a, C> {
    client: &'a C,
}

impl<'a, C: GenericClient> ProofReader<'a, C> {
    /// Reads through `client`.
    #[must_use]
    pub const fn new(client: &'a C) -> Self {
        Self { client }
    }

    /// Which log it is, and which keys are pinned for it.
    ///
    /// # Errors
    /// When the database does not answer.
    pub async fn pinned(&self) -> Result<Pinned, ProofsError> {
        Ok(stored::pinned(self.client).await?)
    }

    /// Signed heads of more than `size` events, in order, at most `limit`.
    ///
    /// # Errors
    /// When the database does not answer.
    pub async fn checkpoints_after(
        &self,
        size: u64,
        limit: u32,
    ) -> Result<Vec<StoredCheckpoint>, ProofsError> {
        Ok(stored::checkpoints_after(self.client, size, limit).await?)
    }

    /// The last signed head; `None` when nothing is sealed.
    ///
    /// # Errors
    /// When the database does not answer.
    pub async fn last_checkpoint(&self) -> Result<Option<StoredCheckpoint>, ProofsError> {
        Ok(stored::last_checkpoint(self.client).await?)
    }

    /// The first signed head of at least `size` events: the one that anchors the event before.
    ///
    /// # Errors
    /// When the database does not answer, or no such head is signed yet.
    pub async fn checkpoint_covering(&self, size: u64) -> Result<StoredCheckpoint, ProofsError> {
        match stored::checkpoint_at(self.client, size).await? {
            Some(checkpoint) => Ok(checkpoint),
            None => Err(ProofsError::NotSealed { size, sealed: self.sealed().await? }),
        }
    }

    /// Proves the event at `position` in the tree of the first `size` events, which need not be a signed head's.
    ///
    /// # Errors
    /// When there is no such proof, that many events are not sealed, or the database does not answer.
    pub async fn inclusion(&self, position: Position, size: u64) -> Result<InclusionProof, ProofsError> {
        let tiles = self.tiles(&inclusion_nodes(position.get(), size)?, size).await?;
        let hashes = inclusion_proof(position.get(), size, &tiles).map_err(|error| missing(error, size))?;
        Ok(InclusionProof { position, size, hashes })
    }

    /// Proves the events at `positions` in the tree of the first `size` events, from tiles that are read at once.
    ///
    /// # Errors
    /// As [`ProofReader::inclusion`], of any of them.
    pub async fn inclusions(
        &self,
        positions: &[Position],
        size: u64,
    ) -> Result<Vec<InclusionProof>, ProofsError> {
        let mut nodes = Vec::new();
        for position in positions {
            nodes.extend(inclusion_nodes(position.get(), size)?);
        }
        let tiles = self.tiles(&nodes, size).await?;
        let prove = |position: &Position| {
            let hashes =
                inclusion_proof(position.get(), size, &tiles).map_err(|error| missing(error, size))?;
            Ok(InclusionProof { position: *position, size, hashes })
        };
        positions.iter().map(prove).collect()
    }

    /// Proves that the tree of the first `new` events begins with that of the first `old`.
    ///
    /// # Errors
    /// When there is no such proof, that many events are not sealed, or the database does not answer.
    pub async fn consistency(&self, old: u64, new: u64) -> Result<ConsistencyProof, ProofsError> {
        let tiles = self.tiles(&consistency_nodes(old, new)?, new).await?;
        let hashes = consistency_proof(old, new, &tiles).map_err(|error| missing(error, new))?;
        Ok(ConsistencyProof { old, new, hashes })
    }

    /// The bytes of a tile as wide as asked, of whatever width it is stored, or if its events are stored; `None` when it is not
    /// sealed.
    ///
    /// # Errors
    /// When the database does not answer.
    pub async fn tile(&self, id: TileId) -> Result<Option<Vec<u8>>, ProofsError> {
        let sealed = self.sealed().await?;
        let tiles = stored::tiles(self.client, &BTreeSet::from([id]), sealed).await?;
        let hashes =
            tiles.get(id.level(), id.index()).and_then(|tile| tile.hashes().get(..id.width().into()));
        Ok(hashes.map(<[Hash]>::concat))
    }

    async fn sealed(&self) -> Result<u64, ProofsError> {
        Ok(self.last_checkpoint().await?.map_or(0, |checkpoint| checkpoint.size))
    }

    async fn tiles(&self, nodes: &[Node], size: u64) -> Result<TileSet, ProofsError> {
        let sealed = self.sealed().await?;
        if size > sealed {
            return Err(ProofsError::NotSealed { size, sealed });
        }
        Ok(stored::tiles(self.client, &TileSet::needed(nodes, size), sealed).await?)
    }
}

fn missing(error: ReadError, size: u64) -> ProofsError {
    match error {
        ReadError::Proof(error) => error.into(),
        ReadError::Missing(node) => match TileId::of(node, size) {
            Some(tile) => ProofsError::TileMissing(tile),
            None => ProofError::OutOfRange.into(),
        },
    }
}

/// Heads and proofs for a service: a few sessions of its own that can only read.
#[derive(Clone, Debug)]
pub struct Proofs {
    pool: Pool,
}

impl Proofs {
    /// Of the log at `url`, any role that may read it. Connects when it is first asked.
    ///
    /// # Errors
    /// When the address is malformed.
    pub fn open(url: &str, sessions: usize) -> Result<Self, LogError> {
        Ok(Self { pool: pool(read_only_config(url, "leasehold proofs")?, sessions)? })
    }

    /// See [`ProofReader::pinned`].
    ///
    /// # Errors
    /// As there.
    pub async fn pinned(&self) -> Result<Pinned, ProofsError> {
        self.read(async |reader| reader.pinned().await).await
    }

    /// See [`ProofReader::last_checkpoint`].
    ///
    /// # Errors
    /// As there.
    pub async fn last_checkpoint(&self) -> Result<Option<StoredCheckpoint>, ProofsError> {
        self.read(async |reader| reader.last_checkpoint().await).await
    }

    /// See [`ProofReader::checkpoint_covering`].
    ///
    /// # Errors
    /// As there.
    pub async fn checkpoint_covering(&self, size: u64) -> Result<StoredCheckpoint, ProofsError> {
        self.read(async |reader| reader.checkpoint_covering(size).await).await
    }

    /// See [`ProofReader::inclusion`].
    ///
    /// # Errors
    /// As there.
    pub async fn inclusion(&self, position: Position, size: u64) -> Result<InclusionProof, ProofsError> {
        self.read(async |reader| reader.inclusion(position, size).await).await
    }

    /// See [`ProofReader::consistency`].
    ///
    /// # Errors
    /// As there.
    pub async fn consistency(&self, old: u64, new: u64) -> Result<ConsistencyProof, ProofsError> {
        self.read(async |reader| reader.consistency(old, new).await).await
    }

    /// See [`ProofReader::tile`].
    ///
    /// # Errors
    /// As there.
    pub async fn tile(&self, id: TileId) -> Result<Option<Vec<u8>>, ProofsError> {
        self.read(async |reader| reader.tile(id).await).await
    }

    async fn read<T>(
        &self,
        work: impl AsyncFnOnce(ProofReader<'_, tokio_postgres::Client>) -> Result<T, ProofsError>,
    ) -> Result<T, ProofsError> {
        let client = self.pool.get().await.map_err(LogError::from)?;
        tokio::time::timeout(READ_LIMIT, work(ProofReader::new(&client))).await?
    }
}
