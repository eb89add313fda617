//! The files channel: one reader of frames, one thread per request.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use guest::protocol::files::{
    CREDIT_WINDOW_BYTES, FilesErrorCode, Quota, Request, Response, Usage, WIDE_WINDOWS,
};
use guest::protocol::spawn::CounterSource;
use guest::protocol::{Decoder, HEARTBEAT_INTERVAL_MS, Hello, MISSED_HEARTBEATS};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;

use super::account::Account;
use super::content::Budget;
use super::failure::Failure;
use super::list::{self, Page};
use super::meter;
use super::private::Private;
use super::read::{self, Wanted};
use super::remove;
use super::reply::{Conversation, Message, Output};
use super::snapshot::{Difference, Snapshot};
use super::workspace::{Owner, Workspace};
use super::write;

/// Most requests of the API's users at once; one more fails with Io and EAGAIN.
const MAX_ORDINARY_REQUESTS: usize = 48;

/// Most requests at once of those that take over the workspace or end a command: slow transfers never refuse
/// them. Both together stay within the container's process limit.
const MAX_VITAL_REQUESTS: usize = 8;

/// How often a thread is asked for, and the pause between: threads that are just ending still count.
const THREAD_TRIES: u32 = 10;
const THREAD_PAUSE: Duration = Duration::from_millis(10);

/// Stack of a request's thread, in bytes: nothing here recurses.
const STACK_BYTES: usize = 256 * 1024;

/// How much is read from the channel at once, at least.
const READ_BYTES: usize = 64 * 1024;

/// Most frames written in one go.
const BATCH_FRAMES: usize = 256;

/// A baseline of at most this many records is compared by the reader of the channel itself, within this time: starting a
/// thread takes longer than the walk of a small tree, and every command ends with one.
const AT_ONCE_RECORDS: usize = 256;
const AT_ONCE_TIME: Duration = Duration::from_millis(1);

/// Why serving ended.
#[derive(Debug, thiserror::Error)]
pub(super) enum Ended {
    #[error("the host is gone")]
    HostGone,
    #[error("the host broke the protocol: {0}")]
    Violation(String),
}

/// What there is after `Init` or `Adopt`.
pub(super) struct Ready {
    pub(super) owner: Owner,
    pub(super) private: Private,
    pub(super) account: Account,
    nonce: Vec<u8>,
    snapshot: Mutex<Snapshot>,
    wide_writes: AtomicUsize,
}

/// A write has the wider window as long as it is held.
pub(super) struct WideWindow<'a>(&'a AtomicUsize);

impl Drop for WideWindow<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

impl Ready {
    /// The baseline; held during a walk.
    pub(super) fn snapshot(&self) -> MutexGuard<'_, Snapshot> {
        self.snapshot.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// `None` when as many writes as may have the wider window.
    pub(super) fn wide_window(&self) -> Option<WideWindow<'_>> {
        let one_more = |held: usize| (held < WIDE_WINDOWS).then_some(held + 1);
        self.wide_writes.fetch_update(Ordering::SeqCst, Ordering::SeqCst, one_more).ok()?;
        Some(WideWindow(&self.wide_writes))
    }
}

struct Mailbox {
    is_vital: bool,
    sender: Sender<Message>,
    write_credit: Arc<AtomicU32>,
}

type Mailboxes = Arc<Mutex<HashMap<u32, Mailbox>>>;

pub(super) struct Server {
    service: Arc<Service>,
    output: Arc<Output>,
    mailboxes: Mailboxes,
    last_id: u32,
    greeted: bool,
    /// When the last frame came; set by the first `Ping`.
    heard: Option<Instant>,
}

impl Server {
    pub(super) fn new(workspace: Workspace) -> Self {
        Self {
            service: Arc::new(Service { workspace, ready: OnceLock::new() }),
            output: Arc::default(),
            mailboxes: Arc::default(),
            last_id: 0,
            greeted: false,
            heard: None,
        }
    }

    /// Serves until the host is gone or breaks the protocol.
    pub(super) fn serve(mut self) -> Ended {
        let openat2 = self.service.workspace.has_openat2();
        let hello = Hello::guest(std::process::id(), CounterSource::None, openat2);
        self.output.send(&[Response::Hello(hello)]);
        let mut decoder = Decoder::<Request>::new();
        loop {
            if !self.wait_for_input() {
                return Ended::HostGone;
            }
            match rustix::io::read(rustix::stdio::stdin(), decoder.space(READ_BYTES)) {
                Ok(0) => return Ended::HostGone,
                Ok(length) => decoder.filled(length),
                Err(Errno::INTR) => continue,
                Err(_) => return Ended::HostGone,
            }
            loop {
                let handled = match decoder.next_frame() {
                    Ok(Some(frame)) => self.handle(frame),
                    Ok(None) => break,
                    Err(error) => Err(error.to_string()),
                };
                if let Err(violation) = handled {
                    return Ended::Violation(violation);
                }
            }
        }
    }

