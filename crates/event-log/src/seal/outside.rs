//! Keeping the newest head outside of the database, and comparing when sealing begins.
//!
//! The database is written first, so after a crash the head outside is behind and is brought up. One that is ahead, or of another
//! history, means that the database was set back: nothing is signed. A store that cannot be written stops nothing; how long it has been so is
//! shown. One that cannot be read when sealing begins does stop it: what it holds may forbid signing.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use super::fault::{SealFault, Stop};
use super::head::{HeadStore, HeadStoreError};
use super::ledger::Ledger;
use crate::proof::note::NoteError;

/// How long the store may take.
const STORE_LIMIT: Duration = Duration::from_secs(5);

/// The head outside, as far as it is known.
#[derive(Debug)]
pub(super) struct Outside {
    store: Arc<dyn HeadStore>,
    kept: Option<String>,
    unwritten_since: Option<Instant>,
}

impl Outside {
    /// Reads the head outside, compares it with the database and brings it up.
    pub(super) async fn open(
        store: Arc<dyn HeadStore>,
        ledger: &Ledger,
        unwritten_since: Option<Instant>,
    ) -> Result<Self, Stop> {
        let kept = compared(&*store, ledger).await?;
        if kept.is_none() && ledger.signed().is_some() {
            tracing::warn!("there is no head outside of the database yet, or not any more");
        }
        let mut outside = Self { store, kept, unwritten_since };
        outside.keep(ledger).await?;
        Ok(outside)
    }

    /// Since when the newest head could not be written; `None` when it is.
    pub(super) const fn unwritten_since(&self) -> Option<Instant> {
        self.unwritten_since
    }

    /// Brings the head outside up to the last signed one. A store that does not take it is tried again later.
    ///
    /// # Errors
    /// When another head is kept meanwhile that the database does not extend.
    pub(super) async fn keep(&mut self, ledger: &Ledger) -> Result<(), Stop> {
        let Some(note) = ledger.signed().map(|signed| &*signed.note) else { return Ok(()) };
        if self.kept.as_deref() != Some(note) {
            let replaced = bounded(self.store.replace(self.kept.as_deref(), note)).await;
            match replaced {
                Ok(()) => self.kept = Some(note.to_owned()),
                Err(error) => return self.refused(ledger, error).await,
            }
        }
        self.unwritten_since = None;
        Ok(())
    }

    async fn refused(&mut self, ledger: &Ledger, error: HeadStoreError) -> Result<(), Stop> {
        if self.unwritten_since.is_none() {
            self.unwritten_since = Some(Instant::now());
            tracing::warn!(error = &error as &dyn std::error::Error, "the head outside could not be written");
        }
        // An earlier attempt that seemed to fail may have come through; or somebody else writes there.
        match compared(&*self.store, ledger).await {
            Ok(kept) => self.kept = kept,
            Err(Stop::Head(_)) => {}
            Err(other) => return Err(other),
        }
        Ok(())
    }
}

/// What is kept, when the database extends it.
async fn compared(store: &dyn HeadStore, ledger: &Ledger) -> Result<Option<String>, Stop> {
    let kept = match bounded(store.read()).await {
        Err(HeadStoreError::Malformed) => {
            let reason = NoteError::Malformed("it is no text").into();
            return Err(SealFault::Head { reason }.into());
        }
        kept => kept?,
    };
    let Some(note) = kept else { return Ok(None) };
    let head = ledger.read_head(&note)?;
    if head.size > ledger.size() {
        return Err(SealFault::HeadAhead { outside: head.size, database: ledger.size() }.into());
    }
    if !ledger.extends(&head).await? {
        return Err(SealFault::HeadDiffers { size: head.size }.into());
    }
    Ok(Some(note))
}

async fn bounded<T>(call: impl Future<Output = Result<T, HeadStoreError>>) -> Result<T, HeadStoreError> {
    tokio::time::timeout(STORE_LIMIT, call).await.unwrap_or(Err(HeadStoreError::Timeout))
}
