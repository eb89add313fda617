//! Being somebody else for a moment, towards the file system.

use nix::unistd::{Gid as NixGid, Uid as NixUid, setfsgid, setfsuid};
use rustix::process::{Gid, Uid};
use rustix::thread::{set_thread_res_gid, set_thread_res_uid};

/// A user's view of `/proc`, until it is dropped.
///
/// The file system ids are enough for it, and leave nobody a right over this process meanwhile. A kernel without
/// them (gVisor) gets the effective ids changed; there, being of the same effective user gives no right either.
pub(super) struct Borrowed {
    is_effective: bool,
}

impl Borrowed {
    /// `None` when the kernel allows neither.
    pub(super) fn take(uid: u32, gid: u32) -> Option<Self> {
        let (user, group) = (NixUid::from_raw(uid), NixGid::from_raw(gid));
        setfsgid(group);
        setfsuid(user);
        // The call tells what was before, never whether it worked; an impossible id changes nothing.
        let now = (setfsuid(NixUid::from_raw(u32::MAX)), setfsgid(NixGid::from_raw(u32::MAX)));
        if now == (user, group) {
            return Some(Self { is_effective: false });
        }
        setfsuid(NixUid::from_raw(0));
        setfsgid(NixGid::from_raw(0));
        // From here on dropping puts back whatever was changed.
        let borrowed = Self { is_effective: true };
        set_thread_res_gid(Gid::ROOT, Gid::from_raw(gid), Gid::ROOT).ok()?;
        set_thread_res_uid(Uid::ROOT, Uid::from_raw(uid), Uid::ROOT).ok()?;
        Some(borrowed)
    }
}

impl Drop for Borrowed {
    fn drop(&mut self) {
        if self.is_effective {
            // Back to an id that is kept as real and saved one: always allowed.
            let _ = set_thread_res_uid(Uid::ROOT, Uid::ROOT, Uid::ROOT);
            let _ = set_thread_res_gid(Gid::ROOT, Gid::ROOT, Gid::ROOT);
        } else {
            setfsuid(NixUid::from_raw(0));
            setfsgid(NixGid::from_raw(0));
        }
    }
}
