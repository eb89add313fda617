//! One session on the database, with bounds on everything it may wait for.

use std::time::Duration;

use tokio::task::JoinHandle;
use tokio_postgres::{Client, Config, NoTls};

use crate::error::LogError;
use crate::supervise;

/// How long a connection attempt may take.
pub(crate) const CONNECT_LIMIT: Duration = Duration::from_secs(5);
/// Server-side bounds: a lock that is not free by then, and a statement that takes longer, end as transient faults.
const SESSION_OPTIONS: &str = "-c lock_timeout=5000 -c statement_timeout=30000 -c synchronous_commit=on \
                               -c idle_in_transaction_session_timeout=30000";

/// Connection settings of this crate: role and address from `url`, bounds from here.
pub(crate) fn config(url: &str, application: &str) -> Result<Config, LogError> {
    let mut config: Config =
        url.parse().map_err(|error: tokio_postgres::Error| LogError::Refused(error.into()))?;
    config
        .application_name(application)
        .options(SESSION_OPTIONS)
        .connect_timeout(CONNECT_LIMIT)
        .keepalives_idle(Duration::from_secs(10))
        .keepalives_interval(Duration::from_secs(5))
        .keepalives_retries(3);
    Ok(config)
}

/// The same for sessions that never write.
pub(crate) fn read_only_config(url: &str, application: &str) -> Result<Config, LogError> {
    let mut config = config(url, application)?;
    config.options(format!("{SESSION_OPTIONS} -c default_transaction_read_only=on"));
    Ok(config)
}

/// A session of its own, outside the pool. Ends when dropped.
#[derive(Debug)]
pub(crate) struct Session {
    client: Client,
    driver: JoinHandle<()>,
}

impl Session {
    /// Connects; the whole attempt is bounded.
    pub(crate) async fn connect(config: &Config) -> Result<Self, LogError> {
        let attempt = tokio::time::timeout(CONNECT_LIMIT, config.connect(NoTls)).await;
        let (client, connection) = attempt.map_err(|elapsed| LogError::Unavailable(elapsed.into()))??;
        let driver = supervise::spawn("database session", async move {
            // Whoever uses the client sees the end as an error of its statement.
            let _ = connection.await;
        });
        Ok(Self { client, driver })
    }

    pub(crate) const fn client(&self) -> &Client {
        &self.client
    }

    /// Resolves when the session has ended, whoever ended it.
    pub(crate) async fn ended(&mut self) {
        // A panic of the driver was logged and ends the session like anything else.
        let _ = (&mut self.driver).await;
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        self.driver.abort();
    }
}
