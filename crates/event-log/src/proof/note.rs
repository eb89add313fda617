//! Signed notes (C2SP signed-note) with Ed25519: text, an empty line, one line per signature.
//!
//! ```text
//!   — NAME BASE64(key id, 4 bytes ‖ signature, 64 bytes)
//! ```
//! A key is a name and a public key; its id is the beginning of a hash over both, so a signature says which of several keys of one
//! name made it. Signatures of keys that the verifier does not know are ignored; one of a known key that is wrong spoils the note;
//! and without one of a known key the note says nothing.

use std::fmt;
use std::str::FromStr;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use ed25519_dalek::{Signature, Signer as _, SigningKey, VerifyingKey};
use sha2::{Digest as _, Sha256};
use zeroize::Zeroizing;

/// Ed25519 among the algorithms of the standard; it stands before the key's bytes.
const ALGORITHM: u8 = 1;
/// What a signature line begins with.
const SIGNATURE_MARK: &str = "\u{2014} ";
/// Between the text and its signatures.
const SEPARATOR: &str = "\n\n";
/// What the text of a secret key begins with.
const SECRET_MARK: &str = "PRIVATE+KEY+";
/// Longer notes are not read.
pub const NOTE_BYTES_MAX: usize = 64 << 10;
/// Notes with more signatures are not read.
pub const SIGNATURES_MAX: usize = 100;

/// The text of a key is not one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum KeyError {
    /// Empty, or with white space or a plus sign.
    #[error("a key's name is not empty and holds neither white space nor a plus sign")]
    Name,
    /// Not the parts that it should have, or not as the standard writes them.
    #[error("not the text of a key")]
    Malformed,
    /// A key of another kind than Ed25519.
    #[error("the key is of an algorithm that is not supported")]
    Algorithm,
    /// The id does not belong to the name and the key.
    #[error("the id does not belong to this name and key")]
    Id,
    /// The bytes are no public key, or one that proves nothing.
    #[error("the bytes are not a usable public key")]
    Point,
}

/// A note is refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NoteError {
    /// Not in the form of the standard.
    #[error("the note is malformed: {0}")]
    Malformed(&'static str),
    /// Over [`NOTE_BYTES_MAX`].
    #[error("the note has {0} bytes, too many to read")]
    TooLarge(usize),
    /// A signature of a known key does not belong to this text.
    #[error("the signature of key {0} is wrong")]
    WrongSignature(KeyId),
    /// No signature is by a known key.
    #[error("no known key has signed the note")]
    NoKnownKey,
    /// Two known keys share name and id.
    #[error("two different keys are known as {0}")]
    Ambiguous(KeyId),
    /// It was to be signed by nobody.
    #[error("there is no key to sign with")]
    NoSigner,
}

/// What a signature names its key by.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct KeyId {
    /// The key's name.
    pub name: String,
    /// The beginning of SHA-256(name ‖ 0x0A ‖ 0x01 ‖ public key).
    pub hash: u32,
}

impl fmt::Display for KeyId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}+{:08x}", self.name, self.hash)
    }
}

/// A public key with its name. Its text is `NAME+ID+BASE64`, as others take it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VerifierKey {
    id: KeyId,
    key: VerifyingKey,
}

impl VerifierKey {
    fn try_new(name: &str, key: VerifyingKey) -> Result<Self, KeyError> {
        if !is_name(name) {
            return Err(KeyError::Name);
        }
        // With such a key everybody's signature is right.
        if key.is_weak() {
            return Err(KeyError::Point);
        }
        let digest = Sha256::new()
            .chain_update(name)
            .chain_update([b'\n', ALGORITHM])
            .chain_update(key.as_bytes())
            .finalize();
        let hash = u32::from_be_bytes([digest[0], digest[1], digest[2], digest[3]]);
        Ok(Self { id: KeyId { name: name.to_owned(), hash }, key })
    }

    /// Name and id.
    #[must_use]
    pub const fn id(&self) -> &KeyId {
        &self.id
    }
}

