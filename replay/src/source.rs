//! The database to look at: one session of a role that only reads, in a transaction that cannot write.

use std::path::{Path, PathBuf};
use std::time::Duration;

use tokio_postgres::{Client, Config, IsolationLevel, NoTls, Transaction};

use crate::error::ReplayError;

/// Where the log is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Source {
    /// A connection string of the audit role.
    Url(String),
    /// The data directory of an embedded database, whoever runs it.
    DataDir(PathBuf),
}

impl Source {
    /// The connection string.
    ///
    /// # Errors
    /// When no server runs on the directory.
    pub fn url(&self) -> Result<String, ReplayError> {
        match self {
            Self::Url(url) => Ok(url.clone()),
            Self::DataDir(data_dir) => audit_url(data_dir),
        }
    }

    /// Does `work` on one session. Whatever role the URL names, the session refuses to write.
    ///
    /// # Errors
    /// When no server runs there, it does not answer, or `work` fails.
    pub async fn with<T>(
        &self,
        work: impl AsyncFnOnce(&mut Client) -> Result<T, ReplayError>,
    ) -> Result<T, ReplayError> {
        let mut config: Config = self.url()?.parse().map_err(ReplayError::Url)?;
        config
            .application_name("leasehold-replay")
            .options("-c default_transaction_read_only=on")
            .connect_timeout(Duration::from_secs(5))
            .keepalives_idle(Duration::from_secs(10))
            .keepalives_interval(Duration::from_secs(5))
            .keepalives_retries(3);
        let (mut client, connection) = config.connect(NoTls).await?;
        // The connection ends by itself only when it is lost: the work would wait for answers that never come.
        tokio::select! {
            biased;
            result = work(&mut client) => result,
            ended = connection => Err(ended.err().map_or(ReplayError::ConnectionEnded, ReplayError::Database)),
        }
    }
}

/// One unchanging picture of log and projections, however busy the service is.
///
/// # Errors
/// When the database does not answer.
pub async fn snapshot(client: &mut Client) -> Result<Transaction<'_>, ReplayError> {
    let begin = client.build_transaction().isolation_level(IsolationLevel::RepeatableRead).read_only(true);
    Ok(begin.start().await?)
}

fn audit_url(data_dir: &Path) -> Result<String, ReplayError> {
    let urls = event_log::embedded::find_running(data_dir);
    urls.map(|urls| urls.audit_url()).ok_or_else(|| ReplayError::NotRunning { data_dir: data_dir.to_owned() })
}
