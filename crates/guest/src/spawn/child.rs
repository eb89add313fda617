//! From an order to a program: everything that turns a process of ours into the untrusted command.
//!
//! Most of it is done by the shim, once and before there is a command: [`Ground::prepare`] gives up what no command of it may
//! have, and every process that the shim starts is born without it. The rest is a [`Plan`], made by the shim from the order,
//! and carried out by the new process, which still shares the shim's memory: it makes system calls and allocates nothing.
//!
//! Order matters. What needs privilege comes first (limits, OOM score, ids), then everything is done as the command's own
//! user: the working directory is walked with its permissions, and the program is found with them. From the change of the
//! user until the exec the process is its user's to kill, but not to look into: it is non-dumpable, as the shim is.

use std::convert::Infallible;
use std::ffi::CString;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;

use guest::protocol::spawn::StartCommand;
use rustix::fs::{CWD, FileType, Mode, OFlags, fstat, openat};
use rustix::io::Errno;
use rustix::process::{
    DumpableBehavior, Gid, Resource, Rlimit, Uid, fchdir, getrlimit, set_dumpable_behavior, setrlimit,
    setsid, umask,
};
use rustix::thread::{CapabilitySet, CapabilitySets};

use crate::sys::Strings;

/// Where a bare program name is looked up; the workspace is never one of them.
const PROGRAM_DIRS: [&str; 3] = ["/usr/local/bin", "/usr/bin", "/bin"];

/// Limits that an order may lower.
const LIMITS: [Resource; 3] = [Resource::Nofile, Resource::Fsize, Resource::Nproc];

/// The file of one's own OOM score.
const OOM_SCORE: &str = "/proc/self/oom_score_adj";

/// What the host says of processes that change their user; missing in kernels that keep them closed whatever anybody says.
const SUID_DUMPABLE: &str = "/proc/sys/fs/suid_dumpable";

/// With this value the new process, which has the command's user and the shim's memory for a moment, could be looked into by
/// another process of that user until it has closed itself again.
fn opens_changed_users(value: &[u8]) -> bool {
    value.trim_ascii() == b"1"
}

/// Why a process cannot become its program.
#[derive(Debug, Clone, Copy)]
pub(super) struct Refusal {
    /// 127 not found, 126 anything else.
    pub(super) exit_code: i32,
    pub(super) errno: i32,
    pub(super) message: &'static str,
}

/// 126 with a message and whatever the system answered.
pub(super) fn refuse(message: &'static str) -> impl Fn(Errno) -> Refusal {
    move |errno| Refusal { exit_code: 126, errno: errno.raw_os_error(), message }
}

/// The same error number in the other crate's type.
pub(super) fn from_nix(errno: nix::errno::Errno) -> Errno {
    Errno::from_raw_os_error(errno as i32)
}

/// What every command of a shim starts from.
pub(super) struct Ground {
    /// `None`: it is missing.
    workspace: Option<OwnedFd>,
    limits: [(Resource, Rlimit); LIMITS.len()],
    /// `None`: unknown.
    oom_score_adj: Option<i32>,
}

impl Ground {
    /// Gives up what no command may have, so far as the shim can do without it, goes where commands begin, and looks at what it
    /// is born with.
    pub(super) fn prepare(workspace: &Path) -> Result<Self, Refusal> {
        if std::fs::read(SUID_DUMPABLE).is_ok_and(|value| opens_changed_users(&value)) {
            return Err(refuse(
                "the host lets processes that change their user be looked into (fs.suid_dumpable = 1)",
            )(Errno::PERM));
        }
        crate::sys::close_on_exec_from(3);
        crate::sys::drop_bounding_set().map_err(from_nix).map_err(refuse("cannot drop privileges"))?;
        drop_inheritable().map_err(refuse("cannot drop privileges"))?;
        rustix::thread::set_thread_groups(&[]).map_err(refuse("cannot drop privileges"))?;
        umask(Mode::from_raw_mode(0o022));
        crate::sys::reset_signals().map_err(from_nix).map_err(refuse("cannot reset signals"))?;
        rustix::thread::set_no_new_privs(true).map_err(refuse("cannot forbid new privileges"))?;
        let no_core = Rlimit { current: Some(0), maximum: Some(0) };
        setrlimit(Resource::Core, no_core).map_err(refuse("cannot set resource limits"))?;
        let oom_score_adj = std::fs::read_to_string(OOM_SCORE).ok();
        let workspace = match openat(CWD, workspace, OFlags::PATH | OFlags::CLOEXEC, Mode::empty()) {
            Err(Errno::NOENT | Errno::NOTDIR) => None,
            opened => Some(opened.map_err(refuse("cannot open the workspace"))?),
        };
        if let Some(workspace) = &workspace {
            fchdir(workspace).map_err(refuse("cannot enter the workspace"))?;
        }
        Ok(Self {
            workspace,
            limits: LIMITS.map(|resource| (resource, getrlimit(resource))),
            oom_score_adj: oom_score_adj.and_then(|text| text.trim().parse().ok()),
        })
    }
}

