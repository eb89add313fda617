//! What holds for any sequence of commands at any times: random sequences, judged by a second reading of the events that
//! shares nothing with the state.

use std::collections::BTreeSet;

use events::event::command::{InterruptCause, KillReason};
use events::event::environment::TeardownCause;
use events::ids::Epoch;
use events::run::{CommandPhase, Decision, LeasePhase, Rejection, RunCommand, RunPhase, RunState, decide};
use events::stored::encode_body;
use events::{Event, Timestamp};
use proptest::prelude::*;
use proptest::strategy::ValueTree;
use uuid::Uuid;

use crate::reading::Reading;
use crate::story::{
    accept, acquire, adopted, brief, destroyed, dies, exits, expire, interrupted, kill, provision_failed,
    provisioned, release, removed, renew, request, result, revoke, run, s, start, suspected, take_over,
    tear_down, teardown_failed, wrote,
};

/// Facts that may truly happen again, so that a repeat is a second fact.
fn may_repeat(command: &RunCommand) -> bool {
    matches!(
        command,
        RunCommand::RecordTeardownFailed { .. }
            | RunCommand::RecordFileWritten(_)
            | RunCommand::RecordFileRemoved(_)
    )
}

struct Run {
    state: RunState,
    reading: Reading,
    history: Vec<(Event, Timestamp)>,
}

impl Run {
    fn new() -> Self {
        Self { state: RunState::default(), reading: Reading::default(), history: Vec::new() }
    }

    fn step(
        &mut self,
        command: &RunCommand,
        now: Timestamp,
    ) -> Result<Result<Decision, Rejection>, TestCaseError> {
        let decision = decide(&self.state, command, now);
        prop_assert_eq!(&decision, &decide(&self.state, command, now), "decide is not pure");
        if let Ok(Decision::Append(events)) = &decision {
            prop_assert!(!events.is_empty(), "an append of nothing for {command:?}");
            for event in events {
                prop_assert!(encode_body(event).is_ok(), "{} cannot be stored", brief(event));
                self.reading.read(event, now)?;
                self.state.apply(event, now);
                self.history.push((event.clone(), now));
            }
            let again = decide(&self.state, command, now);
            let grows = matches!(again, Ok(Decision::Append(_)));
            prop_assert!(!grows || may_repeat(command), "repeated: {command:?} gives {again:?}");
        }
        self.check_state(now)?;
        Ok(decision)
    }

    fn check_state(&self, now: Timestamp) -> Result<(), TestCaseError> {
        self.reading.check_settled()?;
        let live = self.state.leases.values().filter(|lease| lease.phase == LeasePhase::Live).count();
        prop_assert!(live <= 1, "{live} live leases");
        prop_assert_eq!(self.state.last_epoch, self.reading.epochs.last().copied().unwrap_or_default());
        for (id, lease) in &self.state.leases {
            prop_assert_eq!(lease.is_live(now), !self.reading.is_dead(*id, now));
        }
        let open: BTreeSet<_> =
            self.state.open_commands().map(|command| command.accepted.command_id).collect();
        let without_outcome: BTreeSet<_> = self
            .reading
            .command_environment
            .keys()
            .filter(|id| !self.reading.outcomes.contains_key(id))
            .copied()
            .collect();
        prop_assert_eq!(&open, &without_outcome);
        for id in open {
            for outcome in [
                interrupted(id.0.as_u128(), InterruptCause::ServiceLost),
                exits(id.0.as_u128(), 0),
                dies(id.0.as_u128(), KillReason::Timeout),
            ] {
                let decision = decide(&self.state, &outcome, now);
                let running = self.state.commands[&id].phase == CommandPhase::Running;
                let recordable = matches!(&decision, Ok(Decision::Append(_)));
                let is_interruption = matches!(outcome, RunCommand::RecordInterrupted(_));
                prop_assert!(recordable || !(running || is_interruption), "{outcome:?}: {decision:?}");
            }
        }
        Ok(())
    }

    /// From any state a run can be brought to its end.
    fn close(&mut self, now: Timestamp) -> Result<(), TestCaseError> {
        if self.state.phase != RunPhase::Closed {
            self.step(&RunCommand::RequestClose, now)?.map_err(|r| TestCaseError::fail(r.to_string()))?;
            let open: Vec<_> =
                self.state.open_environments().map(|open| open.requested.environment_id).collect();
            for environment_id in open {
                let decision = self.step(&RunCommand::RecordDestroyed { environment_id }, now)?;
                prop_assert!(matches!(decision, Ok(Decision::Append(_))));
            }
            prop_assert_eq!(self.state.open_commands().count(), 0, "a command runs for ever");
            let decision = self.step(&RunCommand::RecordClosed, now)?;
            prop_assert!(matches!(decision, Ok(Decision::Append(_))), "{decision:?}");
        }
        prop_assert!(self.reading.closed);
        Ok(())
    }
}

/// One random step: how much time passes, what is done, and numbers that pick to what.
#[derive(Clone, Copy, Debug)]
struct Step {
    seconds: u64,
    kind: &'static str,
    pick: u8,
    number: u64,
}

/// What is done how often. Beginnings outweigh ends, so that sequences get somewhere.
const KINDS: [(u32, &str); 24] = [
    (6, "acquire"),
    (1, "take over"),
    (4, "renew"),
    (1, "release"),
    (1, "expire"),
    (1, "revoke"),
    (1, "close"),
    (1, "closed"),
    (9, "request"),
    (9, "provisioned"),
    (1, "provision failed"),
    (2, "adopted"),
    (1, "tear down"),
    (1, "suspected"),
    (1, "teardown failed"),
    (2, "destroyed"),
    (9, "accept"),
    (9, "run"),
    (6, "start"),
    (3, "kill"),
    (5, "exits"),
    (3, "dies"),
    (2, "interrupted"),
    (2, "file"),
];

