//! Acceptance: the request is checked, the environment made, a place in the queue taken, and the command put on record, before
//! anything runs.

use std::collections::BTreeMap;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use event_log::RequestKey;
use events::bounds::{ARGV_ENV_BYTES_MAX, LEASE_REMAINDER_MS_MIN, STDIN_BYTES_MAX, STDIN_INLINE_BYTES_MAX};
use events::event::command::{CommandAccepted, StdinRecord};
use events::ids::derived_uuid;
use events::run::{AcceptCommand, Rejection, RunCommand, RunState, check_request};
use events::{CommandId, Event, LeaseId, Position, Timestamp};
use policy::{WorkspaceCwd, build_environment};
use sha2::{Digest, Sha256};
use tokio::sync::oneshot;
use uuid::Uuid;

use super::Execution;
use super::active::Taken;
use super::queue::Place;
use super::run::Running;
use crate::api::{CommandRequest, RequestCtx, ServiceError};
use crate::environments::make::reason_code;
use crate::runs::{RunRef, SubmitError, Submitted};

/// Linux refuses a single argument of 128 KiB or more; argv is bounded below that, so only a variable can be too large.
const VARIABLE_BYTES_MAX: usize = 128 * 1024 - 1;
/// Variables of one command, the built ones included: what the sandbox's supervisor takes.
const VARIABLES_MAX: usize = 1_024;
/// The hard ceiling of output is this multiple of what the request expects.
const OUTPUT_CEILING_FACTOR: u64 = 4;
/// How often an environment may change under a request before the client is told to try again.
const ROUNDS_MAX: usize = 4;

/// A command is on record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Accepted {
    /// Which.
    pub command_id: CommandId,
    /// What a reader must have folded to see it.
    pub position: Option<Position>,
}

/// A checked request.
struct Checked {
    request: CommandRequest,
    cwd: WorkspaceCwd,
    env: BTreeMap<String, String>,
    stdin: Option<StdinRecord>,
    output_bytes_max: u64,
}

/// Everything that is the same for each attempt to accept.
struct Plan {
    run: RunRef,
    lease_id: LeaseId,
    command_id: CommandId,
    actor: String,
    key: Option<RequestKey>,
    checked: Checked,
}

impl Execution {
    /// Accepts a command and starts it, in a task of its own. A repeat under the same key answers the same command.
    ///
    /// # Errors
    /// What is wrong with the request, or why nothing can run under the lease now.
    pub async fn accept(
        &self,
        ctx: &RequestCtx,
        run: RunRef,
        lease_id: LeaseId,
        request: CommandRequest,
    ) -> Result<Accepted, ServiceError> {
        let key = request_key(ctx);
        if let Some(key) = &key
            && let Some(position) = self.shared.runs.find_key(key).await?
        {
            return self.repeated(position).await;
        }
        let command_id = self.command_id(run, key.as_ref()).await?;
        let checked = self.check(request)?;
        let actor = ctx.principal.actor.clone();
        let plan = Plan { run, lease_id, command_id, actor, key, checked };
        // What the record would refuse is refused before an environment is made for it.
        check_request(&plan.accept_command(None))?;
        self.check_lease(run, lease_id).await?;
        let (sender, receiver) = oneshot::channel();
        let this = self.clone();
        self.shared.supervisor.start("command", async move { this.accept_and_run(plan, sender).await });
        receiver.await.map_err(|_| ServiceError::Internal)?
    }

    /// Under a key the id follows from the request, so that two at once name the same command. A key that was forgotten after a
    /// day may have named one before: then it is a new request.
    async fn command_id(&self, run: RunRef, key: Option<&RequestKey>) -> Result<CommandId, ServiceError> {
        let Some(key) = key else { return Ok(CommandId(Uuid::now_v7())) };
        let command_id = CommandId(keyed_id(key, b"command"));
        let used =
            self.shared.runs.look_fresh(run, |state, _| state.commands.contains_key(&command_id)).await?;
        Ok(if used { CommandId(Uuid::now_v7()) } else { command_id })
    }

    /// The command that an earlier request under the key made.
    async fn repeated(&self, position: Position) -> Result<Accepted, ServiceError> {
        let command_id = self.shared.reads.accepted_at(position).await?.ok_or(ServiceError::Conflict)?;
        Ok(Accepted { command_id, position: Some(position) })
    }

    /// Too short a remainder is refused before an environment is made for it.
    async fn check_lease(&self, run: RunRef, lease_id: LeaseId) -> Result<(), ServiceError> {
        let too_short = |state: &RunState, now: Timestamp| {
            state.leases.get(&lease_id).is_some_and(|lease| {
                lease.is_live(now) && lease.expires_at.ms_since(now) < LEASE_REMAINDER_MS_MIN
            })
        };
        if self.shared.runs.look(run, too_short).await? && self.shared.runs.look_fresh(run, too_short).await?
        {
            return Err(ServiceError::LeaseTooShort);
        }
        Ok(())
    }

