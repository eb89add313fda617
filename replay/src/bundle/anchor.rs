//! The signed head of a bundle, and each event's inclusion in it.
//!
//! Proofs are checked against the head even where nobody vouches for it: a file that contradicts itself was changed.

use event_log::proof::Hash;
use event_log::proof::checkpoint::{Checkpoint, CheckpointError};
use event_log::proof::note::{KeyId, Note, NoteError, VerifierKey};
use event_log::proof::tree::verify_inclusion;
use events::Position;

/// Faults that are told one by one.
const FAULTS_TOLD_MAX: usize = 100;

/// Takes the events of a bundle.
#[derive(Debug, Default)]
pub(super) struct Anchoring {
    /// There is a note, whatever it is worth.
    noted: bool,
    /// What the note says, if it can be read.
    pub(super) checkpoint: Option<Checkpoint>,
    /// The believed keys that have signed it.
    pub(super) signers: Vec<KeyId>,
    /// Events that are proven in its tree.
    pub(super) proven: u64,
    /// How many faults were found.
    pub(super) faults_found: u64,
    /// The first of them.
    pub(super) faults: Vec<(Option<Position>, String)>,
}

impl Anchoring {
    /// The head of a log named `origin`, believed only with one of `keys`; without any it is read and nothing is believed.
    pub(super) fn open(note: Option<&str>, origin: &str, keys: &[VerifierKey]) -> Self {
        let mut anchoring = Self { noted: note.is_some(), ..Self::default() };
        if let Some(key) = keys.first()
            && key.id().name != origin
        {
            anchoring
                .note(None, format!("the log calls itself {origin:?}, the keys are for {:?}", key.id().name));
        }
        let Some(note) = note else { return anchoring };
        match read(note, origin, keys) {
            Ok((checkpoint, signers)) => {
                (anchoring.checkpoint, anchoring.signers) = (Some(checkpoint), signers);
            }
            Err(reason) => anchoring.note(None, format!("the checkpoint is refused: {reason}")),
        }
        anchoring
    }

    /// The next event.
    pub(super) fn follow(&mut self, position: Position, leaf: &Hash, proof: Option<&[Hash]>) {
        let fault = match (&self.checkpoint, proof) {
            (Some(Checkpoint { size, root, .. }), Some(proof)) => {
                match verify_inclusion(leaf, position.get(), *size, proof, root) {
                    Ok(()) => {
                        self.proven += 1;
                        return;
                    }
                    Err(reason) => format!("not shown to be at this position of checkpoint {size}: {reason}"),
                }
            }
            (Some(Checkpoint { size, .. }), None) if position.get() < *size => {
                format!("checkpoint {size} covers it, and its proof is missing")
            }
            (None, Some(_)) if !self.noted => "there is a proof, and no checkpoint".to_owned(),
            _ => return,
        };
        self.note(Some(position), fault);
    }

    pub(super) fn note(&mut self, position: Option<Position>, fault: String) {
        self.faults_found += 1;
        if self.faults.len() < FAULTS_TOLD_MAX {
            self.faults.push((position, fault));
        }
    }
}

fn read(note: &str, origin: &str, keys: &[VerifierKey]) -> Result<(Checkpoint, Vec<KeyId>), CheckpointError> {
    let signed = Note::parse(note.as_bytes())?;
    if keys.is_empty() {
        let checkpoint = Checkpoint::parse(signed.unverified_text())?;
        return if checkpoint.origin == origin {
            Ok((checkpoint, Vec::new()))
        } else {
            Err(CheckpointError::Origin { found: checkpoint.origin })
        };
    }
    let checkpoint = Checkpoint::open(note.as_bytes(), origin, keys)?;
    let known = |id: &&KeyId| keys.iter().any(|key| key.id() == *id);
    let signers: Vec<KeyId> = signed.signers().filter(known).cloned().collect();
    if signers.is_empty() { Err(NoteError::NoKnownKey.into()) } else { Ok((checkpoint, signers)) }
}
