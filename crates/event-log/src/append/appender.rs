//! The appender: one task that turns the queue into batches, one call at a time.
//!
//! A batch is whatever waits when the previous call returns: alone, a request goes out at once; under load, one commit carries
//! many. Callers that were just answered get a moment to come back (a small part of what a call takes, and only while fewer
//! wait than were answered): without it, the first to return would go out alone and the others wait for its commit. Nothing a single request does can fail another: the function answers each by itself, and a batch that
//! the database refuses as a whole is sent again request by request.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use events::Position;
use events::stored::StreamName;
use tokio::sync::{Notify, mpsc, oneshot, watch};
use tokio::time::Instant;
use tokio_postgres::Config;

use super::call::{Answer, Answers, Outcome};
use super::chain::{Chained, chain};
use super::prepare::Prepared;
use super::recover::{Failure, Link, drive, is_missing_partition};
use super::tips::{TipCache, read_tips};
use super::{Appended, Expected, REQUEST_BYTES_MAX, REQUEST_EVENTS_MAX};
use crate::clock::LogClock;
use crate::error::{AppendError, Fault};

/// How often a request is chained anew before its caller is told of the conflict, and how often one is tried again after a
/// passing fault of the database.
const TRIES_MAX: u8 = 8;
/// A call that took longer does not set the clock; the poll does.
const CLOCK_READ_MAX: Duration = Duration::from_millis(100);
/// Pause before a batch is tried again after a passing fault: doubled with each try.
const FAULT_PAUSE: Duration = Duration::from_millis(5);
/// Longest time that callers get to come back, and the part of the last call's time that it may be.
const GATHER_MAX: Duration = Duration::from_millis(1);
const GATHER_PART: u32 = 8;

/// A queued request and who waits for its answer.
#[derive(Debug)]
pub(super) struct Job {
    pub(super) request: Prepared,
    reply: oneshot::Sender<Result<Appended, AppendError>>,
    tries: u8,
}

impl Job {
    /// Nobody listening any more is fine: the events are in the log all the same.
    pub(super) fn answer(self, result: Result<Appended, AppendError>) {
        let _ = self.reply.send(result);
    }
}

/// The way into the queue.
#[derive(Clone, Debug)]
pub(crate) struct AppenderHandle {
    queue: mpsc::Sender<Job>,
}

impl AppenderHandle {
    /// Whether the task is there. It ends only with its handles, or by a fault of ours.
    pub(crate) fn is_running(&self) -> bool {
        !self.queue.is_closed()
    }

    /// Queues a request and waits for its answer. Once queued, dropping the future changes nothing.
    pub(crate) async fn append(&self, request: Prepared) -> Result<Appended, AppendError> {
        let (reply, answer) = oneshot::channel();
        let job = Job { request, reply, tries: 0 };
        if self.queue.send(job).await.is_err() {
            return Err(AppendError::Unavailable { outcome_unknown: false });
        }
        answer.await.unwrap_or(Err(AppendError::Unavailable { outcome_unknown: true }))
    }
}

/// The task's own state.
pub(crate) struct Appender {
    config: Config,
    reconnect_limit: Duration,
    clock: LogClock,
    positions: watch::Sender<Position>,
    appended: Arc<Notify>,
    queue: mpsc::Receiver<Job>,
    /// Requests that go into the next batch, ahead of the queue.
    again: VecDeque<Job>,
    tips: TipCache,
    link: Option<Link>,
    /// The last attempt to connect ran out of time: until one succeeds, a batch gets a single attempt.
    down: bool,
    /// How many requests the last call carried, and how long it took.
    last_call: (usize, Duration),
}

impl Appender {
    /// The task and the way into it.
    pub(crate) fn new(
        config: Config,
        reconnect_limit: Duration,
        clock: LogClock,
        positions: watch::Sender<Position>,
        appended: Arc<Notify>,
    ) -> (Self, AppenderHandle) {
        let (sender, queue) = mpsc::channel(2 * REQUEST_EVENTS_MAX);
        let appender = Self {
            config,
            reconnect_limit,
            clock,
            positions,
            appended,
            queue,
            again: VecDeque::new(),
            tips: TipCache::new(),
            link: None,
            down: false,
            last_call: (0, Duration::ZERO),
        };
        (appender, AppenderHandle { queue: sender })
    }

    /// Works until every handle is gone and the queue is empty.
    pub(crate) async fn run(mut self) {
        while let Some(batch) = self.next_batch().await {
            self.process(batch).await;
        }
    }

    /// Everything that waits, in order, up to the caps. A request that would pass a cap opens the next batch.
    async fn next_batch(&mut self) -> Option<Vec<Job>> {
        let first = match self.again.pop_front() {
            Some(job) => job,
            None => self.receive().await?,
        };
        self.gather().await;
        let (mut events, mut bytes) = (first.request.events.len(), first.request.bytes);
        let mut batch = vec![first];
        while let Some(job) = self.again.pop_front().or_else(|| self.queue.try_recv().ok()) {
            events += job.request.events.len();
            bytes += job.request.bytes;
            if events > REQUEST_EVENTS_MAX || bytes > REQUEST_BYTES_MAX {
                self.again.push_front(job);
                break;
            }
            batch.push(job);
        }
        Some(batch)
    }

