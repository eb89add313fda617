//! Every view as of one place in the log, by a fresh fold up to there: what the service knew then, whatever its tables say now.

mod table;

pub(crate) use table::shown;

use std::io::Write;

use event_log::verify::{events, meta};
use events::{LogId, Position, Timestamp};
use futures::TryStreamExt as _;
use projections::{Folded, View};
use serde::Serialize;
use serde_json::json;

use crate::error::ReplayError;
use crate::output::json_line;
use crate::select::{Owner, position};
use crate::source::{Source, snapshot};

/// Which state to show.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::Args)]
pub struct Selection {
    /// After the event at this position. Without a position and a time: at the end of the log.
    #[arg(long, value_name = "N", value_parser = position, conflicts_with = "time")]
    position: Option<Position>,
    /// At this RFC 3339 time: after the last event before the first one that was recorded later.
    #[arg(long, value_name = "TIME")]
    time: Option<Timestamp>,
    #[command(flatten)]
    owner: Owner,
    /// Only this view: runs, leases, environments, commands or run_events.
    #[arg(long, value_name = "VIEW")]
    view: Option<View>,
}

/// Which state was shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Place {
    /// Which log.
    pub log_id: LogId,
    /// The last event that counts.
    pub position: Position,
    /// When it was recorded.
    pub recorded_at: Timestamp,
}

/// Writes the rows: tables for people; with `json` one object that says which position is meant, then one object per row.
///
/// # Errors
/// When the log cannot be read up to there, or does not reach there.
pub async fn write(
    source: &Source,
    selection: Selection,
    json: bool,
    out: &mut impl Write,
) -> Result<(), ReplayError> {
    let (place, folded) = source
        .with(async |client| {
            let transaction = snapshot(client).await?;
            let log_id = meta(&transaction).await?.log_id;
            let mut folded = Folded::default();
            let mut last = None;
            let mut events = std::pin::pin!(events(&transaction, Position(0)).await?);
            // What lies behind the place is not read: it may be of a newer version.
            while selection.position.is_none_or(|end| folded.next <= end)
                && let Some(recorded) = events.try_next().await?
            {
                if selection.time.is_some_and(|end| recorded.header.recorded_at > end) {
                    break;
                }
                last = Some((recorded.position, recorded.header.recorded_at));
                if selection.owner.owns(&recorded.header) {
                    folded.apply(&recorded)?;
                } else {
                    folded.pass_over(&recorded)?;
                }
            }
            let (position, recorded_at) = selection.check(last)?;
            Ok((Place { log_id, position, recorded_at }, folded))
        })
        .await?;
    if folded.run_events.is_empty() && selection.owner != Owner::default() {
        return Err(ReplayError::NotYet { position: place.position });
    }
    let views = View::ALL.into_iter().filter(|view| selection.view.is_none_or(|wanted| wanted == *view));
    if json {
        json_line(out, &place)?;
        for view in views {
            for row in folded.shown(view) {
                json_line(out, &json!({ "view": view.as_str(), "row": row? }))?;
            }
        }
        return Ok(());
    }
    let Place { log_id, position, recorded_at } = place;
    writeln!(out, "log {log_id} after position {position}, recorded at {recorded_at}")?;
    for view in views {
        table::write(view, folded.shown(view), out)?;
    }
    Ok(())
}

impl Selection {
    /// The last event that counts, if the log reaches what was asked for.
    fn check(&self, last: Option<(Position, Timestamp)>) -> Result<(Position, Timestamp), ReplayError> {
        match (last, self.position, self.time) {
            (None, _, Some(time)) => Err(ReplayError::BeforeLog { time }),
            (None, ..) => Err(ReplayError::Empty),
            (Some((end, _)), Some(position), _) if end < position => {
                Err(ReplayError::BehindLog { position, end })
            }
            (Some(last), ..) => Ok(last),
        }
    }
}
