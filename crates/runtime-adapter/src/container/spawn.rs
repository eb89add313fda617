//! The spawn channel as its owner sees it: commands by stream id, each with a mailbox, under the credit that was granted.

use events::event::command::InterruptCause;
use events::ids::CommandId;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use guest::protocol::spawn::{CounterSource, Counters, Exited, Output, StartCommand, ToGuest, ToHost};
use guest::protocol::{CREDIT_WINDOW_BYTES, Hello};
use tokio::sync::{mpsc, oneshot, watch};

use super::blame::Blame;
use super::cli::{Cli, Piped, words};
use super::cli_error::CliError;
use super::link::{Inbox, Link, LinkEnd};
use crate::quota::{Measured, Used};

/// How long the other side may take to say hello, or to answer a question of the connection.
const ANSWER_DEADLINE: Duration = Duration::from_secs(20);

/// What a command's mailbox receives.
#[derive(Debug)]
pub(super) enum SpawnEvent {
    /// The program runs.
    Started,
    /// It could not be started; nothing follows.
    StartFailed { exit_code: i32, message: String },
    /// Output, to be granted again once consumed.
    Data { output: Output, bytes: Vec<u8> },
    /// One output is complete.
    OutputClosed,
    /// The pipe of standard input took this much.
    StdinCredit(u32),
    /// Nobody reads standard input any more.
    StdinBroken,
    /// The main process and everything it left behind has ended.
    Exited(Exited),
    /// The sandbox's counters rose.
    Counters(Counters),
}

/// A command on the channel: its mailbox closes when the channel ends.
#[derive(Debug)]
pub(super) struct CommandStream {
    pub(super) stream: u32,
    pub(super) events: mpsc::UnboundedReceiver<SpawnEvent>,
}

/// Why a sandbox stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stop {
    /// A command was killed; the others end with it.
    With(CommandId),
    /// Something was lost.
    Lost(InterruptCause),
    /// The guest broke the protocol.
    Suspected(&'static str),
}

/// Deleted files of the workspace that are still open.
#[derive(Clone, Copy, Debug)]
pub(super) struct Deleted {
    pub(super) measured: Measured,
    /// The part that the search before found as well: it had no name since.
    pub(super) kept: Used,
    /// False: there is more than was asked for.
    pub(super) complete: bool,
}

/// One opened spawn channel.
#[derive(Debug)]
pub(super) struct SpawnChannel {
    link: Link<ToGuest>,
    inbox: Arc<SpawnInbox>,
    stop: OnceLock<Stop>,
    foreground_at_stop: OnceLock<Option<CommandId>>,
}

impl SpawnChannel {
    /// Makes and starts a sandbox whose own streams are the channel, and exchanges hellos. The caller limits the time: the
    /// container's start is part of it.
    ///
    /// # Errors
    /// What the client said when it ended first; `GuestVersion` for another protocol version.
    pub(super) async fn run(cli: &Cli, arguments: Vec<String>) -> Result<Self, CliError> {
        let (piped, _turn) = cli.open_in_turn(arguments).await?;
        let channel = Self::over(piped)?;
        match channel.told(|table| table.hello.clone()).await {
            Ok(hello) if hello.is_compatible() => Ok(channel),
            Err(_) if channel.end() == Some(LinkEnd::Closed) => Err(channel.link.failure().await),
            Ok(_) => Err(CliError::GuestVersion),
            Err(error) => Err(error),
        }
    }

    /// Starts `guest spawn` in a running sandbox and exchanges hellos.
    ///
    /// # Errors
    /// `Timeout`; `Other` when the channel ended, `GuestVersion` when it speaks another version.
    pub(super) async fn open(cli: &Cli, sandbox: &str) -> Result<Self, CliError> {
        let piped = cli.open(words(["exec", "--interactive", sandbox, "/leasehold/guest", "spawn"]))?;
        let channel = Self::over(piped)?;
        let hello = channel.answer(|table| table.hello.clone()).await?;
        if hello.is_compatible() { Ok(channel) } else { Err(CliError::GuestVersion) }
    }