    /// The next request of the queue. Meanwhile the connection is watched: a session that ends while idle is no mystery later.
    async fn receive(&mut self) -> Option<Job> {
        if let Some(link) = &mut self.link {
            tokio::select! {
                biased;
                job = self.queue.recv() => return job,
                _ = &mut link.wire => self.link = None,
            }
        }
        self.queue.recv().await
    }

    /// Lets callers run until as many wait as the last call answered, for a moment at most.
    async fn gather(&mut self) {
        let (answered, took) = self.last_call;
        let (began, limit) = (Instant::now(), (took / GATHER_PART).min(GATHER_MAX));
        while self.queue.len() + self.again.len() + 1 < answered && began.elapsed() < limit {
            tokio::task::yield_now().await;
        }
    }

    async fn process(&mut self, batch: Vec<Job>) {
        if !self.connected().await {
            return refuse(batch, false);
        }
        let mut chained = Vec::new();
        match self.attempt(&batch, &mut chained).await {
            Ok((answers, database_time)) => {
                // The time was read before the commit: an answer that came late says little about now.
                if self.last_call.1 < CLOCK_READ_MAX {
                    self.clock.observe(database_time, Instant::now());
                }
                self.settle(batch, &chained, answers).await;
            }
            Err(Failure::Lost) => self.recover(batch, &chained).await,
            Err(Failure::Database(error)) => match Fault::of(&error) {
                Fault::Lost => self.recover(batch, &chained).await,
                Fault::Transient => {
                    let tries = batch.iter().map(|job| job.tries).max().unwrap_or(0);
                    tokio::time::sleep(FAULT_PAUSE * (1 << tries.min(TRIES_MAX))).await;
                    self.try_again(batch);
                }
                Fault::Refused if is_missing_partition(&error) && self.ensure_partitions().await => {
                    self.try_again(batch);
                }
                Fault::Refused => self.isolate(batch, &error).await,
            },
        }
    }

    /// Chains and calls. `chained` keeps what was sent, for finding out what became of it.
    async fn attempt(&mut self, batch: &[Job], chained: &mut Vec<Chained>) -> Result<Answers, Failure> {
        let Some(Link { peer, wire }) = &mut self.link else { return Err(Failure::Lost) };
        let mut unknown: Vec<&StreamName> = Vec::new();
        for job in batch {
            let stream = &job.request.stream;
            let needed = job.request.expected == Expected::Any && self.tips.get(stream).is_none();
            if needed && !unknown.contains(&stream) {
                unknown.push(stream);
            }
        }
        if !unknown.is_empty() {
            let tips = drive(wire, read_tips(&peer.client, &unknown)).await?;
            for (stream, tip) in unknown.into_iter().zip(tips) {
                self.tips.put(stream, tip);
            }
        }
        *chained = chain(batch.iter().map(|job| &job.request), &mut self.tips);
        let requests: Vec<_> = batch.iter().map(|job| &job.request).zip(chained.iter()).collect();
        let began = Instant::now();
        let answers = drive(wire, peer.calls.append(&peer.client, &requests)).await;
        self.last_call = (batch.len(), began.elapsed());
        answers
    }

    /// Tells each caller its answer; stale requests come again.
    async fn settle(&mut self, batch: Vec<Job>, chained: &[Chained], answers: Vec<Answer>) {
        let mut next = None;
        for ((job, chained), answer) in batch.into_iter().zip(chained).zip(answers) {
            if !matches!(answer.outcome, Outcome::Ok { .. }) {
                self.tips.put(&job.request.stream, answer.tip);
            }
            let tip = answer.tip.existing();
            match answer.outcome {
                Outcome::Ok { first } => {
                    let appended = appended(&job.request, chained, first);
                    self.tips.put(&job.request.stream, chained.tip);
                    next = next.max(Some(appended.last_position.next()));
                    job.answer(Ok(appended));
                }
                Outcome::Duplicate { first, count } => {
                    let earlier = self.earlier(first, count).await;
                    job.answer(earlier);
                }
                Outcome::KeyReused => job.answer(Err(AppendError::KeyReused)),
                Outcome::Conflict => job.answer(Err(AppendError::Conflict { tip })),
                Outcome::Stale if job.tries >= TRIES_MAX => job.answer(Err(AppendError::Conflict { tip })),
                Outcome::Stale => self.again.push_back(Job { tries: job.tries + 1, ..job }),
                // It waited too long, or the caller's time was not the log's: with a new time it can succeed.
                Outcome::Clock => job.answer(Err(AppendError::Unavailable { outcome_unknown: false })),
            }
        }
        if let Some(next) = next {
            self.publish(next).await;
        }
    }