fn any_step() -> impl Strategy<Value = Step> {
    let seconds = prop_oneof![12 => Just(0_u64), 6 => 1..4_u64, 1 => 4..400_u64];
    let kind = proptest::strategy::Union::new_weighted(
        KINDS.iter().map(|(weight, kind)| (*weight, Just(*kind).boxed())).collect(),
    );
    (seconds, kind, any::<u8>(), 0..700_u64).prop_map(|(seconds, kind, pick, number)| Step {
        seconds,
        kind,
        pick,
        number,
    })
}

fn any_sequence() -> impl Strategy<Value = Vec<Step>> {
    proptest::collection::vec(any_step(), 0..160)
}

impl Step {
    /// Mostly an object that can be meant in this state, sometimes any.
    fn command(self, state: &RunState) -> RunCommand {
        let any_id = u128::from(self.pick % 8) + 1;
        let meant = |ids: Vec<Uuid>| match ids.len() {
            0 => any_id,
            _ if self.pick % 8 == 7 => any_id,
            count => ids[usize::from(self.pick) % count].as_u128(),
        };
        let lease =
            || meant(state.recorded_live_lease().map(|live| live.acquired.lease_id.0).into_iter().collect());
        let environment =
            || meant(state.open_environments().map(|open| open.requested.environment_id.0).collect());
        let command = || meant(state.open_commands().map(|open| open.accepted.command_id.0).collect());
        let reason =
            [KillReason::Cancelled, KillReason::Timeout, KillReason::Expired][usize::from(self.pick % 3)];
        match self.kind {
            "acquire" => acquire(any_id, self.number),
            "take over" => take_over(any_id, self.number),
            "renew" => renew(lease(), self.number),
            "release" => release(lease()),
            "expire" => expire(lease()),
            "revoke" => revoke(lease(), None),
            "close" => RunCommand::RequestClose,
            "closed" => RunCommand::RecordClosed,
            "request" => request(any_id, lease()),
            "provisioned" => provisioned(environment()),
            "provision failed" => provision_failed(environment()),
            "adopted" => adopted(environment(), any_id % 2),
            "tear down" => tear_down(environment(), TeardownCause::Lost),
            "suspected" => suspected(environment()),
            "teardown failed" => teardown_failed(environment()),
            "destroyed" => destroyed(environment()),
            "accept" => accept(any_id, lease()),
            "run" => run(any_id, lease()),
            "start" => start(command(), any_id % 2),
            "kill" => kill(command(), reason),
            "exits" => exits(command(), 0),
            "dies" => dies(command(), reason),
            "interrupted" if self.number.is_multiple_of(2) => {
                RunCommand::RecordFinished(Box::new(result(command(), None, None)))
            }
            "interrupted" => interrupted(command(), InterruptCause::ServiceLost),
            "file" if self.number.is_multiple_of(2) => wrote(environment(), "a"),
            "file" => removed(environment(), "a"),
            other => panic!("{other} is no kind of step"),
        }
    }
}

/// Lets a sequence happen and checks every promise after every step.
fn happen(sequence: &[Step]) -> Result<(Run, Vec<RunCommand>, u64), TestCaseError> {
    let mut run = Run::new();
    let mut commands = Vec::new();
    let mut now_s = 0;
    for step in sequence {
        now_s += step.seconds;
        let command = step.command(&run.state);
        let _: Result<Decision, Rejection> = run.step(&command, s(now_s))?;
        commands.push(command);
    }
    Ok((run, commands, now_s))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    #[test]
    fn every_promise_holds_after_every_command(sequence in any_sequence()) {
        let (mut run, _, now_s) = happen(&sequence)?;
        run.close(s(now_s + 1))?;
        let mut replayed = RunState::default();
        for (event, recorded_at) in &run.history {
            replayed.apply(event, *recorded_at);
        }
        prop_assert_eq!(replayed, run.state, "the state is more than its events");
    }

}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// History is never refused, in whatever order its events come.
    #[test]
    fn apply_takes_any_events(sequence in any_sequence(), order in any::<u64>()) {
        let (run, commands, _) = happen(&sequence)?;
        let mut events = run.history;
        let count = events.len();
        for index in 0..count {
            let other = (order.rotate_left(index as u32) as usize) % count;
            events.swap(index, other);
        }
        let mut state = RunState { last_epoch: Epoch(u64::MAX), ..RunState::default() };
        for (event, recorded_at) in &events {
            state.apply(event, *recorded_at);
        }
        for command in &commands {
            let _: Result<Decision, Rejection> = decide(&state, command, s(0));
        }
    }
}

/// The random sequences reach what they are meant to judge: without this, the properties could hold for lack of events.
#[test]
fn random_sequences_reach_every_event_of_a_run() {
    let mut runner = proptest::test_runner::TestRunner::deterministic();
    let mut reached = BTreeSet::new();
    for _ in 0..120 {
        let sequence = any_sequence().new_tree(&mut runner).expect("a sequence").current();
        let (mut run, _, now_s) = happen(&sequence).expect("the promises hold");
        run.close(s(now_s + 1)).expect("it can be closed");
        reached.extend(run.history.iter().map(|(event, _)| event.event_type()));
    }
    let missing: Vec<_> =
        Event::TYPES.iter().filter(|kind| kind.id() < 120 && !reached.contains(kind)).collect();
    assert!(missing.is_empty(), "never reached: {missing:?}");
}
