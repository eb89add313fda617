//! Reads of leases.

use events::{LeaseId, TenantId, Timestamp};

use super::{Lease, LeaseFilter, LeaseRow};
use crate::environments::EnvironmentRow;
use crate::error::ViewsError;
use crate::page::{Page, PageRequest};
use crate::sql::{Conditions, Reader, SqlTime, Table, position_param};
use crate::views::Views;

/// A lease beside its newest environment.
fn select() -> String {
    format!(
        "SELECT {}, {} FROM views.leases l LEFT JOIN LATERAL (SELECT * FROM views.environments \
         WHERE lease_id = l.lease_id ORDER BY created_position DESC LIMIT 1) e ON true",
        LeaseRow::select_list("l"),
        EnvironmentRow::select_list("e")
    )
}

fn read(row: &tokio_postgres::Row) -> Result<Lease, ViewsError> {
    let mut columns = Reader::new(row);
    let lease = LeaseRow::read(&mut columns)?;
    let environment =
        if columns.next_is_null_id() { None } else { Some(EnvironmentRow::read(&mut columns)?) };
    Ok(Lease { lease, environment })
}

impl Views {
    /// One lease. `tenant` `None` sees every tenant's (operator).
    ///
    /// # Errors
    /// When the database does not answer or holds what this version cannot read.
    pub async fn lease(
        &self,
        tenant: Option<TenantId>,
        lease_id: LeaseId,
    ) -> Result<Option<Lease>, ViewsError> {
        let conditions = Conditions::default()
            .with("l.lease_id = ?", Some(lease_id.as_uuid()))
            .with("l.tenant = ?", tenant.map(TenantId::as_uuid));
        let rows = self.query(&format!("{}{}", select(), conditions.sql()), &conditions).await?;
        rows.first().map(read).transpose()
    }

    /// Leases, newest first.
    ///
    /// # Errors
    /// As [`Views::lease`].
    pub async fn leases(
        &self,
        tenant: Option<TenantId>,
        filter: &LeaseFilter,
        page: &PageRequest,
    ) -> Result<Page<Lease>, ViewsError> {
        let conditions = Conditions::default()
            .with("l.tenant = ?", tenant.map(TenantId::as_uuid))
            .with("l.run_id = ?", filter.run_id.map(events::RunId::as_uuid))
            .with("l.state = ?", filter.state.map(events::run::LeasePhase::as_str))
            .with("l.created_position < ?", page.cursor.map(|cursor| position_param(cursor.0)));
        let sql = format!(
            "{}{} ORDER BY l.created_position DESC LIMIT {}",
            select(),
            conditions.sql(),
            page.limit() + 1
        );
        let rows = self.query(&sql, &conditions).await?;
        let items = rows.iter().map(read).collect::<Result<Vec<_>, _>>()?;
        Ok(Page::cut(items, page.limit(), |item| item.lease.created_position))
    }

    /// Leases that are live by record although `now` has reached their end: the reconciler records their expiry.
    ///
    /// # Errors
    /// As [`Views::lease`].
    pub async fn overdue_leases(&self, now: Timestamp) -> Result<Vec<LeaseRow>, ViewsError> {
        let conditions =
            Conditions::default().fixed("state = 'live'").with("expires_at <= ?", Some(SqlTime(now)));
        self.select(&conditions, "ORDER BY expires_at, created_position").await
    }
}