    /// Tells readers, and keeps partitions ahead of the head: a new one is made when the last is half full.
    async fn publish(&mut self, next: Position) {
        let mut before = next;
        self.positions.send_if_modified(|known| {
            before = *known;
            let newer = next > *known;
            if newer {
                *known = next;
            }
            newer
        });
        self.appended.notify_one();
        if before.get() >> 23 != next.get() >> 23 && !self.ensure_partitions().await {
            tracing::error!(position = next.get(), "the partition for the events to come could not be made");
        }
    }

    /// What the first use of a key wrote.
    async fn earlier(&mut self, first: Position, count: u64) -> Result<Appended, AppendError> {
        let unavailable = AppendError::Unavailable { outcome_unknown: false };
        let Some(Link { peer, wire }) = &mut self.link else { return Err(unavailable) };
        let last_position = Position(first.get() + count.saturating_sub(1));
        match drive(wire, peer.tip_at(last_position)).await {
            Ok(Some(tip)) => Ok(Appended { first_position: first, last_position, tip, duplicate: true }),
            Ok(None) => {
                Err(AppendError::Refused { reason: "the key names a position that is gone".to_owned() })
            }
            Err(_) => Err(unavailable),
        }
    }

    /// After a lost session: what is in the log is answered, the rest goes into the next batch.
    async fn recover(&mut self, batch: Vec<Job>, chained: &[Chained]) {
        let old = self.link.take().map(|link| link.peer.backend);
        let deadline = Instant::now() + self.reconnect_limit;
        // Sent nothing: nothing to find out.
        if chained.is_empty() {
            return self.try_again(batch);
        }
        loop {
            if !self.connected().await {
                return refuse(batch, true);
            }
            let Some(Link { peer, wire }) = &mut self.link else { return refuse(batch, true) };
            let requests = batch.iter().map(|job| &job.request).zip(chained);
            match drive(wire, peer.outcomes(old.as_ref(), requests)).await {
                Ok(Some(positions)) => {
                    let mut missing = Vec::new();
                    let mut next = None;
                    for ((job, chained), last) in batch.into_iter().zip(chained).zip(positions) {
                        let Some(last) = last else {
                            missing.push(job);
                            continue;
                        };
                        let earlier = u64::try_from(job.request.events.len() - 1).unwrap_or(0);
                        let appended = appended(&job.request, chained, Position(last.get() - earlier));
                        self.tips.put(&job.request.stream, chained.tip);
                        next = next.max(Some(last.next()));
                        job.answer(Ok(appended));
                    }
                    self.try_again(missing);
                    if let Some(next) = next {
                        self.publish(next).await;
                    }
                    return;
                }
                // The old session may still commit.
                Ok(None) => return refuse(batch, true),
                Err(_) if Instant::now() < deadline => self.link = None,
                Err(_) => return refuse(batch, true),
            }
        }
    }

    fn try_again(&mut self, batch: Vec<Job>) {
        for job in batch.into_iter().rev() {
            if job.tries >= TRIES_MAX {
                job.answer(Err(AppendError::Unavailable { outcome_unknown: false }));
            } else {
                self.again.push_front(Job { tries: job.tries + 1, ..job });
            }
        }
    }

    /// The database refuses the batch: each request alone shows which one it is.
    async fn isolate(&mut self, batch: Vec<Job>, error: &tokio_postgres::Error) {
        if batch.len() > 1 {
            for job in batch {
                Box::pin(self.process(vec![job])).await;
            }
            return;
        }
        let reason = error.as_db_error().map_or_else(|| error.to_string(), |db| db.message().to_owned());
        tracing::error!(%reason, "the database refuses an append");
        for job in batch {
            job.answer(Err(AppendError::Refused { reason: reason.clone() }));
        }
    }

    async fn ensure_partitions(&mut self) -> bool {
        let Some(Link { peer, wire }) = &mut self.link else { return false };
        drive(wire, peer.client.execute("SELECT log.ensure_partitions()", &[])).await.is_ok()
    }

    /// Makes sure that there is a session. Waits for one as long as the limit says, then only tries once per call.
    async fn connected(&mut self) -> bool {
        if self.link.as_ref().is_some_and(|link| !link.peer.client.is_closed()) {
            return true;
        }
        let limit = if self.down { Duration::ZERO } else { self.reconnect_limit };
        self.link = Link::connect(&self.config, limit).await;
        self.down = self.link.is_none();
        !self.down
    }
}

fn appended(request: &Prepared, chained: &Chained, first: Position) -> Appended {
    let count = u64::try_from(request.events.len()).unwrap_or(u64::MAX);
    let last_position = Position(first.get() + count.saturating_sub(1));
    Appended { first_position: first, last_position, tip: chained.tip, duplicate: false }
}

fn refuse(batch: Vec<Job>, outcome_unknown: bool) {
    for job in batch {
        job.answer(Err(AppendError::Unavailable { outcome_unknown }));
    }
}
