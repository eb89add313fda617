//! Why a request fails: the closed code and the system's number behind it.

use guest::protocol::files::FilesErrorCode;
use rustix::io::Errno;

/// What an `Error` frame says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Failure {
    pub(super) code: FilesErrorCode,
    pub(super) errno: i32,
}

impl From<FilesErrorCode> for Failure {
    fn from(code: FilesErrorCode) -> Self {
        Self { code, errno: 0 }
    }
}

impl From<Errno> for Failure {
    fn from(errno: Errno) -> Self {
        let code = match errno {
            Errno::NOENT => FilesErrorCode::NotFound,
            Errno::NOTDIR => FilesErrorCode::NotADirectory,
            Errno::ISDIR => FilesErrorCode::IsADirectory,
            // No component is ever followed: a link is what makes a loop here.
            Errno::LOOP => FilesErrorCode::Symlink,
            Errno::NAMETOOLONG | Errno::XDEV => FilesErrorCode::PathRefused,
            Errno::NOSPC | Errno::DQUOT | Errno::FBIG => FilesErrorCode::NoSpace,
            Errno::EXIST => FilesErrorCode::Exists,
            Errno::NOTEMPTY => FilesErrorCode::NotEmpty,
            // Opening a socket.
            Errno::NXIO => FilesErrorCode::NotRegular,
            _ => FilesErrorCode::Io,
        };
        Self { code, errno: errno.raw_os_error() }
    }
}
