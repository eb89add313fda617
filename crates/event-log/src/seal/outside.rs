//! Keeping the newest head outside of the database, and comparing when sealing begins.
//!
//! The database is written first, so after a crash the head outside is behind and is brought up. One that is ahead, or of another
//! history, means that the database was set back: nothing is signed. A store that takes no write stops nothing (the write goes on
//! beside the sealing); how long it has been so is shown. One that cannot be read when sealing begins does stop it: what it holds
//! may forbid signing.

use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt as _;
use futures::future::BoxFuture;
use tokio::time::Instant;

use super::fault::{SealFault, Stop};
use super::head::{HeadStore, HeadStoreError};
use super::ledger::Ledger;
use crate::proof::note::NoteError;

/// How long the store may take.
const STORE_LIMIT: Duration = Duration::from_secs(5);
/// Pause before a write that failed is tried again.
const RETRY_PAUSE: Duration = Duration::from_secs(1);

/// The head outside, as far as it is known.
pub(super) struct Outside {
    store: Arc<dyn HeadStore>,
    kept: Option<Arc<str>>,
    writing: Option<Writing>,
    retry_at: Option<Instant>,
    unwritten_since: Option<Instant>,
}

/// A write on its way.
struct Writing {
    note: Arc<str>,
    done: BoxFuture<'static, Result<(), HeadStoreError>>,
}

/// What has come of a write.
#[derive(Debug)]
pub(super) enum Wrote {
    /// It is there.
    Kept(Arc<str>),
    /// It was not taken.
    Failed(HeadStoreError),
    /// It is time to try again.
    Due,
}

impl Outside {
    /// Reads the head outside and compares it with the database.
    pub(super) async fn open(
        store: Arc<dyn HeadStore>,
        ledger: &Ledger,
        unwritten_since: Option<Instant>,
    ) -> Result<Self, Stop> {
        let kept = compared(&*store, ledger).await?;
        if kept.is_none() && ledger.signed().is_some() {
            tracing::warn!("there is no head outside of the database yet, or not any more");
        }
        Ok(Self { store, kept, writing: None, retry_at: None, unwritten_since })
    }

    /// Since when the newest head could not be written; `None` while writes succeed.
    pub(super) const fn unwritten_since(&self) -> Option<Instant> {
        self.unwritten_since
    }

    /// Begins to write the last signed head, unless it is there, a write is on its way, or one has just failed.
    pub(super) fn begin(&mut self, ledger: &Ledger) {
        let Some(note) = ledger.signed().map(|signed| Arc::clone(&signed.note)) else { return };
        if self.kept.as_ref() == Some(&note) {
            self.unwritten_since = None;
        } else if self.writing.is_none() && self.retry_at.is_none() {
            let (store, expected, new) = (Arc::clone(&self.store), self.kept.clone(), Arc::clone(&note));
            let write = async move { bounded(store.replace(expected.as_deref(), &new)).await };
            self.writing = Some(Writing { note, done: write.boxed() });
        }
    }

    /// Resolves when a write has ended or is to be tried again; never when there is nothing to do. Dropping the future loses nothing.
    pub(super) async fn ended(&mut self) -> Wrote {
        if let Some(Writing { note, done }) = &mut self.writing {
            let result = done.await;
            let note = Arc::clone(note);
            self.writing = None;
            return result.map_or_else(Wrote::Failed, |()| Wrote::Kept(note));
        }
        match self.retry_at {
            Some(time) => tokio::time::sleep_until(time).await,
            None => std::future::pending().await,
        }
        Wrote::Due
    }

    /// Draws the consequences. A store that does not take the head is tried again later.
    ///
    /// # Errors
    /// When another head is kept meanwhile that the database does not extend.
    pub(super) async fn settle(&mut self, ledger: &Ledger, wrote: Wrote) -> Result<(), Stop> {
        match wrote {
            Wrote::Kept(note) => {
                self.kept = Some(note);
                self.unwritten_since = None;
            }
            Wrote::Due => self.retry_at = None,
            Wrote::Failed(error) => {
                self.retry_at = Some(Instant::now() + RETRY_PAUSE);
                if self.unwritten_since.is_none() {
                    self.unwritten_since = Some(Instant::now());
                    let error = &error as &dyn std::error::Error;
                    tracing::warn!(error, "the head outside of the database could not be written");
                }
                let other = matches!(
                    error,
                    HeadStoreError::Changed | HeadStoreError::Backwards { .. } | HeadStoreError::Malformed
                );
                if other {
                    // A write that seemed to fail has come through; or somebody else writes there.
                    match compared(&*self.store, ledger).await {
                        Ok(kept) => self.kept = kept,
                        Err(Stop::Head(_)) => {}
                        Err(stop) => return Err(stop),
                    }
                }
            }
        }
        Ok(())
    }
}

/// What is kept, when the database extends it.
async fn compared(store: &dyn HeadStore, ledger: &Ledger) -> Result<Option<Arc<str>>, Stop> {
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
    Ok(Some(note.into()))
}

async fn bounded<T>(call: impl Future<Output = Result<T, HeadStoreError>>) -> Result<T, HeadStoreError> {
    tokio::time::timeout(STORE_LIMIT, call).await.unwrap_or(Err(HeadStoreError::Timeout))
}
