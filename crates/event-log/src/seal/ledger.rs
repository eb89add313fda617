//! One round: what is stored is checked, new events are checked and added, the new head is signed and written.
//!
//! ```text
//!   last head ── signature, size, root by the stored tiles and the leaves after the last full one
//!   new rows ─── leaf, header, chain ──> tree ──> consistent with the last head? ──> sign ──> tiles and checkpoint at once
//! ```
//! Every round begins from what is stored, not from what the round before remembers; what it remembers is only compared.

use std::sync::Arc;

use events::Position;
use tokio_postgres::error::SqlState;

use super::SealConfig;
use super::fault::{SealFault, Stop};
use super::links::Links;
use super::recheck::{self, PAGE};
use super::stored::{self, StoredCheckpoint};
use crate::proof::Hash;
use crate::proof::checkpoint::Checkpoint;
use crate::proof::note::{SignerKey, VerifierKey};
use crate::proof::tiles::{Edge, Tile, TileSet};
use crate::proof::tree::{consistency_proof, verify_consistency};
use crate::session::Session;

/// A head that was signed and is stored.
#[derive(Clone, Debug)]
pub(super) struct Signed {
    pub(super) checkpoint: Checkpoint,
    pub(super) note: Arc<str>,
}

/// The sealed part of the log, on the session that holds the sealer's lock: whoever loses the lock can write no more.
#[derive(Debug)]
pub(super) struct Ledger {
    session: Session,
    keys: Vec<SignerKey>,
    origin: String,
    known: Vec<VerifierKey>,
    signed: Option<Signed>,
    links: Links,
}

impl Ledger {
    /// Checks keys and the last head, and compares the last events with their tiles.
    pub(super) async fn open(session: Session, config: &SealConfig) -> Result<Self, Stop> {
        let client = session.client();
        let pinned = stored::pinned(client).await?;
        let known = known_keys(&pinned.verifier_keys, &pinned.origin, &config.keys)?;
        let signed = match stored::last_checkpoint(client).await? {
            Some(stored) => Some(believed(stored, &pinned.origin, &known)?),
            None => None,
        };
        if let Some(signed) = &signed {
            let (checkpoint, head) = (&signed.checkpoint, stored::head(client).await?);
            if head.get() < checkpoint.size {
                return Err(SealFault::Shrunken { signed: checkpoint.size, head }.into());
            }
            recheck::edge(client, checkpoint).await?;
            recheck::tail(client, checkpoint.size, config.recheck_events).await?;
        }
        let links = Links::new(pinned.log_id);
        Ok(Self { session, keys: config.keys.clone(), origin: pinned.origin, known, signed, links })
    }

    /// The last signed head.
    pub(super) const fn signed(&self) -> Option<&Signed> {
        self.signed.as_ref()
    }

    /// How many events are sealed.
    pub(super) fn size(&self) -> u64 {
        self.signed.as_ref().map_or(0, |signed| signed.checkpoint.size)
    }

    /// Resolves when the session has ended, and the lock with it.
    pub(super) async fn ended(&mut self) {
        self.session.ended().await;
    }

    /// Reads a head of this log that was kept elsewhere.
    pub(super) fn read_head(&self, note: &str) -> Result<Checkpoint, SealFault> {
        Checkpoint::open(note.as_bytes(), &self.origin, &self.known)
            .map_err(|reason| SealFault::Head { reason })
    }

    /// Whether the sealed part begins with what `head` is about.
    pub(super) async fn extends(&self, head: &Checkpoint) -> Result<bool, Stop> {
        Ok(head.size <= self.size() && self.root(head.size).await? == head.root)
    }

    /// The root of the first `size` events, which are sealed.
    async fn root(&self, size: u64) -> Result<Hash, Stop> {
        recheck::root(self.session.client(), size, self.size()).await
    }

