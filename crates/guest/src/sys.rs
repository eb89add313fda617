//! The few system calls without a safe wrapper. Everything unsafe of the guest is in this file.
#![expect(
    unsafe_code,
    reason = "fork, clone, execve, wait4, close by number, signal dispositions, prctl, _exit and writeback have no safe wrapper"
)]

use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::os::fd::{AsRawFd, IntoRawFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};

use nix::errno::Errno;
use nix::libc;
use nix::sys::signal::{SaFlags, SigAction, SigHandler, SigSet, SigmaskHow, Signal, sigaction, sigprocmask};
use nix::unistd::{ForkResult, Pid};

/// Forks the calling process. `None` in the child.
///
/// The guest's `init` and `spawn` never start a thread, so the child is a whole copy and may allocate.
///
/// # Errors
/// EAGAIN at the process limit, ENOMEM.
pub(crate) fn fork() -> nix::Result<Option<Pid>> {
    // SAFETY: no other thread exists in the processes that call this (see above), so no lock can be held
    // by a thread that the child does not have.
    match unsafe { nix::unistd::fork() }? {
        ForkResult::Parent { child } => Ok(Some(child)),
        ForkResult::Child => Ok(None),
    }
}

/// A stack for [`run_beside`], made once.
pub(crate) struct Stack(Box<[u8]>);

impl Stack {
    /// Far more than the few system calls need that are made on it.
    const BYTES: usize = 128 * 1024;

    pub(crate) fn new() -> Self {
        Self(vec![0; Self::BYTES].into_boxed_slice())
    }
}

/// Runs `child` in a new process that shares this one's memory but nothing else, and waits until it has become a program or
/// has ended: a fork without a copy. What `child` writes is seen here afterwards.
///
/// It may be killed at any moment, so `child` must leave nothing half done that this process goes on with: it makes system
/// calls on what was prepared, allocates nothing and frees nothing. When it returns, the process ends with 126.
///
/// # Errors
/// EAGAIN at the process limit, ENOMEM.
pub(crate) fn run_beside<F: Fn()>(stack: &mut Stack, child: &F) -> nix::Result<Pid> {
    extern "C" fn enter<F: Fn()>(child: *mut c_void) -> c_int {
        // SAFETY: `run_beside` passes a reference to an F that outlives its call, and returns only when this process has
        // let go of the memory.
        let child = unsafe { &*child.cast_const().cast::<F>() };
        child();
        exit_now(126)
    }
    let end = stack.0.as_mut_ptr_range().end;
    // A frame begins at a multiple of 16.
    let top = end.wrapping_sub(end.addr() % 16);
    let flags = libc::CLONE_VM | libc::CLONE_VFORK | libc::SIGCHLD;
    // SAFETY: no other thread exists in the processes that call this, and CLONE_VFORK stops the caller: one process at a time
    // uses the memory. The child runs on a stack of its own that the caller holds mutably; it never returns into the caller's.
    let pid = unsafe { libc::clone(enter::<F>, top.cast(), flags, (&raw const *child).cast_mut().cast()) };
    Errno::result(pid).map(Pid::from_raw)
}

/// Strings in the form that execve takes.
pub(crate) struct Strings {
    /// What the pointers point into: each string has its own allocation, which moving it does not move.
    _strings: Vec<CString>,
    pointers: Vec<*const c_char>,
}

impl From<Vec<CString>> for Strings {
    fn from(strings: Vec<CString>) -> Self {
        let pointers = strings.iter().map(|string| string.as_ptr()).chain([std::ptr::null()]).collect();
        Self { _strings: strings, pointers }
    }
}

/// Becomes the program; gives the error when it cannot. Allocates nothing.
pub(crate) fn execve(program: &CStr, argv: &Strings, env: &Strings) -> Errno {
    // SAFETY: all three are what execve wants: a string, and arrays of strings that end with a null pointer.
    unsafe { libc::execve(program.as_ptr(), argv.pointers.as_ptr(), env.pointers.as_ptr()) };
    Errno::last()
}

/// How a child ended, and what it and the children it had waited for used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Ended {
    pub(crate) pid: i32,
    pub(crate) end: End,
    pub(crate) cpu_us: u64,
    /// Of the largest of them.
    pub(crate) max_rss_bytes: u64,
}

/// A process's end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum End {
    Code(i32),
    Signal(i32),
}

/// Takes the end of any child that has ended; `None` when every child goes on.
///
/// # Errors
/// ECHILD when there is no child, EINTR.
pub(crate) fn wait_any() -> nix::Result<Option<Ended>> {
    let mut status = 0;
    let mut usage = std::mem::MaybeUninit::<libc::rusage>::zeroed();
    // SAFETY: both pointers are to memory of the right size; rusage is numbers, for which zero is a value.
    let (pid, usage) = unsafe {
        let pid = libc::wait4(-1, &raw mut status, libc::WNOHANG, usage.as_mut_ptr());
        (pid, usage.assume_init())
    };
    let number = |value: i64| u64::try_from(value).unwrap_or(0);
    let micros = |time: libc::timeval| number(time.tv_sec) * 1_000_000 + number(time.tv_usec);
    Ok(match Errno::result(pid)? {
        0 => None,
        pid => Some(Ended {
            pid,
            end: if libc::WIFSIGNALED(status) {
                End::Signal(libc::WTERMSIG(status))
            } else {
                End::Code(libc::WEXITSTATUS(status))
            },
            cpu_us: micros(usage.ru_utime) + micros(usage.ru_stime),
            max_rss_bytes: number(usage.ru_maxrss).saturating_mul(1024),
        }),
    })
}

