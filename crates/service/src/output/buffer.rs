//! One output stream in memory: its beginning and its latest bytes, bounded; what lies between is gone and says so.

use std::collections::VecDeque;

use bytes::Bytes;

/// Bytes kept from the beginning of a stream.
pub const HEAD_BYTES_MAX: usize = 2 * 1024 * 1024;
/// Latest bytes kept of a stream.
pub const TAIL_BYTES_MAX: usize = 2 * 1024 * 1024;

/// Bounded memory of one stream.
#[derive(Debug, Default)]
pub struct Buffer {
    head: Vec<u8>,
    tail: VecDeque<u8>,
    total: u64,
}

/// What a reader at some offset gets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Piece {
    /// Bytes from that offset on.
    Bytes(Bytes),
    /// Nothing is held before `to`.
    Gap {
        /// Where bytes are held again.
        to: u64,
    },
    /// The reader has everything so far.
    UpToDate,
    /// The offset is past everything produced.
    Beyond,
}

impl Buffer {
    /// Adds bytes at the end.
    pub fn push(&mut self, bytes: &[u8]) {
        self.total += bytes.len() as u64;
        let room = HEAD_BYTES_MAX - self.head.len();
        let (first, rest) = bytes.split_at(room.min(bytes.len()));
        self.head.extend_from_slice(first);
        let rest = &rest[rest.len().saturating_sub(TAIL_BYTES_MAX)..];
        let excess = (self.tail.len() + rest.len()).saturating_sub(TAIL_BYTES_MAX);
        self.tail.drain(..excess);
        self.tail.extend(rest);
    }

    /// At most `max` bytes from `offset` on, or why there are none.
    #[must_use]
    pub fn read(&self, offset: u64, max: usize) -> Piece {
        let tail_start = self.total - self.tail.len() as u64;
        match offset {
            beyond if beyond > self.total => Piece::Beyond,
            end if end == self.total => Piece::UpToDate,
            start if start < self.head.len() as u64 => {
                let from = usize::try_from(start).unwrap_or(usize::MAX);
                let to = self.head.len().min(from.saturating_add(max));
                Piece::Bytes(Bytes::copy_from_slice(&self.head[from..to]))
            }
            lost if lost < tail_start => Piece::Gap { to: tail_start },
            start => {
                let from = usize::try_from(start - tail_start).unwrap_or(usize::MAX);
                let to = self.tail.len().min(from.saturating_add(max));
                Piece::Bytes(self.tail.range(from..to).copied().collect())
            }
        }
    }

    /// Bytes held in memory.
    #[must_use]
    pub fn held(&self) -> usize {
        self.head.len() + self.tail.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read_all(buffer: &Buffer, mut offset: u64) -> (Vec<u8>, Vec<(u64, u64)>) {
        let (mut bytes, mut gaps) = (Vec::new(), Vec::new());
        loop {
            match buffer.read(offset, 50_000) {
                Piece::Bytes(piece) => {
                    offset += piece.len() as u64;
                    bytes.extend_from_slice(&piece);
                }
                Piece::Gap { to } => {
                    gaps.push((offset, to));
                    offset = to;
                }
                Piece::UpToDate => return (bytes, gaps),
                Piece::Beyond => panic!("a reader cannot get beyond by reading"),
            }
        }
    }

    #[test]
    fn small_streams_are_held_whole_and_read_from_anywhere() {
        let mut buffer = Buffer::default();
        buffer.push(b"hello ");
        buffer.push(b"world");
        assert_eq!(read_all(&buffer, 0), (b"hello world".to_vec(), vec![]));
        assert_eq!(read_all(&buffer, 6), (b"world".to_vec(), vec![]));
        assert_eq!(buffer.read(11, 1), Piece::UpToDate);
        assert_eq!(buffer.read(12, 1), Piece::Beyond);
    }

    #[test]
    fn large_streams_keep_both_ends_and_name_the_gap() {
        let mut buffer = Buffer::default();
        let total = HEAD_BYTES_MAX + TAIL_BYTES_MAX + 1_000_003;
        let all: Vec<u8> = (0..total).map(|index| (index % 251) as u8).collect();
        for piece in all.chunks(60_001) {
            buffer.push(piece);
        }
        assert_eq!(buffer.held(), HEAD_BYTES_MAX + TAIL_BYTES_MAX);
        let (bytes, gaps) = read_all(&buffer, 0);
        let (from, to) = (HEAD_BYTES_MAX as u64, (total - TAIL_BYTES_MAX) as u64);
        assert_eq!(gaps, [(from, to)]);
        assert!(bytes.starts_with(&all[..HEAD_BYTES_MAX]) && bytes.ends_with(&all[total - TAIL_BYTES_MAX..]));
    }

    #[test]
    fn one_huge_piece_is_bounded_too() {
        let mut buffer = Buffer::default();
        buffer.push(&vec![7; HEAD_BYTES_MAX + TAIL_BYTES_MAX * 2]);
        assert_eq!(buffer.held(), HEAD_BYTES_MAX + TAIL_BYTES_MAX);
    }
}
