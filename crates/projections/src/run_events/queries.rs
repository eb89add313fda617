//! Reads of a run's history.

use event_log::EventLog;
use events::event::EventType;
use events::stored::Recorded;
use events::{Position, RunId, TenantId};

use super::{RunEventFilter, RunEventRow};
use crate::error::ViewsError;
use crate::page::{Cursor, Page, clamp_items};
use crate::sql::{Conditions, position_param};
use crate::views::Views;

impl Views {
    /// A page of a run's events, ascending by position. `tenant` `None` sees every tenant's run of that id (operator). The
    /// page's cursor is the position of its last event: pass it as [`RunEventFilter::after`] for the next page. Large events
    /// make a page shorter than `items_max`; only one without a cursor is the last.
    ///
    /// # Errors
    /// When view or log do not answer or hold what this version cannot read.
    pub async fn run_events(
        &self,
        log: &EventLog,
        tenant: Option<TenantId>,
        run_id: RunId,
        filter: &RunEventFilter,
        items_max: usize,
    ) -> Result<Page<Recorded>, ViewsError> {
        let limit = clamp_items(items_max);
        let conditions = Conditions::default()
            .with("run_id = ?", Some(run_id.as_uuid()))
            .with("tenant = ?", tenant.map(TenantId::as_uuid))
            .with("type_id = ?", filter.kind.map(EventType::id))
            .with("position > ?", filter.after.map(position_param));
        let tail = format!("ORDER BY position LIMIT {}", limit + 1);
        let rows: Vec<RunEventRow> = self.select(&conditions, &tail).await?;
        let places = Page::cut(rows, limit, |row| row.position);
        let positions: Vec<Position> = places.items.iter().map(|row| row.position).collect();
        if positions.is_empty() {
            return Ok(Page { items: Vec::new(), next_cursor: None });
        }
        let items = log.read_positions(&positions).await?;
        let next_cursor = if items.len() < positions.len() {
            items.last().map(|last| Cursor(last.position))
        } else {
            places.next_cursor
        };
        Ok(Page { items, next_cursor })
    }
}
