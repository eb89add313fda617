//! The files channel as its owner sees it: requests by id, each with its answers, under the credit that was granted.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use guest::protocol::Hello;
use guest::protocol::files::{
    CREDIT_WINDOW_BYTES, FilesErrorCode, GRANT_BYTES, Request, Response, WIDE_WINDOW_BYTES, WIDE_WINDOWS,
};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc, watch};

use super::cli::{Cli, Piped, words};
use super::cli_error::CliError;
use super::link::{Inbox, Link, LinkEnd};

/// How long the other side may take to say hello.
const HELLO_DEADLINE: Duration = Duration::from_secs(20);

/// Why a request has no answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FilesFailure {
    /// The guest's own answer.
    Refused(FilesErrorCode),
    /// The channel ended first.
    ChannelEnded,
    /// An answer that does not fit the question.
    WrongAnswer,
}

/// One opened files channel.
#[derive(Debug)]
pub(super) struct FilesChannel {
    link: Link<Request>,
    inbox: Arc<FilesInbox>,
    wide_windows: Arc<Semaphore>,
}

/// One request in flight; dropping it early cancels it.
pub(super) struct Exchange {
    pub(super) id: u32,
    channel: Arc<FilesChannel>,
    answers: mpsc::UnboundedReceiver<Response>,
    finished: bool,
    /// Consumed bytes of the answer that were not granted again yet.
    consumed_bytes: u32,
    /// Its turn among the environment's requests.
    turn: Option<OwnedSemaphorePermit>,
    /// It has the wider window.
    wide: Option<OwnedSemaphorePermit>,
}

impl FilesChannel {
    /// Makes and starts a files container whose own streams are the channel, and exchanges hellos. The caller limits the time:
    /// the container's start is part of it.
    ///
    /// # Errors
    /// What the client said when it ended first; `GuestVersion` for another protocol version.
    pub(super) async fn run(cli: &Cli, arguments: Vec<String>) -> Result<Arc<Self>, CliError> {
        let (piped, _turn) = cli.open_in_turn(arguments).await?;
        let channel = Self::over(piped)?;
        match channel.greeted().await {
            Err(_) if channel.end() == Some(LinkEnd::Closed) => Err(channel.link.failure().await),
            greeted => greeted.map(|()| channel),
        }
    }

    /// Starts `guest files` in a running files container and exchanges hellos.
    ///
    /// # Errors
    /// `Timeout`; `Other` when the channel ended, `GuestVersion` when it speaks another version.
    pub(super) async fn open(cli: &Cli, container: &str) -> Result<Arc<Self>, CliError> {
        let piped = cli.open(words(["exec", "--interactive", container, "/guest", "files"]))?;
        let channel = Self::over(piped)?;
        let greeted = tokio::time::timeout(HELLO_DEADLINE, channel.greeted()).await;
        greeted.unwrap_or(Err(CliError::Timeout)).map(|()| channel)
    }

    fn over(piped: Piped) -> Result<Arc<Self>, CliError> {
        let inbox = Arc::new(FilesInbox::default());
        let link = Link::start(piped, Arc::clone(&inbox)).map_err(|_| CliError::Start)?;
        link.control(&Request::Hello(Hello::host()));
        Ok(Arc::new(Self { link, inbox, wide_windows: Arc::new(Semaphore::new(WIDE_WINDOWS)) }))
    }

    async fn greeted(&self) -> Result<(), CliError> {
        let mut changes = self.inbox.changes.subscribe();
        loop {
            changes.borrow_and_update();
            if let Some(hello) = self.inbox.table().hello.clone() {
                return if hello.is_compatible() { Ok(()) } else { Err(CliError::GuestVersion) };
            }
            if self.end().is_some() || changes.changed().await.is_err() {
                return Err(CliError::Other);
            }
        }
    }

    /// Sends a request made from its new id.
    pub(super) fn send(self: &Arc<Self>, request: impl FnOnce(u32) -> Request) -> Exchange {
        let (sender, answers) = mpsc::unbounded_channel();
        let mut table = self.inbox.table();
        table.last_id += 1;
        let id = table.last_id;
        if table.end.is_none() {
            table.slots.insert(id, Slot { mailbox: sender, credit: CREDIT_WINDOW_BYTES, turn: None });
            // Under the lock, so that requests start in the order of their ids.
            self.link.control(&request(id));
        }
        Exchange {
            id,
            channel: Arc::clone(self),
            answers,
            finished: false,
            consumed_bytes: 0,
            turn: None,
            wide: None,
        }
    }

    /// Why the channel is over, if it is.
    pub(super) fn end(&self) -> Option<LinkEnd> {
        self.inbox.table().end
    }

    /// Waits until the channel is over.
    pub(super) async fn closed(&self) {
        let mut changes = self.inbox.changes.subscribe();
        while self.end().is_none() {
            if changes.changed().await.is_err() {
                return;
            }
        }
    }

