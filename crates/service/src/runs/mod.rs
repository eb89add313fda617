//! The handle of runs: the one way in. A command is decided against the folded stream and its events are appended at exactly the
//! tip that was decided on; whoever was faster makes it decide again, at most [`ATTEMPTS_MAX`] times.
//!
//! Folded runs are kept ([`RUNS_KEPT`], least recently used go first). State is changed by folding what the log holds and by
//! nothing else, also right after an append of our own.

mod ids;
mod slot;

use std::num::NonZeroUsize;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use event_log::{AppendError, AppendRequest, EventLog, Expected, RequestKey};
use events::run::{Decision, Rejection, RunCommand, RunState, decide};
use events::stored::{NewEvent, StreamName};
use events::{Event, InstanceId, Position, RunId, TenantId, Timestamp};
use lru::LruCache;

use slot::Slot;

pub use ids::{causation_id, event_id};

/// How often a command is decided before the caller is told to try again.
pub const ATTEMPTS_MAX: usize = 5;
/// Folded runs in memory.
pub const RUNS_KEPT: NonZeroUsize = NonZeroUsize::new(1_024).unwrap();
/// First and longest pause before a fact that could not be recorded is tried again.
const RECORD_PAUSE: (Duration, Duration) = (Duration::from_millis(50), Duration::from_secs(2));

/// Which run: ids are chosen by clients, so only tenant and id together name one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct RunRef {
    /// Whose.
    pub tenant: TenantId,
    /// Which.
    pub run_id: RunId,
}

/// How a command came to its end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Submitted {
    /// Its events are durable.
    Appended {
        /// What was appended.
        events: Vec<Event>,
        /// Position of the last of them.
        position: Position,
        /// When, by the log.
        recorded_at: Timestamp,
    },
    /// It had its effect before.
    AlreadyDone {
        /// Position of the run's last known event.
        position: Position,
    },
    /// An earlier request under the same key had its effect.
    Repeated {
        /// Position of the first event of that request.
        position: Position,
    },
}

impl Submitted {
    /// The position that a reader must have folded to see the effect.
    #[must_use]
    pub const fn position(&self) -> Position {
        match self {
            Self::Appended { position, .. }
            | Self::AlreadyDone { position }
            | Self::Repeated { position } => *position,
        }
    }
}

/// Why nothing was appended.
#[derive(Debug, thiserror::Error)]
pub enum SubmitError {
    /// The rules refuse.
    #[error(transparent)]
    Rejected(#[from] Rejection),
    /// Others were faster, every time.
    #[error("the run changed at the same time")]
    Conflict,
    /// The key belongs to another request.
    #[error("the key was used for another request")]
    KeyReused,
    /// The log does not answer; the append may have happened.
    #[error("the log is unavailable")]
    Unavailable,
    /// A fault of ours.
    #[error("the log refused the append")]
    Fault,
}

/// See the module.
pub struct Runs {
    log: EventLog,
    instance_id: InstanceId,
    slots: Mutex<LruCache<RunRef, Arc<tokio::sync::Mutex<Slot>>>>,
}

impl Runs {
    /// Over a log, on behalf of a service instance.
    #[must_use]
    pub fn new(log: EventLog, instance_id: InstanceId) -> Self {
        Self { log, instance_id, slots: Mutex::new(LruCache::new(RUNS_KEPT)) }
    }

    /// How events of the service itself name their actor.
    #[must_use]
    pub fn service_actor(&self) -> String {
        format!("service:{}", self.instance_id)
    }

    /// Reads the state as folded last; loads it when it is not in memory. It may lack what another process appended since:
    /// good for everything that an append decides again.
    ///
    /// # Errors
    /// When the log does not answer.
    pub async fn look<T>(
        &self,
        run: RunRef,
        read: impl FnOnce(&RunState, Timestamp) -> T,
    ) -> Result<T, SubmitError> {
        let slot = self.slot(run);
        let mut slot = slot.lock().await;
        slot.load_once(&self.log).await?;
        Ok(read(slot.state(), self.log.clock().now()))
    }

    /// Folds what the log holds by now, then reads the state.
    ///
    /// # Errors
    /// When the log does not answer.
    pub async fn look_fresh<T>(
        &self,
        run: RunRef,
        read: impl FnOnce(&RunState, Timestamp) -> T,
    ) -> Result<T, SubmitError> {
        let slot = self.slot(run);
        let mut slot = slot.lock().await;
        slot.catch_up(&self.log).await?;
        Ok(read(slot.state(), self.log.clock().now()))
    }

    /// As [`Runs::look_fresh`], with the position of the run's last event.
    ///
    /// # Errors
    /// When the log does not answer.
    pub async fn look_with_position<T>(
        &self,
        run: RunRef,
        read: impl FnOnce(&RunState) -> T,
    ) -> Result<(T, Position), SubmitError> {
        let slot = self.slot(run);
        let mut slot = slot.lock().await;
        slot.catch_up(&self.log).await?;
        Ok((read(slot.state()), slot.last_position()))
    }

