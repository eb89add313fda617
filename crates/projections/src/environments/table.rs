//! The table `views.environments`.

use events::run::EnvironmentPhase;
use events::{Epoch, Position};

use super::EnvironmentRow;
use crate::error::ViewsError;
use crate::sql::{Cells, Reader, SqlTime, Table, Writer};

/// Every state of an environment.
pub(crate) const STATES: [EnvironmentPhase; 5] = [
    EnvironmentPhase::Requested,
    EnvironmentPhase::Ready,
    EnvironmentPhase::TearingDown,
    EnvironmentPhase::Failed,
    EnvironmentPhase::Destroyed,
];

impl Table for EnvironmentRow {
    const NAME: &'static str = "environments";
    const KEY: &'static [&'static str] = &["environment_id"];
    const COLUMNS: &'static [&'static str] = &[
        "environment_id",
        "tenant",
        "run_id",
        "lease_id",
        "epoch",
        "node_id",
        "mechanism",
        "image_digest",
        "limits",
        "policy_digest",
        "state",
        "teardown_cause",
        "teardown_attempts",
        "reason_code",
        "adopted_by",
        "created_at",
        "expires_at",
        "ready_at",
        "destroyed_at",
        "created_position",
        "position",
    ];

    fn cells(&self) -> Result<Cells, ViewsError> {
        let mut row = Writer::of::<Self>();
        row.value(self.environment_id.as_uuid()).value(self.tenant.as_uuid()).value(self.run_id.as_uuid());
        row.value(self.lease_id.as_uuid()).count(self.epoch.get())?.value(self.node_id.as_uuid());
        row.value(self.mechanism.as_str()).value(self.image_digest.as_str().to_owned()).json(&self.limits)?;
        row.optional_json(self.policy_digest.as_ref())?.value(self.state.as_str());
        row.optional_name(self.teardown_cause.as_ref())?.count(self.teardown_attempts.into())?;
        row.optional_json(self.reason_code.as_ref())?;
        row.value(self.adopted_by.map(events::InstanceId::as_uuid));
        row.value(SqlTime(self.created_at)).value(SqlTime(self.expires_at));
        row.value(self.ready_at.map(SqlTime)).value(self.destroyed_at.map(SqlTime));
        row.count(self.created_position.get())?.count(self.position.get())?;
        Ok(row.finish())
    }

    fn read(columns: &mut Reader<'_>) -> Result<Self, ViewsError> {
        let mut row = columns.of::<Self>();
        Ok(Self {
            environment_id: row.id()?,
            tenant: row.id()?,
            run_id: row.id()?,
            lease_id: row.id()?,
            epoch: Epoch(row.count()?),
            node_id: row.id()?,
            mechanism: row.name()?,
            image_digest: row.name()?,
            limits: row.json()?,
            policy_digest: row.optional_json()?,
            state: row.one_of(&STATES, EnvironmentPhase::as_str)?,
            teardown_cause: row.optional_name()?,
            teardown_attempts: row.small_count()?,
            reason_code: row.optional_json()?,
            adopted_by: row.optional_id()?,
            created_at: row.time()?,
            expires_at: row.time()?,
            ready_at: row.optional_time()?,
            destroyed_at: row.optional_time()?,
            created_position: Position(row.count()?),
            position: Position(row.count()?),
        })
    }
}
