//! Reads of environments.

use events::{EnvironmentId, NodeId, TenantId};

use super::{EnvironmentRow, OpenEnvironment};
use crate::error::ViewsError;
use crate::leases::LeaseRow;
use crate::sql::{Conditions, Reader, Table};
use crate::views::Views;

impl Views {
    /// One environment. `tenant` `None` sees every tenant's (operator).
    ///
    /// # Errors
    /// When the database does not answer or holds what this version cannot read.
    pub async fn environment(
        &self,
        tenant: Option<TenantId>,
        environment_id: EnvironmentId,
    ) -> Result<Option<EnvironmentRow>, ViewsError> {
        let conditions = Conditions::default()
            .with("environment_id = ?", Some(environment_id.as_uuid()))
            .with("tenant = ?", tenant.map(TenantId::as_uuid));
        Ok(self.select(&conditions, "").await?.pop())
    }

    /// Every environment that is not destroyed (on one node, or on any), with state and end of its lease, oldest first: what
    /// may exist in the runtime, and whether it may stay.
    ///
    /// # Errors
    /// As [`Views::environment`].
    pub async fn open_environments(
        &self,
        node_id: Option<NodeId>,
    ) -> Result<Vec<OpenEnvironment>, ViewsError> {
        let conditions = Conditions::default()
            .fixed("e.state <> 'destroyed'")
            .with("e.node_id = ?", node_id.map(NodeId::as_uuid));
        let sql = format!(
            "SELECT {}, {} FROM views.environments e JOIN views.leases l ON l.lease_id = e.lease_id{} \
             ORDER BY e.created_position",
            EnvironmentRow::select_list("e"),
            LeaseRow::select_list("l"),
            conditions.sql()
        );
        let rows = self.query(&sql, &conditions).await?;
        rows.iter()
            .map(|row| {
                let mut columns = Reader::new(row);
                let environment = EnvironmentRow::read(&mut columns)?;
                let lease = LeaseRow::read(&mut columns)?;
                Ok(OpenEnvironment {
                    environment,
                    lease_state: lease.state,
                    lease_expires_at: lease.expires_at,
                })
            })
            .collect()
    }
}
