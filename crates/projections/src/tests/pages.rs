//! Any history, in pages of any size, gives the rows that one fold gives: the promise behind "live equals rebuilt".

use std::collections::BTreeMap;

use events::Event;
use events::event::environment::TeardownCause;
use events::event::lease::RunCloseRequested;
use events::run::{CommandOutcome, CommandPhase, RunPhase, RunState};
use events::stored::Recorded;
use proptest::collection::vec;
use proptest::prelude::*;

use super::samples::*;
use crate::fold::Touched;
use crate::rows::{Row, Rows};
use crate::{CommandStatus, Folded};

/// Any event about one of three leases, environments and commands, also where the rules would not allow it.
fn any_event() -> impl Strategy<Value = Event> {
    (0..14_u8, 1..4_u128, 1..4_u128).prop_map(|(kind, number, owner)| match kind {
        0 => acquired(number),
        1 => released(number),
        2 => requested(number),
        3 => provisioned(number),
        4 => teardown(number, TeardownCause::Expired),
        5 => destroyed(number),
        6 | 7 => accepted(number, owner),
        8 | 9 => started(number),
        10 => kill_requested(number),
        11 => timed_out(number),
        12 => finished(number),
        _ => Event::RunCloseRequested(RunCloseRequested {}),
    })
}

/// A table: what the live fold loads from and writes to.
type Stored<R> = BTreeMap<<R as Row>::Key, R>;

#[derive(Default)]
struct Tables {
    folded: Folded,
    leases: Stored<crate::LeaseRow>,
    environments: Stored<crate::EnvironmentRow>,
    commands: Stored<crate::CommandRow>,
    runs: Stored<crate::RunRow>,
    run_events: Stored<crate::RunEventRow>,
}

fn load<R: Row>(table: &Stored<R>, keys: impl IntoIterator<Item = R::Key>) -> Rows<R> {
    Rows::from_table(keys.into_iter().filter_map(|key| table.get(&key).cloned()))
}

fn store<R: Row>(table: &mut Stored<R>, rows: &Rows<R>) {
    table.extend(rows.changed().map(|row| (row.key(), row.clone())));
}

fn all<R: Row>(rows: &Rows<R>) -> Stored<R> {
    rows.iter().map(|row| (row.key(), row.clone())).collect()
}

impl Tables {
    /// What the live fold does with a page: load only what its keys name, fold, write only what changed.
    fn apply(&mut self, page: &[Recorded]) {
        let touched = Touched::by(page);
        let mut folded = Folded {
            next: self.folded.next,
            leases: load(&self.leases, touched.leases),
            environments: load(&self.environments, touched.environments),
            commands: load(&self.commands, touched.commands),
            runs: load(&self.runs, touched.runs),
            ..Folded::default()
        };
        for recorded in page {
            folded.apply(recorded).unwrap();
        }
        store(&mut self.leases, &folded.leases);
        store(&mut self.environments, &folded.environments);
        store(&mut self.commands, &folded.commands);
        store(&mut self.runs, &folded.runs);
        store(&mut self.run_events, &folded.run_events);
        self.folded.next = folded.next;
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn pages_of_any_size_give_the_rows_of_one_fold(
        history in vec(any_event(), 1..60),
        sizes in vec(1..9_usize, 60),
    ) {
        let history: Vec<Recorded> =
            (0..).zip(history).map(|(position, event)| recorded(position, event)).collect();
        let mut whole = Folded::default();
        for recorded in &history {
            whole.apply(recorded).unwrap();
        }
        let mut tables = Tables::default();
        let mut rest = history.as_slice();
        for size in sizes {
            let (page, after) = rest.split_at(size.min(rest.len()));
            tables.apply(page);
            rest = after;
        }
        prop_assert!(rest.is_empty());
        prop_assert_eq!(tables.leases, all(&whole.leases));
        prop_assert_eq!(tables.environments, all(&whole.environments));
        prop_assert_eq!(tables.commands, all(&whole.commands));
        prop_assert_eq!(tables.runs, all(&whole.runs));
        prop_assert_eq!(tables.run_events, all(&whole.run_events));
    }

    /// Two folds of one history must not tell two stories: the views say what the rules' own state says.
    #[test]
    fn the_views_agree_with_the_state_of_the_rules(history in vec(any_event(), 1..60)) {
        let mut state = RunState::default();
        let mut views = Folded::default();
        for (position, event) in (0..).zip(history) {
            let recorded = recorded(position, event.clone());
            state.apply(&event, recorded.header.recorded_at);
            views.apply(&recorded).unwrap();
        }
        let leases = state.leases.iter().map(|(id, lease)| (*id, (lease.phase, lease.expires_at, lease.ended_at)));
        let rows = views.leases.iter().map(|row| (row.lease_id, (row.state, row.expires_at, row.ended_at)));
        prop_assert_eq!(leases.collect::<Vec<_>>(), rows.collect::<Vec<_>>());
        let environments = state.environments.iter().map(|(id, known)| {
            (*id, (known.phase, known.teardown_cause, known.teardown_attempts, known.requested_at))
        });
        let rows = views.environments.iter().map(|row| {
            (row.environment_id, (row.state, row.teardown_cause, row.teardown_attempts, row.created_at))
        });
        prop_assert_eq!(environments.collect::<Vec<_>>(), rows.collect::<Vec<_>>());
        let status = |phase| match phase {
            CommandPhase::Accepted => CommandStatus::Accepted,
            CommandPhase::Running => CommandStatus::Running,
            CommandPhase::Ended(CommandOutcome::Finished) => CommandStatus::Finished,
            CommandPhase::Ended(CommandOutcome::Interrupted(_)) => CommandStatus::Interrupted,
        };
        let commands = state.commands.iter().map(|(id, known)| {
            (*id, (status(known.phase), known.accepted_at, known.started_at, known.started_by))
        });
        let rows = views.commands.iter().map(|row| {
            (row.command_id, (row.state, row.accepted_at, row.started_at, row.started_by))
        });
        prop_assert_eq!(commands.collect::<Vec<_>>(), rows.collect::<Vec<_>>());
        if let Some(row) = views.runs.get((tenant(), run())) {
            prop_assert_eq!((state.phase, state.last_epoch), (row.phase, row.last_epoch));
        } else {
            prop_assert_eq!((state.phase, state.leases.len()), (RunPhase::Open, 0));
        }
    }
}