    fn check(&self, request: CommandRequest) -> Result<Checked, ServiceError> {
        let cwd_text = request.cwd.as_deref().unwrap_or(".");
        let cwd = WorkspaceCwd::try_new(cwd_text).map_err(|refusal| ServiceError::Invalid {
            pointer: "/cwd".to_owned(),
            detail: refusal.to_string(),
        })?;
        let variable =
            request.env.iter().find(|(name, value)| name.len() + value.len() + 1 > VARIABLE_BYTES_MAX);
        if variable.is_some() {
            let limit_bytes = VARIABLE_BYTES_MAX as u64;
            return Err(ServiceError::CommandTooLarge { what: "a variable", limit_bytes });
        }
        let env = build_environment(&self.shared.config.tier1, &request.env, &cwd).map_err(|refusal| {
            ServiceError::EnvRefused { name: refusal.name().to_owned(), reason: refusal.to_string() }
        })?;
        // Everything that the child gets counts, not only what the request adds.
        let env_bytes: usize = env.iter().map(|(name, value)| name.len() + value.len()).sum();
        if env.len() > VARIABLES_MAX {
            return Err(ServiceError::Invalid {
                pointer: "/env".to_owned(),
                detail: format!("with the built ones more than {VARIABLES_MAX} variables"),
            });
        }
        if env_bytes > ARGV_ENV_BYTES_MAX {
            let limit_bytes = ARGV_ENV_BYTES_MAX as u64;
            return Err(ServiceError::CommandTooLarge { what: "the environment", limit_bytes });
        }
        let ceiling = self.shared.config.output_bytes_max;
        let output_bytes_max = match request.output_bytes {
            None => ceiling,
            Some(expected) if (1..=ceiling).contains(&expected) => {
                expected.saturating_mul(OUTPUT_CEILING_FACTOR).min(ceiling)
            }
            Some(_) => {
                return Err(ServiceError::Invalid {
                    pointer: "/output_bytes".to_owned(),
                    detail: format!("must be from 1 to {ceiling}"),
                });
            }
        };
        let stdin = request.stdin.as_ref().map(stdin_record).transpose()?;
        Ok(Checked { request, cwd, env, stdin, output_bytes_max })
    }

    /// The task of a command: answers its caller once the command is on record, then sees it through.
    async fn accept_and_run(&self, plan: Plan, answer: oneshot::Sender<Result<Accepted, ServiceError>>) {
        match self.try_accept(&plan).await {
            Ok((accepted, running)) => {
                self.shared.reads.remember_command(accepted.command_id, plan.run);
                // Whoever asked may be gone; the command is not.
                drop(answer.send(Ok(accepted)));
                if let Some(running) = running {
                    let stdin = plan.checked.request.stdin;
                    self.see_through(running, plan.checked.env, stdin).await;
                }
            }
            Err(error) => drop(answer.send(Err(error))),
        }
    }

    async fn try_accept(&self, plan: &Plan) -> Result<(Accepted, Option<Running<'_>>), ServiceError> {
        for _ in 0..ROUNDS_MAX {
            match self.accept_once(plan).await {
                // The environment changed between its making and the decision.
                Err(ServiceError::Conflict) => {}
                settled => return settled,
            }
        }
        Err(ServiceError::Conflict)
    }

    async fn accept_once(&self, plan: &Plan) -> Result<(Accepted, Option<Running<'_>>), ServiceError> {
        let environment = self.shared.environments.ensure(plan.run, plan.lease_id).await?;
        let digest = plan.key.as_ref().map(|key| key.digest);
        let mut entry =
            match self.shared.actives.enter(plan.command_id, environment.handle.environment_id, digest) {
                Ok(entry) => entry,
                Err(Taken::OtherRequest) => return Err(ServiceError::IdempotencyKeyReused),
                Err(Taken::SameRequest) => return Ok((self.same_request(plan).await?, None)),
            };
        self.shared.environments.ports().execution.check_room(&environment.handle).await.map_err(
            |error| ServiceError::EnvironmentUnavailable { reason_code: reason_code(&error).to_owned() },
        )?;
        let place = if plan.checked.request.background {
            None
        } else {
            let place = environment
                .queue
                .enter()
                .map_err(|full| ServiceError::QueueFull { waiting: full.waiting })?;
            Some(place)
        };
        let start_now = !matches!(place, Some(Place::Waiting(_)));
        let command = RunCommand::AcceptCommand(
            plan.accept_command(start_now.then_some(self.shared.environments.identity().instance_id)),
        );
        let submitted = self.shared.runs.submit(plan.run, &plan.actor, plan.key.as_ref(), &command).await;
        let command_id = plan.command_id;
        let (events, position) = match submitted {
            Ok(Submitted::Appended { events, position, .. }) => (events, position),
            Ok(Submitted::Repeated { position }) => return Ok((self.repeated(position).await?, None)),
            Ok(Submitted::AlreadyDone { .. }) => return Err(ServiceError::Conflict),
            Err(SubmitError::Rejected(Rejection::EnvironmentNotReady)) => return Err(ServiceError::Conflict),
            Err(error) => return Err(error.into()),
        };
        // The events of one append have positions in a row, the acceptance first.
        let first = position.get().saturating_sub(events.len() as u64 - 1);
        (first..=position.get()).for_each(|at| entry.recorded_at(Position(at)));
        let recorded = events
            .into_iter()
            .find_map(|event| match event {
                Event::CommandAccepted(recorded) => Some(recorded),
                _ => None,
            })
            .ok_or(ServiceError::Internal)?;
        let live = self.shared.output.open(command_id);
        let running = Running::new(entry, environment, place, start_now, live, recorded);
        Ok((Accepted { command_id, position: Some(position) }, Some(running)))
    }

