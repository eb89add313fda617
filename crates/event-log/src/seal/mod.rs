//! Sealing: a signed head over everything that the log holds, at most a second or 4,096 events behind.
//!
//! The sealer recomputes each leaf from the stored header, checks the chain of its stream, extends the Merkle tree from the stored
//! tiles and the leaves that fill none yet, proves the new head consistent with the last one, signs it ([`crate::proof`] has the
//! formats) and stores tiles and checkpoint in one statement. Then the head goes to a place outside of the database ([`HeadStore`]),
//! which a database that is set back cannot take back. One sealer works at a time: the lock belongs to the session that writes.
//!
//! Over an inconsistency nothing is signed: the sealer stops with a [`SealFault`] that says where, until it is started anew. A
//! database that is away is no fault; it is tried again.
//!
//! - [`Sealer`]: the task; [`SealStatus`]: how it is. [`generate_key`], [`load_key`], [`pin_keys`]: its keys.
//! - [`Proofs`], [`ProofReader`]: heads, proofs and tiles for readers.

mod fault;
mod head;
mod keys;
mod ledger;
mod links;
mod outside;
mod proofs;
mod recheck;
mod stored;
mod task;

use std::sync::Arc;

use events::Position;
use tokio::sync::watch;
use tokio::time::Instant;
use tokio_util::sync::{CancellationToken, DropGuard};

pub use fault::SealFault;
pub use head::{FileHead, HeadStore, HeadStoreError};
pub use keys::{InitKeyError, KeyFileError, generate_key, init_key, load_key, pin_keys};
pub use proofs::{ConsistencyProof, InclusionProof, ProofReader, Proofs, ProofsError};
pub use stored::{Pinned, StoredCheckpoint};

use crate::error::LogError;
use crate::proof::note::SignerKey;
use crate::session::config;
use crate::supervise;
use task::Task;

/// How to seal.
#[derive(Clone, Debug)]
pub struct SealConfig {
    /// Connection string of the seal role.
    pub database_url: String,
    /// Keys that sign every head; each is pinned for the log and named after its origin. Two during a rotation.
    pub keys: Vec<SignerKey>,
    /// Where the newest head is kept outside of the database.
    pub head: Arc<dyn HeadStore>,
    /// How many of the last sealed events are compared with their tiles when sealing begins.
    pub recheck_events: u64,
}

impl SealConfig {
    /// The defaults: the last 65,536 events are compared.
    #[must_use]
    pub fn new(database_url: impl Into<String>, keys: Vec<SignerKey>, head: Arc<dyn HeadStore>) -> Self {
        Self { database_url: database_url.into(), keys, head, recheck_events: 1 << 16 }
    }
}

/// How sealing goes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SealStatus {
    /// What the sealer does.
    pub state: SealState,
    /// How many events the last head covers that this sealer has signed or found.
    pub sealed: u64,
    /// Since when the newest head could not be written outside of the database; `None` when it is there.
    pub head_unwritten_since: Option<Instant>,
}

/// What a sealer does.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SealState {
    /// It connects, or checks what is stored.
    Starting,
    /// Another sealer works; this one waits for its lock.
    Standby,
    /// It seals what is appended.
    Sealing,
    /// The database, or the store of the head outside, does not serve it; tried again.
    Unavailable {
        /// For the operator.
        reason: String,
    },
    /// It has stopped.
    Faulted(SealFault),
}

/// The running sealer. It ends when this is dropped.
#[derive(Debug)]
pub struct Sealer {
    status: watch::Receiver<SealStatus>,
    _stop: DropGuard,
}

impl Sealer {
    /// Starts sealing; `positions` says how far the log is ([`crate::EventLog::subscribe`]). Whatever is wrong shows in the status.
    ///
    /// # Errors
    /// When the address is malformed.
    pub fn start(settings: SealConfig, positions: watch::Receiver<Position>) -> Result<Self, LogError> {
        let starting = SealStatus { state: SealState::Starting, sealed: 0, head_unwritten_since: None };
        let (report, status) = watch::channel(starting);
        let stop = CancellationToken::new();
        let task = Task {
            database: config(&settings.database_url, "leasehold sealer")?,
            config: settings,
            positions,
            report,
            stop: stop.clone(),
            remembered: None,
        };
        supervise::spawn("sealer", task.run());
        Ok(Self { status, _stop: stop.drop_guard() })
    }

    /// How sealing goes; changes with every head. When the sender is gone the task has ended.
    #[must_use]
    pub fn status(&self) -> watch::Receiver<SealStatus> {
        self.status.clone()
    }
}
