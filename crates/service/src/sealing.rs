//! Sealing as a part of the service: with which keys, where the head is kept outside of the database, and how it is told.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use event_log::LogError;
use event_log::proof::note::SignerKey;
use event_log::seal::{FileHead, Proofs, SealConfig, SealFault, SealState, Sealer};
use events::Position;
use tokio::sync::watch;

/// Sessions for proofs.
const PROOF_SESSIONS: usize = 2;
/// The head outside may be unwritten for so long.
const HEAD_UNWRITTEN_MAX: Duration = Duration::from_secs(60);

/// What sealing needs.
#[derive(Clone, Debug)]
pub struct SealingConfig {
    /// Connection string of the role `leasehold_seal`.
    pub database_url: String,
    /// Keys that sign every head, pinned for the log.
    pub keys: Vec<SignerKey>,
    /// Where the newest head is kept outside of the database; its folder exists.
    pub head_file: PathBuf,
}

/// The sealer of this process, and proofs for readers.
#[derive(Debug)]
pub struct Sealing {
    sealer: Sealer,
    proofs: Proofs,
}

impl Sealing {
    /// Starts the sealer; proofs are read as the role of `read_url`. Whatever is wrong later shows on readiness.
    ///
    /// # Errors
    /// When an address is malformed.
    pub fn start(
        read_url: &str,
        config: SealingConfig,
        positions: watch::Receiver<Position>,
    ) -> Result<Self, LogError> {
        let head = Arc::new(FileHead::new(&config.head_file));
        let sealer = Sealer::start(SealConfig::new(config.database_url, config.keys, head), positions)?;
        Ok(Self { sealer, proofs: Proofs::open(read_url, PROOF_SESSIONS)? })
    }

    /// Heads and proofs.
    #[must_use]
    pub const fn proofs(&self) -> &Proofs {
        &self.proofs
    }

    /// Why events are not being sealed, or their head is not kept; in our own words and without a tenant's ids: the service's own
    /// log has the rest.
    #[must_use]
    pub fn fault(&self) -> Option<String> {
        let status = self.sealer.status();
        let has_ended = status.has_changed().is_err();
        let status = status.borrow();
        match &status.state {
            SealState::Faulted(fault) => Some(told(fault)),
            _ if has_ended => Some("the sealer has ended: restart the service".to_owned()),
            SealState::Unavailable { .. } => Some(
                "the database, or what keeps the head outside of it, does not answer the sealer".to_owned(),
            ),
            SealState::Starting | SealState::Standby | SealState::Sealing => status
                .head_unwritten_since
                .map(|since| since.elapsed())
                .filter(|elapsed| *elapsed > HEAD_UNWRITTEN_MAX)
                .map(|elapsed| format!("the head outside of the database is {} s old", elapsed.as_secs())),
        }
    }

    /// Waits until everything before `head` is sealed, as long as this process is the one that seals.
    pub async fn reach(&self, head: Position, limit: Duration) {
        let mut status = self.sealer.status();
        let reached =
            status.wait_for(|status| status.state != SealState::Sealing || status.sealed >= head.get());
        if tokio::time::timeout(limit, reached).await.is_err() {
            tracing::warn!("the last events are not sealed yet; the next start does it");
        }
    }
}

fn told(fault: &SealFault) -> String {
    match fault.position() {
        Some(position) => format!("sealing has stopped: the log is not in order at position {position}"),
        None => "sealing has stopped: keys, heads or tiles are not in order".to_owned(),
    }
}
