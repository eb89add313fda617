//! A command's output as server-sent events: each byte once, in order, text where it is text.
//!
//! `id` is the cursor after the event, so a client that reconnects with the last id it saw misses nothing and sees nothing
//! twice. A code point that is cut by a chunk's end is held back until the rest has arrived; bytes that are not UTF-8 go out as
//! base64. What is held back is not part of the cursor yet: a client that reconnects gets it again from the start.

use std::convert::Infallible;

use axum::response::sse::Event;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use futures::{Stream, StreamExt as _};
use runtime_adapter::ports::OutputStream;
use serde_json::{Value, json};

use super::shapes::Command;
use crate::api::{OutputCursor, OutputItem, OutputItems};

/// One event before it is written.
#[derive(Clone, Debug, PartialEq)]
enum Frame {
    Event { name: &'static str, id: OutputCursor, data: Value },
    Comment,
}

/// What is known about one of the two streams.
#[derive(Clone, Debug, Default)]
struct Held {
    /// The beginning of a code point: at most 3 bytes.
    bytes: Vec<u8>,
}

/// Turns items into events.
#[derive(Clone, Debug)]
struct Encoder {
    /// What the client has after the events so far.
    cursor: OutputCursor,
    stdout: Held,
    stderr: Held,
}

impl Encoder {
    fn new(cursor: OutputCursor) -> Self {
        Self { cursor, stdout: Held::default(), stderr: Held::default() }
    }

    fn encode(&mut self, item: OutputItem) -> Vec<Frame> {
        let mut frames = Vec::new();
        match item {
            OutputItem::Chunk { stream, offset, bytes } => self.chunk(&mut frames, stream, offset, &bytes),
            OutputItem::Gap { stream, from, to } => {
                self.flush(&mut frames, stream);
                *self.sent(stream) = to;
                let data = json!({ "stream": name(stream), "from": from, "to": to, "artifact_id": null });
                frames.push(self.event("gap", data));
            }
            OutputItem::KeepAlive => frames.push(Frame::Comment),
            OutputItem::Exit(row) => {
                self.flush(&mut frames, OutputStream::Stdout);
                self.flush(&mut frames, OutputStream::Stderr);
                // Our own types: their JSON form cannot fail.
                let data = serde_json::to_value(Command::from(*row)).unwrap_or_default();
                frames.push(self.event("exit", data));
            }
        }
        frames
    }

    fn chunk(&mut self, frames: &mut Vec<Frame>, stream: OutputStream, offset: u64, bytes: &Bytes) {
        let held = std::mem::take(&mut self.held(stream).bytes);
        *self.sent(stream) = offset.saturating_sub(held.len() as u64);
        let whole = [held.as_slice(), bytes].concat();
        let end = whole.len() - cut_code_point(&whole);
        self.held(stream).bytes = whole[end..].to_vec();
        self.emit(frames, stream, &whole[..end]);
    }

    /// Sends what was held back: the rest of it does not come.
    fn flush(&mut self, frames: &mut Vec<Frame>, stream: OutputStream) {
        let held = std::mem::take(&mut self.held(stream).bytes);
        self.emit(frames, stream, &held);
    }

    fn emit(&mut self, frames: &mut Vec<Frame>, stream: OutputStream, bytes: &[u8]) {
        if bytes.is_empty() {
            return;
        }
        let offset = *self.sent(stream);
        *self.sent(stream) = offset + bytes.len() as u64;
        let data = match std::str::from_utf8(bytes) {
            Ok(text) => json!({ "offset": offset, "text": text }),
            Err(_) => json!({ "offset": offset, "base64": STANDARD.encode(bytes) }),
        };
        frames.push(self.event(name(stream), data));
    }

    fn event(&self, name: &'static str, data: Value) -> Frame {
        Frame::Event { name, id: self.cursor, data }
    }

    fn held(&mut self, stream: OutputStream) -> &mut Held {
        match stream {
            OutputStream::Stdout => &mut self.stdout,
            OutputStream::Stderr => &mut self.stderr,
        }
    }

    fn sent(&mut self, stream: OutputStream) -> &mut u64 {
        match stream {
            OutputStream::Stdout => &mut self.cursor.stdout,
            OutputStream::Stderr => &mut self.cursor.stderr,
        }
    }
}

const fn name(stream: OutputStream) -> &'static str {
    match stream {
        OutputStream::Stdout => "stdout",
        OutputStream::Stderr => "stderr",
    }
}

/// Number of bytes at the end that begin a code point and do not finish it: 0 to 3.
fn cut_code_point(bytes: &[u8]) -> usize {
    let tail_start = bytes.len().saturating_sub(3);
    for (index, byte) in bytes.iter().enumerate().skip(tail_start).rev() {
        let width = match byte {
            0xc2..=0xdf => 2,
            0xe0..=0xef => 3,
            0xf0..=0xf4 => 4,
            0x80..=0xbf => continue,
            _ => return 0,
        };
        let tail = &bytes[index..];
        // What is there must be able to become a code point: no error but the missing end.
        let unfinished =
            tail.len() < width && std::str::from_utf8(tail).is_err_and(|error| error.error_len().is_none());
        return if unfinished { tail.len() } else { 0 };
    }
    0
}

