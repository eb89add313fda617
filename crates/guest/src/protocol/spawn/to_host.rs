//! Guest to host.

use super::super::codec::{Put, Take};
use super::super::frame::{Frame, ProtocolError, check_stream};
use super::super::{Hello, MAX_DATA_BYTES, MAX_NONCE_BYTES, MAX_PAYLOAD_BYTES};
use super::{Counters, Exited, MAX_MESSAGE_BYTES, Output};

/// Guest to host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ToHost {
    /// First frame.
    Hello(Hello),
    /// The program is running, or ran: exec succeeded. Goes before all output and before the end; a program that ends soon and
    /// says nothing is told of when it has ended.
    Started {
        /// The command's stream id.
        stream: u32,
    },
    /// The program could not be started; the stream is over, no output frame follows.
    StartFailed {
        /// The command's stream id.
        stream: u32,
        /// 127: not found. 126: anything else (not executable, directory missing, no process left, ...).
        exit_code: i32,
        /// The system's error number, 0 when there is none.
        errno: i32,
        /// Ours, bounded, without paths of the host; for people.
        message: String,
    },
    /// Output bytes, under the output's credit.
    Data {
        /// The command's stream id.
        stream: u32,
        /// Which output.
        output: Output,
        /// 1 to [`MAX_DATA_BYTES`] bytes.
        bytes: Vec<u8>,
    },
    /// The output is complete: every byte of it went before this frame.
    OutputClosed {
        /// The command's stream id.
        stream: u32,
        /// Which output.
        output: Output,
        /// Bytes sent in all.
        total_bytes: u64,
    },
    /// The pipe took this much of the stdin sent.
    StdinCredit {
        /// The command's stream id.
        stream: u32,
        /// Granted bytes.
        bytes: u32,
    },
    /// The command closed its stdin (or ended) before taking everything sent.
    StdinBroken {
        /// The command's stream id.
        stream: u32,
        /// Bytes the pipe took before.
        delivered_bytes: u64,
    },
    /// The command's end.
    Exited {
        /// The command's stream id.
        stream: u32,
        /// How it ended.
        exited: Exited,
    },
    /// A sample in which `oom_kills`, `refused_forks` or, by a fifth of a second (a hundredth ahead of a command, anything after a
    /// `Kill`), `cpu_us` rose since the last such frame (since zero before the first), taken while a command runs or right before
    /// one starts. The values are absolute. What was reported
    /// before a command's `Started` is that command's base: rises before it are not its own.
    Counters(Counters),
    /// Answer to `Ping`.
    Pong {
        /// The ping's token.
        token: u64,
    },
    /// Answer to `ReadNonce`; `None` when there is no nonce in the workspace.
    Nonce(Option<Vec<u8>>),
    /// Answer to `Measure`.
    Measured {
        /// The question's token.
        token: u64,
        /// Deleted files of the workspace that are still open: blocks or size of each, whichever is more.
        deleted_bytes: u64,
        /// How many of them there are.
        deleted_inodes: u64,
        /// The part of these bytes that the last search on this channel found as well: it had no name since.
        kept_bytes: u64,
        /// How many of the files that is.
        kept_inodes: u64,
        /// False: there was more than asked for, the search was not over within
        /// [`MEASURE_MAX_MS`](super::MEASURE_MAX_MS), or not everything could be looked at (see `readable`).
        complete: bool,
        /// False: for the second time in a row the same process hid its descriptors, or for the third time any did.
        readable: bool,
    },
}

impl Frame for ToHost {
    fn kind(&self) -> u8 {
        match self {
            Self::Hello(_) => 1,
            Self::Started { .. } => 2,
            Self::StartFailed { .. } => 3,
            Self::Data { .. } => 4,
            Self::OutputClosed { .. } => 5,
            Self::StdinCredit { .. } => 6,
            Self::StdinBroken { .. } => 7,
            Self::Exited { .. } => 8,
            Self::Counters(_) => 9,
            Self::Pong { .. } => 10,
            Self::Nonce(_) => 11,
            Self::Measured { .. } => 12,
        }
    }

