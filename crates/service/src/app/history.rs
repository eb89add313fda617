//! A run's events: a page, or everything as it comes.

use std::sync::Arc;

use async_stream::try_stream;
use events::event::EventType;
use events::stored::Recorded;
use events::{Position, RunId};
use projections::RunEventFilter;

use super::{App, permit};
use crate::api::{EventPage, Page, PageRequest, RequestCtx, Scope, ServiceError, TailItems};

/// Events read at a time while tailing.
const TAIL_EVENTS: usize = 100;

impl App {
    /// A page of the run's events after position `page.cursor`, ascending; only of one type when `kind` says so.
    ///
    /// # Errors
    /// `NotFound` for a run without any event, `Malformed` for a cursor that is not a position, `ProjectionBehind`.
    pub async fn run_events(
        &self,
        ctx: &RequestCtx,
        run_id: RunId,
        kind: Option<EventType>,
        page: PageRequest,
    ) -> Result<EventPage, ServiceError> {
        permit(ctx, Scope::Audit)?;
        let after = page.cursor.as_deref().map(position_cursor).transpose()?;
        self.known_run(ctx, run_id).await?;
        let filter = RunEventFilter { kind, after };
        let (items, more) = self.read_events(ctx, run_id, &filter, page.limit).await?;
        let last = items.last().map(|recorded| recorded.position.to_string());
        Ok(Page { items, next_cursor: last.filter(|_| more) })
    }

    /// The run's events after `after` (from the first when `None`), then as they happen; ends when the service stops.
    ///
    /// # Errors
    /// As [`App::run_events`].
    pub async fn tail_run(
        self: &Arc<Self>,
        ctx: &RequestCtx,
        run_id: RunId,
        after: Option<Position>,
    ) -> Result<TailItems, ServiceError> {
        permit(ctx, Scope::Audit)?;
        self.known_run(ctx, run_id).await?;
        let (app, ctx) = (Arc::clone(self), ctx.clone());
        Ok(Box::pin(try_stream! {
            let stopping = app.parts.supervisor.stopping().clone();
            let mut folded = app.parts.reads.runner().positions();
            let mut filter = RunEventFilter { kind: None, after };
            while !stopping.is_cancelled() {
                folded.mark_unchanged();
                let (items, more) = app.read_events(&ctx, run_id, &filter, TAIL_EVENTS).await?;
                for recorded in items {
                    filter.after = Some(recorded.position);
                    yield recorded;
                }
                if !more {
                    tokio::select! {
                        () = stopping.cancelled() => {}
                        changed = folded.changed() => if changed.is_err() { break },
                    }
                }
            }
        }))
    }

    async fn known_run(&self, ctx: &RequestCtx, run_id: RunId) -> Result<(), ServiceError> {
        let (reads, tenant) = (&self.parts.reads, ctx.principal.tenant);
        match ctx.min_position {
            Some(_) => reads.see(ctx.min_position).await?,
            // A history is shown up to now where that is possible: commands are answered before the views have them.
            None => drop(reads.see_all().await),
        }
        if reads.views().run(tenant, run_id).await?.is_some() {
            return Ok(());
        }
        reads.see_all().await?;
        match reads.views().run(tenant, run_id).await? {
            Some(_) => Ok(()),
            None => Err(ServiceError::NotFound { what: "run" }),
        }
    }

    async fn read_events(
        &self,
        ctx: &RequestCtx,
        run_id: RunId,
        filter: &RunEventFilter,
        limit: usize,
    ) -> Result<(Vec<Recorded>, bool), ServiceError> {
        let views = self.parts.reads.views();
        let page =
            views.run_events(&self.parts.log, Some(ctx.principal.tenant), run_id, filter, limit).await?;
        Ok((page.items, page.next_cursor.is_some()))
    }
}

fn position_cursor(text: &str) -> Result<Position, ServiceError> {
    text.parse().map(Position).map_err(|_| ServiceError::Malformed {
        pointer: None,
        detail: "the cursor is not a position".to_owned(),
    })
}
