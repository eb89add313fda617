//! The only place that starts processes of the container engine's client.
//!
//! By absolute path, with an empty environment and an empty configuration directory, so that nothing of the caller's (proxy
//! settings, contexts, credentials, plug-ins) takes part. Standard error is bounded and read for a closed set of meanings;
//! its text goes no further.

use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::{Arc, mpsc};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt};
use tokio::process::{Child, ChildStderr, ChildStdin, ChildStdout, Command};
use tokio::sync::{Semaphore, SemaphorePermit, oneshot};

use super::cli_error::{CliError, meaning};
use super::private::PrivateFiles;

/// How long one call may take before it is killed.
const CALL_DEADLINE: Duration = Duration::from_secs(60);
/// Most bytes of standard output of one call.
const STDOUT_BYTES_MAX: u64 = 16 * 1024 * 1024;
/// Most bytes of standard error that are looked at.
const STDERR_BYTES_MAX: u64 = 16 * 1024;
/// Calls that run at the same time; the others wait their turn.
const CALLS_MAX: usize = 16;
/// Lets the kernel end a client when the thread that started it is gone (util-linux).
const SETPRIV: &str = "/usr/bin/setpriv";
/// Where the client is looked for, in order.
const CANDIDATES: [&str; 2] = ["/usr/bin/docker", "/usr/local/bin/docker"];

/// The engine's command-line client.
#[derive(Debug)]
pub(super) struct Cli {
    program: PathBuf,
    host: Option<String>,
    private: Arc<PrivateFiles>,
    turns: Semaphore,
}

/// A client process whose standard streams are pipes; killed when dropped.
#[derive(Debug)]
pub(super) struct Piped {
    pub(super) child: Child,
    pub(super) stdin: ChildStdin,
    pub(super) stdout: ChildStdout,
    pub(super) stderr: ChildStderr,
}

impl Cli {
    /// Finds a client that speaks with the engine: the configured one alone, else the first candidate that does.
    ///
    /// # Errors
    /// What the last candidate said; `Start` when none is installed.
    pub(super) async fn find(
        configured: Option<&Path>,
        host: Option<String>,
        private: Arc<PrivateFiles>,
    ) -> Result<Self, CliError> {
        let candidates = match configured {
            Some(path) if path.is_absolute() => vec![path.to_owned()],
            Some(_) => return Err(CliError::Start),
            None => CANDIDATES.iter().map(PathBuf::from).collect(),
        };
        let mut cli = Self { program: PathBuf::new(), host, private, turns: Semaphore::new(CALLS_MAX) };
        let mut last = CliError::Start;
        for program in candidates.into_iter().filter(|path| path.exists()) {
            cli.program = program;
            match cli.run(words(["version", "--format", "{{.Server.APIVersion}}"])).await {
                Ok(_) => return Ok(cli),
                Err(error) => last = error,
            }
        }
        Err(last)
    }

    fn command(&self, arguments: Vec<String>) -> Command {
        self.command_by(None, arguments)
    }

    #[expect(clippy::disallowed_methods, reason = "this is the adapter's one process start")]
    fn command_by(&self, wrapper: Option<&[&str]>, arguments: Vec<String>) -> Command {
        let mut command = match wrapper {
            Some([wrapper, options @ ..]) => {
                let mut command = Command::new(wrapper);
                command.args(options).arg(&self.program);
                command
            }
            _ => Command::new(&self.program),
        };
        command.env_clear().env("DOCKER_CONFIG", self.private.config_dir());
        if let Some(host) = &self.host {
            command.args(["--host", host]);
        }
        command.args(arguments);
        // A group of its own: an interrupt typed at the service's terminal is the service's to handle.
        command.process_group(0).kill_on_drop(true);
        command
    }

    /// Runs one call to its end and gives its standard output.
    ///
    /// # Errors
    /// The closed set of [`CliError`]; `Timeout` after 60 s, when the call was killed.
    pub(super) async fn run(&self, arguments: Vec<String>) -> Result<Vec<u8>, CliError> {
        let _turn = self.turns.acquire().await.map_err(|_| CliError::Start)?;
        self.run_at_once(arguments).await
    }

    /// The same without waiting for a turn: a kill does not queue behind work.
    ///
    /// # Errors
    /// As [`Cli::run`].
    pub(super) async fn run_at_once(&self, arguments: Vec<String>) -> Result<Vec<u8>, CliError> {
        let mut child = self
            .command(arguments)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .map_err(|_| CliError::Start)?;
        let (Some(stdout), Some(stderr)) = (child.stdout.take(), child.stderr.take()) else {
            return Err(CliError::Start);
        };
        let call = async {
            let (out, err) =
                tokio::join!(bounded(stdout, STDOUT_BYTES_MAX), bounded(stderr, STDERR_BYTES_MAX));
            (child.wait().await, out, err)
        };
        let finished = tokio::time::timeout(CALL_DEADLINE, call).await;
        let Ok((status, (out, cut), (err, _))) = finished else {
            // The process is gone or going; there is nothing to learn from a failure here.
            let _ = child.kill().await;
            return Err(CliError::Timeout);
        };
        match status {
            Ok(status) if status.success() && !cut => Ok(out),
            Ok(status) if status.success() => Err(CliError::Other),
            Ok(_) => Err(meaning(&String::from_utf8_lossy(&err))),
            Err(_) => Err(CliError::Start),
        }
    }