    fn stream(&self) -> u32 {
        match self {
            Self::Hello(_)
            | Self::Counters(_)
            | Self::Pong { .. }
            | Self::Nonce(_)
            | Self::Measured { .. } => 0,
            Self::Started { stream, .. }
            | Self::StartFailed { stream, .. }
            | Self::Data { stream, .. }
            | Self::OutputClosed { stream, .. }
            | Self::StdinCredit { stream, .. }
            | Self::StdinBroken { stream, .. }
            | Self::Exited { stream, .. } => *stream,
        }
    }

    fn put_payload(&self, out: &mut Vec<u8>) {
        match self {
            Self::Hello(hello) => hello.put(out),
            Self::Started { .. } => {}
            Self::StartFailed { exit_code, errno, message, .. } => {
                out.put_i32(*exit_code);
                out.put_i32(*errno);
                out.put_bytes(message.as_bytes());
            }
            Self::Data { output, bytes, .. } => {
                out.put_u8(*output as u8);
                out.put_raw(bytes);
            }
            Self::OutputClosed { output, total_bytes, .. } => {
                out.put_u8(*output as u8);
                out.put_u64(*total_bytes);
            }
            Self::StdinCredit { bytes, .. } => out.put_u32(*bytes),
            Self::StdinBroken { delivered_bytes, .. } => out.put_u64(*delivered_bytes),
            Self::Exited { exited, .. } => exited.put(out),
            Self::Counters(counters) => counters.put(out),
            Self::Pong { token } => out.put_u64(*token),
            Self::Nonce(nonce) => out.put_opt_bytes(nonce.as_deref()),
            Self::Measured {
                token,
                deleted_bytes,
                deleted_inodes,
                kept_bytes,
                kept_inodes,
                complete,
                readable,
            } => {
                out.put_u64(*token);
                out.put_u64(*deleted_bytes);
                out.put_u64(*deleted_inodes);
                out.put_u64(*kept_bytes);
                out.put_u64(*kept_inodes);
                out.put_bool(*complete);
                out.put_bool(*readable);
            }
        }
    }

    fn max_payload_bytes(kind: u8) -> Option<usize> {
        match kind {
            1 => Some(MAX_PAYLOAD_BYTES),
            3 => Some(MAX_MESSAGE_BYTES + 12),
            4 => Some(MAX_DATA_BYTES + 1),
            2 | 5..=12 => Some(128),
            _ => None,
        }
    }

    fn from_parts(kind: u8, stream: u32, payload: &[u8]) -> Result<Self, ProtocolError> {
        check_stream(kind, stream, matches!(kind, 1 | 9..=12))?;
        let mut take = Take::new(kind, payload);
        let frame = match kind {
            1 => return Hello::take(kind, payload).map(Self::Hello),
            2 => Self::Started { stream },
            3 => Self::StartFailed {
                stream,
                exit_code: take.i32("exit_code")?,
                errno: take.i32("errno")?,
                message: take.string("message", MAX_MESSAGE_BYTES)?,
            },
            4 => {
                let output = take.map_u8("output", Output::from_u8)?;
                let bytes = take.rest();
                if bytes.is_empty() {
                    return Err(take.malformed("bytes"));
                }
                Self::Data { stream, output, bytes }
            }
            5 => Self::OutputClosed {
                stream,
                output: take.map_u8("output", Output::from_u8)?,
                total_bytes: take.u64("total_bytes")?,
            },
            6 => Self::StdinCredit { stream, bytes: take.u32("bytes")? },
            7 => Self::StdinBroken { stream, delivered_bytes: take.u64("delivered_bytes")? },
            8 => Self::Exited { stream, exited: Exited::take(&mut take)? },
            9 => Self::Counters(Counters::take(&mut take)?),
            10 => Self::Pong { token: take.u64("token")? },
            11 => Self::Nonce(take.opt_bytes("nonce", MAX_NONCE_BYTES)?),
            12 => Self::Measured {
                token: take.u64("token")?,
                deleted_bytes: take.u64("deleted_bytes")?,
                deleted_inodes: take.u64("deleted_inodes")?,
                kept_bytes: take.u64("kept_bytes")?,
                kept_inodes: take.u64("kept_inodes")?,
                complete: take.bool("complete")?,
                readable: take.bool("readable")?,
            },
            _ => return Err(ProtocolError::UnknownKind { kind }),
        };
        take.finish()?;
        Ok(frame)
    }
}
