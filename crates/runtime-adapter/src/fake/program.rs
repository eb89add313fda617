//! The fake's programs. Each does what its namesake does, as far as tests need it; `exhaust memory|pids` stands for code
//! that runs into that limit.

use std::collections::BTreeMap;
use std::future::Future;
use std::pin::Pin;
use std::time::Duration;

use events::event::command::KillReason;
use events::time::Timestamp;
use tokio::io::AsyncReadExt;

use super::environment::Shared;
use super::shell::{Joint, Redirect, Statement, parse};
use super::tree::Node;
use crate::ports::{OutputStream, WorkspaceError};
use crate::quota::Allowance;

/// How a program's run was cut short.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stop {
    /// `exit`, or its own signal.
    Exit(i32),
    /// It ran into a limit of the environment.
    Limit(KillReason),
    /// Nothing of that name can be started.
    NotFound,
}

/// Receives output; false when nothing more may be produced.
pub(super) type Emit<'a> = &'a (dyn Fn(OutputStream, Vec<u8>) -> Result<(), Stop> + Sync);

/// Standard input as the program reads it, with the count of bytes taken.
pub(super) struct Input {
    pub(super) source: Pin<Box<dyn tokio::io::AsyncRead + Send>>,
    pub(super) taken_bytes: u64,
    pub(super) failed: bool,
}

impl Input {
    async fn read_all(&mut self) -> Vec<u8> {
        let mut bytes = Vec::new();
        self.failed |= self.source.read_to_end(&mut bytes).await.is_err();
        self.taken_bytes += bytes.len() as u64;
        bytes
    }
}

/// Everything a program can reach.
pub(super) struct Process<'a> {
    pub(super) shared: &'a Shared,
    pub(super) cwd: Vec<u8>,
    pub(super) env: &'a BTreeMap<String, String>,
    pub(super) input: &'a mut Input,
    pub(super) emit: Emit<'a>,
    pub(super) allowance: &'a Allowance,
    pub(super) now: Timestamp,
    /// Processes left running in the background.
    pub(super) left_running: u32,
}

