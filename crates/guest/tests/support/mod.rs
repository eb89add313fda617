//! The host's side of a spawn channel, as small as it can be: blocking, one command at a time unless a test
//! drives the frames itself.

use std::collections::VecDeque;
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use guest::protocol::spawn::{ExitStatus, Exited, Output, Rlimits, StartCommand, ToGuest, ToHost};
use guest::protocol::{CREDIT_WINDOW_BYTES, Decoder, Hello, MAX_DATA_BYTES, encode};

/// No test waits longer than this for a frame.
pub(crate) const PATIENCE: Duration = Duration::from_secs(20);

pub(crate) const UID: u32 = 61_234;

pub(crate) struct Channel {
    pub(crate) child: Child,
    pub(crate) workspace: tempfile::TempDir,
    stdin: Option<ChildStdin>,
    frames: Receiver<ToHost>,
    next_stream: u32,
    pub(crate) hello: Hello,
}

/// Everything one command did.
#[derive(Debug, Default)]
pub(crate) struct Outcome {
    pub(crate) pid: u32,
    pub(crate) stdout: Vec<u8>,
    pub(crate) stderr: Vec<u8>,
    pub(crate) exited: Option<Exited>,
    pub(crate) start_failed: Option<(i32, i32, String)>,
    pub(crate) stdin_broken: Option<u64>,
}

impl Outcome {
    pub(crate) fn exited(&self) -> Exited {
        self.exited.unwrap_or_else(|| panic!("it never ran: {self:?}"))
    }

    pub(crate) fn code(&self) -> ExitStatus {
        self.exited().status
    }

    pub(crate) fn stdout_text(&self) -> &str {
        std::str::from_utf8(&self.stdout).unwrap()
    }
}

pub(crate) fn command(argv: &[&str]) -> StartCommand {
    StartCommand {
        argv: argv.iter().map(|arg| arg.as_bytes().to_vec()).collect(),
        cwd: Vec::new(),
        env: vec![(b"PATH".to_vec(), b"/usr/local/bin:/usr/bin:/bin".to_vec())],
        uid: UID,
        gid: UID,
        rlimits: Rlimits { nofile: Some(1024), fsize: None, nproc: None },
        oom_score_adj: 1000,
        stdin: false,
        background: false,
    }
}

pub(crate) fn shell(script: &str) -> StartCommand {
    command(&["sh", "-c", script])
}

impl Channel {
    pub(crate) fn open() -> Self {
        let workspace = tempfile::tempdir().unwrap();
        open_to_all(workspace.path());
        Self::open_on(PathBuf::from(env!("CARGO_BIN_EXE_guest")), workspace)
    }

