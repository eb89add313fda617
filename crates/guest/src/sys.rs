//! The few system calls without a safe wrapper. Everything unsafe of the guest is in this file.
#![expect(unsafe_code, reason = "fork, signal dispositions, prctl, _exit and writeback have no safe wrapper")]

use std::os::fd::{AsRawFd, OwnedFd};

use nix::libc;
use nix::sys::signal::{SigSet, SigmaskHow, sigprocmask};
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

/// Ends the process at once: no destructors, no exit handlers, nothing flushed.
pub(crate) fn exit_now(code: i32) -> ! {
    // SAFETY: _exit takes any value and never returns.
    unsafe { libc::_exit(code) }
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
                std::ptr::null_mut::<libc::c_void>(),
                8_usize,
            )
        };
        nix::errno::Errno::result(set)?;
    }
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
                nix::errno::Errno::result(dropped)?;
            }
            0 => {}
            // Past the last capability this kernel knows.
            _ => break,
        }
    }
    Ok(())
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