impl Process<'_> {
    /// Runs argv to its end.
    pub(super) async fn run(&mut self, argv: &[String]) -> Result<i32, Stop> {
        let name = program_name(&argv[0]);
        if matches!(name, "sh" | "bash") && argv.get(1).is_some_and(|option| option == "-c") {
            let script = argv.get(2).map_or("", String::as_str);
            return match self.script(script).await {
                Err(Stop::Exit(code)) => Ok(code),
                Err(Stop::NotFound) => Ok(127),
                other => other,
            };
        }
        let statement = Statement {
            joint: Joint::Always,
            words: argv.to_vec(),
            stdout: Redirect::Stdout,
            stderr: Redirect::Stderr,
            left_running: false,
        };
        self.statement(&statement).await
    }

    fn script<'b>(
        &'b mut self,
        script: &'b str,
    ) -> Pin<Box<dyn Future<Output = Result<i32, Stop>> + Send + 'b>> {
        Box::pin(async move {
            let statements = match parse(script, &|name| self.env.get(name).cloned().unwrap_or_default()) {
                Ok(statements) => statements,
                Err(error) => {
                    (self.emit)(OutputStream::Stderr, format!("sh: {}\n", error.0).into_bytes())?;
                    return Ok(2);
                }
            };
            let mut code = 0;
            for statement in &statements {
                let due = match statement.joint {
                    Joint::Always => true,
                    Joint::IfOk => code == 0,
                    Joint::IfFailed => code != 0,
                };
                if !due {
                    continue;
                }
                if statement.left_running {
                    self.left_running += 1;
                    code = 0;
                    continue;
                }
                code = match self.statement(statement).await {
                    Err(Stop::NotFound) => {
                        let name = &statement.words[0];
                        self.write(&statement.stderr, format!("sh: {name}: not found\n").into_bytes())?;
                        127
                    }
                    other => other?,
                };
            }
            Ok(code)
        })
    }

    async fn statement(&mut self, statement: &Statement) -> Result<i32, Stop> {
        for target in [&statement.stdout, &statement.stderr] {
            if let Redirect::File { append: false, .. } = target
                && self.truncate(target).is_err()
            {
                return Ok(2);
            }
        }
        let words = &statement.words[usize::from(statement.words[0] == "exec")..];
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        let mut stdout = Vec::new();
        let to_file = matches!(statement.stdout, Redirect::File { .. });
        let outcome = match words.as_slice() {
            ["head", "-c", count, "/dev/zero"] if to_file => {
                // More than the workspace takes never arrives there.
                let most = self.allowance.ceiling().bytes.saturating_add(1);
                let size = count.parse::<u64>().unwrap_or(0).min(most);
                stdout.resize(usize::try_from(size).unwrap_or(usize::MAX), 0);
                Ok(0)
            }
            words => self.builtin(words, &mut stdout).await,
        };
        if !stdout.is_empty() {
            self.write(&statement.stdout, stdout)?;
        }
        self.admit()?;
        match outcome {
            Ok(code) => Ok(code),
            Err(Failure::Stop(stop)) => Err(stop),
            Err(Failure::Message(message)) => {
                self.write(&statement.stderr, format!("{message}\n").into_bytes())?;
                Ok(1)
            }
        }
    }

    /// What a monitor would see.
    fn admit(&self) -> Result<(), Stop> {
        let used = self.shared.tree().used();
        let is_over = self.allowance.excess(Some(used), Duration::ZERO).is_some();
        if is_over { Err(Stop::Limit(KillReason::Disk)) } else { Ok(()) }
    }

    async fn builtin(&mut self, words: &[&str], stdout: &mut Vec<u8>) -> Result<i32, Failure> {
        let Some(name) = words.first().map(|word| program_name(word)) else { return Ok(0) };
        let arguments = &words[1..];
        match (name, arguments) {
            ("true" | ":", _) => {}
            ("false", _) => return Ok(1),
            ("exit", []) => return Err(Stop::Exit(0).into()),
            ("exit", [code, ..]) => return Err(Stop::Exit(code.parse().unwrap_or(2)).into()),
            ("kill", ["-9" | "-KILL", "$$"]) => return Err(Stop::Exit(137).into()),
            ("kill", ["-11" | "-SEGV", "$$"]) => return Err(Stop::Exit(139).into()),
            ("echo", ["-n", rest @ ..]) => stdout.extend_from_slice(rest.join(" ").as_bytes()),
            ("echo", rest) => stdout.extend_from_slice(format!("{}\n", rest.join(" ")).as_bytes()),
            ("printf", ["%s", text]) => stdout.extend_from_slice(text.as_bytes()),
            ("printf", [format]) => stdout.extend_from_slice(&unescaped(format)),
            ("pwd", []) => {
                stdout.extend_from_slice(b"/workspace");
                if !self.cwd.is_empty() {
                    stdout.push(b'/');
                    stdout.extend_from_slice(&self.cwd);
                }
                stdout.push(b'\n');
            }
            ("env", []) => {
                for (name, value) in self.env {
                    stdout.extend_from_slice(format!("{name}={value}\n").as_bytes());
                }
            }
            ("cat", []) => stdout.extend(self.input.read_all().await),
            ("cat", paths) => {
                for path in paths {
                    let bytes = self.shared.tree().read(&self.resolve(path)?).map(<[u8]>::to_vec);
                    stdout.extend(bytes.map_err(|error| Failure::at("cat", path, &error))?);
                }
            }
            ("head", ["-c", count, "/dev/zero"]) => return self.flood(count.parse().unwrap_or(0)),
            ("sleep", [seconds]) => {
                let seconds = seconds.parse().map_err(|_| Failure::Message("sleep: bad time".into()))?;
                tokio::time::sleep(Duration::try_from_secs_f64(seconds).unwrap_or(Duration::MAX)).await;
            }
            ("wait", []) if self.left_running > 0 => std::future::pending::<()>().await,
            ("wait", []) => {}
            ("write", [path, text]) => self.store(path, text.as_bytes().to_vec())?,
            ("rm", ["-f" | "-r" | "-rf", paths @ ..]) => {
                for path in paths {
                    let _absent_is_fine = self.shared.tree().remove(&self.resolve(path)?);
                }
            }
            ("rm", paths) => {
                for path in paths {
                    let removed = self.shared.tree().remove(&self.resolve(path)?);
                    removed.map_err(|error| Failure::at("rm", path, &error))?;
                }
            }
            ("mkdir", ["-p", path] | [path]) => {
                let path = self.resolve(path)?;
                let mut tree = self.shared.tree();
                tree.make_parents(&path, self.now).map_err(|error| Failure::at("mkdir", "", &error))?;
                tree.put(&path, Node::Directory, false, self.now);
            }
            ("ln", ["-s", target, path]) => self.place(path, Node::Symlink(target.as_bytes().to_vec()))?,
            ("mkfifo", [path]) => self.place(path, Node::Fifo)?,
            ("exhaust", ["memory"]) => return Err(Stop::Limit(KillReason::Memory).into()),
            ("exhaust", ["pids"]) => return Err(Stop::Limit(KillReason::Pids).into()),
            _ if KNOWN.contains(&name) => return Err(Failure::Message(format!("{name}: bad usage"))),
            _ => return Err(Stop::NotFound.into()),
        }
        Ok(0)
    }

    fn flood(&self, mut bytes: usize) -> Result<i32, Failure> {
        while bytes > 0 {
            let piece = bytes.min(32 * 1024);
            (self.emit)(OutputStream::Stdout, vec![0; piece])?;
            bytes -= piece;
        }
        Ok(0)
    }

    fn place(&self, path: &str, node: Node) -> Result<(), Failure> {
        let path = self.resolve(path)?;
        self.shared.tree().put(&path, node, false, self.now);
        Ok(())
    }

    fn store(&self, path: &str, bytes: Vec<u8>) -> Result<(), Failure> {
        let written = self.shared.tree().write(&self.resolve(path)?, bytes, false, self.now);
        written.map(|_| ()).map_err(|error| Failure::at("write", path, &error))
    }

    fn truncate(&self, target: &Redirect) -> Result<(), Failure> {
        match target {
            Redirect::File { path, .. } => self.store(path, Vec::new()),
            Redirect::Stdout | Redirect::Stderr => Ok(()),
        }
    }

    fn write(&self, target: &Redirect, bytes: Vec<u8>) -> Result<(), Stop> {
        match target {
            Redirect::Stdout => (self.emit)(OutputStream::Stdout, bytes),
            Redirect::Stderr => (self.emit)(OutputStream::Stderr, bytes),
            Redirect::File { path, .. } => {
                let Ok(place) = self.resolve(path) else { return Ok(()) };
                let mut tree = self.shared.tree();
                let mut all = tree.read(&place).map(<[u8]>::to_vec).unwrap_or_default();
                all.extend_from_slice(&bytes);
                // A path that cannot be written was reported when it was truncated.
                let _ = tree.write(&place, all, false, self.now);
                Ok(())
            }
        }
    }

    /// A path of the program as a path of the workspace; nothing else exists here.
    fn resolve(&self, path: &str) -> Result<Vec<u8>, Failure> {
        let (mut parts, rest): (Vec<&[u8]>, _) = match path.strip_prefix("/workspace/") {
            Some(rest) => (Vec::new(), rest),
            None if path.starts_with('/') => {
                return Err(Failure::Message(format!("{path}: No such file or directory")));
            }
            None => (self.cwd.split(|b| *b == b'/').filter(|part| !part.is_empty()).collect(), path),
        };
        for part in rest.split('/') {
            match part {
                "" | "." => {}
                ".." => drop(parts.pop()),
                part => parts.push(part.as_bytes()),
            }
        }
        Ok(parts.join(&b'/'))
    }
}