/// Ends the process at once: no destructors, no exit handlers, nothing flushed.
pub(crate) fn exit_now(code: i32) -> ! {
    // SAFETY: _exit takes any value and never returns.
    unsafe { libc::_exit(code) }
}

/// SIGTERM or SIGINT came.
static STOP_ASKED: AtomicBool = AtomicBool::new(false);

/// Lets SIGCHLD interrupt a wait, and SIGTERM and SIGINT be found by [`is_stop_asked`] after one.
///
/// # Errors
/// The system's; none is expected.
pub(crate) fn take_init_signals() -> nix::Result<()> {
    extern "C" fn note(signal: c_int) {
        if signal != libc::SIGCHLD {
            STOP_ASKED.store(true, Ordering::SeqCst);
        }
    }
    let action = SigAction::new(SigHandler::Handler(note), SaFlags::empty(), SigSet::empty());
    for signal in [Signal::SIGCHLD, Signal::SIGTERM, Signal::SIGINT] {
        // SAFETY: the handler does nothing but store to an atomic.
        unsafe { sigaction(signal, &action) }?;
    }
    Ok(())
}

/// See [`take_init_signals`].
pub(crate) fn is_stop_asked() -> bool {
    STOP_ASKED.load(Ordering::SeqCst)
}

/// Gives every signal its default disposition and an empty mask, as a fresh program expects. Rust's runtime
/// ignores SIGPIPE, and an ignored signal would survive exec. The C library refuses to touch the two numbers
/// it keeps for itself, so the kernel is asked directly.
///
/// # Errors
/// The system's; none is expected.
pub(crate) fn reset_signals() -> nix::Result<()> {
    // The kernel's sigaction, all zero: SIG_DFL, no flag, empty mask. 8 bytes of mask.
    let default = [0_u64; 4];
    for number in (1..=64).filter(|number| ![libc::SIGKILL, libc::SIGSTOP].contains(number)) {
        // SAFETY: `default` is as large as the kernel's struct, and SIG_DFL installs no handler of ours.
        let set = unsafe {
            libc::syscall(
                libc::SYS_rt_sigaction,
                number,
                default.as_ptr(),
                std::ptr::null_mut::<c_void>(),
                8_usize,
            )
        };
        Errno::result(set)?;
    }
    unblock_signals()
}

/// Lets every signal through. Allocates nothing.
///
/// # Errors
/// The system's; none is expected.
pub(crate) fn unblock_signals() -> nix::Result<()> {
    sigprocmask(SigmaskHow::SIG_SETMASK, Some(&SigSet::empty()), None)
}

/// Removes every capability from the bounding set of the calling thread.
///
/// # Errors
/// EPERM without SETPCAP while the set is not empty.
pub(crate) fn drop_bounding_set() -> nix::Result<()> {
    for capability in 0..64 {
        // SAFETY: PR_CAPBSET_READ and PR_CAPBSET_DROP take one number and touch no memory of ours.
        match unsafe { libc::prctl(libc::PR_CAPBSET_READ, capability, 0, 0, 0) } {
            1 => {
                // SAFETY: as above.
                let dropped = unsafe { libc::prctl(libc::PR_CAPBSET_DROP, capability, 0, 0, 0) };
                Errno::result(dropped)?;
            }
            0 => {}
            // Past the last capability this kernel knows.
            _ => break,
        }
    }
    Ok(())
}

/// Closes descriptors, those with numbers that follow each other by one call.
pub(crate) fn close_together(descriptors: impl IntoIterator<Item = OwnedFd>) {
    let mut numbers: Vec<u32> =
        descriptors.into_iter().map(|descriptor| descriptor.into_raw_fd().unsigned_abs()).collect();
    numbers.sort_unstable();
    for run in numbers.chunk_by(|number, next| number + 1 == *next) {
        let (Some(first), Some(last)) = (run.first(), run.last()) else { continue };
        // SAFETY: closes exactly those numbers, each of which was owned until here and is nobody's now.
        if unsafe { libc::close_range(*first, *last, 0) } != 0 {
            // An older kernel.
            for number in run {
                // SAFETY: as above; the call above has closed none.
                unsafe { libc::close(*number as c_int) };
            }
        }
    }
}

/// Closes descriptors 0 to 2, whoever thinks of them as open.
pub(crate) fn close_standard_streams() {
    for number in 0..3 {
        // SAFETY: the only caller is a shim, which has made all three `/dev/null` itself; nothing of its process uses them.
        unsafe { libc::close(number) };
    }
}

/// Marks every descriptor from `first` up close-on-exec; a kernel without the call leaves what each
/// descriptor was created with (the guest opens nothing without close-on-exec).
pub(crate) fn close_on_exec_from(first: u32) {
    // SAFETY: only sets a flag on descriptors; none is closed here.
    unsafe { libc::close_range(first, u32::MAX, libc::CLOSE_RANGE_CLOEXEC as i32) };
}

/// Begins to write a part of a file to the disk, without waiting for it. No promise: where a file system cannot, the
/// flush that the promise rests on does it all.
pub(crate) fn start_writeback(file: &OwnedFd, offset: u64, bytes: u64) {
    let (Ok(offset), Ok(bytes)) = (libc::off64_t::try_from(offset), libc::off64_t::try_from(bytes)) else {
        return;
    };
    // SAFETY: takes numbers alone, and the descriptor is open as long as its owner is borrowed.
    unsafe { libc::sync_file_range(file.as_raw_fd(), offset, bytes, libc::SYNC_FILE_RANGE_WRITE) };
}
