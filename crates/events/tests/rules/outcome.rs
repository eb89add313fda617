//! Outcomes: exactly one per command, recordable whatever was reported and whatever happened to the lease.

use events::event::command::{CommandInterrupted, InterruptCause, KillReason};
use events::run::{Rejection, RunCommand};

use crate::story::{
    accept, command, dies, exits, expire, interrupted, kill, ready, release, result, run, start, take_over,
};

#[test]
fn an_exit_is_recorded_once() {
    ready()
        .does(run(1, 1))
        .then(exits(1, 137), &["CommandFinished C1 exit Some(137) killed None"])
        .already(exits(1, 0))
        .already(dies(1, KillReason::Timeout))
        .already(interrupted(1, InterruptCause::ServiceLost));
}

#[test]
fn a_kill_comes_with_its_proof_and_without_an_exit_code() {
    ready().does(run(1, 1)).then(
        dies(1, KillReason::Timeout),
        &["KillEnforced C1 TIMEOUT", "CommandFinished C1 exit None killed Some(\"TIMEOUT\")"],
    );
    let both = RunCommand::RecordFinished(Box::new(result(1, Some(137), Some(KillReason::Memory))));
    ready()
        .does(run(1, 1))
        .then(both, &["KillEnforced C1 MEMORY", "CommandFinished C1 exit None killed Some(\"MEMORY\")"]);
}

#[test]
fn a_report_without_exit_code_and_kill_is_an_interruption() {
    let neither = RunCommand::RecordFinished(Box::new(result(1, None, None)));
    ready()
        .does(run(1, 1))
        .then(neither.clone(), &["CommandInterrupted C1 supervisor_lost may have run"])
        .already(neither);
}

#[test]
fn what_never_started_cannot_have_finished() {
    ready()
        .does(accept(1, 1))
        .refuses(exits(1, 0), &Rejection::NotStarted)
        .refuses(dies(1, KillReason::Cancelled), &Rejection::NotStarted)
        .then(interrupted(1, InterruptCause::InputLost), &["CommandInterrupted C1 input_lost never ran"])
        .already(interrupted(1, InterruptCause::InputLost))
        .already(exits(1, 0));
}

#[test]
fn a_command_killed_while_it_waited_ends_as_killed() {
    ready()
        .does(accept(1, 1))
        .does(kill(1, KillReason::Cancelled))
        .refuses(exits(1, 0), &Rejection::NotStarted)
        .then(
            dies(1, KillReason::Cancelled),
            &["KillEnforced C1 CANCELLED", "CommandFinished C1 exit None killed Some(\"CANCELLED\")"],
        )
        .refuses_field(start(1, 1), "command_id");
}

#[test]
fn an_interruption_says_whether_the_program_may_have_run() {
    ready().does(run(1, 1)).then(
        interrupted(1, InterruptCause::ChannelLost),
        &["CommandInterrupted C1 channel_lost may have run"],
    );
    let proven = RunCommand::RecordInterrupted(CommandInterrupted {
        command_id: command(1),
        cause: InterruptCause::ChannelLost,
        may_have_run: false,
    });
    ready().does(run(1, 1)).then(proven, &["CommandInterrupted C1 channel_lost never ran"]);
}

#[test]
fn outcomes_are_recorded_under_dead_epochs() {
    let finished = ["CommandFinished C1 exit Some(0) killed None"];
    ready().does(run(1, 1)).does(release(1)).then(exits(1, 0), &finished);
    ready().does(run(1, 1)).does(take_over(2, 60)).then(exits(1, 0), &finished);
    ready().does(run(1, 1)).at(301).then(exits(1, 0), &finished);
    ready().does(run(1, 1)).at(301).does(expire(1)).then(
        dies(1, KillReason::Expired),
        &["KillEnforced C1 EXPIRED", "CommandFinished C1 exit None killed Some(\"EXPIRED\")"],
    );
}
