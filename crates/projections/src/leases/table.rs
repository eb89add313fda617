//! The table `views.leases`.

use events::run::LeasePhase;
use events::{Epoch, Position};

use super::LeaseRow;
use crate::error::ViewsError;
use crate::sql::{Cells, Reader, SqlTime, Table, Writer};

/// Every recorded state of a lease.
pub(crate) const STATES: [LeasePhase; 5] =
    [LeasePhase::Live, LeasePhase::Released, LeasePhase::Expired, LeasePhase::Revoked, LeasePhase::Fenced];

impl Table for LeaseRow {
    const NAME: &'static str = "leases";
    const KEY: &'static [&'static str] = &["lease_id"];
    const COLUMNS: &'static [&'static str] = &[
        "lease_id",
        "tenant",
        "run_id",
        "epoch",
        "state",
        "holder",
        "network",
        "limits",
        "tools",
        "labels",
        "environment_cap_ms",
        "acquired_at",
        "expires_at",
        "ended_at",
        "created_position",
        "position",
    ];

    fn cells(&self) -> Result<Cells, ViewsError> {
        let mut row = Writer::of::<Self>();
        row.value(self.lease_id.as_uuid()).value(self.tenant.as_uuid()).value(self.run_id.as_uuid());
        row.count(self.epoch.get())?.value(self.state.as_str());
        row.optional_json(self.holder.as_ref())?.value(self.network);
        row.json(&self.limits)?.json(&self.tools)?.json(&self.labels)?.count(self.environment_cap_ms)?;
        row.value(SqlTime(self.acquired_at))
            .value(SqlTime(self.expires_at))
            .value(self.ended_at.map(SqlTime));
        row.count(self.created_position.get())?.count(self.position.get())?;
        Ok(row.finish())
    }

    fn read(columns: &mut Reader<'_>) -> Result<Self, ViewsError> {
        let mut row = columns.of::<Self>();
        Ok(Self {
            lease_id: row.id()?,
            tenant: row.id()?,
            run_id: row.id()?,
            epoch: Epoch(row.count()?),
            state: row.one_of(&STATES, LeasePhase::as_str)?,
            holder: row.optional_json()?,
            network: row.value()?,
            limits: row.json()?,
            tools: row.json()?,
            labels: row.json()?,
            environment_cap_ms: row.count()?,
            acquired_at: row.time()?,
            expires_at: row.time()?,
            ended_at: row.optional_time()?,
            created_position: Position(row.count()?),
            position: Position(row.count()?),
        })
    }
}
