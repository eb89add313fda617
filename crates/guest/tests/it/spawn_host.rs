//! The host's side of a spawn channel, as small as it can be: one command at a time unless a test drives the
//! frames itself.

use std::collections::VecDeque;
use std::ops::{Deref, DerefMut};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use guest::protocol::spawn::{ExitStatus, Exited, Output, Rlimits, StartCommand, ToGuest, ToHost};
use guest::protocol::{CREDIT_WINDOW_BYTES, Hello, MAX_DATA_BYTES};

use crate::wire::Wire;

pub(crate) const UID: u32 = 61_234;

pub(crate) struct Channel {
    wire: Wire<ToHost>,
    workspace: tempfile::TempDir,
    next_stream: u32,
    pub(crate) hello: Hello,
}

impl Deref for Channel {
    type Target = Wire<ToHost>;
    fn deref(&self) -> &Self::Target {
        &self.wire
    }
}

impl DerefMut for Channel {
    fn deref_mut(&mut self) -> &mut Self::Target {
        &mut self.wire
    }
}

/// Everything one command did.
#[derive(Debug, Default)]
pub(crate) struct Outcome {
    pub(crate) started: bool,
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
        Self::open_behind(&[])
    }

    /// Through a program that executes its arguments.
    pub(crate) fn open_behind(before: &[&str]) -> Self {
        let workspace = tempfile::tempdir().unwrap();
        std::fs::set_permissions(workspace.path(), std::fs::Permissions::from_mode(0o777)).unwrap();
        let mut wire = Wire::open_behind(before, "spawn", workspace.path());
        wire.send(&ToGuest::Hello(Hello::host()));
        let ToHost::Hello(hello) = wire.receive() else { panic!("the first frame is not a hello") };
        Self { wire, workspace, next_stream: 0, hello }
    }

    pub(crate) fn path(&self) -> &Path {
        self.workspace.path()
    }

    pub(crate) fn start(&mut self, command: StartCommand) -> u32 {
        let stream = self.new_stream();
        self.send(&ToGuest::Start { stream, command });
        stream
    }

    /// The number of the next command's stream.
    pub(crate) fn new_stream(&mut self) -> u32 {
        self.next_stream += 1;
        self.next_stream
    }

    /// The next frame that is not about counters: those of the machine's own tree rise all the time.
    pub(crate) fn receive(&mut self) -> ToHost {
        loop {
            match self.wire.receive() {
                ToHost::Counters(_) => {}
                frame => return frame,
            }
        }
    }

    /// The next frame.
    pub(crate) fn receive_any(&mut self) -> ToHost {
        self.wire.receive()
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
                ToHost::Started { .. } => {
                    assert!(!std::mem::replace(&mut outcome.started, true), "said once");
                }
                ToHost::StartFailed { exit_code, errno, message, .. } => {
                    outcome.start_failed = Some((exit_code, errno, message));
                    return outcome;
                }
                ToHost::Data { output, bytes, .. } => {
                    assert!(outcome.started, "data before Started");
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
                frame @ (ToHost::Hello(_)
                | ToHost::Counters(_)
                | ToHost::Pong { .. }
                | ToHost::Nonce(_)
                | ToHost::Measured { .. }) => {
                    panic!("unexpected {frame:?}")
                }
            }
            if open_outputs == 0 && outcome.exited.is_some() {
                return outcome;
            }
        }
    }
}