    /// The same, as text without the last line end.
    ///
    /// # Errors
    /// As [`Cli::run`]; `Other` when it is not UTF-8.
    pub(super) async fn text(&self, arguments: Vec<String>) -> Result<String, CliError> {
        let text = String::from_utf8(self.run(arguments).await?).map_err(|_| CliError::Other)?;
        Ok(text.trim_end().to_owned())
    }

    /// Starts a long-lived call.
    ///
    /// # Errors
    /// `Start` when the process cannot be started.
    pub(super) fn open(&self, arguments: Vec<String>) -> Result<Piped, CliError> {
        piped(self.command(arguments))
    }

    /// Starts a long-lived call that makes the engine work first: it has a turn as long as what is returned beside it lives.
    ///
    /// # Errors
    /// `Start` when the process cannot be started.
    pub(super) async fn open_in_turn(
        &self,
        arguments: Vec<String>,
    ) -> Result<(Piped, SemaphorePermit<'_>), CliError> {
        let turn = self.turns.acquire().await.map_err(|_| CliError::Start)?;
        Ok((self.open(arguments)?, turn))
    }

    /// Starts a long-lived call that does not notice the end of its standard input: it ends with this process, also by
    /// SIGKILL. The kernel's signal follows the thread that started the client, so one thread lives as long as the client
    /// is wanted. Without util-linux's `setpriv` the client lasts until it next writes.
    ///
    /// # Errors
    /// `Start` when the process or the thread cannot be started.
    pub(super) async fn open_mortal(&self, arguments: Vec<String>) -> Result<(Piped, Life), CliError> {
        let wrapper = [SETPRIV, "--pdeathsig", "KILL"];
        let command = self.command_by(Path::new(SETPRIV).exists().then_some(&wrapper), arguments);
        let runtime = tokio::runtime::Handle::current();
        let (life, ended) = mpsc::channel::<()>();
        let (started, start) = oneshot::channel();
        std::thread::Builder::new()
            .name("engine client".to_owned())
            .spawn(move || {
                let _entered = runtime.enter();
                // Nobody waits any more: the client is dropped and thereby killed.
                let _ = started.send(piped(command));
                // Nothing is ever sent: this is the end of `Life`.
                let _ = ended.recv();
            })
            .map_err(|_| CliError::Start)?;
        let piped = start.await.map_err(|_| CliError::Start)??;
        Ok((piped, Life { _thread: life }))
    }
}

/// Holds the thread of a client from [`Cli::open_mortal`]; dropped, it ends the client.
#[derive(Debug)]
pub(super) struct Life {
    _thread: mpsc::Sender<()>,
}

fn piped(mut command: Command) -> Result<Piped, CliError> {
    let streams = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = streams.spawn().map_err(|_| CliError::Start)?;
    match (child.stdin.take(), child.stdout.take(), child.stderr.take()) {
        (Some(stdin), Some(stdout), Some(stderr)) => Ok(Piped { child, stdin, stdout, stderr }),
        _ => Err(CliError::Start),
    }
}

/// Arguments of one call.
pub(super) fn words<const N: usize>(words: [&str; N]) -> Vec<String> {
    words.map(str::to_owned).into()
}

/// Reads to the end but keeps at most `max` bytes; true when there were more.
async fn bounded(mut source: impl AsyncRead + Unpin, max: u64) -> (Vec<u8>, bool) {
    let mut kept = Vec::new();
    // A read error ends the stream early; the exit status then decides.
    let _ = (&mut source).take(max).read_to_end(&mut kept).await;
    let rest = tokio::io::copy(&mut source, &mut tokio::io::sink()).await;
    (kept, rest.is_ok_and(|bytes| bytes > 0))
}

/// What a long-lived call said on standard error, once it has ended: the last of it. When it says `word`, `heard` is called.
pub(super) async fn spoken(mut stderr: ChildStderr, word: &str, heard: impl Fn()) -> CliError {
    let mut said = Vec::new();
    while let Ok(1..) = stderr.read_buf(&mut said).await {
        if said.windows(word.len()).any(|part| part == word.as_bytes()) {
            heard();
        }
        let kept = usize::try_from(STDERR_BYTES_MAX).unwrap_or(usize::MAX);
        said.drain(..said.len().saturating_sub(kept));
    }
    meaning(&String::from_utf8_lossy(&said))
}
