//! Host to guest.

use super::super::codec::{Put, Take};
use super::super::frame::{Frame, ProtocolError, check_stream};
use super::super::{Hello, MAX_DATA_BYTES, MAX_PAYLOAD_BYTES};
use super::{MAX_START_BYTES, Output, StartCommand};

/// Host to guest.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ToGuest {
    /// First frame.
    Hello(Hello),
    /// Starts a command on a new, higher stream id.
    Start {
        /// The command's stream id.
        stream: u32,
        /// What to start.
        command: StartCommand,
    },
    /// Bytes for the command's stdin, under stdin credit.
    StdinData {
        /// The command's stream id.
        stream: u32,
        /// 1 to [`MAX_DATA_BYTES`] bytes.
        bytes: Vec<u8>,
    },
    /// No more stdin: the pipe is closed once everything before it was written.
    StdinClose {
        /// The command's stream id.
        stream: u32,
    },
    /// The host consumed this much of an output.
    Credit {
        /// The command's stream id.
        stream: u32,
        /// Which output.
        output: Output,
        /// Granted bytes.
        bytes: u32,
    },
    /// Kill this command's whole tree (background commands; a foreground kill restarts the container).
    Kill {
        /// The command's stream id.
        stream: u32,
    },
    /// Heartbeat; answered by `Pong` with the same token.
    Ping {
        /// Any value.
        token: u64,
    },
    /// Asks for the workspace's nonce as the sandbox sees it.
    ReadNonce,
    /// Asks what the workspace's deleted files take that the commands' processes still have open.
    Measure {
        /// Comes back with the answer.
        token: u64,
        /// Whose processes are looked at.
        uid: u32,
        /// Their group.
        gid: u32,
        /// The search ends when it has found more bytes than this.
        bytes_max: u64,
        /// The same, in inodes.
        inodes_max: u64,
    },
    /// Ends the container: PID 1 is told to end, and everything with it. Needs nothing that code could have used up.
    Shutdown,
}

impl Frame for ToGuest {
    fn kind(&self) -> u8 {
        match self {
            Self::Hello(_) => 1,
            Self::Start { .. } => 2,
            Self::StdinData { .. } => 3,
            Self::StdinClose { .. } => 4,
            Self::Credit { .. } => 5,
            Self::Kill { .. } => 6,
            Self::Ping { .. } => 7,
            Self::ReadNonce => 8,
            Self::Measure { .. } => 9,
            Self::Shutdown => 10,
        }
    }

    fn stream(&self) -> u32 {
        match self {
            Self::Hello(_) | Self::Ping { .. } | Self::ReadNonce | Self::Measure { .. } | Self::Shutdown => 0,
            Self::Start { stream, .. }
            | Self::StdinData { stream, .. }
            | Self::StdinClose { stream }
            | Self::Credit { stream, .. }
            | Self::Kill { stream } => *stream,
        }
    }

    fn put_payload(&self, out: &mut Vec<u8>) {
        match self {
            Self::Hello(hello) => hello.put(out),
            Self::Start { command, .. } => command.put(out),
            Self::StdinData { bytes, .. } => out.put_raw(bytes),
            Self::Credit { output, bytes, .. } => {
                out.put_u8(*output as u8);
                out.put_u32(*bytes);
            }
            Self::Ping { token } => out.put_u64(*token),
            Self::Measure { token, uid, gid, bytes_max, inodes_max } => {
                out.put_u64(*token);
                out.put_u32(*uid);
                out.put_u32(*gid);
                out.put_u64(*bytes_max);
                out.put_u64(*inodes_max);
            }
            Self::StdinClose { .. } | Self::Kill { .. } | Self::ReadNonce | Self::Shutdown => {}
        }
    }

    fn max_payload_bytes(kind: u8) -> Option<usize> {
        match kind {
            1 => Some(MAX_PAYLOAD_BYTES),
            2 => Some(MAX_START_BYTES),
            3 => Some(MAX_DATA_BYTES),
            4..=10 => Some(64),
            _ => None,
        }
    }

    fn from_parts(kind: u8, stream: u32, payload: &[u8]) -> Result<Self, ProtocolError> {
        check_stream(kind, stream, matches!(kind, 1 | 7..=10))?;
        let mut take = Take::new(kind, payload);
        let frame = match kind {
            1 => return Hello::take(kind, payload).map(Self::Hello),
            2 => Self::Start { stream, command: StartCommand::take(&mut take)? },
            3 if payload.is_empty() => return Err(take.malformed("bytes")),
            3 => Self::StdinData { stream, bytes: take.rest() },
            4 => Self::StdinClose { stream },
            5 => Self::Credit {
                stream,
                output: take.map_u8("output", Output::from_u8)?,
                bytes: take.u32("bytes")?,
            },
            6 => Self::Kill { stream },
            7 => Self::Ping { token: take.u64("token")? },
            8 => Self::ReadNonce,
            9 => Self::Measure {
                token: take.u64("token")?,
                uid: take.u32("uid")?,
                gid: take.u32("gid")?,
                bytes_max: take.u64("bytes_max")?,
                inodes_max: take.u64("inodes_max")?,
            },
            10 => Self::Shutdown,
            _ => return Err(ProtocolError::UnknownKind { kind }),
        };
        take.finish()?;
        Ok(frame)
    }
}
