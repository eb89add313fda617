//! The queries' way to the database: a small pool of the project role. Each view's queries are in its own folder.

use std::time::Duration;

use deadpool_postgres::{Manager, ManagerConfig, Pool, RecyclingMethod, Runtime};
use tokio_postgres::NoTls;

use crate::connect;
use crate::error::ViewsError;
use crate::sql::{Conditions, Table};

/// Connections that queries share.
const CONNECTIONS_MAX: usize = 8;
/// A query that has no connection by then fails, retryably.
const CONNECTION_WAIT_MAX: Duration = Duration::from_secs(5);

/// Reads of the views. Cheap to clone. What it shows is a prefix of the log: [`crate::Runner::wait_for`] waits until an event
/// is part of it.
#[derive(Clone)]
pub struct Views {
    pool: Pool,
}

impl Views {
    /// Connects when the first query needs it. `project_url` is the URL of the role `leasehold_project`.
    ///
    /// # Errors
    /// When the URL is not one.
    pub fn connect(project_url: &str) -> Result<Self, ViewsError> {
        let config = connect::config(project_url, "leasehold views")?;
        let manager = ManagerConfig { recycling_method: RecyclingMethod::Fast };
        let pool = Pool::builder(Manager::from_config(config, NoTls, manager))
            .max_size(CONNECTIONS_MAX)
            .runtime(Runtime::Tokio1)
            .wait_timeout(Some(CONNECTION_WAIT_MAX))
            .create_timeout(Some(CONNECTION_WAIT_MAX))
            .build()?;
        Ok(Self { pool })
    }

    /// Runs one statement, prepared once per connection.
    pub(crate) async fn query(
        &self,
        sql: &str,
        conditions: &Conditions,
    ) -> Result<Vec<tokio_postgres::Row>, ViewsError> {
        let client = self.pool.get().await?;
        let statement = client.prepare_cached(sql).await?;
        Ok(client.query(&statement, &conditions.params()).await?)
    }

    /// Whole rows of one view.
    pub(crate) async fn select<R: Table>(
        &self,
        conditions: &Conditions,
        tail: &str,
    ) -> Result<Vec<R>, ViewsError> {
        let sql = format!("SELECT {} FROM views.{}{} {tail}", R::select_list(""), R::NAME, conditions.sql());
        self.query(&sql, conditions).await?.iter().map(R::from_sql).collect()
    }
}
