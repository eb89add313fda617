//! Server-sent events (WHATWG HTML, section 9.2), as far as our own service sends them.

/// One event.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Frame {
    /// Its name.
    pub(super) event: String,
    /// Where to go on after it.
    pub(super) id: String,
    /// Its data.
    pub(super) data: String,
}

/// Cuts a byte stream into events.
#[derive(Debug, Default)]
pub(super) struct Parser {
    line: Vec<u8>,
    frame: Frame,
}

impl Parser {
    /// The events that end in these bytes.
    pub(super) fn push(&mut self, bytes: &[u8]) -> Vec<Frame> {
        let mut frames = Vec::new();
        for &byte in bytes {
            if byte != b'\n' {
                self.line.push(byte);
                continue;
            }
            let line = String::from_utf8_lossy(&self.line).into_owned();
            self.line.clear();
            frames.extend(self.line(line.trim_end_matches('\r')));
        }
        frames
    }

    fn line(&mut self, line: &str) -> Option<Frame> {
        if line.is_empty() {
            let frame = std::mem::take(&mut self.frame);
            return (!frame.event.is_empty()).then_some(frame);
        }
        let (field, value) = line.split_once(':').unwrap_or((line, ""));
        let value = value.strip_prefix(' ').unwrap_or(value);
        match field {
            "event" => value.clone_into(&mut self.frame.event),
            "id" => value.clone_into(&mut self.frame.id),
            "data" => {
                if !self.frame.data.is_empty() {
                    self.frame.data.push('\n');
                }
                self.frame.data.push_str(value);
            }
            // A comment keeps the connection alive.
            _ => {}
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_are_found_wherever_the_bytes_are_cut() {
        let stream = ": hello\n\nevent: stdout\nid: 3.0\ndata: {\"text\":\"a\"}\n\nevent: exit\r\ndata: 1\r\ndata: 2\r\n\r\n";
        for cut in 1..stream.len() {
            let mut parser = Parser::default();
            let mut frames = Vec::new();
            for piece in stream.as_bytes().chunks(cut) {
                frames.extend(parser.push(piece));
            }
            assert_eq!(frames.len(), 2, "cut at {cut}");
            assert_eq!((frames[0].event.as_str(), frames[0].id.as_str()), ("stdout", "3.0"));
            assert_eq!(frames[1].data, "1\n2");
        }
    }
}
