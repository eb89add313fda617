//! Framing: header, limits, the incremental decoder.

use std::marker::PhantomData;
use std::ops::Range;

use super::codec::Put;

/// Length of the header that precedes every payload, in bytes.
pub const HEADER_BYTES: usize = 9;

/// A violation of the framing. It ends the channel; on the host it is a suspected escape.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum ProtocolError {
    /// No frame of this direction has this kind.
    #[error("unknown frame kind {kind}")]
    UnknownKind {
        /// The kind byte received.
        kind: u8,
    },
    /// The announced payload is over the kind's limit.
    #[error("frame of kind {kind} announces {len} bytes, limit {max}")]
    Oversize {
        /// The kind byte received.
        kind: u8,
        /// Announced payload length in bytes.
        len: usize,
        /// Limit of this kind in bytes.
        max: usize,
    },
    /// A field is cut short, out of range or followed by more than the frame has.
    #[error("frame of kind {kind} has a malformed {field}")]
    Malformed {
        /// The kind byte received.
        kind: u8,
        /// Which field.
        field: &'static str,
    },
    /// The input ended inside a frame.
    #[error("input ended inside a frame")]
    Truncated,
}

/// One direction of one channel.
pub trait Frame: Sized {
    /// Kind byte, unique within the direction.
    fn kind(&self) -> u8;
    /// Stream id: 0 for frames of the connection, else the command's or request's id.
    fn stream(&self) -> u32;
    /// Appends the payload.
    fn put_payload(&self, out: &mut Vec<u8>);
    /// Largest payload of a kind in bytes; `None` for a kind this direction does not have.
    fn max_payload_bytes(kind: u8) -> Option<usize>;
    /// Builds the frame from a payload within its limit.
    ///
    /// # Errors
    /// [`ProtocolError::UnknownKind`] or [`ProtocolError::Malformed`].
    fn from_parts(kind: u8, stream: u32, payload: &[u8]) -> Result<Self, ProtocolError>;
}

/// Appends a frame's bytes to `out`. Senders keep each kind's limit ([`Frame::max_payload_bytes`]); debug builds
/// assert it, and the receiver refuses what is over it.
pub fn encode<F: Frame>(frame: &F, out: &mut Vec<u8>) {
    let start = out.len();
    out.put_raw(&[0; HEADER_BYTES]);
    frame.put_payload(out);
    let len = out.len() - start - HEADER_BYTES;
    debug_assert!(F::max_payload_bytes(frame.kind()).is_some_and(|max| len <= max));
    out[start..start + HEADER_BYTES].copy_from_slice(&header(frame.kind(), frame.stream(), len));
}

/// What precedes a payload of `len` bytes.
pub(super) fn header(kind: u8, stream: u32, len: usize) -> [u8; HEADER_BYTES] {
    let [l0, l1, l2, l3] = u32::try_from(len).unwrap_or(u32::MAX).to_le_bytes();
    let [s0, s1, s2, s3] = stream.to_le_bytes();
    [l0, l1, l2, l3, kind, s0, s1, s2, s3]
}

/// Turns bytes, fed in pieces of any size, into frames. The first error is final.
#[derive(Debug)]
pub struct Decoder<F> {
    buffer: Vec<u8>,
    /// What of `buffer` is input that was not taken yet.
    held: Range<usize>,
    failed: Option<ProtocolError>,
    frames: PhantomData<fn() -> F>,
}

impl<F: Frame> Default for Decoder<F> {
    fn default() -> Self {
        Self::new()
    }
}

impl<F: Frame> Decoder<F> {
    /// A decoder at the start of a channel.
    #[must_use]
    pub fn new() -> Self {
        Self { buffer: Vec::new(), held: 0..0, failed: None, frames: PhantomData }
    }

    /// Takes more input. Call [`Decoder::next_frame`] until it gives `None` before feeding more, so that no more than
    /// one frame and one piece of input are ever held.
    pub fn feed(&mut self, bytes: &[u8]) {
        self.space(bytes.len())[..bytes.len()].copy_from_slice(bytes);
        self.filled(bytes.len());
    }

    /// Room of at least `min_bytes` to read input into, instead of [`Decoder::feed`]; [`Decoder::filled`] then says how
    /// much came.
    pub fn space(&mut self, min_bytes: usize) -> &mut [u8] {
        if self.buffer.len() - self.held.end < min_bytes {
            let needed = self.held.len() + min_bytes;
            if self.buffer.len() < needed {
                let mut larger = vec![0; needed.next_power_of_two()];
                larger[..self.held.len()].copy_from_slice(&self.buffer[self.held.clone()]);
                self.buffer = larger;
            } else {
                self.buffer.copy_within(self.held.clone(), 0);
            }
            self.held = 0..self.held.len();
        }
        &mut self.buffer[self.held.end..]
    }

    /// So many bytes of the room that [`Decoder::space`] gave are input.
    pub fn filled(&mut self, count: usize) {
        self.held.end = (self.held.end + count).min(self.buffer.len());
    }

    /// The next whole frame, or `None` when more input is needed.
    ///
    /// # Errors
    /// Any [`ProtocolError`]; the same one again on every later call.
    pub fn next_frame(&mut self) -> Result<Option<F>, ProtocolError> {
        if let Some(error) = self.failed {
            return Err(error);
        }
        self.parse().inspect_err(|error| self.failed = Some(*error))
    }

    /// To be asked at the end of input.
    ///
    /// # Errors
    /// [`ProtocolError::Truncated`] when the input ended inside a frame.
    pub fn finish(&self) -> Result<(), ProtocolError> {
        if self.held.is_empty() { Ok(()) } else { Err(ProtocolError::Truncated) }
    }

    fn parse(&mut self) -> Result<Option<F>, ProtocolError> {
        let input = &self.buffer[self.held.clone()];
        let Some((header, rest)) = input.split_first_chunk::<HEADER_BYTES>() else { return Ok(None) };
        let [l0, l1, l2, l3, kind, s0, s1, s2, s3] = *header;
        let max = F::max_payload_bytes(kind).ok_or(ProtocolError::UnknownKind { kind })?;
        let len = usize::try_from(u32::from_le_bytes([l0, l1, l2, l3])).unwrap_or(usize::MAX);
        if len > max {
            return Err(ProtocolError::Oversize { kind, len, max });
        }
        let Some(payload) = rest.get(..len) else { return Ok(None) };
        let frame = F::from_parts(kind, u32::from_le_bytes([s0, s1, s2, s3]), payload)?;
        self.held.start += HEADER_BYTES + len;
        if self.held.is_empty() {
            self.held = 0..0;
        }
        Ok(Some(frame))
    }
}

/// Connection frames carry stream 0, all others an id of their own.
pub(super) fn check_stream(kind: u8, stream: u32, is_connection: bool) -> Result<(), ProtocolError> {
    if (stream == 0) == is_connection {
        Ok(())
    } else {
        Err(ProtocolError::Malformed { kind, field: "stream" })
    }
}
