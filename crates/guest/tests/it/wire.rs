//! The host's end of either channel: the real binary as a child, frames in and out, and a limit to patience.

use std::io::{Read, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use guest::protocol::{Decoder, Frame, encode};

/// No test waits longer than this for anything.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

pub(crate) struct Wire<In> {
    pub(crate) child: Child,
    stdin: Option<ChildStdin>,
    frames: Receiver<In>,
}

impl<In: Frame + Send + 'static> Wire<In> {
    pub(crate) fn open(command: &str, workspace: &Path) -> Self {
        Self::open_behind(&[], command, workspace)
    }

    /// Through a program that executes its arguments.
    #[expect(clippy::disallowed_methods, reason = "the test plays the container engine")]
    pub(crate) fn open_behind(before: &[&str], command: &str, workspace: &Path) -> Self {
        let words = [before, &[env!("CARGO_BIN_EXE_guest"), command]].concat();
        let mut child = std::process::Command::new(words[0])
            .args(&words[1..])
            .arg("--workspace")
            .arg(workspace)
            .env_clear()
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let stdin = child.stdin.take();
        let mut stdout = child.stdout.take().unwrap();
        let (sender, frames) = channel();
        std::thread::spawn(move || {
            let mut decoder = Decoder::<In>::new();
            let mut buffer = vec![0; 64 * 1024];
            loop {
                let length = stdout.read(&mut buffer).unwrap();
                if length == 0 {
                    return;
                }
                decoder.feed(&buffer[..length]);
                while let Some(frame) = decoder.next_frame().unwrap() {
                    if sender.send(frame).is_err() {
                        return;
                    }
                }
            }
        });
        Self { child, stdin, frames }
    }

    pub(crate) fn send(&mut self, frame: &impl Frame) {
        self.send_together(std::slice::from_ref(frame));
    }

    /// In one write: small ones reach the guest at the same time, the later ones before it is done with the first.
    pub(crate) fn send_together(&mut self, frames: &[impl Frame]) {
        let mut bytes = Vec::new();
        for frame in frames {
            encode(frame, &mut bytes);
        }
        self.stdin.as_mut().unwrap().write_all(&bytes).unwrap();
    }

    /// False when the guest did not take them all: one that objects to the first bytes may be gone before the last.
    pub(crate) fn send_raw(&mut self, bytes: &[u8]) -> bool {
        self.stdin.as_mut().unwrap().write_all(bytes).is_ok()
    }

    pub(crate) fn close_stdin(&mut self) {
        self.stdin = None;
    }

    pub(crate) fn receive(&mut self) -> In {
        self.frames.recv_timeout(PATIENCE).expect("no frame in time")
    }

    /// Waits until the guest has closed its output; gives its exit code.
    pub(crate) fn wait_for_end(&mut self) -> Option<i32> {
        loop {
            match self.frames.recv_timeout(PATIENCE) {
                Ok(_) => {}
                Err(RecvTimeoutError::Disconnected) => return self.child.wait().unwrap().code(),
                Err(RecvTimeoutError::Timeout) => panic!("the guest did not end"),
            }
        }
    }
}

impl<In> Drop for Wire<In> {
    fn drop(&mut self) {
        self.stdin = None;
        let _ = self.child.wait();
    }
}

/// Waits for a condition, never longer than [`PATIENCE`].
pub(crate) fn eventually(what: &str, mut condition: impl FnMut() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !condition() {
        assert!(Instant::now() < deadline, "{what} did not happen in time");
        std::thread::yield_now();
    }
}

/// True while a process of this id exists and is no zombie.
pub(crate) fn is_alive(pid: u32) -> bool {
    // A process whose first thread has ended looks dead and is not.
    let threads = std::fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    threads.filter_map(|thread| std::fs::read_to_string(thread.path().join("stat")).ok()).any(|stat| {
        let state = stat.rsplit(')').next().unwrap().trim_start().chars().next();
        !matches!(state, Some('Z' | 'X'))
    })
}

/// Bytes that repeat nowhere soon, so that a lost or swapped piece shows.
pub(crate) fn pattern(length: usize) -> Vec<u8> {
    let mut state = 0x2545_f491_4f6c_dd1d_u64;
    std::iter::repeat_with(|| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state.to_le_bytes()
    })
    .flatten()
    .take(length)
    .collect()
}
