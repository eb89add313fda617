//! The labels of everything we make: whose it is and until when, never tenant or run (the owner is read from the log).

use std::collections::HashMap;

use events::ids::EnvironmentId;
use events::time::Timestamp;

use super::config::ContainerConfig;

/// The log that owns it.
pub(super) const LOG: &str = "leasehold.log";
/// That log's epoch.
pub(super) const LOG_EPOCH: &str = "leasehold.log_epoch";
/// The node that made it.
pub(super) const NODE: &str = "leasehold.node";
/// The environment it belongs to.
pub(super) const ENVIRONMENT: &str = "leasehold.environment";
/// `sandbox`, `files` or `workspace`.
pub(super) const ROLE: &str = "leasehold.role";
/// The mechanism.
pub(super) const PROFILE: &str = "leasehold.profile";
/// When the environment was made.
pub(super) const CREATED: &str = "leasehold.created";
/// When it must be gone.
pub(super) const HARD_DEADLINE: &str = "leasehold.hard_deadline";
/// The version of the guest's protocol, on our images (and so on what is made of them).
pub(super) const PROTOCOL: &str = "leasehold.protocol";

/// What a labelled object is to its environment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Role {
    Sandbox,
    Files,
    Workspace,
}

impl Role {
    pub(super) const fn as_str(self) -> &'static str {
        match self {
            Self::Sandbox => "sandbox",
            Self::Files => "files",
            Self::Workspace => "workspace",
        }
    }
}

/// All labels of one object, as `name=value`.
pub(super) fn all(
    config: &ContainerConfig,
    environment_id: EnvironmentId,
    role: Role,
    created: Timestamp,
    hard_deadline: Timestamp,
) -> Vec<String> {
    [
        (LOG, config.log_id.to_string()),
        (LOG_EPOCH, config.log_epoch.to_string()),
        (NODE, config.node_id.to_string()),
        (ENVIRONMENT, environment_id.to_string()),
        (ROLE, role.as_str().to_owned()),
        (PROFILE, config.mechanism.as_str().to_owned()),
        (CREATED, created.to_string()),
        (HARD_DEADLINE, hard_deadline.to_string()),
    ]
    .into_iter()
    .map(|(name, value)| format!("{name}={value}"))
    .collect()
}

/// Labels as arguments of the client.
pub(super) fn arguments(labels: Vec<String>) -> Vec<String> {
    labels.into_iter().flat_map(|label| ["--label".to_owned(), label]).collect()
}

/// The labels of a container that belongs to no environment and is removed by its maker, as arguments: what a crash leaves of
/// it is an orphan.
pub(super) fn probe_arguments(config: &ContainerConfig, created: Timestamp) -> Vec<String> {
    [(LOG, config.log_id.to_string()), (NODE, config.node_id.to_string()), (CREATED, created.to_string())]
        .into_iter()
        .flat_map(|(name, value)| ["--label".to_owned(), format!("{name}={value}")])
        .collect()
}

/// Labels of a probe of no log: the nil log, so that what looks for left-overs of ours finds it.
pub(super) fn unowned_probe() -> Vec<String> {
    vec!["--label".to_owned(), format!("{LOG}={}", uuid::Uuid::nil())]
}

/// Reads the client's one-line form (`a=1,b=2`). None of our values has a comma; a foreign label that has one cannot hide
/// ours, because names are matched whole and the first of a name counts.
pub(super) fn parse(line: &str) -> HashMap<&str, &str> {
    let mut labels = HashMap::new();
    for (name, value) in line.split(',').filter_map(|pair| pair.split_once('=')) {
        labels.entry(name).or_insert(value);
    }
    labels
}
