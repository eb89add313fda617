//! What a command may use of its workspace, and what it means when it used more.
//!
//! ```text
//! at its start          it may use up to           it is DISK when
//! within the limit      the limit                  more is measured during or after it
//! over the limit        what was there             it adds to that: it may remove, so that the limit holds again
//! not measurable        the limit                  more is measured, or still nothing can be after a grace
//! ```
//! A command that begins over the limit could add a little before each kill. So after [`STRIKES_MAX`] kills in a row
//! that left the workspace over its limit, no command starts until removals through the API have made room.

use std::time::Duration;

use events::event::command::Evidence;
use events::spec::Limits;

/// Kills in a row that leave the workspace over its limit before no command starts any more.
pub(crate) const STRIKES_MAX: u32 = 3;

/// How long a command that found the workspace in no measurable state may take to make it one.
const UNMEASURABLE_GRACE: Duration = Duration::from_secs(5);

/// Evidence of a look that gave no answer.
const CANNOT_MEASURE: &str = "cannot_measure";

/// What a workspace holds, deleted files that are open included.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Used {
    pub(crate) bytes: u64,
    pub(crate) inodes: u64,
}

impl Used {
    /// No more than this, of either.
    pub(crate) fn is_within(self, ceiling: Self) -> bool {
        self.bytes <= ceiling.bytes && self.inodes <= ceiling.inodes
    }
}

/// A look at it. `None`: it cannot be measured, which is never zero.
pub(crate) type Measured = Option<Used>;

/// What one command may use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Allowance {
    limit: Used,
    /// Never below the limit.
    ceiling: Used,
    was_measurable: bool,
}

impl Allowance {
    /// Of a command that begins while this is there.
    pub(crate) fn of(limits: &Limits, before: Measured) -> Self {
        let limit = Used { bytes: limits.workspace_bytes, inodes: limits.inodes_max };
        let there = before.unwrap_or_default();
        let ceiling = Used { bytes: limit.bytes.max(there.bytes), inodes: limit.inodes.max(there.inodes) };
        Self { limit, ceiling, was_measurable: before.is_some() }
    }

    /// The most that may be measured.
    pub(crate) fn ceiling(&self) -> Used {
        self.ceiling
    }

    /// What proves that a measure is too much; `elapsed` since the command's start.
    pub(crate) fn excess(&self, measured: Measured, elapsed: Duration) -> Option<Evidence> {
        match measured {
            Some(used) if !used.is_within(self.ceiling) => Some(disk_evidence(self.limit, used)),
            None if self.was_measurable || elapsed > UNMEASURABLE_GRACE => Some(self.cannot_measure()),
            Some(_) | None => None,
        }
    }

    fn cannot_measure(&self) -> Evidence {
        Evidence {
            resource: Some("bytes".to_owned()),
            limit: Some(self.limit.bytes),
            source: Some(CANNOT_MEASURE.to_owned()),
            ..Evidence::default()
        }
    }

    /// Why no command may begin after this many kills in a row, if none may.
    pub(crate) fn refusal(&self, strikes: u32, measured: Measured) -> Option<Evidence> {
        if strikes < STRIKES_MAX {
            return None;
        }
        match measured {
            Some(used) => (!used.is_within(self.limit)).then(|| disk_evidence(self.limit, used)),
            None => Some(self.cannot_measure()),
        }
    }

    /// The number of kills in a row after a command that was, or was not, killed for its use of the workspace.
    pub(crate) fn strikes(&self, before: u32, was_killed: bool, after: Measured) -> u32 {
        match after {
            Some(used) if used.is_within(self.limit) => 0,
            _ => before.saturating_add(u32::from(was_killed)),
        }
    }
}

/// What proves a DISK kill: bytes first, when both are too many.
fn disk_evidence(limit: Used, used: Used) -> Evidence {
    let (resource, limit, measured) = if used.bytes > limit.bytes {
        ("bytes", limit.bytes, used.bytes)
    } else {
        ("inodes", limit.inodes, used.inodes)
    };
    Evidence {
        resource: Some(resource.to_owned()),
        limit: Some(limit),
        measured: Some(measured),
        ..Evidence::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: Limits = Limits {
        cpu_millicores: 1,
        memory_bytes: 1,
        pids_max: 1,
        workspace_bytes: 100,
        inodes_max: 10,
        wall_clock_seconds: 1,
    };

    fn used(bytes: u64, inodes: u64) -> Measured {
        Some(Used { bytes, inodes })
    }

    fn seen(evidence: Option<Evidence>) -> Option<(String, u64, Option<u64>)> {
        evidence.map(|e| (e.resource.unwrap(), e.limit.unwrap(), e.measured))
    }

    #[test]
    fn within_its_limit_a_command_may_use_the_limit() {
        let allowance = Allowance::of(&LIMITS, used(40, 4));
        let excess = |measured| seen(allowance.excess(measured, Duration::ZERO));
        assert_eq!(excess(used(100, 10)), None);
        assert_eq!(excess(used(101, 10)), Some(("bytes".into(), 100, Some(101))));
        assert_eq!(excess(used(100, 11)), Some(("inodes".into(), 10, Some(11))));
        assert_eq!(excess(used(101, 11)), Some(("bytes".into(), 100, Some(101))));
        let unknown = allowance.excess(None, Duration::ZERO).unwrap();
        assert_eq!((unknown.measured, unknown.source.as_deref()), (None, Some("cannot_measure")));
    }

    #[test]
    fn over_its_limit_a_command_may_remove_and_not_add() {
        let allowance = Allowance::of(&LIMITS, used(150, 4));
        let excess = |measured| seen(allowance.excess(measured, Duration::ZERO));
        assert_eq!(excess(used(150, 4)), None);
        assert_eq!(excess(used(120, 10)), None);
        assert_eq!(excess(used(151, 4)), Some(("bytes".into(), 100, Some(151))));
        assert_eq!(excess(used(140, 11)), Some(("bytes".into(), 100, Some(140))), "the limit is what counts");
    }

    #[test]
    fn in_no_measurable_state_there_is_a_grace_and_the_limit() {
        let allowance = Allowance::of(&LIMITS, None);
        assert_eq!(allowance.excess(None, Duration::from_secs(4)), None);
        assert!(allowance.excess(None, Duration::from_secs(6)).is_some());
        assert!(allowance.excess(used(101, 1), Duration::ZERO).is_some());
    }

    #[test]
    fn kills_in_a_row_end_the_right_to_try_until_there_is_room() {
        let allowance = Allowance::of(&LIMITS, used(150, 4));
        let mut strikes = 0;
        for _ in 0..STRIKES_MAX {
            assert_eq!(allowance.refusal(strikes, used(150, 4)), None);
            strikes = allowance.strikes(strikes, true, used(160, 4));
        }
        assert_eq!(seen(allowance.refusal(strikes, used(160, 4))), Some(("bytes".into(), 100, Some(160))));
        assert!(allowance.refusal(strikes, None).is_some());
        assert_eq!(allowance.refusal(strikes, used(100, 10)), None, "removals made room");
        assert_eq!(allowance.strikes(2, false, used(150, 4)), 2, "removing some is no strike");
        assert_eq!(allowance.strikes(2, false, used(100, 4)), 0);
    }
}
