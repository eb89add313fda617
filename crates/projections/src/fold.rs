//! All views of one stretch of the log: the one fold that is used live, in a rebuild and in a comparison.

use std::collections::BTreeSet;

use events::stored::Recorded;
use events::{CommandId, EnvironmentId, LeaseId, Position, RunId, TenantId};

use crate::commands::CommandRow;
use crate::environments::EnvironmentRow;
use crate::error::ViewsError;
use crate::leases::LeaseRow;
use crate::rows::Rows;
use crate::run_events::RunEventRow;
use crate::runs::RunRow;
use crate::sealed::{ColumnDigests, Sealed};
use crate::{commands, environments, leases, run_events, runs};

/// An event came out of order: the log is not what it must be, or the reader is wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("position {expected} should follow, {found} came")]
pub struct NotContiguous {
    /// The position that had to come.
    pub expected: Position,
    /// The one that came.
    pub found: Position,
}

/// Rows of all views, folded up to (not including) `next`.
#[derive(Clone, Debug, Default)]
pub struct Folded {
    /// The position that must come next.
    pub next: Position,
    /// Leaf of the last event applied.
    pub leaf: Option<[u8; 32]>,
    /// Leases.
    pub leases: Rows<LeaseRow>,
    /// Environments.
    pub environments: Rows<EnvironmentRow>,
    /// Commands.
    pub commands: Rows<CommandRow>,
    /// Runs.
    pub runs: Rows<RunRow>,
    /// Events by run.
    pub run_events: Rows<RunEventRow>,
    /// Commands with an outcome, as far as [`Folded::seal`] has put them away.
    pub(crate) sealed_commands: Sealed<CommandRow>,
}

impl Folded {
    /// Applies the next event. An erased body changes nothing but the run's history.
    ///
    /// # Errors
    /// When it is not the next one; nothing has changed then.
    pub fn apply(&mut self, recorded: &Recorded) -> Result<(), NotContiguous> {
        self.pass_over(recorded)?;
        run_events::fold::fold(&mut self.run_events, recorded);
        if let (Some(run_id), Some(event)) = (recorded.header.correlation_id, &recorded.event) {
            leases::fold::fold(&mut self.leases, run_id, recorded, event);
            environments::fold::fold(&mut self.environments, run_id, recorded, event);
            commands::fold::fold(&mut self.commands, run_id, recorded, event);
            runs::fold::fold(&mut self.runs, run_id, recorded, event);
        }
        Ok(())
    }
}

impl Folded {
    /// Goes past the next event without applying it: the rows are those of the others. For a fold of one run; not for a
    /// comparison.
    ///
    /// # Errors
    /// As [`Folded::apply`].
    pub fn pass_over(&mut self, recorded: &Recorded) -> Result<(), NotContiguous> {
        if recorded.position != self.next {
            return Err(NotContiguous { expected: self.next, found: recorded.position });
        }
        self.next = recorded.position.next();
        self.leaf = Some(recorded.leaf);
        Ok(())
    }

    /// Keeps only digests of the commands that have their outcome, for a later [`crate::compare()`]: nothing changes them any
    /// more, and they hold the outputs. Call it now and then during a long fold.
    ///
    /// # Errors
    /// When a row has a value that no table could hold.
    pub fn seal(&mut self) -> Result<(), ViewsError> {
        self.seal_but(&BTreeSet::new())
    }

    /// As [`Folded::seal`], but the commands of `kept` stay whole.
    ///
    /// # Errors
    /// As [`Folded::seal`].
    pub fn seal_but(&mut self, kept: &BTreeSet<CommandId>) -> Result<(), ViewsError> {
        let ended: Vec<CommandId> = self
            .commands
            .iter()
            .filter(|row| row.state.is_ended() && !kept.contains(&row.command_id))
            .map(|row| row.command_id)
            .collect();
        for command_id in ended {
            if let Some(row) = self.commands.remove(command_id) {
                self.sealed_commands.insert(command_id, ColumnDigests::of(&row)?);
            }
        }
        Ok(())
    }
}

/// The rows that a page of events may read: they must be loaded before it is folded.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Touched {
    pub(crate) leases: BTreeSet<LeaseId>,
    pub(crate) environments: BTreeSet<EnvironmentId>,
    pub(crate) commands: BTreeSet<CommandId>,
    pub(crate) runs: BTreeSet<(TenantId, RunId)>,
}

impl Touched {
    pub(crate) fn by(page: &[Recorded]) -> Self {
        let mut touched = Self::default();
        for recorded in page {
            let (Some(run_id), Some(event)) = (recorded.header.correlation_id, &recorded.event) else {
                continue;
            };
            touched.leases.extend(leases::fold::key(event));
            touched.environments.extend(environments::fold::key(event));
            touched.commands.extend(commands::fold::key(event));
            if runs::fold::concerns(event) {
                touched.runs.insert((recorded.header.tenant, run_id));
            }
        }
        touched
    }
}