impl fmt::Display for VerifierKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut bytes = vec![ALGORITHM];
        bytes.extend_from_slice(self.key.as_bytes());
        write!(f, "{}+{}", self.id, STANDARD.encode(bytes))
    }
}

impl FromStr for VerifierKey {
    type Err = KeyError;

    fn from_str(text: &str) -> Result<Self, KeyError> {
        let (name, hash, bytes) = parts(text)?;
        let key = VerifyingKey::from_bytes(&bytes).map_err(|_| KeyError::Point)?;
        let key = Self::try_new(name, key)?;
        if key.id.hash == hash { Ok(key) } else { Err(KeyError::Id) }
    }
}

/// A secret key with its name. Its bytes are wiped when it is dropped, and no format shows them.
#[derive(Clone)]
pub struct SignerKey {
    verifier: VerifierKey,
    secret: SigningKey,
}

impl SignerKey {
    /// The key of a 32-byte seed.
    ///
    /// # Errors
    /// When the name is not one.
    pub fn from_seed(name: &str, seed: &[u8; 32]) -> Result<Self, KeyError> {
        let secret = SigningKey::from_bytes(seed);
        Ok(Self { verifier: VerifierKey::try_new(name, secret.verifying_key())?, secret })
    }

    /// From its text, `PRIVATE+KEY+NAME+ID+BASE64`.
    ///
    /// # Errors
    /// When it is not the text of a secret key.
    pub fn from_text(text: &str) -> Result<Self, KeyError> {
        let (name, hash, seed) = parts(text.strip_prefix(SECRET_MARK).ok_or(KeyError::Malformed)?)?;
        let key = Self::from_seed(name, &Zeroizing::new(seed))?;
        if key.verifier.id.hash == hash { Ok(key) } else { Err(KeyError::Id) }
    }

    /// Its text, wiped when it is dropped.
    #[must_use]
    pub fn to_text(&self) -> Zeroizing<String> {
        let mut bytes = Zeroizing::new([ALGORITHM; 33]);
        bytes[1..].copy_from_slice(self.secret.as_bytes());
        let encoded = Zeroizing::new(STANDARD.encode(*bytes));
        let id = &self.verifier.id;
        // With enough room from the beginning nothing of it is moved and left behind.
        let mut text = Zeroizing::new(String::with_capacity(id.name.len() + encoded.len() + 32));
        for part in [SECRET_MARK, &id.to_string(), "+", &encoded] {
            text.push_str(part);
        }
        text
    }

    /// Its public half.
    #[must_use]
    pub const fn verifier(&self) -> &VerifierKey {
        &self.verifier
    }
}

impl fmt::Debug for SignerKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SignerKey({})", self.verifier.id)
    }
}

/// `NAME+ID+BASE64(algorithm ‖ 32 bytes)`.
fn parts(text: &str) -> Result<(&str, u32, [u8; 32]), KeyError> {
    let mut parts = text.splitn(3, '+');
    let (Some(name), Some(hash), Some(key)) = (parts.next(), parts.next(), parts.next()) else {
        return Err(KeyError::Malformed);
    };
    let lower = |b: u8| b.is_ascii_digit() || matches!(b, b'a'..=b'f');
    if hash.len() != 8 || !hash.bytes().all(lower) {
        return Err(KeyError::Malformed);
    }
    let hash = u32::from_str_radix(hash, 16).map_err(|_| KeyError::Malformed)?;
    let bytes = Zeroizing::new(STANDARD.decode(key).map_err(|_| KeyError::Malformed)?);
    match bytes.split_first() {
        Some((&ALGORITHM, key)) => Ok((name, hash, key.try_into().map_err(|_| KeyError::Malformed)?)),
        Some(_) => Err(KeyError::Algorithm),
        None => Err(KeyError::Malformed),
    }
}

fn is_name(name: &str) -> bool {
    !name.is_empty() && !name.contains(|c: char| c.is_whitespace() || c.is_control() || c == '+')
}

fn is_text(text: &str) -> bool {
    !text.contains(|c: char| c < ' ' && c != '\n')
}

