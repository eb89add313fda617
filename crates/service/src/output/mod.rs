//! Output of commands while they run and for a while after: each byte once to every reader, from any cursor.
//!
//! - [`buffer`]: one stream, bounded.
//! - [`Live`]: one command's two streams; the sink of the execution port, so writing never waits for a reader.
//! - [`OutputHub`]: all of them; ended ones are kept for [`KEPT_FOR`] within [`KEPT_BYTES_MAX`], after that the recorded view
//!   answers, with a gap.

pub mod buffer;

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use bytes::Bytes;
use events::CommandId;
use runtime_adapter::ports::{OutputSink, OutputStream};
use tokio::sync::watch;

use buffer::{Buffer, Piece};

/// How long an ended command's output stays in memory.
pub const KEPT_FOR: Duration = Duration::from_secs(300);
/// Bytes of ended commands that stay in memory, the newest first.
pub const KEPT_BYTES_MAX: usize = 64 * 1024 * 1024;

/// The output of one command.
#[derive(Debug)]
pub struct Live {
    buffers: Mutex<Buffers>,
    changed: watch::Sender<()>,
}

#[derive(Debug, Default)]
struct Buffers {
    stdout: Buffer,
    stderr: Buffer,
    ended: bool,
}

impl Live {
    fn new() -> Arc<Self> {
        Arc::new(Self { buffers: Mutex::default(), changed: watch::channel(()).0 })
    }

    /// At most `max` bytes of a stream from `offset` on.
    #[must_use]
    pub fn read(&self, stream: OutputStream, offset: u64, max: usize) -> Piece {
        let buffers = self.lock();
        match stream {
            OutputStream::Stdout => buffers.stdout.read(offset, max),
            OutputStream::Stderr => buffers.stderr.read(offset, max),
        }
    }

    /// The command has its outcome: no byte follows.
    #[must_use]
    pub fn ended(&self) -> bool {
        self.lock().ended
    }

    /// Wakes when there is more to read, or the end.
    #[must_use]
    pub fn subscribe(&self) -> watch::Receiver<()> {
        self.changed.subscribe()
    }

    fn held(&self) -> usize {
        let buffers = self.lock();
        buffers.stdout.held() + buffers.stderr.held()
    }

    fn lock(&self) -> MutexGuard<'_, Buffers> {
        self.buffers.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl OutputSink for Live {
    fn write(&self, stream: OutputStream, bytes: Bytes) {
        let mut buffers = self.lock();
        match stream {
            OutputStream::Stdout => buffers.stdout.push(&bytes),
            OutputStream::Stderr => buffers.stderr.push(&bytes),
        }
        drop(buffers);
        self.changed.send_replace(());
    }
}

/// Outputs by command.
#[derive(Debug, Default)]
pub struct OutputHub {
    state: Mutex<Hub>,
}

#[derive(Debug, Default)]
struct Hub {
    commands: HashMap<CommandId, Arc<Live>>,
    /// Ended commands, the oldest first.
    ended: VecDeque<(Instant, CommandId)>,
}

impl OutputHub {
    /// Starts holding a command's output; the same one when it is held already.
    pub fn open(&self, command_id: CommandId) -> Arc<Live> {
        Arc::clone(self.lock().commands.entry(command_id).or_insert_with(Live::new))
    }

    /// The output, if it is held.
    #[must_use]
    pub fn get(&self, command_id: CommandId) -> Option<Arc<Live>> {
        self.lock().commands.get(&command_id).cloned()
    }

    /// The command has its outcome on record. Readers get the rest; later ones too, for a while.
    pub fn close(&self, command_id: CommandId, now: Instant) {
        let mut hub = self.lock();
        if let Some(live) = hub.commands.get(&command_id) {
            live.lock().ended = true;
            live.changed.send_replace(());
            hub.ended.push_back((now, command_id));
        }
        hub.evict(now);
    }

    fn lock(&self) -> MutexGuard<'_, Hub> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Hub {
    fn evict(&mut self, now: Instant) {
        let mut held: usize = self
            .ended
            .iter()
            .filter_map(|(_, command_id)| self.commands.get(command_id))
            .map(|live| live.held())
            .sum();
        while let Some((ended_at, command_id)) = self.ended.front().copied() {
            if now.duration_since(ended_at) < KEPT_FOR && held <= KEPT_BYTES_MAX {
                return;
            }
            self.ended.pop_front();
            if let Some(live) = self.commands.remove(&command_id) {
                held -= live.held();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn command(n: u128) -> CommandId {
        CommandId(uuid::Uuid::from_u128(n))
    }

    #[test]
    fn ended_output_is_kept_for_a_time_and_then_dropped() {
        let hub = OutputHub::default();
        let start = Instant::now();
        hub.open(command(1)).write(OutputStream::Stdout, Bytes::from_static(b"x"));
        hub.close(command(1), start);
        assert!(hub.get(command(1)).is_some_and(|live| live.ended()));
        hub.open(command(2));
        hub.close(command(2), start + KEPT_FOR);
        assert!(hub.get(command(1)).is_none());
        assert!(hub.get(command(2)).is_some());
    }

    #[test]
    fn ended_output_is_bounded_in_bytes_and_running_output_stays() {
        let hub = OutputHub::default();
        let start = Instant::now();
        let big = Bytes::from(vec![0; 4 * 1024 * 1024]);
        hub.open(command(0)).write(OutputStream::Stdout, big.clone());
        for n in 1..=17 {
            hub.open(command(n)).write(OutputStream::Stdout, big.clone());
            hub.close(command(n), start);
        }
        assert!(hub.get(command(0)).is_some());
        assert!(hub.get(command(1)).is_none());
        assert!(hub.get(command(17)).is_some());
    }

    #[tokio::test]
    async fn readers_wake_for_bytes_and_for_the_end() {
        let hub = OutputHub::default();
        let live = hub.open(command(1));
        let mut changed = live.subscribe();
        live.write(OutputStream::Stderr, Bytes::from_static(b"oh"));
        changed.changed().await.unwrap();
        assert_eq!(live.read(OutputStream::Stderr, 1, 10), Piece::Bytes(Bytes::from_static(b"h")));
        hub.close(command(1), Instant::now());
        changed.changed().await.unwrap();
        assert!(live.ended());
    }
}
