//! From fork to exec: everything that turns a copy of the trusted process into the untrusted command.
//!
//! Order matters. What needs privilege comes first (bounding set and groups before the order, limits, OOM score and ids
//! after it), then everything is done as the command's own user: the working directory is walked with its permissions, and
//! the program is found with them.

use std::borrow::Cow;
use std::convert::Infallible;
use std::ffi::{CStr, CString};
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;

use guest::protocol::spawn::StartCommand;
use rustix::fs::{CWD, FileType, Mode, OFlags, fstat, openat};
use rustix::io::Errno;
use rustix::process::{Resource, Rlimit, fchdir, getrlimit, setrlimit, setsid, umask};
use rustix::thread::{CapabilitySet, CapabilitySets};

/// Where a bare program name is looked up; the workspace is never one of them.
const PROGRAM_DIRS: [&str; 3] = ["/usr/local/bin", "/usr/bin", "/bin"];

/// What a child that cannot become its program says.
#[derive(Debug)]
pub(super) struct Refusal {
    /// 127 not found, 126 anything else.
    pub(super) exit_code: i32,
    pub(super) errno: i32,
    pub(super) message: Cow<'static, str>,
}

/// 126 with a message and whatever the system answered.
pub(super) fn refuse(message: &'static str) -> impl Fn(Errno) -> Refusal {
    move |errno| Refusal { exit_code: 126, errno: errno.raw_os_error(), message: Cow::Borrowed(message) }
}

/// The same error number in the other crate's type.
pub(super) fn from_nix(errno: nix::errno::Errno) -> Errno {
    Errno::from_raw_os_error(errno as i32)
}

/// What must be written to for the OOM score; `None` where the file is missing (gVisor; the memory limit holds without it).
pub(super) struct OomScore(Option<OwnedFd>);

/// Everything that does not depend on the command, so that it is done before there is one.
pub(super) fn prepare() -> Result<OomScore, Refusal> {
    setsid().map_err(refuse("cannot start a session"))?;
    crate::sys::close_on_exec_from(3);
    let flags = OFlags::WRONLY | OFlags::CLOEXEC;
    let oom_score = openat(CWD, "/proc/self/oom_score_adj", flags, Mode::empty()).ok();
    crate::sys::drop_bounding_set().map_err(from_nix).map_err(refuse("cannot drop privileges"))?;
    rustix::thread::set_thread_groups(&[]).map_err(refuse("cannot drop privileges"))?;
    umask(Mode::from_raw_mode(0o022));
    crate::sys::reset_signals().map_err(from_nix).map_err(refuse("cannot reset signals"))?;
    rustix::thread::set_no_new_privs(true).map_err(refuse("cannot forbid new privileges"))?;
    Ok(OomScore(oom_score))
}

/// Becomes the command. Returns only when it cannot. The streams are standard output, standard error and, unless it stays
/// `/dev/null`, standard input.
pub(super) fn become_command(
    command: &StartCommand,
    workspace: &Path,
    streams: &[OwnedFd],
    oom_score: &OomScore,
) -> Result<Infallible, Refusal> {
    take_streams(command, streams).map_err(refuse("cannot set up standard streams"))?;
    set_limits(command).map_err(refuse("cannot set resource limits"))?;
    if let OomScore(Some(file)) = oom_score {
        // Not writable everywhere (gVisor).
        let _ = rustix::io::write(file, command.oom_score_adj.to_string().as_bytes());
    }
    drop_privileges(command).map_err(refuse("cannot drop privileges"))?;
    enter(workspace, &command.cwd)?;
    exec(command)
}

fn take_streams(command: &StartCommand, streams: &[OwnedFd]) -> Result<(), Errno> {
    let (stdout, stderr, stdin) = match (streams, command.stdin) {
        ([stdout, stderr], false) => (stdout, stderr, None),
        ([stdout, stderr, stdin], true) => (stdout, stderr, Some(stdin)),
        _ => return Err(Errno::BADF),
    };
    rustix::stdio::dup2_stdout(stdout)?;
    rustix::stdio::dup2_stderr(stderr)?;
    match stdin {
        Some(stdin) => rustix::stdio::dup2_stdin(stdin),
        // One of its own: what it sets on an open file reaches nobody else.
        None => rustix::stdio::dup2_stdin(openat(
            CWD,
            "/dev/null",
            OFlags::RDWR | OFlags::CLOEXEC,
            Mode::empty(),
        )?),
    }
}

fn set_limits(command: &StartCommand) -> Result<(), Errno> {
    let limits = command.rlimits;
    let wanted = [
        (Resource::Core, Some(0)),
        (Resource::Nofile, limits.nofile),
        (Resource::Fsize, limits.fsize),
        (Resource::Nproc, limits.nproc),
    ];
    for (resource, value) in wanted {
        let Some(value) = value else { continue };
        // Without SYS_RESOURCE a hard limit can only fall.
        let value = getrlimit(resource).maximum.map_or(value, |hard| hard.min(value));
        setrlimit(resource, Rlimit { current: Some(value), maximum: Some(value) })?;
    }
    Ok(())
}