/// Signs a text with every key.
///
/// # Errors
/// When the text cannot be a note's (it ends with a line end and holds no other control character), or there is no key.
pub fn sign(text: &str, keys: &[SignerKey]) -> Result<String, NoteError> {
    if !text.ends_with('\n') || !is_text(text) {
        return Err(NoteError::Malformed("its text is not lines of text"));
    }
    if keys.is_empty() {
        return Err(NoteError::NoSigner);
    }
    let mut note = format!("{text}\n");
    for key in keys {
        let id = &key.verifier.id;
        let mut bytes = id.hash.to_be_bytes().to_vec();
        bytes.extend_from_slice(&key.secret.sign(text.as_bytes()).to_bytes());
        note.push_str(&format!("{SIGNATURE_MARK}{} {}\n", id.name, STANDARD.encode(bytes)));
    }
    Ok(note)
}

/// A note that was read, and not yet verified.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Note {
    text: String,
    signatures: Vec<(KeyId, Vec<u8>)>,
}

impl Note {
    /// Reads a note; nothing is believed yet.
    ///
    /// # Errors
    /// When it is not in the form of the standard, or too large.
    pub fn parse(bytes: &[u8]) -> Result<Self, NoteError> {
        if bytes.len() > NOTE_BYTES_MAX {
            return Err(NoteError::TooLarge(bytes.len()));
        }
        let whole = std::str::from_utf8(bytes).map_err(|_| NoteError::Malformed("it is not UTF-8"))?;
        if !is_text(whole) {
            return Err(NoteError::Malformed("it holds control characters"));
        }
        let (text, lines) =
            whole.rsplit_once(SEPARATOR).ok_or(NoteError::Malformed("it has no signatures"))?;
        let lines = lines.strip_suffix('\n').ok_or(NoteError::Malformed("its last line has no end"))?;
        let signatures = lines.split('\n').map(signature).collect::<Option<Vec<_>>>();
        let signatures = signatures.ok_or(NoteError::Malformed("a signature line is not one"))?;
        if signatures.len() > SIGNATURES_MAX {
            return Err(NoteError::Malformed("it has too many signatures"));
        }
        Ok(Self { text: format!("{text}\n"), signatures })
    }

    /// The text, if a known key has signed it.
    ///
    /// # Errors
    /// When no known key has, or one of its signatures is wrong.
    pub fn verify(&self, known: &[VerifierKey]) -> Result<&str, NoteError> {
        let mut verified = false;
        for (id, signature) in &self.signatures {
            let mut keys = known.iter().filter(|key| key.id == *id);
            let Some(key) = keys.next() else { continue };
            if keys.any(|other| other != key) {
                return Err(NoteError::Ambiguous(id.clone()));
            }
            let right = Signature::from_slice(signature)
                .is_ok_and(|signature| key.key.verify_strict(self.text.as_bytes(), &signature).is_ok());
            if !right {
                return Err(NoteError::WrongSignature(id.clone()));
            }
            verified = true;
        }
        if verified { Ok(&self.text) } else { Err(NoteError::NoKnownKey) }
    }

    /// The text, whoever signed it: for comparing, not for believing.
    #[must_use]
    pub fn unverified_text(&self) -> &str {
        &self.text
    }

    /// The keys that claim to have signed it.
    pub fn signers(&self) -> impl Iterator<Item = &KeyId> {
        self.signatures.iter().map(|(id, _)| id)
    }
}

fn signature(line: &str) -> Option<(KeyId, Vec<u8>)> {
    let (name, encoded) = line.strip_prefix(SIGNATURE_MARK)?.split_once(' ')?;
    let bytes = STANDARD.decode(encoded).ok()?;
    let (hash, signature) = bytes.split_first_chunk::<4>()?;
    if !is_name(name) || signature.is_empty() {
        return None;
    }
    let id = KeyId { name: name.to_owned(), hash: u32::from_be_bytes(*hash) };
    Some((id, signature.to_vec()))
}

#[cfg(test)]
mod tests;
