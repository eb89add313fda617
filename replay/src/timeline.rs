//! What happened, one line per event.

use std::collections::BTreeSet;
use std::io::Write;

use event_log::verify::events;
use events::Position;
use events::stored::Recorded;
use futures::TryStreamExt as _;
use projections::timeline::Timeline;

use crate::error::ReplayError;
use crate::output::json_line;
use crate::select::{Owner, Place};
use crate::shape::EventJson;
use crate::source::{Source, snapshot};

/// Which events to tell.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::Args)]
pub struct Selection {
    #[command(flatten)]
    owner: Owner,
    /// Begin with the first event at or after this position or RFC 3339 time of recording.
    #[arg(long, value_name = "PLACE")]
    from: Option<Place>,
    /// End before the first event at or after this position or RFC 3339 time of recording.
    #[arg(long, value_name = "PLACE")]
    until: Option<Place>,
}

/// Writes events as lines: aligned words for people, or JSON in the shape of the interface.
#[derive(Debug, Default)]
pub struct Lines {
    json: bool,
    timeline: Timeline,
    written: u64,
}

impl Lines {
    /// For people, or JSON lines.
    #[must_use]
    pub fn new(json: bool) -> Self {
        Self { json, ..Self::default() }
    }

    /// How many events were written.
    #[must_use]
    pub const fn written(&self) -> u64 {
        self.written
    }

    /// Writes one event; before the first one, for people, what the columns are.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn write(&mut self, recorded: &Recorded, out: &mut impl Write) -> Result<(), ReplayError> {
        if self.json {
            json_line(out, &EventJson::try_new(recorded)?)?;
        } else {
            if self.written == 0 {
                writeln!(out, "position  time since {}", recorded.header.recorded_at)?;
            }
            writeln!(out, "{}", self.timeline.line(recorded))?;
        }
        self.written += 1;
        Ok(())
    }
}

/// Whose events were told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Told {
    /// What was asked for.
    Selected,
    /// A run was asked for, and several tenants have one of that id.
    SeveralTenants,
}

/// Writes the selected events in order. The whole log is read, not an index of it: no event of a run can be missing because a
/// projection lacks it.
///
/// # Errors
/// When the log cannot be read to the end of the selection, or nothing of what was asked for is in it. What was read before is
/// written.
pub async fn write(
    source: &Source,
    selection: Selection,
    json: bool,
    out: &mut impl Write,
) -> Result<Told, ReplayError> {
    source
        .with(async |client| {
            let transaction = snapshot(client).await?;
            let first = match selection.from {
                Some(Place::Position(position)) => position,
                Some(Place::Time(_)) | None => Position(0),
            };
            let mut events = std::pin::pin!(events(&transaction, first).await?);
            let mut lines = Lines::new(json);
            let mut begun = selection.from.is_none();
            let mut tenants = BTreeSet::new();
            while let Some(recorded) = events.try_next().await? {
                begun = begun || selection.from.is_some_and(|from| from.is_reached_by(&recorded));
                if !begun {
                    continue;
                }
                if selection.until.is_some_and(|until| until.is_reached_by(&recorded)) {
                    break;
                }
                if selection.owner.owns(&recorded.header) {
                    tenants.insert(recorded.header.tenant);
                    lines.write(&recorded, out)?;
                }
            }
            match (lines.written(), selection) {
                (0, Selection { owner, from: None, until: None }) => Err(owner.absent()),
                (0, _) => Err(ReplayError::NothingSelected),
                _ if selection.owner.run.is_some() && tenants.len() > 1 => Ok(Told::SeveralTenants),
                _ => Ok(Told::Selected),
            }
        })
        .await
}
