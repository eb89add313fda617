//! Everything that can be asked of, or reported about, one run.

use std::collections::BTreeMap;

use crate::event::command::{CommandFinished, CommandInterrupted, KillReason, StdinRecord};
use crate::event::environment::TeardownCause;
use crate::event::workspace::PathText;
use crate::ids::{CommandId, EnvironmentId, InstanceId, LeaseId, NodeId};
use crate::spec::{ImageDigest, Limits, Mechanism};

/// One command to a run. `Record…` are facts from the runtime.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RunCommand {
    /// Take a lease of a new epoch.
    AcquireLease(AcquireLease),
    /// Move the end of a live lease to `now + ttl_ms`.
    RenewLease {
        /// The lease.
        lease_id: LeaseId,
        /// Life from now in ms.
        ttl_ms: u64,
    },
    /// End a live lease.
    EndLease(LeaseEnd),
    /// No lease may follow; ends the live one.
    RequestClose,
    /// Record that the run is complete; refused while something is open.
    RecordClosed,
    /// Intent to provision; refused while the lease already has an environment.
    RequestEnvironment(RequestEnvironment),
    /// The environment is ready.
    RecordProvisioned {
        /// The environment.
        environment_id: EnvironmentId,
        /// Time from intent to ready in ms.
        duration_ms: u64,
    },
    /// The environment could not be made.
    RecordProvisionFailed {
        /// The environment.
        environment_id: EnvironmentId,
        /// Stable code.
        reason_code: String,
    },
    /// A restarted service took the environment over.
    RecordAdopted {
        /// The environment.
        environment_id: EnvironmentId,
        /// The new owner.
        instance_id: InstanceId,
    },
    /// The environment must go although its lease may still be live (lost, hard cap, shutdown).
    RequestTeardown {
        /// The environment.
        environment_id: EnvironmentId,
        /// Why.
        cause: TeardownCause,
    },
    /// An invariant of its isolation broke: recorded, then torn down.
    RecordSuspected {
        /// The environment.
        environment_id: EnvironmentId,
        /// Stable code.
        reason_code: String,
    },
    /// One attempt at removal failed.
    RecordTeardownFailed {
        /// The environment.
        environment_id: EnvironmentId,
        /// Stable code.
        reason_code: String,
    },
    /// Nothing of the environment is left.
    RecordDestroyed {
        /// The environment.
        environment_id: EnvironmentId,
    },
    /// Accept a command, and start it in the same append when `start_now`.
    AcceptCommand(AcceptCommand),
    /// Start a command that waited.
    StartCommand {
        /// The command.
        command_id: CommandId,
        /// Who runs it.
        instance_id: InstanceId,
        /// Time it waited in ms.
        queued_ms: u64,
    },
    /// Ask for a command's end.
    RequestKill {
        /// The command.
        command_id: CommandId,
        /// What the kill will be called.
        reason: KillReason,
    },
    /// The command's outcome; a kill is recorded in the same append.
    RecordFinished(Box<CommandFinished>),
    /// The command has no known outcome.
    RecordInterrupted(CommandInterrupted),
    /// A file was written through the interface.
    RecordFileWritten(FileWritten),
    /// A file was removed through the interface.
    RecordFileRemoved(FileRemoved),
}

/// See [`RunCommand::AcquireLease`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AcquireLease {
    /// Id of the new lease.
    pub lease_id: LeaseId,
    /// Life from now in ms; 1 s to `environment_cap_ms`.
    pub ttl_ms: u64,
    /// Longest life of its environment in ms.
    pub environment_cap_ms: u64,
    /// Who holds it, bounded text.
    pub holder: Option<String>,
    /// Resolved limits (defaults filled in, ceilings checked).
    pub limits: Limits,
    /// Egress granted.
    pub network: bool,
    /// Tools granted.
    pub tools: Vec<String>,
    /// The client's labels.
    pub labels: BTreeMap<String, String>,
    /// Fence a live lease instead of refusing.
    pub takeover: bool,
}

/// See [`RunCommand::EndLease`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeaseEnd {
    /// The lease.
    pub lease_id: LeaseId,
    /// Why.
    pub cause: LeaseEndCause,
}

/// Ways in which a lease ends by a command of its own (fencing and closing are part of other commands).
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LeaseEndCause {
    /// By its holder.
    Released,
    /// By the clock; refused while the lease is not yet past its end.
    Expired,
    /// By an operator.
    Revoked {
        /// In the operator's words.
        reason: Option<String>,
    },
}

/// See [`RunCommand::RequestEnvironment`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RequestEnvironment {
    /// Id of the new environment.
    pub environment_id: EnvironmentId,
    /// Its lease.
    pub lease_id: LeaseId,
    /// Where it will run.
    pub node_id: NodeId,
    /// How it is isolated.
    pub mechanism: Mechanism,
    /// The image.
    pub image_digest: ImageDigest,
}

/// See [`RunCommand::AcceptCommand`]. The service's own caps are already part of `timeout_ms`; `decide` lowers it to the
/// lease's wall clock and remaining life.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AcceptCommand {
    /// Id of the new command.
    pub command_id: CommandId,
    /// Under which lease.
    pub lease_id: LeaseId,
    /// Program and arguments.
    pub argv: Vec<String>,
    /// Working directory relative to `/workspace`.
    pub cwd: String,
    /// Variables of the request.
    pub env: BTreeMap<String, String>,
    /// Standard input.
    pub stdin: Option<StdinRecord>,
    /// Requested time limit in ms, the service's cap included.
    pub timeout_ms: u64,
    /// Output bound in bytes.
    pub output_bytes_max: u64,
    /// Beside the foreground command.
    pub background: bool,
    /// Nothing waits before it: start it in the same append, run by this instance.
    pub start_now: Option<InstanceId>,
}

/// See [`RunCommand::RecordFileWritten`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileWritten {
    /// In which environment.
    pub environment_id: EnvironmentId,
    /// Which file.
    pub path: PathText,
    /// Its size.
    pub size_bytes: u64,
    /// SHA-256, lower-case hex.
    pub sha256: String,
    /// It did not exist before.
    pub created: bool,
}

/// See [`RunCommand::RecordFileRemoved`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileRemoved {
    /// In which environment.
    pub environment_id: EnvironmentId,
    /// Which file.
    pub path: PathText,
}
