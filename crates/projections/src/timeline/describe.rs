//! What an event says, in words.

use events::event::environment::TeardownCause;
use events::event::service::OrphanKind;
use events::event::workspace::PathText;
use events::{Event, Timestamp};
use uuid::Uuid;

use super::command;
use super::escape::{Escaped, quoted};

/// Characters of one foreign text that are shown.
pub(super) const TEXT_CHARACTERS_MAX: usize = 80;

/// The facts of an event in words, on one line, every foreign text escaped and bounded; `None` is an event whose body was
/// erased.
#[must_use]
pub fn describe(event: Option<&Event>) -> String {
    let Some(event) = event else { return "its body was erased".to_owned() };
    match event {
        Event::LeaseAcquired(body) => {
            let mut facts = format!("lease {}, epoch {}", body.lease_id, body.epoch);
            if let Some(holder) = &body.holder {
                facts.push_str(&format!(", held by {}", quoted(holder, TEXT_CHARACTERS_MAX)));
            }
            facts.push_str(&format!(", for {}, ", duration(body.ttl_ms)));
            facts.push_str(if body.network { "with network" } else { "no network" });
            facts
        }
        Event::LeaseRenewed(body) => {
            format!(
                "lease {} renewed for {}, until {}",
                short(body.lease_id.0),
                duration(body.ttl_ms),
                clock(body.expires_at)
            )
        }
        Event::LeaseReleased(body) => format!("lease {} given back", short(body.lease_id.0)),
        Event::LeaseExpired(body) => {
            format!("lease {} passed its end at {}", short(body.lease_id.0), clock(body.expires_at))
        }
        Event::LeaseRevoked(body) => {
            let mut facts = format!("lease {} ended by an operator", short(body.lease_id.0));
            if let Some(reason) = &body.reason {
                facts.push_str(&format!(": {}", quoted(reason, TEXT_CHARACTERS_MAX)));
            }
            facts
        }
        Event::LeaseFenced(body) => {
            format!("lease {} ended by the takeover of epoch {}", short(body.lease_id.0), body.by_epoch)
        }
        Event::RunCloseRequested(_) => "no lease may follow".to_owned(),
        Event::RunClosed(body) => format!(
            "complete after epoch {}: {}, {}",
            body.last_epoch,
            count(body.commands, "command"),
            count(body.environments, "environment")
        ),
        Event::EnvironmentRequested(body) => format!(
            "environment {} for lease {}, {}, image {}",
            body.environment_id,
            short(body.lease_id.0),
            body.mechanism,
            body.image_digest.as_str().get(..19).unwrap_or_default()
        ),
        Event::EnvironmentProvisioned(body) => {
            format!("environment {} ready after {}", short(body.environment_id.0), duration(body.duration_ms))
        }
        Event::EnvironmentProvisionFailed(body) => {
            format!(
                "environment {} could not be made: {}",
                short(body.environment_id.0),
                Escaped(&body.reason_code)
            )
        }
        Event::EnvironmentAdopted(body) => format!(
            "environment {} taken over by instance {}",
            short(body.environment_id.0),
            short(body.instance_id.0)
        ),
        Event::EnvironmentTeardownRequested(body) => {
            format!("environment {} must go: {}", short(body.environment_id.0), teardown_cause(body.cause))
        }
        Event::EnvironmentTeardownFailed(body) => format!(
            "environment {}, attempt {} failed: {}",
            short(body.environment_id.0),
            body.attempt,
            Escaped(&body.reason_code)
        ),
        Event::EnvironmentDestroyed(body) => {
            format!("nothing of environment {} is left", short(body.environment_id.0))
        }
        Event::EnvironmentSuspected(body) => {
            format!(
                "environment {} broke its isolation: {}",
                short(body.environment_id.0),
                Escaped(&body.reason_code)
            )
        }
        Event::CommandAccepted(body) => command::accepted(body),
        Event::CommandStarted(body) => command::started(body),
        Event::CommandKillRequested(body) => command::kill_requested(body),
        Event::KillEnforced(body) => command::kill_enforced(body),
        Event::CommandFinished(body) => command::finished(body),
        Event::CommandInterrupted(body) => command::interrupted(body),
        Event::WorkspaceFileWritten(body) => format!(
            "{} {}, {}, sha256 {}",
            if body.created { "created" } else { "replaced" },
            path(&body.path),
            count(body.size_bytes, "byte"),
            Escaped(body.sha256.get(..12).unwrap_or_default())
        ),
        Event::WorkspaceFileRemoved(body) => format!("removed {}", path(&body.path)),
        Event::ServiceStarted(body) => format!(
            "instance {} of version {}, {}, on node {}",
            short(body.instance_id.0),
            Escaped(&body.version),
            body.mechanism,
            short(body.node_id.0)
        ),
        Event::OrphanDeleted(body) => {
            format!(
                "{} {} without an owner removed",
                orphan_kind(body.kind),
                quoted(&body.name, TEXT_CHARACTERS_MAX)
            )
        }
    }
}

/// The last eight digits of an id: its random end tells it from its neighbours, its beginning is a time.
pub(super) fn short(id: Uuid) -> String {
    let text = id.simple().to_string();
    format!("…{}", &text[text.len() - 8..])
}

/// A path in quotes; one that is not UTF-8 says so.
fn path(path: &PathText) -> String {
    let shown = quoted(&path.path, TEXT_CHARACTERS_MAX);
    if path.path_base64.is_some() { format!("{shown} (not UTF-8)") } else { shown }
}

/// `1 byte`, `2 bytes`.
pub(super) fn count(number: u64, what: &str) -> String {
    if number == 1 { format!("1 {what}") } else { format!("{number} {what}s") }
}

/// `402 ms`, `30.004 s`, `60 s`.
pub(super) fn duration(ms: u64) -> String {
    match (ms / 1_000, ms % 1_000) {
        (0, ms) => format!("{ms} ms"),
        (seconds, 0) => format!("{seconds} s"),
        (seconds, ms) => format!("{seconds}.{ms:03} s"),
    }
}

/// Time of day in UTC, to the second.
fn clock(time: Timestamp) -> String {
    time.to_string().get(11..19).map(|clock| format!("{clock}Z")).unwrap_or_default()
}

const fn teardown_cause(cause: TeardownCause) -> &'static str {
    match cause {
        TeardownCause::Released => "its lease was released",
        TeardownCause::Expired => "its lease or its hard cap expired",
        TeardownCause::Revoked => "its lease was revoked",
        TeardownCause::Fenced => "a later epoch took over",
        TeardownCause::Closed => "its run was closed",
        TeardownCause::Suspected => "its isolation broke",
        TeardownCause::ProvisionFailed => "it could not be made",
        TeardownCause::Lost => "its containers are gone",
        TeardownCause::ServiceShutdown => "the service stopped",
    }
}

const fn orphan_kind(kind: OrphanKind) -> &'static str {
    match kind {
        OrphanKind::Container => "container",
        OrphanKind::Volume => "volume",
        OrphanKind::Network => "network",
        OrphanKind::Object => "object",
    }
}
