//! The log as it grows: new events as lines, through a restart of the database, until somebody has seen enough.
//!
//! Looks at the head by polling, from 50 ms while something moves to 1 s when nothing does. After a loss of the session the log
//! must be the same one, with the same event where the watch stopped: a database that was put back or exchanged ends it.

use std::io::Write;
use std::time::Duration;

use event_log::verify::{events, meta};
use events::stored::leaf_hash;
use events::{LogId, Position};
use futures::TryStreamExt as _;
use projections::timeline::Escaped;
use rustix::event::{PollFd, PollFlags, poll};
use tokio::io::AsyncWriteExt as _;
use tokio::signal::unix::{SignalKind, signal};
use tokio_postgres::Client;

use crate::error::ReplayError;
use crate::select::{Owner, position};
use crate::source::Source;
use crate::timeline::Lines;

const PAUSE_MIN: Duration = Duration::from_millis(50);
const PAUSE_MAX: Duration = Duration::from_secs(1);
/// Lines are passed on when they are this many bytes, and whenever there is nothing more to read.
const BUFFER_BYTES: usize = 64 * 1024;

/// What to watch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::Args)]
pub struct Selection {
    #[command(flatten)]
    owner: Owner,
    /// Begin with the event at this position; without it, with what is appended from now on.
    #[arg(long, value_name = "N", value_parser = position)]
    from: Option<Position>,
}

/// Writes events as they are appended. Ends well on SIGINT, SIGTERM, and when nobody reads the output any more.
///
/// # Errors
/// When the log cannot be read at the start, cannot be decoded, or is not the one that it was.
pub async fn watch(source: &Source, selection: Selection, json: bool) -> Result<(), ReplayError> {
    let mut interrupted = signal(SignalKind::interrupt())?;
    let mut terminated = signal(SignalKind::terminate())?;
    let mut watch = Watch { selection, lines: Lines::new(json), seen: None };
    tokio::select! {
        _ = interrupted.recv() => Ok(()),
        _ = terminated.recv() => Ok(()),
        ended = watch.follow(source) => ended,
    }
}

/// How far the watch is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Seen {
    log_id: LogId,
    next: Position,
    /// Leaf of the event before `next`, once there is one.
    leaf: Option<[u8; 32]>,
}

struct Watch {
    selection: Selection,
    lines: Lines,
    seen: Option<Seen>,
}

impl Watch {
    async fn follow(&mut self, source: &Source) -> Result<(), ReplayError> {
        let mut pause = PAUSE_MIN;
        let mut away = false;
        loop {
            let lost = source
                .with(async |client| {
                    self.resume(client).await?;
                    if std::mem::take(&mut away) {
                        tell("the database is back");
                    }
                    pause = PAUSE_MIN;
                    self.session(client).await
                })
                .await;
            match lost {
                Ok(never) => match never {},
                Err(error) if self.seen.is_some() && is_passing(&error) => {
                    if !std::mem::replace(&mut away, true) {
                        tell(&format!("the database is away, waiting for it: {}", error.with_causes()));
                    }
                }
                Err(error) => return Err(error),
            }
            reader_is_there()?;
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(PAUSE_MAX);
        }
    }

    /// Finds the place where the watch goes on, and that it is the same log up to there.
    async fn resume(&mut self, client: &Client) -> Result<(), ReplayError> {
        let meta = meta(client).await?;
        match &self.seen {
            None => {
                let next = self.selection.from.unwrap_or(meta.head);
                if next > meta.head {
                    return Err(ReplayError::BehindLog { position: next, end: meta.head });
                }
                let leaf = leaf_before(client, next).await?;
                self.seen = Some(Seen { log_id: meta.log_id, next, leaf });
            }
            Some(seen) => {
                let same = seen.log_id == meta.log_id
                    && seen.next <= meta.head
                    && leaf_before(client, seen.next).await? == seen.leaf;
                if !same {
                    return Err(ReplayError::Exchanged { position: seen.next });
                }
            }
        }
        Ok(())
    }

    /// One session, for as long as it lasts.
    async fn session(&mut self, client: &Client) -> Result<std::convert::Infallible, ReplayError> {
        let mut pause = PAUSE_MIN;
        loop {
            let head = meta(client).await?.head;
            let Some(seen) = self.seen else { return Err(ReplayError::ConnectionEnded) };
            if head < seen.next {
                return Err(ReplayError::Exchanged { position: seen.next });
            }
            if head > seen.next {
                self.pass_on(client).await?;
                pause = PAUSE_MIN;
            } else {
                reader_is_there()?;
                tokio::time::sleep(pause).await;
                pause = (pause * 2).min(PAUSE_MAX);
            }
        }
    }

    /// Writes what is new.
    async fn pass_on(&mut self, client: &Client) -> Result<(), ReplayError> {
        let Some(seen) = &mut self.seen else { return Ok(()) };
        let mut out = tokio::io::stdout();
        let mut buffer = Vec::new();
        let mut events = std::pin::pin!(events(client, seen.next).await?);
        loop {
            let next = events.try_next().await;
            // What came before an error is passed on first, so that it is neither lost nor told twice.
            if !matches!(next, Ok(Some(_))) || buffer.len() >= BUFFER_BYTES {
                out.write_all(&buffer).await?;
                out.flush().await?;
                buffer.clear();
            }
            let Some(recorded) = next? else { return Ok(()) };
            if self.selection.owner.owns(&recorded.header) {
                self.lines.write(&recorded, &mut buffer)?;
            }
            *seen = Seen { next: recorded.position.next(), leaf: Some(recorded.leaf), ..*seen };
        }
    }
}

/// The leaf of the event before a position, from its bytes.
async fn leaf_before(client: &Client, next: Position) -> Result<Option<[u8; 32]>, ReplayError> {
    let Some(position) = next.get().checked_sub(1).and_then(|position| i64::try_from(position).ok()) else {
        return Ok(None);
    };
    let sql = "SELECT header FROM log.events WHERE position = $1";
    let row = client.query_opt(sql, &[&position]).await?;
    Ok(match row {
        Some(row) => Some(leaf_hash(row.try_get(0)?)),
        None => None,
    })
}

/// The database went away; the same may succeed when it is back.
fn is_passing(error: &ReplayError) -> bool {
    match error {
        ReplayError::ConnectionEnded | ReplayError::NotRunning { .. } => true,
        ReplayError::Log(error) => error.is_retryable(),
        // Without a code the server did not answer at all; 08, 53, 57: connection, resources, shutting down.
        ReplayError::Database(error) => {
            error.code().is_none_or(|state| matches!(state.code().get(..2), Some("08" | "53" | "57")))
        }
        _ => false,
    }
}

/// Fails as a write would when nobody reads the output any more, so that an idle watch ends too.
fn reader_is_there() -> Result<(), ReplayError> {
    let stdout = std::io::stdout();
    let mut polled = [PollFd::new(&stdout, PollFlags::empty())];
    let now = rustix::event::Timespec { tv_sec: 0, tv_nsec: 0 };
    let closed = poll(&mut polled, Some(&now)).is_ok()
        && polled[0].revents().intersects(PollFlags::ERR | PollFlags::HUP);
    if closed { Err(std::io::Error::from(std::io::ErrorKind::BrokenPipe).into()) } else { Ok(()) }
}

/// A word on standard error; one that cannot be told changes nothing.
fn tell(words: &str) {
    let _ = writeln!(std::io::stderr(), "leasehold-replay: {}", Escaped(words));
}