/// Programs whose arguments can be wrong.
const KNOWN: [&str; 12] =
    ["cat", "head", "sleep", "wait", "write", "mkdir", "ln", "mkfifo", "kill", "printf", "pwd", "env"];

enum Failure {
    Stop(Stop),
    Message(String),
}

impl Failure {
    fn at(program: &str, path: &str, error: &WorkspaceError) -> Self {
        Self::Message(format!("{program}: {path}: {error}"))
    }
}

impl From<Stop> for Failure {
    fn from(stop: Stop) -> Self {
        Self::Stop(stop)
    }
}

/// The name without the directories that the image keeps programs in.
fn program_name(path: &str) -> &str {
    ["/bin/", "/usr/bin/", "/usr/local/bin/"]
        .iter()
        .find_map(|directory| path.strip_prefix(directory))
        .unwrap_or(path)
}

/// `\n`, `\t`, `\\` and three octal digits, as `printf` reads its format.
fn unescaped(format: &str) -> Vec<u8> {
    let bytes = format.as_bytes();
    let mut out = Vec::new();
    let mut index = 0;
    while index < bytes.len() {
        if bytes[index] != b'\\' || index + 1 == bytes.len() {
            out.push(bytes[index]);
            index += 1;
            continue;
        }
        let octal = bytes.get(index + 1..index + 4).and_then(|digits| {
            let text = std::str::from_utf8(digits).ok()?;
            u8::from_str_radix(text, 8).ok()
        });
        if let Some(byte) = octal {
            out.push(byte);
            index += 4;
            continue;
        }
        match bytes[index + 1] {
            b'n' => out.push(b'\n'),
            b't' => out.push(b'\t'),
            other => out.push(other),
        }
        index += 2;
    }
    out
}