    fn over(piped: Piped) -> Result<Self, CliError> {
        let inbox = Arc::new(SpawnInbox::default());
        let link = Link::start(piped, Arc::clone(&inbox)).map_err(|_| CliError::Start)?;
        link.control(&ToGuest::Hello(Hello::host()));
        Ok(Self { link, inbox, stop: OnceLock::new(), foreground_at_stop: OnceLock::new() })
    }

    /// The workspace's nonce as the sandbox sees it.
    ///
    /// # Errors
    /// `Timeout`, or `Other` when the channel ended.
    pub(super) async fn read_nonce(&self) -> Result<Option<Vec<u8>>, CliError> {
        self.link.control(&ToGuest::ReadNonce);
        self.answer(|table| table.nonce.clone()).await
    }

    async fn answer<T>(&self, get: impl Fn(&Table) -> Option<T>) -> Result<T, CliError> {
        let told = self.told(get);
        tokio::time::timeout(ANSWER_DEADLINE, told).await.unwrap_or(Err(CliError::Timeout))
    }

    async fn told<T>(&self, get: impl Fn(&Table) -> Option<T>) -> Result<T, CliError> {
        let mut changes = self.inbox.changes.subscribe();
        loop {
            changes.borrow_and_update();
            let over = {
                let table = self.inbox.table();
                if let Some(value) = get(&table) {
                    return Ok(value);
                }
                table.end.is_some()
            };
            if over || changes.changed().await.is_err() {
                return Err(CliError::Other);
            }
        }
    }

    /// Sends the start frame of a new command; also gives the counters as they were then.
    pub(super) fn start(&self, command: StartCommand) -> (CommandStream, Counters) {
        let (sender, events) = mpsc::unbounded_channel();
        let mut table = self.inbox.table();
        table.last_stream += 1;
        let stream = table.last_stream;
        if table.end.is_none() {
            let base = table.counters;
            table.blame.begins(stream, command.background, base.oom_kills);
            table.slots.insert(stream, Slot::new(sender, base));
            // Under the lock, so that streams start in the order of their ids.
            self.link.control(&ToGuest::Start { stream, command });
        }
        (CommandStream { stream, events }, table.counters)
    }

    /// What deleted files take that processes of this user have open, looked for until it is more than `ceiling`;
    /// `None` when the channel ended.
    pub(super) async fn deleted(&self, uid: u32, gid: u32, ceiling: Used) -> Option<Deleted> {
        self.ask_for_deleted(uid, gid, ceiling)?.await.ok()
    }

    fn ask_for_deleted(&self, uid: u32, gid: u32, ceiling: Used) -> Option<oneshot::Receiver<Deleted>> {
        let (sender, answer) = oneshot::channel();
        let mut table = self.inbox.table();
        if table.end.is_some() {
            return None;
        }
        table.last_question += 1;
        let token = table.last_question;
        table.questions.insert(token, sender);
        drop(table);
        let (bytes_max, inodes_max) = (ceiling.bytes, ceiling.inodes);
        self.link.control(&ToGuest::Measure { token, uid, gid, bytes_max, inodes_max });
        Some(answer)
    }

    /// Grants consumed bytes of an output again.
    pub(super) fn grant(&self, stream: u32, output: Output, bytes: u32) {
        if let Some(slot) = self.inbox.table().slots.get_mut(&stream) {
            *slot.credit(output) += bytes;
        }
        self.link.control(&ToGuest::Credit { stream, output, bytes });
    }

    /// Kills a command.
    pub(super) fn kill(&self, stream: u32) {
        self.inbox.table().blame.ends(stream);
        self.link.control(&ToGuest::Kill { stream });
    }

    /// Sends standard input in order.
    pub(super) fn stdin(&self, stream: u32, bytes: Vec<u8>) {
        if let Some(slot) = self.inbox.table().slots.get_mut(&stream) {
            slot.stdin_on_the_way += bytes.len() as u64;
        }
        self.link.data(&ToGuest::StdinData { stream, bytes });
    }

    /// Ends standard input, after everything sent before.
    pub(super) fn close_stdin(&self, stream: u32) {
        self.link.data(&ToGuest::StdinClose { stream });
    }