/// A program that is executed gets what is inheritable only if its file says so; set by older engines.
fn drop_inheritable() -> Result<(), Errno> {
    let sets = rustix::thread::capabilities(None)?;
    rustix::thread::set_capabilities(None, CapabilitySets { inheritable: CapabilitySet::empty(), ..sets })
}

/// All that the new process needs, made before it exists.
pub(super) struct Plan<'a> {
    workspace: BorrowedFd<'a>,
    uid: Uid,
    gid: Gid,
    /// Those that are not what they should be.
    limits: Vec<(Resource, Rlimit)>,
    /// `None`: it is what it should be.
    oom_score_adj: Option<String>,
    /// The working directory's components below the workspace.
    cwd: Vec<CString>,
    /// What is tried, in this order.
    programs: Vec<CString>,
    argv: Strings,
    env: Strings,
}

impl<'a> Plan<'a> {
    pub(super) fn new(command: StartCommand, ground: &'a Ground) -> Result<Self, Refusal> {
        let workspace = ground.workspace.as_ref().ok_or(Errno::NOENT);
        let workspace = workspace.map_err(refuse("the workspace is missing"))?.as_fd();
        let cwd = components(&command.cwd)?;
        let programs = candidates(command.argv.first().map(Vec::as_slice).unwrap_or_default())?;
        let env = command.env.iter().map(|(name, value)| [name, b"=".as_slice(), value].concat());
        Ok(Self {
            workspace,
            uid: Uid::from_raw(command.uid),
            gid: Gid::from_raw(command.gid),
            limits: limits(&command, ground),
            oom_score_adj: Some(command.oom_score_adj)
                .filter(|score| ground.oom_score_adj != Some(*score))
                .map(|score| score.to_string()),
            cwd,
            programs,
            env: env.map(string).collect::<Result<Vec<_>, _>>()?.into(),
            argv: command.argv.into_iter().map(string).collect::<Result<Vec<_>, _>>()?.into(),
        })
    }

    /// Becomes the command. Returns only when it cannot. Its standard streams are where they belong. Runs in the new process: no
    /// step allocates.
    pub(super) fn carry_out(&self) -> Result<Infallible, Refusal> {
        setsid().map_err(refuse("cannot start a session"))?;
        for (resource, limit) in &self.limits {
            setrlimit(*resource, *limit).map_err(refuse("cannot set resource limits"))?;
        }
        if let Some(score) = &self.oom_score_adj {
            // Missing or not writable in some kernels; the memory limit holds without it.
            let file = openat(CWD, OOM_SCORE, OFlags::WRONLY | OFlags::CLOEXEC, Mode::empty());
            let _ = file.and_then(|file| rustix::io::write(file, score.as_bytes()));
        }
        self.drop_privileges().map_err(refuse("cannot drop privileges"))?;
        crate::sys::unblock_signals().map_err(from_nix).map_err(refuse("cannot reset signals"))?;
        self.enter()?;
        Err(self.exec())
    }

    /// Each call is checked by its answer; what they come to is not asked for again, which would be two calls more of each command.
    fn drop_privileges(&self) -> Result<(), Errno> {
        rustix::thread::set_thread_res_gid(self.gid, self.gid, self.gid)?;
        rustix::thread::set_thread_res_uid(self.uid, self.uid, self.uid)?;
        // The kernel has just set it to what the host says of such programs, for the shared memory as a whole.
        set_dumpable_behavior(DumpableBehavior::NotDumpable)?;
        // Leaving uid 0 cleared permitted, effective and ambient, and the shim the inheritable: whatever else a kernel does.
        let none = CapabilitySet::empty();
        rustix::thread::set_capabilities(
            None,
            CapabilitySets { effective: none, permitted: none, inheritable: none },
        )
    }

