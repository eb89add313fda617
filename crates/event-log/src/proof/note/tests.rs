use super::*;

/// Key and signature from the documentation of Go's package.
const SECRET: &str = "PRIVATE+KEY+PeterNeumann+c74f20a3+AYEKFALVFGyNhPJEMzD1QIDr+Y7hfZx09iUvxdXHKDFz";
const PUBLIC: &str = "PeterNeumann+c74f20a3+ARpc2QcUPDhMQegwxbzhKqiBfsVkmqq/LDE4izWy10TW";
const TEXT: &str =
    "If you think cryptography is the answer to your problem,\nthen you don't know what your problem is.\n";
const SIGNATURE: &str = "\u{2014} PeterNeumann x08go/ZJkuBS9UG/SffcvIAQxVBtiFupLLr8pAcElZInNIuGUgYN1FFYC2pZSNXgKvqfqdngotpRZb6KE6RyyBwJnAM=\n";

fn key(name: &str, seed: u8) -> SignerKey {
    SignerKey::from_seed(name, &[seed; 32]).unwrap()
}

fn published() -> SignerKey {
    SignerKey::from_text(SECRET).unwrap()
}

fn verify(note: &str, known: &[&SignerKey]) -> Result<String, NoteError> {
    let known: Vec<_> = known.iter().map(|key| key.verifier().clone()).collect();
    Note::parse(note.as_bytes())?.verify(&known).map(str::to_owned)
}

#[test]
fn the_published_key_signs_the_published_note() {
    let key = published();
    assert_eq!(*key.to_text(), SECRET);
    assert_eq!(key.verifier().to_string(), PUBLIC);
    assert_eq!(PUBLIC.parse::<VerifierKey>().unwrap(), *key.verifier());
    let note = sign(TEXT, std::slice::from_ref(&key)).unwrap();
    assert_eq!(note, format!("{TEXT}\n{SIGNATURE}"));
    assert_eq!(verify(&note, &[&key]).unwrap(), TEXT);
    assert_eq!(format!("{key:?}"), "SignerKey(PeterNeumann+c74f20a3)");
}

#[test]
fn any_known_key_suffices_and_unknown_ones_are_ignored() {
    let (old, new, other) = (key("a/log", 1), key("a/log", 2), key("b/log", 1));
    let note = sign("text\n\nmore\n", &[old.clone(), new.clone()]).unwrap();
    for known in [&[&old][..], &[&new], &[&old, &new], &[&other, &new]] {
        assert_eq!(verify(&note, known).unwrap(), "text\n\nmore\n");
    }
    assert_eq!(verify(&note, &[&other]), Err(NoteError::NoKnownKey));
    assert_eq!(verify(&note, &[]), Err(NoteError::NoKnownKey));
    let parsed = Note::parse(note.as_bytes()).unwrap();
    assert_eq!(parsed.unverified_text(), "text\n\nmore\n");
    assert_eq!(parsed.signers().collect::<Vec<_>>(), [old.verifier().id(), new.verifier().id()]);
    // An unknown algorithm's signature has another length.
    let strange = format!("{note}\u{2014} c/log {}\n", STANDARD.encode([9; 300]));
    assert_eq!(verify(&strange, &[&old]).unwrap(), "text\n\nmore\n");
}

#[test]
fn a_wrong_signature_of_a_known_key_spoils_the_note() {
    let (old, new) = (key("a/log", 1), key("a/log", 2));
    let note = sign("text\n", &[old.clone(), new.clone()]).unwrap();
    let changed = note.replace("text", "tex7");
    assert_eq!(verify(&changed, &[&old]), Err(NoteError::WrongSignature(old.verifier().id().clone())));
    // One right one does not make up for it.
    let [_, line] = [0, 1].map(|n| {
        sign("other\n", &[old.clone(), new.clone()]).unwrap().lines().nth(2 + n).unwrap().to_owned()
    });
    let mixed = format!("text\n\n{}\n{line}\n", note.lines().nth(2).unwrap());
    assert_eq!(verify(&mixed, &[&old]).unwrap(), "text\n");
    assert_eq!(verify(&mixed, &[&old, &new]), Err(NoteError::WrongSignature(new.verifier().id().clone())));
    let short = format!(
        "text\n\n{SIGNATURE_MARK}a/log {}\n",
        STANDARD.encode([&old.verifier.id.hash.to_be_bytes()[..], &[0; 63]].concat())
    );
    assert_eq!(verify(&short, &[&old]), Err(NoteError::WrongSignature(old.verifier().id().clone())));
}

#[test]
fn two_keys_of_one_id_are_never_guessed_between() {
    let key = key("a/log", 1);
    let mut twin = SignerKey::from_seed("a/log", &[2; 32]).unwrap();
    twin.verifier.id.hash = key.verifier.id.hash;
    let note = sign("text\n", std::slice::from_ref(&key)).unwrap();
    assert_eq!(verify(&note, &[&key, &twin]), Err(NoteError::Ambiguous(key.verifier().id().clone())));
    assert_eq!(verify(&note, &[&key, &key]).unwrap(), "text\n");
}

