//! What changed in the workspace, per command.
//!
//! Differences are reported against one baseline that moves with every report. Commands overlap (background
//! ones run beside others), so each report is added to every command that runs: each ends up with the differences since its
//! own start.

use std::collections::{BTreeMap, HashMap};

use events::bounds::FILES_CHANGED_BYTES_MAX;
use events::event::command::{ChangeKind, FileChange};
use events::event::workspace::PathText;
use events::ids::CommandId;

/// The changes of one command so far.
#[derive(Debug, Default)]
struct Collected {
    changes: BTreeMap<PathText, FileChange>,
    truncated: bool,
}

/// The changes of all commands that run in one environment.
#[derive(Debug, Default)]
pub(crate) struct ChangeTracker {
    running: HashMap<CommandId, Collected>,
    /// A report failed: the next one may hold what happened before its command began.
    behind: bool,
}

impl ChangeTracker {
    /// A command starts. True when what changed before must be reported first, because another one runs or a report failed.
    pub(crate) fn begin(&mut self, command_id: CommandId) -> bool {
        let overlaps = self.behind || !self.running.is_empty();
        self.running.insert(command_id, Collected::default());
        overlaps
    }

    /// What was collected before the command began is not its doing; while reports fail, its list cannot be complete.
    pub(crate) fn restart(&mut self, command_id: CommandId) {
        let truncated = self.behind;
        self.running.insert(command_id, Collected { truncated, ..Collected::default() });
    }

    /// Some command runs.
    pub(crate) fn is_any_running(&self) -> bool {
        !self.running.is_empty()
    }

    /// A report failed: the lists of all running commands are incomplete.
    pub(crate) fn missed(&mut self) {
        self.behind = true;
        self.report_to_running(&[], true);
    }

    /// Adds a report to every running command.
    pub(crate) fn report(&mut self, changes: &[FileChange], truncated: bool) {
        self.behind = false;
        self.report_to_running(changes, truncated);
    }

    fn report_to_running(&mut self, changes: &[FileChange], truncated: bool) {
        for collected in self.running.values_mut() {
            collected.truncated |= truncated;
            for change in changes {
                merge(&mut collected.changes, change.clone());
            }
        }
    }

    /// A command is over: its changes, at most `entries_max` and as many bytes as an event takes, and whether some are
    /// missing.
    pub(crate) fn finish(&mut self, command_id: CommandId, entries_max: u64) -> (Vec<FileChange>, bool) {
        let Some(collected) = self.running.remove(&command_id) else { return (Vec::new(), false) };
        let total = collected.changes.len();
        let mut bytes_left = FILES_CHANGED_BYTES_MAX;
        let listed: Vec<_> = collected
            .changes
            .into_values()
            .take(usize::try_from(entries_max).unwrap_or(usize::MAX))
            .take_while(|change| {
                let size = serde_json::to_vec(change).map_or(usize::MAX, |json| json.len() + 1);
                let fits = size <= bytes_left;
                bytes_left = bytes_left.saturating_sub(size);
                fits
            })
            .collect();
        let truncated = collected.truncated || listed.len() < total;
        (listed, truncated)
    }
}

/// Two changes of one path, one after the other, as one.
fn merge(changes: &mut BTreeMap<PathText, FileChange>, mut later: FileChange) {
    if let Some(earlier) = changes.remove(&later.path) {
        match (earlier.change, later.change) {
            (ChangeKind::Created, ChangeKind::Deleted) => return,
            (ChangeKind::Created, _) => later.change = ChangeKind::Created,
            (ChangeKind::Deleted, ChangeKind::Created) => later.change = ChangeKind::Modified,
            (ChangeKind::Modified | ChangeKind::Deleted, _) => {}
        }
    }
    changes.insert(later.path.clone(), later);
}

#[cfg(test)]
mod tests {
    use super::*;
    use uuid::Uuid;

    fn change(path: &str, change: ChangeKind) -> FileChange {
        FileChange { path: PathText::from_bytes(path.as_bytes()), change, size_bytes: None, sha256: None }
    }

    fn command(number: u128) -> CommandId {
        CommandId(Uuid::from_u128(number))
    }

    fn kinds(list: &[FileChange]) -> Vec<(&str, ChangeKind)> {
        list.iter().map(|change| (change.path.path.as_str(), change.change)).collect()
    }

    #[test]
    fn overlapping_commands_each_see_what_happened_while_they_ran() {
        use ChangeKind::{Created, Deleted, Modified};
        let mut tracker = ChangeTracker::default();
        assert!(!tracker.begin(command(1)));
        tracker.report(&[change("a", Created), change("b", Modified)], false);
        assert!(tracker.begin(command(2)));
        tracker.report(&[change("a", Deleted), change("b", Deleted), change("c", Created)], false);
        assert_eq!(
            kinds(&tracker.finish(command(2), 10).0),
            [("a", Deleted), ("b", Deleted), ("c", Created)]
        );
        tracker.report(&[change("b", Created)], false);
        assert_eq!(kinds(&tracker.finish(command(1), 10).0), [("b", Modified), ("c", Created)]);
    }

    #[test]
    fn a_missed_report_flags_who_ran_and_is_caught_up_before_the_next() {
        let mut tracker = ChangeTracker::default();
        assert!(!tracker.begin(command(1)));
        tracker.missed();
        assert_eq!(tracker.finish(command(1), 10), (Vec::new(), true));
        assert!(tracker.begin(command(2)), "what was missed must be reported first");
        tracker.report(&[change("old", ChangeKind::Created)], false);
        tracker.restart(command(2));
        assert_eq!(tracker.finish(command(2), 10), (Vec::new(), false));
        assert!(!tracker.begin(command(3)));
    }

    #[test]
    fn lists_are_cut_by_count_and_by_bytes() {
        let mut tracker = ChangeTracker::default();
        tracker.begin(command(1));
        let many: Vec<_> = (0..5).map(|n| change(&format!("f{n}"), ChangeKind::Created)).collect();
        tracker.report(&many, false);
        let (listed, truncated) = tracker.finish(command(1), 3);
        assert_eq!((listed.len(), truncated), (3, true));

        tracker.begin(command(2));
        let long: Vec<_> =
            (0..100).map(|n| change(&format!("{n:03}{}", "x".repeat(4000)), ChangeKind::Created)).collect();
        tracker.report(&long, false);
        let (listed, truncated) = tracker.finish(command(2), 1000);
        assert!(truncated && serde_json::to_vec(&listed).unwrap().len() <= FILES_CHANGED_BYTES_MAX);
    }
}
