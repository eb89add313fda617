//! The table `views.run_events`.

use events::Position;
use events::event::EventType;

use super::RunEventRow;
use crate::error::ViewsError;
use crate::sql::{Cells, Reader, Table, Writer};

impl Table for RunEventRow {
    const NAME: &'static str = "run_events";
    const KEY: &'static [&'static str] = &["position"];
    const COLUMNS: &'static [&'static str] = &["position", "tenant", "run_id", "type_id"];

    fn cells(&self) -> Result<Cells, ViewsError> {
        let mut row = Writer::of::<Self>();
        row.count(self.position.get())?.value(self.tenant.as_uuid()).value(self.run_id.as_uuid());
        row.value(self.kind.id());
        Ok(row.finish())
    }

    fn meaning(&self) -> Option<(&'static str, &'static str)> {
        Some(("type", self.kind.name()))
    }

    fn read(columns: &mut Reader<'_>) -> Result<Self, ViewsError> {
        let mut row = columns.of::<Self>();
        Ok(Self {
            position: Position(row.count()?),
            tenant: row.id()?,
            run_id: row.id()?,
            kind: row.number_of(EventType::from_id)?,
        })
    }
}
