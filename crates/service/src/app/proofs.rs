//! Signed heads of the log, and what they prove. Nobody has to believe the answers: they are verified with a pinned key.

use event_log::proof::tiles::TileId;
use event_log::seal::ProofsError;
use events::Position;

use super::{App, permit};
use crate::api::{ConsistencyAnswer, InclusionAnswer, RequestCtx, Scope, ServiceError};

impl App {
    /// The last signed head of the log: a C2SP `tlog-checkpoint`.
    ///
    /// # Errors
    /// `NotFound` while nothing is sealed; `Unavailable`.
    pub async fn last_checkpoint(&self, ctx: &RequestCtx) -> Result<String, ServiceError> {
        permit(ctx, Scope::Audit)?;
        let last = self.parts.sealing.proofs().last_checkpoint().await.map_err(refused)?;
        last.map(|checkpoint| checkpoint.note).ok_or(ServiceError::NotFound { what: "checkpoint" })
    }

    /// Proves the event at `position` in the tree of the first `size` events; without a size in that of the first signed head
    /// that has it.
    ///
    /// # Errors
    /// `NotFound` for a position that the log does not have, `Invalid` for a size that does not have it, `Unavailable` while that
    /// many events are not sealed.
    pub async fn inclusion(
        &self,
        ctx: &RequestCtx,
        position: Position,
        size: Option<u64>,
    ) -> Result<InclusionAnswer, ServiceError> {
        permit(ctx, Scope::Audit)?;
        let head = self.parts.log.head().await.map_err(ServiceError::from)?;
        if position >= head {
            return Err(ServiceError::NotFound { what: "event" });
        }
        if let Some(size) = size.filter(|size| !(position.get() + 1..=head.get()).contains(size)) {
            let detail =
                format!("a tree of {size} events does not have position {position}, or the log is smaller");
            return Err(ServiceError::Invalid { pointer: "size".to_owned(), detail });
        }
        let proofs = self.parts.sealing.proofs();
        let covering =
            proofs.checkpoint_covering(size.unwrap_or(position.get() + 1)).await.map_err(refused)?;
        let size = size.unwrap_or(covering.size);
        let proof = proofs.inclusion(position, size).await.map_err(refused)?;
        Ok(InclusionAnswer {
            position,
            size,
            leaf: self.leaf(position, size).await?,
            hashes: proof.hashes,
            checkpoint: (covering.size == size).then_some(covering.note),
        })
    }

    async fn leaf(&self, position: Position, size: u64) -> Result<[u8; 32], ServiceError> {
        let (index, at) = (position.get() / 256, usize::try_from(position.get() % 256).unwrap_or_default());
        let tile = TileId::in_tree(0, index, size).ok_or(ServiceError::Internal)?;
        let hashes = self.parts.sealing.proofs().tile(tile).await.map_err(refused)?;
        let leaf = hashes.as_deref().and_then(|hashes| hashes.as_chunks::<32>().0.get(at).copied());
        leaf.ok_or_else(|| refused(ProofsError::TileMissing(tile)))
    }

    /// Proves that the tree of the first `to` events (those of the last signed head when not given) begins with that of the first
    /// `from`.
    ///
    /// # Errors
    /// `Invalid` for sizes that the log does not have or in the wrong order, `Unavailable` while that many events are not sealed.
    pub async fn consistency(
        &self,
        ctx: &RequestCtx,
        from: u64,
        to: Option<u64>,
    ) -> Result<ConsistencyAnswer, ServiceError> {
        permit(ctx, Scope::Audit)?;
        let head = self.parts.log.head().await.map_err(ServiceError::from)?;
        let invalid = |pointer: &str, detail: &str| ServiceError::Invalid {
            pointer: pointer.to_owned(),
            detail: detail.to_owned(),
        };
        if to.is_some_and(|to| to > head.get()) {
            return Err(invalid("to", "the log has fewer events"));
        }
        let proofs = self.parts.sealing.proofs();
        let newer = match to {
            Some(to) => Some(proofs.checkpoint_covering(to).await.map_err(refused)?),
            None => proofs.last_checkpoint().await.map_err(refused)?,
        };
        let newer = newer.ok_or(ServiceError::NotFound { what: "checkpoint" })?;
        let to = to.unwrap_or(newer.size);
        if from == 0 || from > to {
            return Err(invalid("from", "must be 1 to the size of the newer tree"));
        }
        let proof = proofs.consistency(from, to).await.map_err(refused)?;
        let checkpoint = (newer.size == to).then_some(newer.note);
        Ok(ConsistencyAnswer { from, to, hashes: proof.hashes, checkpoint })
    }
}

/// What the caller is told of a proof that is not to be had.
fn refused(error: ProofsError) -> ServiceError {
    match error {
        ProofsError::NotSealed { .. } => ServiceError::Unavailable { reason_code: "not_sealed" },
        ProofsError::Log(error) => error.into(),
        ProofsError::OutOfRange(_) => {
            ServiceError::Malformed { pointer: None, detail: "there is no such proof".to_owned() }
        }
        ProofsError::TileMissing(tile) => {
            tracing::error!(%tile, "a stored tile is missing");
            ServiceError::Internal
        }
    }
}