#[test]
fn hostile_notes_are_refused() {
    let good = sign("text\n", &[published()]).unwrap();
    let line = good.lines().nth(2).unwrap();
    let encoded = line.rsplit_once(' ').unwrap().1;
    let malformed = [
        String::new(),
        "\n\n".to_owned(),
        "text\n".to_owned(),
        "text\n\n".to_owned(),
        format!("text\n{line}\n"),
        format!("text\n\n{line}"),
        format!("text\n\n{line}\n\n"),
        format!("text\n\n\n{line}\nx\n"),
        format!("te\u{0}xt\n\n{line}\n"),
        format!("te\rxt\n\n{line}\n"),
        format!("te\txt\n\n{line}\n"),
        format!("text\r\n\r\n{line}\r\n"),
        format!("text\n\n-{}\n", line.strip_prefix('\u{2014}').unwrap()),
        format!("text\n\n{line} \n"),
        format!("text\n\n{}\n", line.replace(' ', "  ")),
        format!("text\n\n{SIGNATURE_MARK}{encoded}\n"),
        format!("text\n\n{SIGNATURE_MARK}a+b {encoded}\n"),
        format!("text\n\n{SIGNATURE_MARK}a\u{a0}b {encoded}\n"),
        format!("text\n\n{SIGNATURE_MARK}a/log \n"),
        format!("text\n\n{SIGNATURE_MARK}a/log AAAA\n"),
        format!("text\n\n{SIGNATURE_MARK}a/log AAAAAA==\n"),
        // Bits that no byte has, missing padding, the other alphabet.
        format!("text\n\n{SIGNATURE_MARK}a/log AAAAAAB=\n"),
        format!("text\n\n{SIGNATURE_MARK}a/log AAAAAAA\n"),
        format!("text\n\n{SIGNATURE_MARK}a/log AAAA_-AA\n"),
        format!("text\n\n{}", format!("{line}\n").repeat(SIGNATURES_MAX + 1)),
    ];
    for note in malformed {
        assert!(matches!(Note::parse(note.as_bytes()), Err(NoteError::Malformed(_))), "{note:?}");
    }
    assert!(matches!(Note::parse(b"te\xfft\n\n"), Err(NoteError::Malformed(_))));
    let large = format!("{}\n\n{line}\n", "x".repeat(NOTE_BYTES_MAX));
    assert!(matches!(Note::parse(large.as_bytes()), Err(NoteError::TooLarge(_))));
    for text in ["", "text", "te\u{7}xt\n", "text\r\n"] {
        assert!(matches!(sign(text, &[published()]), Err(NoteError::Malformed(_))), "{text:?}");
    }
    assert_eq!(sign("text\n", &[]), Err(NoteError::NoSigner));
}

#[test]
fn texts_of_keys_are_taken_as_written_or_not_at_all() {
    let parse = |text: &str| text.parse::<VerifierKey>().unwrap_err();
    let (head, encoded) = PUBLIC.rsplit_once("+").unwrap();
    assert_eq!(parse(""), KeyError::Malformed);
    assert_eq!(parse("PeterNeumann"), KeyError::Malformed);
    assert_eq!(parse(head), KeyError::Malformed);
    assert_eq!(parse(&format!("+c74f20a3+{encoded}")), KeyError::Name);
    assert_eq!(parse(&PUBLIC.replace("Peter", "Peter ")), KeyError::Name);
    assert_eq!(parse(&PUBLIC.replace("c74f20a3", "C74F20A3")), KeyError::Malformed);
    assert_eq!(parse(&PUBLIC.replace("c74f20a3", "+74f20a3")), KeyError::Malformed);
    assert_eq!(parse(&PUBLIC.replace("c74f20a3", "c74f20a4")), KeyError::Id);
    assert_eq!(parse(&PUBLIC.replace("Peter", "Petra")), KeyError::Id);
    assert_eq!(parse(&format!("{PUBLIC}\n")), KeyError::Malformed);
    assert_eq!(parse(&format!("{PUBLIC}=")), KeyError::Malformed);
    assert_eq!(parse(&format!("{head}+{}", STANDARD.encode([1; 32]))), KeyError::Malformed);
    assert_eq!(parse(&format!("{head}+{}", STANDARD.encode([2; 33]))), KeyError::Algorithm);
    // A public key for which a signature of zeros is right for anything.
    let mut weak = [0; 33];
    (weak[0], weak[1]) = (1, 1);
    assert_eq!(parse(&format!("{head}+{}", STANDARD.encode(weak))), KeyError::Point);

    let parse = |text: &str| SignerKey::from_text(text).unwrap_err();
    assert_eq!(parse(PUBLIC), KeyError::Malformed);
    assert_eq!(parse(&SECRET.replace("c74f20a3", "c74f20a4")), KeyError::Id);
    assert_eq!(parse(&SECRET.replace("PRIVATE", "private")), KeyError::Malformed);
    assert_eq!(parse(&format!("{SECRET}AA")), KeyError::Malformed);
    assert!(matches!(SignerKey::from_seed("a b", &[1; 32]), Err(KeyError::Name)));
}
