//! Files written and removed through the interface. The effect came first, so it is recorded as long as its environment
//! exists, also when the lease ended in between.

use super::fact::bounded_count;
use super::{Decision, find_environment, find_lease};
use crate::bounds::is_sha256_hex;
use crate::event::Event;
use crate::event::workspace::{WorkspaceFileRemoved, WorkspaceFileWritten};
use crate::ids::EnvironmentId;
use crate::run::command::{FileRemoved, FileWritten};
use crate::run::rejection::Rejection;
use crate::run::state::{EnvironmentPhase, LeaseState, RunState};

pub(super) fn written(state: &RunState, fact: &FileWritten) -> Result<Decision, Rejection> {
    let lease = &lease_of(state, fact.environment_id)?.acquired;
    if !is_sha256_hex(&fact.sha256) {
        return Err(Rejection::Invalid { field: "sha256", detail: "not 64 lower-case hex digits" });
    }
    Ok(Decision::Append(vec![Event::WorkspaceFileWritten(WorkspaceFileWritten {
        lease_id: lease.lease_id,
        epoch: lease.epoch,
        environment_id: fact.environment_id,
        path: fact.path.bounded(),
        size_bytes: bounded_count(fact.size_bytes),
        sha256: fact.sha256.clone(),
        created: fact.created,
        artifact_id: None,
    })]))
}

pub(super) fn removed(state: &RunState, fact: &FileRemoved) -> Result<Decision, Rejection> {
    let lease = &lease_of(state, fact.environment_id)?.acquired;
    Ok(Decision::Append(vec![Event::WorkspaceFileRemoved(WorkspaceFileRemoved {
        lease_id: lease.lease_id,
        epoch: lease.epoch,
        environment_id: fact.environment_id,
        path: fact.path.bounded(),
    })]))
}

fn lease_of(state: &RunState, environment_id: EnvironmentId) -> Result<&LeaseState, Rejection> {
    let environment = find_environment(state, environment_id)?;
    if environment.phase == EnvironmentPhase::Destroyed {
        return Err(Rejection::EnvironmentLost);
    }
    if !environment.provisioned {
        return Err(Rejection::EnvironmentNotReady);
    }
    find_lease(state, environment.requested.lease_id)
}
