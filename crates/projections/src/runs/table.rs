//! The table `views.runs`.

use events::run::RunPhase;
use events::{Epoch, Position};

use super::RunRow;
use crate::error::ViewsError;
use crate::sql::{Cells, Reader, Table, Writer};

const PHASES: [RunPhase; 3] = [RunPhase::Open, RunPhase::Closing, RunPhase::Closed];

const fn phase_name(phase: RunPhase) -> &'static str {
    match phase {
        RunPhase::Open => "open",
        RunPhase::Closing => "closing",
        RunPhase::Closed => "closed",
    }
}

impl Table for RunRow {
    const NAME: &'static str = "runs";
    const KEY: &'static [&'static str] = &["tenant", "run_id"];
    const COLUMNS: &'static [&'static str] = &["tenant", "run_id", "phase", "last_epoch", "position"];

    fn cells(&self) -> Result<Cells, ViewsError> {
        let mut row = Writer::of::<Self>();
        row.value(self.tenant.as_uuid()).value(self.run_id.as_uuid()).value(phase_name(self.phase));
        row.count(self.last_epoch.get())?.count(self.position.get())?;
        Ok(row.finish())
    }

    fn read(columns: &mut Reader<'_>) -> Result<Self, ViewsError> {
        let mut row = columns.of::<Self>();
        Ok(Self {
            tenant: row.id()?,
            run_id: row.id()?,
            phase: row.one_of(&PHASES, phase_name)?,
            last_epoch: Epoch(row.count()?),
            position: Position(row.count()?),
        })
    }
}