    /// Seals what the log has more, at most one page. Answers whether it has signed anything.
    ///
    /// # Errors
    /// After any error the value is of no use: it is opened anew, or given up.
    pub(super) async fn round(&mut self) -> Result<bool, Stop> {
        let client = self.session.client();
        let size = self.size();
        let stored = stored::last_checkpoint(client).await?;
        let ours = self.signed.as_ref().map(|signed| &*signed.note);
        if stored.as_ref().map(|stored| stored.note.as_str()) != ours {
            return Err(SealFault::CheckpointChanged { size }.into());
        }
        if let Some(tile) = stored::tile_beyond(client, size).await? {
            return Err(SealFault::TileBeyond { tile, size }.into());
        }
        let head = stored::head(client).await?;
        if head.get() < size {
            return Err(SealFault::Shrunken { signed: size, head }.into());
        }
        if head.get() == size {
            return Ok(false);
        }
        let mut edge = match &self.signed {
            Some(signed) => recheck::edge(client, &signed.checkpoint).await?,
            None => Edge::default(),
        };
        let mut tiles = TileSet::default();
        tiles.extend(edge.tiles());
        let end = head.get().min(size + PAGE);
        let rows = stored::headers(client, size, end, i64::try_from(PAGE).unwrap_or(i64::MAX)).await?;
        for leaf in self.links.check(client, size, &rows).await? {
            edge.push(leaf);
        }
        if edge.size() != end {
            return Err(SealFault::Gap { position: Position(edge.size()) }.into());
        }
        let new = edge.take_new();
        tiles.extend(new.iter().cloned().chain(edge.tiles()));
        let checkpoint =
            Checkpoint { origin: self.origin.clone(), size: end, root: edge.root(), extensions: Vec::new() };
        self.prove_extension(&checkpoint, &tiles)?;
        self.sign_and_write(checkpoint, &new).await?;
        Ok(true)
    }

    /// The new head is consistent with the last one, as anybody will be shown it.
    fn prove_extension(&self, new: &Checkpoint, tiles: &TileSet) -> Result<(), SealFault> {
        let Some(Signed { checkpoint: old, .. }) = &self.signed else { return Ok(()) };
        let broken = SealFault::Root { size: old.size };
        let proof = consistency_proof(old.size, new.size, tiles).map_err(|_| broken.clone())?;
        verify_consistency(old.size, &old.root, new.size, &new.root, &proof).map_err(|_| broken)
    }

    async fn sign_and_write(&mut self, checkpoint: Checkpoint, tiles: &[Tile]) -> Result<(), Stop> {
        let size = checkpoint.size;
        let refused = |reason| SealFault::Checkpoint { size, reason };
        let note = checkpoint.sign(&self.keys).map_err(|error| refused(error.into()))?;
        // What we hand out is what a verifier will read.
        if Checkpoint::open(note.as_bytes(), &self.origin, &self.known).map_err(refused)? != checkpoint {
            return Err(SealFault::CheckpointChanged { size }.into());
        }
        let stored = StoredCheckpoint { size, note };
        stored::write(self.session.client(), tiles, &stored).await.map_err(|error| match error.code() {
            Some(&SqlState::UNIQUE_VIOLATION) => SealFault::Occupied { size }.into(),
            _ => Stop::from(error),
        })?;
        self.signed = Some(Signed { checkpoint, note: stored.note.into() });
        Ok(())
    }
}

/// The keys whose signatures count, when ours are among them.
fn known_keys(pinned: &[String], origin: &str, ours: &[SignerKey]) -> Result<Vec<VerifierKey>, SealFault> {
    let known: Vec<VerifierKey> = pinned
        .iter()
        .map(|text| text.parse())
        .collect::<Result<_, _>>()
        .map_err(|error| SealFault::Keys { reason: format!("a pinned key is refused: {error}") })?;
    if ours.is_empty() {
        return Err(SealFault::Keys { reason: "there is no key to sign with".to_owned() });
    }
    for key in ours {
        let id = key.verifier().id().clone();
        if id.name != origin {
            return Err(SealFault::Origin { key: id, origin: origin.to_owned() });
        }
        if !known.contains(key.verifier()) {
            return Err(SealFault::KeyNotPinned { key: id });
        }
    }
    Ok(known)
}

/// The stored head, if its note says what its row says.
fn believed(stored: StoredCheckpoint, origin: &str, known: &[VerifierKey]) -> Result<Signed, SealFault> {
    let StoredCheckpoint { size, note } = stored;
    let checkpoint = Checkpoint::open(note.as_bytes(), origin, known)
        .map_err(|reason| SealFault::Checkpoint { size, reason })?;
    if checkpoint.size == size {
        Ok(Signed { checkpoint, note: note.into() })
    } else {
        Err(SealFault::CheckpointChanged { size })
    }
}