/// The stream of events from `cursor` on. A failure on the way ends it without `exit`: the client resumes at its last id.
pub(super) fn events(
    items: OutputItems,
    cursor: OutputCursor,
) -> impl Stream<Item = Result<Event, Infallible>> + Send + 'static {
    let encoder = Encoder::new(cursor);
    items
        .scan(encoder, |encoder, item| {
            let frames = match item {
                Ok(item) => Some(encoder.encode(item)),
                Err(error) => {
                    tracing::warn!(%error, "an output stream ended early");
                    None
                }
            };
            std::future::ready(frames)
        })
        .flat_map(|frames| futures::stream::iter(frames.into_iter().map(|frame| Ok(write(frame)))))
}

fn write(frame: Frame) -> Event {
    match frame {
        Frame::Event { name, id, data } => {
            Event::default().event(name).id(id.to_string()).data(data.to_string())
        }
        Frame::Comment => Event::default().comment("keep-alive"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chunk(stream: OutputStream, offset: u64, bytes: &[u8]) -> OutputItem {
        OutputItem::Chunk { stream, offset, bytes: Bytes::copy_from_slice(bytes) }
    }

    fn run(cursor: OutputCursor, items: Vec<OutputItem>) -> Vec<(String, String, Value)> {
        let mut encoder = Encoder::new(cursor);
        items
            .into_iter()
            .flat_map(|item| encoder.encode(item))
            .map(|frame| match frame {
                Frame::Event { name, id, data } => (name.to_owned(), id.to_string(), data),
                Frame::Comment => (String::new(), String::new(), Value::Null),
            })
            .collect()
    }

    fn event(name: &str, id: &str, data: Value) -> (String, String, Value) {
        (name.to_owned(), id.to_owned(), data)
    }

    #[test]
    fn ids_count_the_bytes_of_both_streams() {
        let events = run(
            OutputCursor { stdout: 2, stderr: 0 },
            vec![
                chunk(OutputStream::Stdout, 2, b"abc\n"),
                chunk(OutputStream::Stderr, 0, b"e"),
                OutputItem::KeepAlive,
            ],
        );
        assert_eq!(
            events,
            [
                event("stdout", "6.0", json!({"offset": 2, "text": "abc\n"})),
                event("stderr", "6.1", json!({"offset": 0, "text": "e"})),
                event("", "", Value::Null),
            ]
        );
    }

    #[test]
    fn a_code_point_waits_for_its_end() {
        // U+1F600 is f0 9f 98 80.
        let events = run(
            OutputCursor::default(),
            vec![
                chunk(OutputStream::Stdout, 0, b"a\xf0\x9f"),
                chunk(OutputStream::Stderr, 0, b"\xe6"),
                chunk(OutputStream::Stdout, 3, b"\x98"),
                chunk(OutputStream::Stdout, 4, b"\x80b"),
                chunk(OutputStream::Stderr, 1, b"\xbc\xa2"),
            ],
        );
        assert_eq!(
            events,
            [
                event("stdout", "1.0", json!({"offset": 0, "text": "a"})),
                event("stdout", "6.0", json!({"offset": 1, "text": "\u{1f600}b"})),
                event("stderr", "6.3", json!({"offset": 0, "text": "\u{6f22}"})),
            ]
        );
    }

    #[test]
    fn other_bytes_are_exact() {
        let events = run(
            OutputCursor::default(),
            vec![
                chunk(OutputStream::Stdout, 0, b"a\xffb\xe6"),
                OutputItem::Gap { stream: OutputStream::Stdout, from: 4, to: 10 },
                chunk(OutputStream::Stdout, 10, b"\x80\x80"),
            ],
        );
        assert_eq!(
            events,
            [
                event("stdout", "3.0", json!({"offset": 0, "base64": "Yf9i"})),
                event("stdout", "4.0", json!({"offset": 3, "base64": "5g=="})),
                event("gap", "10.0", json!({"stream": "stdout", "from": 4, "to": 10, "artifact_id": null})),
                event("stdout", "12.0", json!({"offset": 10, "base64": "gIA="})),
            ]
        );
    }

    #[test]
    fn only_a_possible_beginning_is_held() {
        for (bytes, held) in [
            (&b""[..], 0),
            (b"abc", 0),
            (b"\xe6\xbc\xa2", 0),
            (b"\xe6", 1),
            (b"\xe6\xbc", 2),
            (b"\xf0\x9f\x98", 3),
            (b"\xff", 0),
            (b"\x80\x80\x80", 0),
            (b"\xc0", 0),
            (b"\xe0\x80", 0),
            (b"\xed\xa0", 0),
            (b"\xf5\x80", 0),
            (b"\xff\xe6", 1),
        ] {
            assert_eq!(cut_code_point(bytes), held, "{bytes:x?}");
        }
    }

    #[test]
    fn every_cut_of_a_text_gives_the_text() {
        let text = "aß漢😀\u{0}\r\nz".repeat(3);
        for size in 1..=9 {
            let items = text
                .as_bytes()
                .chunks(size)
                .scan(0, |offset, bytes| {
                    let item = chunk(OutputStream::Stdout, *offset, bytes);
                    *offset += bytes.len() as u64;
                    Some(item)
                })
                .collect();
            let seen: String = run(OutputCursor::default(), items)
                .iter()
                .map(|(_, _, data)| data["text"].as_str().expect("text").to_owned())
                .collect();
            assert_eq!(seen, text, "cut every {size} bytes");
        }
    }
}