    /// Ends the channel from this side, and its client: every request in flight fails.
    pub(super) fn close(&self) {
        self.inbox.ended(LinkEnd::Closed);
        self.link.end_client();
    }
}

impl Exchange {
    /// The next frame of the answer.
    ///
    /// # Errors
    /// [`FilesFailure`]; an error frame of the guest is `Refused`.
    pub(super) async fn next(&mut self) -> Result<Response, FilesFailure> {
        let answer = self.answers.recv().await.ok_or_else(|| {
            self.finished = true;
            FilesFailure::ChannelEnded
        })?;
        self.finished |= answer.is_final();
        match answer {
            Response::Error { code, .. } => Err(FilesFailure::Refused(code)),
            other => Ok(other),
        }
    }

    /// Keeps the turn until the request is over.
    pub(super) fn holding(mut self, turn: OwnedSemaphorePermit) -> Self {
        self.turn = Some(turn);
        self
    }

    /// Bytes of the answer were consumed: they are granted again, in portions.
    pub(super) fn consumed(&mut self, bytes: u32) {
        self.consumed_bytes += bytes;
        if self.consumed_bytes < GRANT_BYTES {
            return;
        }
        let bytes = std::mem::take(&mut self.consumed_bytes);
        self.grant(bytes);
    }

    /// Lets more of a long answer be under way than the initial credit, unless several have that already.
    pub(super) fn widen(&mut self) {
        self.wide = Arc::clone(&self.channel.wide_windows).try_acquire_owned().ok();
        if self.wide.is_some() {
            self.grant(WIDE_WINDOW_BYTES);
        }
    }

    fn grant(&self, bytes: u32) {
        if let Some(slot) = self.channel.inbox.table().slots.get_mut(&self.id) {
            slot.credit += bytes;
        }
        self.channel.link.control(&Request::Credit { id: self.id, bytes });
    }

    /// Sends 1 to [`MAX_DATA_BYTES`](guest::protocol::files::MAX_DATA_BYTES) bytes of a write.
    pub(super) fn write_data(&self, bytes: &[u8]) {
        let header = Request::write_data_header(self.id, bytes.len());
        self.channel.link.encoded([header.as_slice(), bytes].concat());
    }

    /// Ends a write.
    pub(super) fn write_end(&self) {
        self.channel.link.data(&Request::WriteEnd { id: self.id });
    }
}

impl Drop for Exchange {
    fn drop(&mut self) {
        if !self.finished {
            if let Some(slot) = self.channel.inbox.table().slots.get_mut(&self.id) {
                slot.turn = self.turn.take();
            }
            self.channel.link.control(&Request::Cancel { id: self.id });
        }
    }
}

#[derive(Debug, Default)]
struct Table {
    hello: Option<Hello>,
    last_id: u32,
    slots: HashMap<u32, Slot>,
    end: Option<LinkEnd>,
}

#[derive(Debug)]
struct Slot {
    mailbox: mpsc::UnboundedSender<Response>,
    credit: u32,
    /// Of a request that was given up: the container is at it until its last frame.
    turn: Option<OwnedSemaphorePermit>,
}

#[derive(Debug, Default)]
struct FilesInbox {
    table: Mutex<Table>,
    changes: watch::Sender<()>,
}

impl FilesInbox {
    fn table(&self) -> MutexGuard<'_, Table> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Inbox<Response> for FilesInbox {
    fn frame(&self, frame: Response) -> Result<(), &'static str> {
        let mut table = self.table();
        let id = match &frame {
            Response::Hello(hello) => {
                if table.hello.replace(hello.clone()).is_some() {
                    return Err("second_hello");
                }
                drop(table);
                self.changes.send_replace(());
                return Ok(());
            }
            _ if table.hello.is_none() => return Err("no_hello"),
            Response::Pong { .. } => return Ok(()),
            other => guest::protocol::Frame::stream(other),
        };
        let slot = table.slots.get_mut(&id).ok_or("unknown_request")?;
        let charged = match &frame {
            Response::ReadData { bytes, .. } => u32::try_from(bytes.len()).unwrap_or(u32::MAX),
            Response::Entry { entry, .. } => entry.credit_bytes(),
            _ => 0,
        };
        slot.credit = slot.credit.checked_sub(charged).ok_or("credit_overrun")?;
        let last = frame.is_final();
        // The answers of a cancelled request go nowhere.
        let _ = slot.mailbox.send(frame);
        if last {
            table.slots.remove(&id);
        }
        Ok(())
    }

    fn ended(&self, end: LinkEnd) {
        let mut table = self.table();
        table.end.get_or_insert(end);
        table.slots.clear();
        drop(table);
        self.changes.send_replace(());
    }
}
