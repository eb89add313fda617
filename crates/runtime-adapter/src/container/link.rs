//! One framed channel over the pipes of a client process: a reader that hands frames on as they come, an outgoing side in
//! which control never waits behind data, and the heartbeat.

use std::io;
use std::marker::PhantomData;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::{Duration, Instant};

use guest::protocol::{
    CHANNEL_ENDED, Decoder, Frame, HEARTBEAT_INTERVAL_MS, MISSED_HEARTBEATS, ProtocolError,
};
use tokio::io::AsyncReadExt;
use tokio::process::{Child, ChildStderr, ChildStdout};
use tokio::sync::{Notify, watch};
use tokio::time::MissedTickBehavior;

use super::cli::Piped;
use super::cli_error::CliError;
use super::outgoing::Outgoing;
use crate::supervise::{Task, task};

/// After the word that the channel has ended, its frames may come until none has come for so long, in milliseconds.
const LAST_FRAMES_MS: u64 = 50;

/// How much is read at once, at least.
const READ_BYTES: usize = 64 * 1024;

/// Why a channel is over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum LinkEnd {
    /// The other side closed it, or the client process ended.
    Closed,
    /// The other side stopped answering.
    Silent,
    /// The other side broke the protocol: a suspected escape, with a stable code.
    Violation(&'static str),
}

/// Receives what a channel brings. Called by the reader, so it must not block.
pub(super) trait Inbox<In>: Send + Sync + 'static {
    /// One frame; an error is a violation that ends the channel.
    fn frame(&self, frame: In) -> Result<(), &'static str>;
    /// The channel is over; called at least once, the first reason counts.
    fn ended(&self, end: LinkEnd);
}

/// Frames that the heartbeat needs.
pub(super) trait Heartbeat: Frame {
    /// A ping with a token.
    fn ping(token: u64) -> Self;
}

impl Heartbeat for guest::protocol::spawn::ToGuest {
    fn ping(token: u64) -> Self {
        Self::Ping { token }
    }
}

impl Heartbeat for guest::protocol::files::Request {
    fn ping(token: u64) -> Self {
        Self::Ping { token }
    }
}

/// The sending half, and what keeps the channel open: dropping it kills the client process, which closes the other side.
#[derive(Debug)]
pub(super) struct Link<Out> {
    outgoing: Arc<Outgoing>,
    _tasks: [Task; 4],
    /// The only lasting hold on the client.
    client: Arc<Mutex<Child>>,
    /// What the client said on standard error, once it has ended.
    said: watch::Receiver<Option<CliError>>,
    _frames: PhantomData<fn(Out)>,
}

impl<Out: Heartbeat + Send + 'static> Link<Out> {
    /// Starts the channel's tasks over the pipes of a running client process.
    ///
    /// # Errors
    /// The runtime cannot take the pipe over.
    pub(super) fn start<In>(piped: Piped, inbox: Arc<impl Inbox<In>>) -> io::Result<Self>
    where
        In: Frame + Send + 'static,
    {
        let Piped { child, stdin, stdout, stderr } = piped;
        let outgoing = Arc::new(Outgoing::new(stdin.into_owned_fd()?)?);
        let pulse = Arc::new(Pulse::default());
        let reader = read_frames(stdout, Arc::clone(&inbox), Arc::clone(&pulse));
        let writer = Arc::clone(&outgoing);
        let client = Arc::new(Mutex::new(child));
        let (ended, said) = watch::channel(None);
        let tasks = [
            task(
                "channel heartbeat",
                keep_alive::<Out, In>(Arc::clone(&outgoing), inbox, Arc::clone(&pulse)),
            ),
            task("channel reader", reader),
            task("channel writer", async move { writer.write_rest().await }),
            task("channel stderr", listen(stderr, Arc::downgrade(&client), ended, Arc::clone(&pulse))),
        ];
        Ok(Self { outgoing, _tasks: tasks, client, said, _frames: PhantomData })
    }

    /// Why the client ended; waits for that.
    pub(super) async fn failure(&self) -> CliError {
        let mut said = self.said.clone();
        said.wait_for(Option::is_some).await.ok().and_then(|said| *said).unwrap_or(CliError::Other)
    }

    /// Ends the client, which closes the other side. One whose container has died may hang for good.
    pub(super) fn end_client(&self) {
        kill(&self.client);
    }

    /// Sends a frame that waits behind no data.
    pub(super) fn control(&self, frame: &Out) {
        self.outgoing.control(frame);
    }

    /// Sends a frame in the order of the data.
    pub(super) fn data(&self, frame: &Out) {
        self.outgoing.data(frame);
    }

    /// The same with a frame that is encoded already.
    pub(super) fn encoded(&self, frame: Vec<u8>) {
        self.outgoing.encoded(frame);
    }
}