    /// False when the heartbeats stopped.
    fn wait_for_input(&self) -> bool {
        let silence = Duration::from_millis(HEARTBEAT_INTERVAL_MS * MISSED_HEARTBEATS);
        loop {
            let left = self.heard.map(|heard| silence.saturating_sub(heard.elapsed()));
            let timeout = left.map(|left| Timespec {
                tv_sec: i64::try_from(left.as_secs()).unwrap_or(i64::MAX),
                tv_nsec: i64::from(left.subsec_nanos()),
            });
            let stdin = rustix::stdio::stdin();
            match poll(&mut [PollFd::new(&stdin, PollFlags::IN)], timeout.as_ref()) {
                Ok(0) if left.is_some_and(|left| left.is_zero()) => return false,
                Ok(0) | Err(Errno::INTR) => {}
                Ok(_) => return true,
                Err(_) => return false,
            }
        }
    }

    fn handle(&mut self, frame: Request) -> Result<(), String> {
        if self.greeted == matches!(frame, Request::Hello(_)) {
            return Err("hello must come first, once".to_owned());
        }
        self.heard = self.heard.map(|_| Instant::now());
        match frame {
            Request::Hello(hello) if hello.is_compatible() => self.greeted = true,
            Request::Hello(_) => return Err("another protocol version".to_owned()),
            Request::Ping { token } => {
                self.heard = Some(Instant::now());
                self.output.send(&[Response::Pong { token }]);
            }
            Request::WriteData { id, bytes } => {
                let length = u32::try_from(bytes.len()).unwrap_or(u32::MAX);
                self.deliver(id, Message::Data(bytes), length)?;
            }
            Request::WriteEnd { id } => self.deliver(id, Message::End, 0)?,
            Request::Credit { id, bytes } => self.deliver(id, Message::Credit(bytes), 0)?,
            Request::Cancel { id } => self.deliver(id, Message::Cancel, 0)?,
            Request::Init { id, .. }
            | Request::Adopt { id, .. }
            | Request::Diff { id, .. }
            | Request::Measure { id, .. }
            | Request::Read { id, .. }
            | Request::Write { id, .. }
            | Request::List { id, .. }
            | Request::Stat { id, .. }
            | Request::Remove { id, .. }
            | Request::Room { id } => self.start(id, frame)?,
        }
        Ok(())
    }

    fn deliver(&self, id: u32, message: Message, data_bytes: u32) -> Result<(), String> {
        if id > self.last_id {
            return Err("a frame for a request never made".to_owned());
        }
        let mailboxes = self.mailboxes.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(mailbox) = mailboxes.get(&id) else { return Ok(()) };
        let take = |credit: u32| credit.checked_sub(data_bytes);
        if mailbox.write_credit.fetch_update(Ordering::SeqCst, Ordering::SeqCst, take).is_err() {
            return Err("write data without credit".to_owned());
        }
        // A request that just ended reads no more.
        let _ = mailbox.sender.send(message);
        Ok(())
    }

    fn start(&mut self, id: u32, request: Request) -> Result<(), String> {
        if id <= self.last_id {
            return Err("request ids must increase".to_owned());
        }
        self.last_id = id;
        if let Some(answer) = self.service.answer_at_once(&request) {
            self.output.send(&answer);
            return Ok(());
        }
        let (sender, inbox) = channel();
        let write_credit = Arc::new(AtomicU32::new(CREDIT_WINDOW_BYTES));
        let mut conversation =
            Conversation::new(id, Arc::clone(&self.output), inbox, Arc::clone(&write_credit));
        let mut mailboxes = self.mailboxes.lock().unwrap_or_else(PoisonError::into_inner);
        let refused = Response::Error { id, code: FilesErrorCode::Io, errno: Errno::AGAIN.raw_os_error() };
        let is_vital = is_vital(&request);
        let alike = mailboxes.values().filter(|mailbox| mailbox.is_vital == is_vital).count();
        if alike >= if is_vital { MAX_VITAL_REQUESTS } else { MAX_ORDINARY_REQUESTS } {
            drop(mailboxes);
            self.output.send(&[refused]);
            return Ok(());
        }
        mailboxes.insert(id, Mailbox { is_vital, sender, write_credit });
        drop(mailboxes);
        let (service, registry) = (Arc::clone(&self.service), Arc::clone(&self.mailboxes));
        let is_started = run_in_thread(Box::new(move || {
            let answer = service
                .answer(request, &mut conversation)
                .unwrap_or_else(|failure| Response::Error { id, code: failure.code, errno: failure.errno });
            registry.lock().unwrap_or_else(PoisonError::into_inner).remove(&id);
            conversation.send(answer);
        }));
        if !is_started {
            self.mailboxes.lock().unwrap_or_else(PoisonError::into_inner).remove(&id);
            self.output.send(&[refused]);
        }
        Ok(())
    }
}

