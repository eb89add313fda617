//! Reads of runs.

use events::{RunId, TenantId};

use super::RunRow;
use crate::error::ViewsError;
use crate::sql::Conditions;
use crate::views::Views;

impl Views {
    /// One run.
    ///
    /// # Errors
    /// When the database does not answer or holds what this version cannot read.
    pub async fn run(&self, tenant: TenantId, run_id: RunId) -> Result<Option<RunRow>, ViewsError> {
        let conditions = Conditions::default()
            .with("tenant = ?", Some(tenant.as_uuid()))
            .with("run_id = ?", Some(run_id.as_uuid()));
        Ok(self.select(&conditions, "").await?.pop())
    }

    /// Runs that were asked to close and are not complete yet, in the order of their requests.
    ///
    /// # Errors
    /// As [`Views::run`].
    pub async fn closing_runs(&self) -> Result<Vec<RunRow>, ViewsError> {
        self.select(&Conditions::default().fixed("phase = 'closing'"), "ORDER BY position").await
    }
}
