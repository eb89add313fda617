//! What a run is, derived by folding its events and by nothing else.

use std::collections::BTreeMap;

use crate::event::command::{CommandAccepted, InterruptCause, KillReason};
use crate::event::environment::{EnvironmentRequested, TeardownCause};
use crate::event::lease::LeaseAcquired;
use crate::ids::{CommandId, EnvironmentId, Epoch, InstanceId, LeaseId};
use crate::time::Timestamp;

/// A run, folded. [`RunState::default`] is a run without events.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RunState {
    /// Open, closing or closed.
    pub phase: RunPhase,
    /// The last epoch given out; 0 before the first lease.
    pub last_epoch: Epoch,
    /// All leases.
    pub leases: BTreeMap<LeaseId, LeaseState>,
    /// All environments.
    pub environments: BTreeMap<EnvironmentId, EnvironmentState>,
    /// All commands.
    pub commands: BTreeMap<CommandId, CommandState>,
}

/// Whether a run may go on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum RunPhase {
    /// Leases may be acquired.
    #[default]
    Open,
    /// No lease may follow; outcomes and teardowns are still recorded.
    Closing,
    /// Complete: everything is refused.
    Closed,
}

/// One lease.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeaseState {
    /// As acquired.
    pub acquired: LeaseAcquired,
    /// When.
    pub acquired_at: Timestamp,
    /// Its end as renewed.
    pub expires_at: Timestamp,
    /// Live or how it ended, as recorded. A live lease past `expires_at` is dead all the same: ask
    /// [`LeaseState::is_live`].
    pub phase: LeasePhase,
    /// When the end was recorded.
    pub ended_at: Option<Timestamp>,
}

/// Recorded state of a lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[expect(missing_docs, reason = "the names say it")]
pub enum LeasePhase {
    Live,
    Released,
    Expired,
    Revoked,
    Fenced,
}

impl LeasePhase {
    /// The name in JSON and SQL.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Live => "live",
            Self::Released => "released",
            Self::Expired => "expired",
            Self::Revoked => "revoked",
            Self::Fenced => "fenced",
        }
    }
}

/// One environment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EnvironmentState {
    /// As requested.
    pub requested: EnvironmentRequested,
    /// When.
    pub requested_at: Timestamp,
    /// Where it stands.
    pub phase: EnvironmentPhase,
    /// It was ready once: work may have been done in it, so it is never replaced in its epoch.
    pub provisioned: bool,
    /// Provisioning failed.
    pub provision_failed: bool,
    /// An invariant of its isolation broke.
    pub suspected: bool,
    /// Why it is torn down, once it is.
    pub teardown_cause: Option<TeardownCause>,
    /// Failed attempts at removal.
    pub teardown_attempts: u32,
    /// The instance that adopted it last.
    pub adopted_by: Option<InstanceId>,
}

/// Where an environment stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[expect(missing_docs, reason = "the names say it; the diagram is in the module above")]
pub enum EnvironmentPhase {
    Requested,
    Ready,
    TearingDown,
    Failed,
    Destroyed,
}

impl EnvironmentPhase {
    /// The name in JSON and SQL.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Requested => "requested",
            Self::Ready => "ready",
            Self::TearingDown => "tearing_down",
            Self::Failed => "failed",
            Self::Destroyed => "destroyed",
        }
    }

    /// Something of it may exist in the runtime.
    #[must_use]
    pub const fn is_open(self) -> bool {
        !matches!(self, Self::Destroyed)
    }
}

/// One command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CommandState {
    /// As accepted.
    pub accepted: CommandAccepted,
    /// When.
    pub accepted_at: Timestamp,
    /// Where it stands.
    pub phase: CommandPhase,
    /// Who started it.
    pub started_by: Option<InstanceId>,
    /// When it was started.
    pub started_at: Option<Timestamp>,
    /// A kill that was asked for.
    pub kill_requested: Option<KillReason>,
}

/// Where a command stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CommandPhase {
    /// Recorded, not started.
    Accepted,
    /// The start is durable; it may run.
    Running,
    /// It has its one outcome.
    Ended(CommandOutcome),
}

/// How a command ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CommandOutcome {
    /// With a result.
    Finished,
    /// Without a known result.
    Interrupted(InterruptCause),
}

impl LeaseState {
    /// Live by record and by clock (design: a lease is dead when the log clock passes `expires_at`).
    #[must_use]
    pub fn is_live(&self, now: Timestamp) -> bool {
        self.phase == LeasePhase::Live && now < self.expires_at
    }
}

impl EnvironmentState {
    /// Work may go on in it, now or once it is provisioned.
    #[must_use]
    pub const fn is_usable(&self) -> bool {
        matches!(self.phase, EnvironmentPhase::Requested | EnvironmentPhase::Ready)
    }

    /// It never became ready and nothing suspicious happened in it: its lease may ask for a new one.
    #[must_use]
    pub const fn may_be_replaced(&self) -> bool {
        !self.is_usable() && !self.provisioned && !self.suspected
    }
}

impl CommandState {
    /// It has no outcome yet.
    #[must_use]
    pub const fn is_open(&self) -> bool {
        !matches!(self.phase, CommandPhase::Ended(_))
    }
}

impl RunState {
    /// The lease that is live by record; it may be past its end.
    #[must_use]
    pub fn recorded_live_lease(&self) -> Option<&LeaseState> {
        self.leases.values().find(|lease| lease.phase == LeasePhase::Live)
    }

    /// The current environment of a lease: the one that is never replaced, else the newest of those that failed.
    #[must_use]
    pub fn environment_of(&self, lease_id: LeaseId) -> Option<&EnvironmentState> {
        self.environments
            .values()
            .filter(|environment| environment.requested.lease_id == lease_id)
            .max_by_key(|environment| {
                let stays = !environment.may_be_replaced();
                (stays, environment.requested_at, environment.requested.environment_id)
            })
    }

    /// Commands without an outcome.
    pub fn open_commands(&self) -> impl Iterator<Item = &CommandState> {
        self.commands.values().filter(|command| command.is_open())
    }

    /// Environments of which something may still exist.
    pub fn open_environments(&self) -> impl Iterator<Item = &EnvironmentState> {
        self.environments.values().filter(|environment| environment.phase.is_open())
    }
}