    /// Which counters the guest can read.
    pub(super) fn counter_source(&self) -> CounterSource {
        self.inbox.table().hello.as_ref().map_or(CounterSource::None, |hello| hello.counters)
    }

    /// Why the channel is over, if it is.
    pub(super) fn end(&self) -> Option<LinkEnd> {
        self.inbox.table().end
    }

    /// Why its sandbox stopped, once that is known.
    pub(super) fn stop(&self) -> Option<Stop> {
        self.stop.get().copied()
    }

    /// Tells every command on the channel why; the first reason counts.
    pub(super) fn set_stop(&self, stop: Stop) {
        let _ = self.stop.set(stop);
    }

    /// It has ended, or is about to: nothing may begin on it.
    pub(super) fn is_over(&self) -> bool {
        self.stop().is_some() || self.end().is_some()
    }

    /// No command runs on it.
    pub(super) fn is_idle(&self) -> bool {
        self.inbox.table().slots.is_empty()
    }

    /// The foreground command that ran when the channel was lost.
    pub(super) fn foreground_at_stop(&self) -> Option<CommandId> {
        self.foreground_at_stop.get().copied().flatten()
    }

    pub(super) fn set_foreground_at_stop(&self, command_id: Option<CommandId>) {
        let _ = self.foreground_at_stop.set(command_id);
    }

    /// Has the container end from inside, which takes no descriptor of a sandbox that may have none left.
    pub(super) fn shut_down(&self) {
        self.link.control(&ToGuest::Shutdown);
    }

    /// Ends the channel from this side, and its client: every mailbox closes.
    pub(super) fn close(&self) {
        self.inbox.ended(LinkEnd::Closed);
        self.link.end_client();
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
}

#[derive(Debug, Default)]
struct Table {
    hello: Option<Hello>,
    nonce: Option<Option<Vec<u8>>>,
    counters: Counters,
    last_stream: u32,
    slots: HashMap<u32, Slot>,
    blame: Blame,
    last_question: u64,
    questions: HashMap<u64, oneshot::Sender<Deleted>>,
    end: Option<LinkEnd>,
}

#[derive(Debug)]
struct Slot {
    mailbox: mpsc::UnboundedSender<SpawnEvent>,
    stdout_credit: u32,
    stderr_credit: u32,
    outputs_open: u8,
    started: bool,
    exited: bool,
    /// Standard input sent and not yet taken by the pipe.
    stdin_on_the_way: u64,
    /// The counters when it started.
    base: Counters,
}

impl Slot {
    fn new(mailbox: mpsc::UnboundedSender<SpawnEvent>, base: Counters) -> Self {
        Self {
            mailbox,
            stdout_credit: CREDIT_WINDOW_BYTES,
            stderr_credit: CREDIT_WINDOW_BYTES,
            outputs_open: 2,
            started: false,
            exited: false,
            stdin_on_the_way: 0,
            base,
        }
    }