/// What must not wait for slow transfers to end.
fn is_vital(request: &Request) -> bool {
    matches!(
        request,
        Request::Init { .. }
            | Request::Adopt { .. }
            | Request::Diff { .. }
            | Request::Measure { .. }
            | Request::Room { .. }
    )
}

type Job = Box<dyn FnOnce() + Send>;

/// False when there is no thread to be had.
fn run_in_thread(job: Job) -> bool {
    for attempt in 0..THREAD_TRIES {
        if attempt > 0 {
            std::thread::sleep(THREAD_PAUSE);
        }
        // A failed attempt consumes what it was given: the job follows once there is a thread.
        let (sender, jobs) = channel::<Job>();
        let builder = std::thread::Builder::new().stack_size(STACK_BYTES);
        let thread = builder.spawn(move || {
            if let Ok(job) = jobs.recv() {
                job();
            }
        });
        if thread.is_ok() {
            return sender.send(job).is_ok();
        }
    }
    false
}

struct Service {
    workspace: Workspace,
    ready: OnceLock<Ready>,
}

impl Service {
    /// Does one request; the answer is its final frame.
    fn answer(&self, request: Request, conversation: &mut Conversation) -> Result<Response, Failure> {
        let workspace = &self.workspace;
        match request {
            Request::Init { id, uid, gid, quota, nonce } => {
                let private = Private::create(workspace)?;
                if private.nonce()?.is_none() {
                    private.write_nonce(&nonce)?;
                }
                let usage = self.adopt(private, Owner { uid, gid }, quota, nonce, conversation)?;
                Ok(Response::Ready { id, usage })
            }
            Request::Adopt { id, uid, gid, quota, nonce } => {
                let private = Private::open(workspace)?;
                let usage = self.adopt(private, Owner { uid, gid }, quota, nonce, conversation)?;
                Ok(Response::Ready { id, usage })
            }
            Request::Diff { id, max_changes, max_path_bytes } => {
                let ready = self.checked()?;
                let difference = cancellable(conversation, |cancelled| {
                    self.difference(ready, &mut ready.snapshot(), max_changes, cancelled)
                })?;
                let (changes, end) = diff_frames(id, difference, max_path_bytes);
                for batch in changes.chunks(BATCH_FRAMES) {
                    conversation.send_all(batch);
                }
                Ok(end)
            }
            Request::Measure { id, stop } => {
                let (usage, complete) = self.measure(conversation, stop)?;
                Ok(Response::Measured { id, usage, complete })
            }
            Request::Read { path, offset, max_bytes, allow_partial, .. } => {
                self.ready()?;
                let wanted = Wanted { path: &path, offset, max_bytes, allow_partial };
                read::read(workspace, conversation, &wanted)
            }
            Request::Write { path, max_bytes, create_only, .. } => {
                write::write(workspace, self.ready()?, conversation, &path, max_bytes, create_only)
            }
            Request::List { path, recursive, limit, cursor, .. } => {
                self.ready()?;
                let page = Page { path: &path, recursive, limit, cursor: &cursor };
                list::list(workspace, conversation, &page)
            }
            Request::Stat { id, path } => {
                self.ready()?;
                read::stat(workspace, id, &path)
            }
            Request::Remove { id, path, recursive } => {
                let ready = self.ready()?;
                cancellable(conversation, |cancelled| {
                    remove::remove(workspace, ready, id, &path, recursive, cancelled)
                })
            }
            Request::Room { id } => Ok(Response::Room { id, free_bytes: workspace.free_bytes()? }),
            // The reader of the channel keeps these.
            Request::Hello(_)
            | Request::WriteData { .. }
            | Request::WriteEnd { .. }
            | Request::Credit { .. }
            | Request::Cancel { .. }
            | Request::Ping { .. } => Err(FilesErrorCode::Io.into()),
        }
    }

