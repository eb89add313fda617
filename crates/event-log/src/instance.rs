//! Telling a dead instance from a slow one: each holds a session lock under its id for as long as it lives.
//!
//! The database drops the lock with the session, so no timeout has to be guessed: a process that was killed has lost it as soon
//! as the server sees its socket close.

use events::InstanceId;
use sha2::{Digest, Sha256};
use tokio::sync::watch;
use tokio_postgres::{Config, GenericClient};
use tokio_util::sync::{CancellationToken, DropGuard};

use crate::error::LogError;
use crate::session::{Session, config};
use crate::supervise;

/// Pause before a lost lock is taken again.
const RETAKE_PAUSE: std::time::Duration = std::time::Duration::from_millis(200);

/// The lock of this instance. It is taken again when the database was away; dropped, it is free at once.
#[derive(Debug)]
pub struct InstanceLock {
    held: watch::Receiver<bool>,
    _stop: DropGuard,
}

impl InstanceLock {
    /// Takes the lock of `instance_id`, as the append role.
    ///
    /// # Errors
    /// When the database does not answer, or another process holds this id.
    pub async fn acquire(url: &str, instance_id: InstanceId) -> Result<Self, LogError> {
        let config = config(url, "leasehold instance")?;
        let mut session = take(&config, instance_id).await?;
        let (report, held) = watch::channel(true);
        let stop = CancellationToken::new();
        let stopped = stop.clone();
        supervise::spawn("instance lock", async move {
            loop {
                tokio::select! {
                    () = stopped.cancelled() => return,
                    () = session.ended() => {}
                }
                report.send_replace(false);
                tracing::warn!(%instance_id, "the instance lock was lost");
                session = loop {
                    match take(&config, instance_id).await {
                        Ok(session) => break session,
                        Err(error) => {
                            tracing::debug!(error = &error as &dyn std::error::Error, "not yet taken again");
                        }
                    }
                    tokio::select! {
                        () = stopped.cancelled() => return,
                        () = tokio::time::sleep(RETAKE_PAUSE) => {}
                    }
                };
                report.send_replace(true);
            }
        });
        Ok(Self { held, _stop: stop.drop_guard() })
    }

    /// Whether the lock is held now; changes when it is lost and taken again.
    #[must_use]
    pub fn held(&self) -> watch::Receiver<bool> {
        self.held.clone()
    }
}

async fn take(config: &Config, instance_id: InstanceId) -> Result<Session, LogError> {
    let session = Session::connect(config).await?;
    let row = session.client().query_one("SELECT pg_try_advisory_lock($1)", &[&key(instance_id)]).await?;
    if row.try_get::<_, bool>(0)? {
        Ok(session)
    } else {
        Err(LogError::Refused(format!("another process is instance {instance_id}").into()))
    }
}

/// Whether any session of this database holds the lock. Looks only: trying to take it could disturb its owner.
pub(crate) async fn is_held(client: &impl GenericClient, instance_id: InstanceId) -> Result<bool, LogError> {
    let row = client
        .query_one(
            "SELECT EXISTS (SELECT FROM pg_locks WHERE locktype = 'advisory' AND granted AND objsubid = 1 \
             AND database = (SELECT oid FROM pg_database WHERE datname = current_database()) \
             AND (classid::bigint << 32) | objid::bigint = $1)",
            &[&key(instance_id)],
        )
        .await?;
    Ok(row.try_get(0)?)
}

/// The lock's number: the id in 64 bits, apart from the numbers that migrations and partitions use.
fn key(instance_id: InstanceId) -> i64 {
    let digest =
        Sha256::new().chain_update(b"leasehold instance").chain_update(instance_id.as_uuid()).finalize();
    let mut bytes = [0; 8];
    bytes.copy_from_slice(&digest[..8]);
    i64::from_be_bytes(bytes)
}
