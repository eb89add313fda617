//! The looks at a workspace of 100,000 files in which nothing has changed, beside `find -printf` on the same tree: the
//! change scan after every command (`Diff`) and the quota's look (`Measure`). Prints one JSON object; medians, smallest
//! and largest in microseconds, and the bytes of file contents that one change scan read. Needs root, as the guest does.
//!
//! `cargo build --release -p guest --bin guest && cargo run --release -p guest --example scan_bench [FILES] [ROUNDS]`

use std::io::{Read as _, Write as _};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::Instant;

use guest::protocol::files::{Quota, Request, Response};
use guest::protocol::{Decoder, Hello, encode};

/// Files in one directory.
const DIRECTORY_FILES: usize = 100;
/// What the change scan compares, as `find` says it.
const FORMAT: &str = "%i %n %m %s %b %T@ %C@ %p\\n";

type Failure = Box<dyn std::error::Error>;

struct Guest {
    child: Child,
    stdin: ChildStdin,
    stdout: ChildStdout,
    decoder: Decoder<Response>,
    last_id: u32,
}

impl Guest {
    fn start(workspace: &Path) -> Result<Self, Failure> {
        let own = std::env::current_exe()?;
        let folder = own.parent().and_then(Path::parent).ok_or("this program lies nowhere")?;
        let mut child = command(&folder.join("guest"))
            .args(["files", "--workspace"])
            .arg(workspace)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        let stdin = child.stdin.take().ok_or("no input")?;
        let stdout = child.stdout.take().ok_or("no output")?;
        let mut guest = Self { child, stdin, stdout, decoder: Decoder::new(), last_id: 0 };
        guest.send(&Request::Hello(Hello::host()))?;
        guest.receive()?;
        let quota = Quota { bytes_max: 4 << 30, inodes_max: 1_000_000 };
        guest.ask(|id| Request::Init { id, uid: 61_000, gid: 61_000, quota, nonce: b"bench".to_vec() })?;
        Ok(guest)
    }

    fn send(&mut self, request: &Request) -> Result<(), Failure> {
        let mut bytes = Vec::new();
        encode(request, &mut bytes);
        Ok(self.stdin.write_all(&bytes)?)
    }

    fn receive(&mut self) -> Result<Response, Failure> {
        let mut buffer = [0; 64 * 1024];
        loop {
            if let Some(frame) = self.decoder.next_frame()? {
                return Ok(frame);
            }
            match self.stdout.read(&mut buffer)? {
                0 => return Err("the guest has ended".into()),
                length => self.decoder.feed(&buffer[..length]),
            }
        }
    }

    /// The final frame; nothing may come before it.
    fn ask(&mut self, request: impl FnOnce(u32) -> Request) -> Result<Response, Failure> {
        self.last_id += 1;
        self.send(&request(self.last_id))?;
        let answer = self.receive()?;
        match answer {
            Response::Error { code, errno, .. } => Err(format!("{code:?} {errno}").into()),
            answer if answer.is_final() => Ok(answer),
            other => Err(format!("unexpected {other:?}").into()),
        }
    }

    /// Bytes that it has read so far, from its channel or from files.
    fn read_bytes(&self) -> Result<u64, Failure> {
        let text = std::fs::read_to_string(format!("/proc/{}/io", self.child.id()))?;
        let line = text.lines().find_map(|line| line.strip_prefix("rchar: ")).ok_or("no rchar")?;
        Ok(line.parse()?)
    }
}

fn make_tree(root: &Path, files: usize) -> Result<(), Failure> {
    for directory in 0..files.div_ceil(DIRECTORY_FILES) {
        let directory = root.join(format!("directory-{directory:04}"));
        std::fs::create_dir(&directory)?;
        for file in 0..DIRECTORY_FILES {
            std::fs::write(directory.join(format!("file-{file:03}.txt")), b"some content")?;
        }
    }
    Ok(())
}

#[expect(clippy::disallowed_methods, reason = "a benchmark starts the programs that it compares")]
fn command(program: &Path) -> Command {
    Command::new(program)
}

fn micros(work: impl FnOnce() -> Result<(), Failure>) -> Result<u128, Failure> {
    let started = Instant::now();
    work()?;
    Ok(started.elapsed().as_micros())
}

fn figures(mut runs: Vec<u128>) -> String {
    runs.sort_unstable();
    let at = |index: usize| runs.get(index).copied().unwrap_or(0);
    let (median, max) = (at(runs.len() / 2), at(runs.len().saturating_sub(1)));
    format!("{{\"median\":{median},\"min\":{},\"max\":{max}}}", at(0))
}

fn main() -> Result<(), Failure> {
    let mut counts = std::env::args().skip(1).map(|word| word.parse::<usize>());
    let files = counts.next().transpose()?.unwrap_or(100_000);
    let rounds = counts.next().transpose()?.unwrap_or(11);
    let root = tempfile::tempdir()?;
    make_tree(root.path(), files)?;
    let mut guest = Guest::start(root.path())?;
    let inodes = (files + files.div_ceil(DIRECTORY_FILES)) as u64;
    let (mut diff, mut measure, mut find) = (Vec::new(), Vec::new(), Vec::new());
    let mut content_bytes = 0;
    // The first round warms up.
    for round in 0..=rounds {
        let found = micros(|| {
            let find = &mut command(Path::new("find"));
            let status = find.arg(root.path()).args(["-printf", FORMAT]).stdout(Stdio::null()).status()?;
            if status.success() { Ok(()) } else { Err("find failed".into()) }
        })?;
        let before = guest.read_bytes()?;
        let compared = micros(|| {
            let (max_changes, max_path_bytes) = (1_000, 100_000);
            match guest.ask(|id| Request::Diff { id, max_changes, max_path_bytes })? {
                Response::DiffEnd { usage, total_changes: 0, .. } if usage.inodes == inodes => Ok(()),
                other => Err(format!("not what is there: {other:?}").into()),
            }
        })?;
        // The request itself and the nonce are read too; a single content would be more.
        let read = guest.read_bytes()? - before;
        content_bytes = content_bytes.max(if read < 64 { 0 } else { read });
        let measured = micros(|| match guest.ask(|id| Request::Measure { id, stop: Quota::UNBOUNDED })? {
            Response::Measured { usage, complete: true, .. } if usage.inodes == inodes => Ok(()),
            other => Err(format!("not what is there: {other:?}").into()),
        })?;
        if round > 0 {
            find.push(found);
            diff.push(compared);
            measure.push(measured);
        }
    }
    drop(guest.stdin);
    guest.child.wait()?;
    let (diff, measure, find) = (figures(diff), figures(measure), figures(find));
    println!(
        "{{\"files\":{files},\"rounds\":{rounds},\"diff_us\":{diff},\"measure_us\":{measure},\"find_us\":{find},\"content_bytes\":{content_bytes}}}"
    );
    Ok(())
}