    fn ready(&self) -> Result<&Ready, Failure> {
        self.ready.get().ok_or_else(|| FilesErrorCode::NotReady.into())
    }

    /// Checks the nonce, tidies up, takes the baseline. Repeating it takes a new baseline.
    fn adopt(
        &self,
        private: Private,
        owner: Owner,
        quota: Quota,
        nonce: Vec<u8>,
        conversation: &mut Conversation,
    ) -> Result<Usage, Failure> {
        private.check_nonce(&nonce)?;
        if self.ready.get().is_none() {
            cancellable(conversation, |cancelled| private.clean(cancelled))?;
        }
        let account = Account::new(quota);
        let ready = self.ready.get_or_init(|| Ready {
            owner,
            private,
            account,
            nonce,
            snapshot: Mutex::default(),
            wide_writes: AtomicUsize::new(0),
        });
        cancellable(conversation, |cancelled| {
            Ok(self.difference(ready, &mut ready.snapshot(), 0, cancelled)?.usage)
        })
    }

    fn measure(&self, conversation: &mut Conversation, stop: Quota) -> Result<(Usage, bool), Failure> {
        let ready = self.checked()?;
        let changes = ready.account.changes();
        let quota = ready.account.quota();
        let measured =
            cancellable(conversation, |cancelled| meter::measure(&self.workspace, quota, stop, cancelled))?;
        if let (usage, true) = measured {
            ready.account.set_unless_changed(usage, changes);
        }
        Ok(measured)
    }

    /// What a small tree's comparison answers, in one go; `None` for everything else, and when it takes too long.
    fn answer_at_once(&self, request: &Request) -> Option<Vec<Response>> {
        let Request::Diff { id, max_changes, max_path_bytes } = *request else { return None };
        let ready = self.checked().ok()?;
        // Somebody else's walk is not waited for here.
        let mut snapshot = ready.snapshot.try_lock().ok()?;
        if snapshot.len() > AT_ONCE_RECORDS {
            return None;
        }
        let begun = Instant::now();
        let is_late = || begun.elapsed() > AT_ONCE_TIME;
        // A walk that was given up, or failed, moved nothing: it is repeated with all the time it needs.
        let difference = self.difference(ready, &mut snapshot, max_changes, &is_late).ok()?;
        let (mut frames, end) = diff_frames(id, difference, max_path_bytes);
        frames.push(end);
        Some(frames)
    }

    /// Ready, and the workspace is the one it should be: an empty tree in its place must never look like "everything was
    /// deleted".
    fn checked(&self) -> Result<&Ready, Failure> {
        let ready = self.ready()?;
        ready.private.check_nonce(&ready.nonce)?;
        Ok(ready)
    }

    /// A walk with the baseline, during which nothing is placed or removed.
    fn difference(
        &self,
        ready: &Ready,
        snapshot: &mut Snapshot,
        max_changes: u32,
        cancelled: &dyn Fn() -> bool,
    ) -> Result<Difference, Failure> {
        let (quota, mut budget) = (ready.account.quota(), Budget::of_a_walk());
        let difference =
            snapshot.update(&self.workspace, quota, max_changes as usize, &mut budget, cancelled)?;
        ready.account.set(difference.usage);
        Ok(difference)
    }
}

/// The changes, as many as the paths' bytes allow, and the final frame.
fn diff_frames(id: u32, difference: Difference, max_path_bytes: u32) -> (Vec<Response>, Response) {
    let total_changes = difference.total_changes;
    let mut path_bytes_left = max_path_bytes as usize;
    let mut frames = Vec::new();
    let mut truncated = total_changes > difference.changes.len() as u64;
    for change in difference.changes {
        let path_bytes = change.path.encoded_bytes();
        if path_bytes > path_bytes_left {
            truncated = true;
            break;
        }
        path_bytes_left -= path_bytes;
        frames.push(Response::Change { id, change });
    }
    (frames, Response::DiffEnd { id, usage: difference.usage, total_changes, truncated })
}

/// Runs a walk that stops when the host cancels the request.
fn cancellable<T>(
    conversation: &mut Conversation,
    work: impl FnOnce(&dyn Fn() -> bool) -> Result<T, Failure>,
) -> Result<T, Failure> {
    let conversation = std::cell::RefCell::new(conversation);
    work(&|| conversation.borrow_mut().is_cancelled())
}
