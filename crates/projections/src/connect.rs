//! Connection settings of the project role, with bounds on everything a session may wait for.

use std::time::Duration;

use tokio_postgres::Config;

use crate::error::ViewsError;

const CONNECT_LIMIT: Duration = Duration::from_secs(5);
/// A tail of commits that a crash loses is folded again, because the checkpoint travels with the rows: no need to wait for
/// the disk.
const SESSION_OPTIONS: &str = "-c synchronous_commit=off -c lock_timeout=5000 -c statement_timeout=30000 \
                               -c idle_in_transaction_session_timeout=30000";

/// Role and address from `project_url`, bounds from here.
pub(crate) fn config(project_url: &str, application: &str) -> Result<Config, ViewsError> {
    let mut config: Config = project_url.parse().map_err(ViewsError::Url)?;
    config
        .application_name(application)
        .options(SESSION_OPTIONS)
        .connect_timeout(CONNECT_LIMIT)
        .keepalives_idle(Duration::from_secs(10))
        .keepalives_interval(Duration::from_secs(5))
        .keepalives_retries(3);
    Ok(config)
}