fn drop_privileges(command: &StartCommand) -> Result<(), Errno> {
    use rustix::process::{Gid, Uid, getegid, geteuid, getgid, getuid};
    let (uid, gid) = (Uid::from_raw(command.uid), Gid::from_raw(command.gid));
    rustix::thread::set_thread_res_gid(gid, gid, gid)?;
    rustix::thread::set_thread_res_uid(uid, uid, uid)?;
    // Leaving uid 0 cleared permitted, effective and ambient; inheritable (set by older engines) stays.
    let none = CapabilitySet::empty();
    rustix::thread::set_capabilities(
        None,
        CapabilitySets { effective: none, permitted: none, inheritable: none },
    )?;
    let ids_are_set = [getuid(), geteuid()] == [uid; 2] && [getgid(), getegid()] == [gid; 2];
    if ids_are_set { Ok(()) } else { Err(Errno::PERM) }
}

/// Enters a directory below the workspace, one component at a time, following no link. The type is checked
/// on the opened descriptor: under gVisor `O_DIRECTORY | O_NOFOLLOW` together follow a link.
fn enter(workspace: &Path, cwd: &[u8]) -> Result<(), Refusal> {
    let flags = OFlags::PATH | OFlags::CLOEXEC;
    let root = openat(CWD, workspace, flags, Mode::empty()).map_err(refuse("the workspace is missing"))?;
    let mut directory = root;
    if !cwd.is_empty() {
        let path = policy::WorkspacePath::try_new(cwd)
            .map_err(|_| refuse("the working directory is not a workspace path")(Errno::INVAL))?;
        for component in path.components() {
            directory = openat(directory.as_fd(), component, flags | OFlags::NOFOLLOW, Mode::empty())
                .map_err(|errno| match errno {
                    Errno::NOENT => refuse("the working directory does not exist")(errno),
                    Errno::LOOP => refuse("the working directory leads through a symbolic link")(errno),
                    _ => refuse("the working directory cannot be entered")(errno),
                })?;
            let stat = fstat(&directory).map_err(refuse("the working directory cannot be entered"))?;
            match FileType::from_raw_mode(stat.st_mode) {
                FileType::Directory => {}
                FileType::Symlink => {
                    return Err(refuse("the working directory leads through a symbolic link")(Errno::LOOP));
                }
                _ => return Err(refuse("the working directory is not a directory")(Errno::NOTDIR)),
            }
        }
    }
    fchdir(&directory).map_err(refuse("the working directory cannot be entered"))
}

fn exec(command: &StartCommand) -> Result<Infallible, Refusal> {
    // The protocol lets no NUL through; an impossible one is refused like any bad argument.
    let strings =
        |bytes: Vec<u8>| CString::new(bytes).map_err(|_| refuse("an argument holds NUL")(Errno::INVAL));
    let argv: Vec<CString> = command.argv.iter().cloned().map(strings).collect::<Result<_, _>>()?;
    let env: Vec<CString> = command
        .env
        .iter()
        .map(|(name, value)| strings([name, b"=".as_slice(), value].concat()))
        .collect::<Result<_, _>>()?;
    let program = command.argv.first().map(Vec::as_slice).unwrap_or_default();
    if program.starts_with(b"/") {
        return Err(refusal_of(try_exec(&strings(program.to_vec())?, &argv, &env)));
    }
    if program.contains(&b'/') {
        return Err(refuse("the program must be an absolute path or a bare name")(Errno::INVAL));
    }
    let mut answer = Errno::NOENT;
    if !program.is_empty() {
        for directory in PROGRAM_DIRS {
            let path = strings([directory.as_bytes(), b"/", program].concat())?;
            match try_exec(&path, &argv, &env) {
                Errno::NOENT | Errno::NOTDIR => {}
                Errno::ACCESS => answer = Errno::ACCESS,
                other => return Err(refusal_of(other)),
            }
        }
    }
    Err(refusal_of(answer))
}

fn try_exec(path: &CStr, argv: &[CString], env: &[CString]) -> Errno {
    match nix::unistd::execve(path, argv, env) {
        Err(errno) => from_nix(errno),
        Ok(never) => match never {},
    }
}

/// The shells' convention: 127 when there is no such program, 126 when it cannot be run.
fn refusal_of(errno: Errno) -> Refusal {
    let (exit_code, message) = match errno {
        Errno::NOENT | Errno::NOTDIR => (127, "no such program"),
        Errno::ACCESS => (126, "the program is not executable"),
        Errno::NOEXEC => (126, "the program has no known format"),
        Errno::TOOBIG => (126, "arguments and environment are too large for the system"),
        Errno::AGAIN => (126, "no process left for the program"),
        _ => (126, "the program cannot be executed"),
    };
    Refusal { exit_code, errno: errno.raw_os_error(), message: Cow::Borrowed(message) }
}