    /// Decides and appends. Cancel-safe: a dropped call either had its effect or not, and the next one finds out.
    ///
    /// # Errors
    /// [`SubmitError`]; after `Unavailable` the effect is unknown.
    pub async fn submit(
        &self,
        run: RunRef,
        actor: &str,
        key: Option<&RequestKey>,
        command: &RunCommand,
    ) -> Result<Submitted, SubmitError> {
        let slot = self.slot(run);
        let mut slot = slot.lock().await;
        slot.load_once(&self.log).await?;
        let mut fresh = false;
        for _ in 0..ATTEMPTS_MAX {
            let now = self.log.clock().now();
            let events = match decide(slot.state(), command, now) {
                Ok(Decision::Append(events)) => events,
                // A refusal or a repeat counts only on what the log holds by now.
                _ if !fresh => {
                    slot.catch_up(&self.log).await?;
                    fresh = true;
                    continue;
                }
                refused => return self.settle(refused, key, &slot).await,
            };
            match self.append(run, &slot, actor, key, events.clone(), now).await {
                Ok(appended) if appended.duplicate => {
                    slot.forget();
                    return Ok(Submitted::Repeated { position: appended.first_position });
                }
                Ok(appended) => {
                    slot.appended(&events, now, appended.tip, appended.last_position);
                    return Ok(Submitted::Appended {
                        events,
                        position: appended.last_position,
                        recorded_at: now,
                    });
                }
                Err(AppendError::Conflict { .. }) => {
                    slot.catch_up(&self.log).await?;
                    fresh = true;
                }
                Err(error) => {
                    slot.forget();
                    return Err(append_fault(&error));
                }
            }
        }
        Err(SubmitError::Conflict)
    }

    /// Records a fact: tries until the log takes it, because what has happened must not be lost.
    ///
    /// # Errors
    /// When the rules refuse it, or for a fault of ours; never because the log is away.
    pub async fn record(&self, run: RunRef, command: &RunCommand) -> Result<Submitted, SubmitError> {
        let actor = self.service_actor();
        let mut pause = RECORD_PAUSE.0;
        loop {
            match self.submit(run, &actor, None, command).await {
                Err(error @ (SubmitError::Unavailable | SubmitError::Conflict)) => {
                    tracing::warn!(run_id = %run.run_id, error = %error, "a fact is not recorded yet");
                    tokio::time::sleep(pause).await;
                    pause = (pause * 2).min(RECORD_PAUSE.1);
                }
                done => return done,
            }
        }
    }

    /// A refusal or a repeat of a keyed request may be the echo of its own first try.
    async fn settle(
        &self,
        refused: Result<Decision, Rejection>,
        key: Option<&RequestKey>,
        slot: &Slot,
    ) -> Result<Submitted, SubmitError> {
        if let Some(key) = key
            && let Some(position) = self.find_key(key).await?
        {
            return Ok(Submitted::Repeated { position });
        }
        match refused {
            Ok(_) => Ok(Submitted::AlreadyDone { position: slot.last_position() }),
            Err(rejection) => Err(rejection.into()),
        }
    }

    /// Position of the first event that was appended under the key, if it was used before for the same request.
    ///
    /// # Errors
    /// `KeyReused` when it was used for another one.
    pub async fn find_key(&self, key: &RequestKey) -> Result<Option<Position>, SubmitError> {
        let stored = self.log.find_key(key.tenant, &key.key).await.map_err(|error| log_fault(&error))?;
        match stored {
            None => Ok(None),
            Some(stored) if stored.digest == key.digest => Ok(Some(stored.first_position)),
            Some(_) => Err(SubmitError::KeyReused),
        }
    }

    async fn append(
        &self,
        run: RunRef,
        slot: &Slot,
        actor: &str,
        key: Option<&RequestKey>,
        events: Vec<Event>,
        now: Timestamp,
    ) -> Result<event_log::Appended, AppendError> {
        let events = events
            .into_iter()
            .map(|event| NewEvent {
                event_id: event_id(run, &event),
                tenant: run.tenant,
                recorded_at: now,
                actor: actor.to_owned(),
                correlation_id: Some(run.run_id),
                causation_id: causation_id(run, &event),
                event,
            })
            .collect();
        let request = AppendRequest {
            stream: StreamName::run(run.tenant, run.run_id),
            expected: slot.tip().map_or(Expected::None, Expected::Exact),
            guards: Vec::new(),
            key: key.cloned(),
            events,
        };
        self.log.append(request).await
    }

    fn slot(&self, run: RunRef) -> Arc<tokio::sync::Mutex<Slot>> {
        let mut slots = self.slots.lock().unwrap_or_else(PoisonError::into_inner);
        Arc::clone(slots.get_or_insert(run, || Arc::new(tokio::sync::Mutex::new(Slot::new(run)))))
    }
}

fn append_fault(error: &AppendError) -> SubmitError {
    match error {
        AppendError::KeyReused => SubmitError::KeyReused,
        AppendError::Conflict { .. } => SubmitError::Conflict,
        AppendError::Unavailable { .. } => SubmitError::Unavailable,
        other => {
            tracing::error!(error = %other, "the log refused an append");
            SubmitError::Fault
        }
    }
}

fn log_fault(error: &event_log::LogError) -> SubmitError {
    if error.is_retryable() {
        tracing::warn!(error = %error, "the log could not be read");
        SubmitError::Unavailable
    } else {
        tracing::error!(error = %error, "the log cannot be read");
        SubmitError::Fault
    }
}