fn kill(client: &Mutex<Child>) {
    // It may be ending by itself.
    let _ = client.lock().unwrap_or_else(PoisonError::into_inner).start_kill();
}

/// When the other side was last heard of, in milliseconds of this channel's life; 0: never yet.
#[derive(Debug)]
struct Pulse {
    since: Instant,
    heard_ms: AtomicU64,
}

impl Default for Pulse {
    fn default() -> Self {
        Self { since: Instant::now(), heard_ms: AtomicU64::new(0) }
    }
}

impl Pulse {
    fn elapsed_ms(&self) -> u64 {
        u64::try_from(self.since.elapsed().as_millis()).unwrap_or(u64::MAX)
    }

    fn beat(&self) {
        self.heard_ms.store(self.elapsed_ms().max(1), Ordering::Relaxed);
    }

    /// How long nothing has come; `None` before anything did: until then the container may be starting, and whoever waits for
    /// the hello has a limit to patience.
    fn silent_ms(&self) -> Option<u64> {
        let heard_ms = self.heard_ms.load(Ordering::Relaxed);
        (heard_ms > 0).then(|| self.elapsed_ms().saturating_sub(heard_ms))
    }
}

/// Listens to the client, and to the guest's init through it. When that says that the channel has ended, so must the client:
/// what it has brought until then is still read.
async fn listen(
    stderr: ChildStderr,
    client: Weak<Mutex<Child>>,
    ended: watch::Sender<Option<CliError>>,
    pulse: Arc<Pulse>,
) {
    let heard = Notify::new();
    let mut saying = std::pin::pin!(super::cli::spoken(stderr, CHANNEL_ENDED, || heard.notify_one()));
    let end = async {
        heard.notified().await;
        // The two streams come by different ways: what was written before may still be on its own.
        while pulse.silent_ms().is_some_and(|silent_ms| silent_ms < LAST_FRAMES_MS) {
            tokio::time::sleep(Duration::from_millis(LAST_FRAMES_MS)).await;
        }
        if let Some(client) = client.upgrade() {
            kill(&client);
        }
    };
    let said = tokio::select! {
        said = &mut saying => said,
        () = end => saying.await,
    };
    ended.send_replace(Some(said));
}

async fn read_frames<In: Frame>(mut stdout: ChildStdout, inbox: Arc<impl Inbox<In>>, pulse: Arc<Pulse>) {
    let mut decoder = Decoder::<In>::new();
    loop {
        let count = match stdout.read(decoder.space(READ_BYTES)).await {
            Ok(count) if count > 0 => count,
            _ => return inbox.ended(LinkEnd::Closed),
        };
        pulse.beat();
        decoder.filled(count);
        loop {
            let violation = match decoder.next_frame() {
                Ok(Some(frame)) => match inbox.frame(frame) {
                    Ok(()) => continue,
                    Err(code) => code,
                },
                Ok(None) => break,
                Err(error) => violation_code(error),
            };
            return inbox.ended(LinkEnd::Violation(violation));
        }
    }
}

/// Asks for a sign of life, also while a write is stuck, and ends the channel when none comes.
async fn keep_alive<Out: Heartbeat, In>(
    outgoing: Arc<Outgoing>,
    inbox: Arc<impl Inbox<In>>,
    pulse: Arc<Pulse>,
) {
    let mut ticks = tokio::time::interval(Duration::from_millis(HEARTBEAT_INTERVAL_MS));
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    ticks.tick().await;
    for token in 1.. {
        ticks.tick().await;
        match pulse.silent_ms() {
            None => {}
            Some(silent_ms) if silent_ms > HEARTBEAT_INTERVAL_MS * MISSED_HEARTBEATS => {
                return inbox.ended(LinkEnd::Silent);
            }
            Some(_) => outgoing.control(&Out::ping(token)),
        }
    }
}

const fn violation_code(error: ProtocolError) -> &'static str {
    match error {
        ProtocolError::UnknownKind { .. } => "unknown_frame",
        ProtocolError::Oversize { .. } => "oversize_frame",
        ProtocolError::Malformed { .. } => "malformed_frame",
        ProtocolError::Truncated => "truncated_frame",
    }
}