    /// The same request is under way in this process: waits until it is on record.
    async fn same_request(&self, plan: &Plan) -> Result<Accepted, ServiceError> {
        let Some(key) = &plan.key else { return Err(ServiceError::Internal) };
        loop {
            let active = self.is_active(plan.command_id);
            if let Some(position) = self.shared.runs.find_key(key).await? {
                return self.repeated(position).await;
            }
            if !active {
                return Err(ServiceError::Conflict);
            }
            // A look into the run waits for the append that is under way.
            self.shared.runs.look(plan.run, |_, _| ()).await?;
            tokio::task::yield_now().await;
        }
    }
}

impl Plan {
    fn accept_command(&self, start_now: Option<events::InstanceId>) -> AcceptCommand {
        let Checked { request, cwd, stdin, output_bytes_max, .. } = &self.checked;
        AcceptCommand {
            command_id: self.command_id,
            lease_id: self.lease_id,
            argv: request.argv.clone(),
            cwd: String::from_utf8_lossy(cwd.as_bytes()).into_owned(),
            env: request.env.clone(),
            stdin: stdin.clone(),
            timeout_ms: request.timeout_ms.unwrap_or(u64::MAX),
            output_bytes_max: *output_bytes_max,
            background: request.background,
            start_now,
        }
    }
}

/// The id of what a keyed request makes: the same request names the same object, another one under the same key another.
pub(crate) fn keyed_id(key: &RequestKey, kind: &[u8]) -> Uuid {
    derived_uuid(&[key.tenant.0.as_bytes(), key.key.as_bytes(), kind, &key.digest])
}

/// The key of a request as the log takes it.
pub(crate) fn request_key(ctx: &RequestCtx) -> Option<RequestKey> {
    let idempotency = ctx.idempotency.as_ref()?;
    Some(RequestKey {
        tenant: ctx.principal.tenant,
        key: idempotency.key.clone(),
        digest: idempotency.digest,
    })
}

/// Standard input as the record keeps it: inline when it is small enough to be run again after a restart.
fn stdin_record(bytes: &Bytes) -> Result<StdinRecord, ServiceError> {
    if bytes.len() > STDIN_BYTES_MAX {
        return Err(ServiceError::CommandTooLarge { what: "stdin", limit_bytes: STDIN_BYTES_MAX as u64 });
    }
    let encoded_bytes = base64::encoded_len(bytes.len(), true).unwrap_or(usize::MAX);
    let inline = encoded_bytes.saturating_add(2) <= STDIN_INLINE_BYTES_MAX;
    Ok(StdinRecord {
        bytes: bytes.len() as u64,
        sha256: hex::encode(Sha256::digest(bytes)),
        inline_base64: inline.then(|| STANDARD.encode(bytes)),
    })
}

/// What was recorded of standard input, if it was kept. `Err` when it was not.
pub(super) fn recorded_stdin(accepted: &CommandAccepted) -> Result<Option<Bytes>, ()> {
    match &accepted.stdin {
        None => Ok(None),
        Some(StdinRecord { inline_base64: Some(text), .. }) => {
            STANDARD.decode(text).map(|bytes| Some(Bytes::from(bytes))).map_err(drop)
        }
        Some(_) => Err(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn small_input_is_kept_and_large_input_is_named() {
        let small = stdin_record(&Bytes::from_static(b"hi")).unwrap();
        assert_eq!((small.bytes, small.inline_base64.as_deref()), (2, Some("aGk=")));
        let edge = stdin_record(&Bytes::from(vec![0; 67_581])).unwrap();
        assert_eq!(edge.inline_base64.map(|text| text.len() + 2 <= STDIN_INLINE_BYTES_MAX), Some(true));
        let large = stdin_record(&Bytes::from(vec![0; 100_000])).unwrap();
        assert_eq!((large.bytes, large.inline_base64), (100_000, None));
        assert!(stdin_record(&Bytes::from(vec![0; STDIN_BYTES_MAX + 1])).is_err());
    }
}
