//! The text of a head (C2SP tlog-checkpoint): which log, how many leaves, which root.
//!
//! ```text
//!   ORIGIN
//!   SIZE, decimal
//!   ROOT, base64
//!   extension lines, which we write none of
//! ```

use std::fmt;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use super::Hash;
use super::note::{Note, NoteError, SignerKey, VerifierKey, sign};

/// Trees end below 2^63 leaves for everybody who reads sizes as signed numbers.
const SIZE_MAX: u64 = i64::MAX.unsigned_abs();

/// A head of a log: its first `size` leaves have this root.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Checkpoint {
    /// Names the log; also the name of the key that signs.
    pub origin: String,
    /// How many leaves.
    pub size: u64,
    /// Root of their tree.
    pub root: Hash,
    /// Further lines, none of them empty.
    pub extensions: Vec<String>,
}

/// A text is no checkpoint, or not one to be believed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CheckpointError {
    /// The note is malformed, or no known key vouches for it.
    #[error(transparent)]
    Note(#[from] NoteError),
    /// The text is not in the form of the standard.
    #[error("the checkpoint is malformed: {0}")]
    Malformed(&'static str),
    /// It is about another log.
    #[error("the checkpoint is about another log: {found:?}")]
    Origin {
        /// The other log's name.
        found: String,
    },
}

impl Checkpoint {
    /// Reads the text of a note.
    ///
    /// # Errors
    /// When it is not exactly what [`Checkpoint`] writes.
    pub fn parse(text: &str) -> Result<Self, CheckpointError> {
        let malformed = CheckpointError::Malformed;
        let text = text.strip_suffix('\n').ok_or(malformed("its last line has no end"))?;
        let mut lines = text.split('\n');
        let (Some(origin), Some(size), Some(root)) = (lines.next(), lines.next(), lines.next()) else {
            return Err(malformed("it has fewer than three lines"));
        };
        let extensions: Vec<String> = lines.map(str::to_owned).collect();
        if origin.is_empty() || extensions.iter().any(String::is_empty) {
            return Err(malformed("a line is empty"));
        }
        // No sign, no leading zero.
        let number = size.parse::<u64>().ok().filter(|number| number.to_string() == size);
        let size = number.filter(|size| *size <= SIZE_MAX).ok_or(malformed("its size is no number"))?;
        let root = STANDARD.decode(root).ok().and_then(|bytes| Hash::try_from(bytes).ok());
        let root = root.ok_or(malformed("its root is no hash"))?;
        Ok(Self { origin: origin.to_owned(), size, root, extensions })
    }

    /// Reads and verifies a note about the log `origin`.
    ///
    /// # Errors
    /// When it is malformed, about another log, or not signed by a known key.
    pub fn open(note: &[u8], origin: &str, known: &[VerifierKey]) -> Result<Self, CheckpointError> {
        let note = Note::parse(note)?;
        let checkpoint = Self::parse(note.verify(known)?)?;
        if checkpoint.origin == origin {
            Ok(checkpoint)
        } else {
            Err(CheckpointError::Origin { found: checkpoint.origin })
        }
    }

    /// Its signed note.
    ///
    /// # Errors
    /// When there is no key, or a line of it cannot be in a note.
    pub fn sign(&self, keys: &[SignerKey]) -> Result<String, NoteError> {
        sign(&self.to_string(), keys)
    }
}

impl fmt::Display for Checkpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}\n{}\n{}\n", self.origin, self.size, STANDARD.encode(self.root))?;
        self.extensions.iter().try_for_each(|line| writeln!(f, "{line}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn checkpoint() -> Checkpoint {
        Checkpoint {
            origin: "example.org/log".to_owned(),
            size: 20_852_163,
            root: [0xc5; 32],
            extensions: Vec::new(),
        }
    }

    #[test]
    fn is_written_and_read_as_three_lines_and_more() {
        let mut checkpoint = checkpoint();
        let text = "example.org/log\n20852163\nxcXFxcXFxcXFxcXFxcXFxcXFxcXFxcXFxcXFxcXFxcU=\n";
        assert_eq!(checkpoint.to_string(), text);
        assert_eq!(Checkpoint::parse(text).unwrap(), checkpoint);
        checkpoint.extensions = vec!["more".to_owned(), "\u{2014} like a signature".to_owned()];
        assert_eq!(Checkpoint::parse(&checkpoint.to_string()).unwrap(), checkpoint);
        checkpoint.size = 0;
        assert_eq!(Checkpoint::parse(&checkpoint.to_string()).unwrap(), checkpoint);
    }

    #[test]
    fn anything_else_is_refused() {
        let root = STANDARD.encode([7; 32]);
        for text in [
            String::new(),
            "\n".to_owned(),
            "o\n1\n".to_owned(),
            format!("o\n1\n{root}"),
            format!("\n1\n{root}\n"),
            format!("o\n\n{root}\n"),
            format!("o\n01\n{root}\n"),
            format!("o\n+1\n{root}\n"),
            format!("o\n-1\n{root}\n"),
            format!("o\n 1\n{root}\n"),
            format!("o\n1 \n{root}\n"),
            format!("o\n9223372036854775808\n{root}\n"),
            format!("o\n1\n{root}\n\n"),
            format!("o\n1\n{root}\n\nx\n"),
            format!("o\n1\n{}\n", STANDARD.encode([7; 31])),
            format!("o\n1\n{}\n", STANDARD.encode([7; 33])),
            format!("o\n1\n{}\n", root.trim_end_matches('=')),
            format!("o\n1\n{}\n", hex::encode([7; 32])),
            format!("o\r\n1\r\n{root}\r\n"),
        ] {
            assert!(matches!(Checkpoint::parse(&text), Err(CheckpointError::Malformed(_))), "{text:?}");
        }
    }

    #[test]
    fn opens_for_its_log_and_its_keys_alone() {
        let checkpoint = checkpoint();
        let key = |seed| SignerKey::from_seed("example.org/log", &[seed; 32]).unwrap();
        let note = checkpoint.sign(&[key(1), key(2)]).unwrap();
        let open = |origin, seed| {
            Checkpoint::open(note.as_bytes(), origin, &[SignerKey::verifier(&key(seed)).clone()])
        };
        assert_eq!(open("example.org/log", 2), Ok(checkpoint));
        assert_eq!(open("example.org/log", 3), Err(NoteError::NoKnownKey.into()));
        let found = "example.org/log".to_owned();
        assert_eq!(open("example.org/other", 1), Err(CheckpointError::Origin { found }));
        let text = sign("not a checkpoint\n", &[key(1)]).unwrap();
        let opened = Checkpoint::open(text.as_bytes(), "example.org/log", &[key(1).verifier().clone()]);
        assert!(matches!(opened, Err(CheckpointError::Malformed(_))));
    }
}