    fn credit(&mut self, output: Output) -> &mut u32 {
        match output {
            Output::Stdout => &mut self.stdout_credit,
            Output::Stderr => &mut self.stderr_credit,
        }
    }
}

#[derive(Debug, Default)]
struct SpawnInbox {
    table: Mutex<Table>,
    /// Raised whenever an answer of the connection arrives or the channel ends.
    changes: watch::Sender<()>,
}

impl SpawnInbox {
    fn table(&self) -> MutexGuard<'_, Table> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Inbox<ToHost> for SpawnInbox {
    fn frame(&self, frame: ToHost) -> Result<(), &'static str> {
        let mut guard = self.table();
        let table = &mut *guard;
        let (stream, mut event) = match frame {
            ToHost::Hello(hello) => {
                if table.hello.replace(hello).is_some() {
                    return Err("second_hello");
                }
                self.changes.send_replace(());
                return Ok(());
            }
            _ if table.hello.is_none() => return Err("no_hello"),
            ToHost::Nonce(nonce) => {
                table.nonce = Some(nonce);
                self.changes.send_replace(());
                return Ok(());
            }
            ToHost::Pong { .. } => return Ok(()),
            ToHost::Measured {
                token,
                deleted_bytes,
                deleted_inodes,
                kept_bytes,
                kept_inodes,
                complete,
                readable,
            } => {
                let question = table.questions.remove(&token).ok_or("unknown_question")?;
                let used = Used { bytes: deleted_bytes, inodes: deleted_inodes };
                let kept = Used { bytes: kept_bytes, inodes: kept_inodes };
                // Whoever asked may have stopped waiting.
                let _ = question.send(Deleted { measured: readable.then_some(used), kept, complete });
                return Ok(());
            }
            ToHost::Counters(counters) => {
                table.counters = counters;
                table.blame.sampled(counters.oom_kills);
                for (stream, slot) in &table.slots {
                    let counters = Counters { oom_kills: table.blame.shown(*stream), ..counters };
                    let _ = slot.mailbox.send(SpawnEvent::Counters(counters));
                }
                return Ok(());
            }
            ToHost::Started { stream, .. } => (stream, SpawnEvent::Started),
            ToHost::StartFailed { stream, exit_code, message, .. } => {
                (stream, SpawnEvent::StartFailed { exit_code, message })
            }
            ToHost::Data { stream, output, bytes } => (stream, SpawnEvent::Data { output, bytes }),
            ToHost::OutputClosed { stream, .. } => (stream, SpawnEvent::OutputClosed),
            ToHost::StdinCredit { stream, bytes } => (stream, SpawnEvent::StdinCredit(bytes)),
            ToHost::StdinBroken { stream, .. } => (stream, SpawnEvent::StdinBroken),
            ToHost::Exited { stream, exited } => (stream, SpawnEvent::Exited(exited)),
        };
        let slot = table.slots.get_mut(&stream).ok_or("unknown_stream")?;
        let over = match &mut event {
            SpawnEvent::StartFailed { .. } => true,
            SpawnEvent::Data { output, bytes } => {
                let size = u32::try_from(bytes.len()).unwrap_or(u32::MAX);
                let credit = slot.credit(*output);
                *credit = credit.checked_sub(size).ok_or("credit_overrun")?;
                false
            }
            SpawnEvent::OutputClosed => {
                slot.outputs_open = slot.outputs_open.checked_sub(1).ok_or("output_closed_twice")?;
                slot.exited && slot.outputs_open == 0
            }
            SpawnEvent::Exited(exited) => {
                if std::mem::replace(&mut slot.exited, true) {
                    return Err("exited_twice");
                }
                // What rose between two samples is known from here on: it must not look new to the next command.
                let (base, counters) = (slot.base, &mut table.counters);
                counters.oom_kills = counters.oom_kills.max(base.oom_kills + exited.oom_kills);
                counters.refused_forks =
                    counters.refused_forks.max(base.refused_forks + exited.refused_forks);
                exited.oom_kills = table.blame.exited(stream, exited);
                slot.outputs_open == 0
            }
            SpawnEvent::Started => {
                if std::mem::replace(&mut slot.started, true) {
                    return Err("started_twice");
                }
                table.blame.started(stream);
                false
            }
            SpawnEvent::StdinCredit(bytes) => {
                let left = slot.stdin_on_the_way.checked_sub(u64::from(*bytes));
                slot.stdin_on_the_way = left.ok_or("credit_overrun")?;
                false
            }
            SpawnEvent::StdinBroken | SpawnEvent::Counters(_) => false,
        };
        let is_ended = matches!(event, SpawnEvent::Exited(_) | SpawnEvent::StartFailed { .. });
        // A command whose owner no longer listens is none the less followed to its end.
        let _ = slot.mailbox.send(event);
        if is_ended {
            table.blame.over(stream);
        }
        if over {
            table.slots.remove(&stream);
        }
        Ok(())
    }

    fn ended(&self, end: LinkEnd) {
        let mut table = self.table();
        table.end.get_or_insert(end);
        table.slots.clear();
        table.questions.clear();
        drop(table);
        self.changes.send_replace(());
    }
}