    /// Enters a directory below the workspace, where it begins, one component at a time, following no link. The type is checked
    /// on the opened descriptor: under gVisor `O_DIRECTORY | O_NOFOLLOW` together follow a link.
    fn enter(&self) -> Result<(), Refusal> {
        if self.cwd.is_empty() {
            return Ok(());
        }
        let flags = OFlags::PATH | OFlags::CLOEXEC | OFlags::NOFOLLOW;
        let cannot = "the working directory cannot be entered";
        let mut directory: Option<OwnedFd> = None;
        for component in &self.cwd {
            let above = directory.as_ref().map_or(self.workspace, AsFd::as_fd);
            let below = openat(above, component, flags, Mode::empty()).map_err(|errno| match errno {
                Errno::NOENT => refuse("the working directory does not exist")(errno),
                Errno::LOOP => refuse("the working directory leads through a symbolic link")(errno),
                _ => refuse(cannot)(errno),
            })?;
            match FileType::from_raw_mode(fstat(&below).map_err(refuse(cannot))?.st_mode) {
                FileType::Directory => {}
                FileType::Symlink => {
                    return Err(refuse("the working directory leads through a symbolic link")(Errno::LOOP));
                }
                _ => return Err(refuse("the working directory is not a directory")(Errno::NOTDIR)),
            }
            directory = Some(below);
        }
        fchdir(directory.as_ref().map_or(self.workspace, AsFd::as_fd)).map_err(refuse(cannot))
    }

    fn exec(&self) -> Refusal {
        let try_exec = |program| from_nix(crate::sys::execve(program, &self.argv, &self.env));
        if let [program] = self.programs.as_slice() {
            return refusal_of(try_exec(program));
        }
        let mut answer = Errno::NOENT;
        for program in &self.programs {
            match try_exec(program) {
                Errno::NOENT | Errno::NOTDIR => {}
                Errno::ACCESS => answer = Errno::ACCESS,
                other => return refusal_of(other),
            }
        }
        refusal_of(answer)
    }
}

/// The limits to set. Without SYS_RESOURCE a hard one can only fall.
fn limits(command: &StartCommand, ground: &Ground) -> Vec<(Resource, Rlimit)> {
    let wanted = [command.rlimits.nofile, command.rlimits.fsize, command.rlimits.nproc];
    let limits = ground.limits.iter().zip(wanted).filter_map(|((resource, own), value)| {
        let value = value.map(|value| own.maximum.map_or(value, |hard| hard.min(value)))?;
        let limit = Rlimit { current: Some(value), maximum: Some(value) };
        (limit != *own).then_some((*resource, limit))
    });
    limits.collect()
}

fn components(cwd: &[u8]) -> Result<Vec<CString>, Refusal> {
    if cwd.is_empty() {
        return Ok(Vec::new());
    }
    let path = policy::WorkspacePath::try_new(cwd)
        .map_err(|_| refuse("the working directory is not a workspace path")(Errno::INVAL))?;
    path.components().map(|component| string(component.to_vec())).collect()
}

fn candidates(program: &[u8]) -> Result<Vec<CString>, Refusal> {
    if program.starts_with(b"/") {
        return Ok(vec![string(program.to_vec())?]);
    }
    if program.contains(&b'/') {
        return Err(refuse("the program must be an absolute path or a bare name")(Errno::INVAL));
    }
    let directories = PROGRAM_DIRS.iter().filter(|_| !program.is_empty());
    directories.map(|directory| string([directory.as_bytes(), b"/", program].concat())).collect()
}

/// The protocol lets no NUL through; an impossible one is refused like any bad argument.
fn string(bytes: Vec<u8>) -> Result<CString, Refusal> {
    CString::new(bytes).map_err(|_| refuse("an argument holds NUL")(Errno::INVAL))
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
    Refusal { exit_code, errno: errno.raw_os_error(), message }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_one_value_of_the_host_opens_changed_users() {
        assert!(opens_changed_users(b"1\n") && opens_changed_users(b"1"));
        assert!(!opens_changed_users(b"0\n") && !opens_changed_users(b"2\n") && !opens_changed_users(b""));
    }
}