    #[expect(clippy::disallowed_methods, reason = "the test plays the container engine")]
    fn open_on(binary: PathBuf, workspace: tempfile::TempDir) -> Self {
        let mut child = std::process::Command::new(binary)
            .arg("spawn")
            .arg("--workspace")
            .arg(workspace.path())
            .env_clear()
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let stdin = child.stdin.take();
        let mut stdout = child.stdout.take().unwrap();
        let (sender, frames) = channel();
        std::thread::spawn(move || {
            let mut decoder = Decoder::<ToHost>::new();
            let mut buffer = vec![0; 64 * 1024];
            loop {
                let length = stdout.read(&mut buffer).unwrap();
                if length == 0 {
                    decoder.finish().unwrap();
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
        let mut channel = Self { child, workspace, stdin, frames, next_stream: 0, hello: Hello::host() };
        channel.send(&ToGuest::Hello(Hello::host()));
        let ToHost::Hello(hello) = channel.receive() else { panic!("the first frame is not a hello") };
        channel.hello = hello;
        channel
    }

    pub(crate) fn path(&self) -> &Path {
        self.workspace.path()
    }

    pub(crate) fn send(&mut self, frame: &ToGuest) {
        let mut bytes = Vec::new();
        encode(frame, &mut bytes);
        self.stdin.as_mut().unwrap().write_all(&bytes).unwrap();
    }

    pub(crate) fn send_raw(&mut self, bytes: &[u8]) {
        // A guest that objects to the first bytes may be gone before the last.
        let _ = self.stdin.as_mut().unwrap().write_all(bytes);
    }

    pub(crate) fn close_stdin(&mut self) {
        self.stdin = None;
    }

    pub(crate) fn receive(&mut self) -> ToHost {
        self.frames.recv_timeout(PATIENCE).expect("no frame in time")
    }

    /// Waits until the guest has closed its output.
    pub(crate) fn wait_for_end(&mut self) {
        loop {
            match self.frames.recv_timeout(PATIENCE) {
                Ok(_) => {}
                Err(RecvTimeoutError::Disconnected) => return,
                Err(RecvTimeoutError::Timeout) => panic!("the guest did not end"),
            }
        }
    }

    pub(crate) fn start(&mut self, command: StartCommand) -> u32 {
        self.next_stream += 1;
        let stream = self.next_stream;
        self.send(&ToGuest::Start { stream, command });
        stream
    }

    pub(crate) fn run(&mut self, command: StartCommand) -> Outcome {
        self.run_with(command, None)
    }

    /// Runs one command to its end; `stdin` is sent under credit and closed.
    pub(crate) fn run_with(&mut self, mut command: StartCommand, stdin: Option<&[u8]>) -> Outcome {
        command.stdin = stdin.is_some();
        let stream = self.start(command);
        let mut pieces: VecDeque<&[u8]> = stdin.unwrap_or_default().chunks(MAX_DATA_BYTES).collect();
        let mut credit = CREDIT_WINDOW_BYTES as usize;
        let mut must_close = stdin.is_some();
        let mut outcome = Outcome::default();
        let mut open_outputs = 2;
        loop {
            while let Some(piece) = pieces.front().filter(|piece| piece.len() <= credit) {
                credit -= piece.len();
                self.send(&ToGuest::StdinData { stream, bytes: piece.to_vec() });
                pieces.pop_front();
            }
            if must_close && pieces.is_empty() {
                must_close = false;
                self.send(&ToGuest::StdinClose { stream });
            }
            match self.receive() {
                ToHost::Started { pid, .. } => outcome.pid = pid,
                ToHost::StartFailed { exit_code, errno, message, .. } => {
                    outcome.start_failed = Some((exit_code, errno, message));
                    return outcome;
                }
                ToHost::Data { output, bytes, .. } => {
                    assert_ne!(outcome.pid, 0, "data before Started");
                    let sink = match output {
                        Output::Stdout => &mut outcome.stdout,
                        Output::Stderr => &mut outcome.stderr,
                    };
                    sink.extend_from_slice(&bytes);
                    let bytes = u32::try_from(bytes.len()).unwrap();
                    self.send(&ToGuest::Credit { stream, output, bytes });
                }
                ToHost::OutputClosed { output, total_bytes, .. } => {
                    let sink = match output {
                        Output::Stdout => &outcome.stdout,
                        Output::Stderr => &outcome.stderr,
                    };
                    assert_eq!(sink.len() as u64, total_bytes, "every byte goes before the close");
                    open_outputs -= 1;
                }
                ToHost::StdinCredit { bytes, .. } => credit += bytes as usize,
                ToHost::StdinBroken { delivered_bytes, .. } => {
                    assert_eq!(outcome.stdin_broken, None, "said once");
                    outcome.stdin_broken = Some(delivered_bytes);
                    pieces.clear();
                }
                ToHost::Exited { exited, .. } => outcome.exited = Some(exited),
                ToHost::Counters(_) => {}
                frame @ (ToHost::Hello(_) | ToHost::Pong { .. } | ToHost::Nonce(_)) => {
                    panic!("unexpected {frame:?}")
                }
            }
            if open_outputs == 0 && outcome.exited.is_some() {
                return outcome;
            }
        }
    }
}

impl Drop for Channel {
    fn drop(&mut self) {
        self.stdin = None;
        let _ = self.child.wait();
    }
}

/// Lets the command's user in.
pub(crate) fn open_to_all(path: &Path) {
    use std::os::unix::fs::PermissionsExt;
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o777)).unwrap();
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
    let Ok(stat) = std::fs::read_to_string(format!("/proc/{pid}/stat")) else { return false };
    let state = stat.rsplit(')').next().unwrap().trim_start().chars().next();
    !matches!(state, Some('Z' | 'X'))
}
