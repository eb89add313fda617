//! What is kept of a command's output: counts and digest of everything, the view's head and tail, and the cap that both
//! streams share.

use std::collections::VecDeque;

use bytes::Bytes;
use events::bounds::VIEW_BYTES_MAX;
use sha2::{Digest, Sha256};

use crate::ports::{Captured, OutputStream};

/// Share of the view kept from the start when not all bytes fit, in percent.
const HEAD_PERCENT: usize = 60;
/// Share of the view kept from the end, in percent; the rest is left to the elision mark and to escaping.
const TAIL_PERCENT: usize = 20;
/// Bytes kept from the end.
const TAIL_BYTES: usize = VIEW_BYTES_MAX * TAIL_PERCENT / 100;

/// Both streams of one command.
pub(crate) struct OutputCapture {
    limit_bytes: u64,
    produced_bytes: u64,
    stdout: StreamCapture,
    stderr: StreamCapture,
}

impl OutputCapture {
    /// An empty capture; `limit_bytes` is the cap over both streams together.
    pub(crate) fn new(limit_bytes: u64) -> Self {
        Self {
            limit_bytes,
            produced_bytes: 0,
            stdout: StreamCapture::default(),
            stderr: StreamCapture::default(),
        }
    }

    /// Takes bytes in order and gives back the part within the cap, for the sink (empty when there is none).
    pub(crate) fn push(&mut self, stream: OutputStream, mut bytes: Bytes) -> Bytes {
        let room = self.limit_bytes.saturating_sub(self.produced_bytes);
        self.produced_bytes = self.produced_bytes.saturating_add(bytes.len() as u64);
        let target = match stream {
            OutputStream::Stdout => &mut self.stdout,
            OutputStream::Stderr => &mut self.stderr,
        };
        target.count(&bytes);
        let kept = usize::try_from(room).unwrap_or(usize::MAX).min(bytes.len());
        target.cut |= kept < bytes.len();
        bytes.truncate(kept);
        target.keep(&bytes);
        bytes
    }

    /// More was produced than the cap allows.
    pub(crate) fn is_over(&self) -> bool {
        self.produced_bytes > self.limit_bytes
    }

    /// Bytes of both streams so far, those past the cap included.
    pub(crate) fn produced_bytes(&self) -> u64 {
        self.produced_bytes
    }

    /// Standard output and standard error, as captured.
    pub(crate) fn finish(self) -> (Captured, Captured) {
        (self.stdout.finish(), self.stderr.finish())
    }
}

#[derive(Default)]
struct StreamCapture {
    total_bytes: u64,
    hasher: Sha256,
    head: Vec<u8>,
    tail: VecDeque<u8>,
    kept_bytes: u64,
    cut: bool,
}

impl StreamCapture {
    fn count(&mut self, bytes: &[u8]) {
        self.total_bytes += bytes.len() as u64;
        self.hasher.update(bytes);
    }

    fn keep(&mut self, bytes: &[u8]) {
        self.kept_bytes += bytes.len() as u64;
        let room = (VIEW_BYTES_MAX - self.head.len()).min(bytes.len());
        self.head.extend_from_slice(&bytes[..room]);
        let newest = &bytes[bytes.len().saturating_sub(TAIL_BYTES)..];
        let excess = (self.tail.len() + newest.len()).saturating_sub(TAIL_BYTES);
        self.tail.drain(..excess);
        self.tail.extend(newest);
    }

    fn finish(mut self) -> Captured {
        let tail = if self.kept_bytes > VIEW_BYTES_MAX as u64 {
            self.head.truncate(VIEW_BYTES_MAX * HEAD_PERCENT / 100);
            Some(self.tail.into())
        } else {
            self.cut.then(Vec::new)
        };
        Captured {
            head: self.head,
            tail,
            bytes_total: self.total_bytes,
            sha256: self.hasher.finalize().into(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn captured(limit: u64, pieces: &[&[u8]]) -> (Captured, Vec<u8>, bool) {
        let mut capture = OutputCapture::new(limit);
        let mut sunk = Vec::new();
        for piece in pieces {
            sunk.extend_from_slice(&capture.push(OutputStream::Stdout, Bytes::copy_from_slice(piece)));
        }
        let over = capture.is_over();
        (capture.finish().0, sunk, over)
    }

    #[test]
    fn everything_is_kept_up_to_the_views_size() {
        let bytes = vec![7_u8; VIEW_BYTES_MAX];
        let (out, sunk, over) = captured(1 << 20, &[&bytes[..10], &bytes[10..]]);
        assert_eq!((out.head.as_slice(), out.tail, over), (bytes.as_slice(), None, false));
        assert_eq!(sunk, bytes);
    }

    #[test]
    fn one_byte_more_keeps_head_and_tail_and_hashes_all() {
        let bytes: Vec<u8> = (0..=VIEW_BYTES_MAX).map(|i| (i % 251) as u8).collect();
        let (out, ..) = captured(1 << 20, &[&bytes]);
        assert_eq!(out.head, bytes[..VIEW_BYTES_MAX * 60 / 100]);
        assert_eq!(out.tail.as_deref(), Some(&bytes[bytes.len() - VIEW_BYTES_MAX * 20 / 100..]));
        assert_eq!(out.bytes_total, bytes.len() as u64);
        assert_eq!(out.sha256, <[u8; 32]>::from(Sha256::digest(&bytes)));
    }

    #[test]
    fn past_the_cap_bytes_are_counted_but_not_kept() {
        let (out, sunk, over) = captured(5, &[b"abc", b"def", b"ghi"]);
        assert_eq!((out.head.as_slice(), out.tail.as_deref()), (&b"abcde"[..], Some(&b""[..])));
        assert_eq!((sunk.as_slice(), out.bytes_total, over), (&b"abcde"[..], 9, true));
    }

    #[test]
    fn both_streams_share_the_cap() {
        let mut capture = OutputCapture::new(4);
        let first = capture.push(OutputStream::Stdout, Bytes::from_static(b"abc"));
        let second = capture.push(OutputStream::Stderr, Bytes::from_static(b"xyz"));
        assert_eq!((first.as_ref(), second.as_ref()), (&b"abc"[..], &b"x"[..]));
        assert!(capture.is_over());
        assert_eq!(capture.produced_bytes(), 6);
    }
}
