//! Other people's code believes us: the Go checksum database's packages, as Debian ships them.

use std::io::Write as _;
use std::path::Path;
use std::process::{Command, Stdio};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use event_log::proof::checkpoint::Checkpoint;
use event_log::proof::note::{NoteError, VerifierKey};
use event_log::proof::tiles::TileId;
use events::Position;
use serde_json::{Value, json};

use super::sealing;
use crate::support::session;

/// Runs the checker; its answer, or what it has to say against the document.
#[expect(clippy::disallowed_methods, reason = "a test that asks another program")]
fn run(program: &Path, document: &Value) -> Result<Value, String> {
    let mut child = Command::new(program)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(&serde_json::to_vec(document).unwrap()).unwrap();
    let output = child.wait_with_output().unwrap();
    if output.status.success() {
        Ok(serde_json::from_slice(&output.stdout).unwrap())
    } else {
        Err(String::from_utf8_lossy(&output.stderr).into_owned())
    }
}

/// Compiles the checker offline, against the packages of the distribution.
#[expect(clippy::disallowed_methods, reason = "a test that asks another program")]
fn compile(dir: &Path) -> std::path::PathBuf {
    let program = dir.join("check");
    let output = Command::new("go")
        .args(["build", "-o"])
        .arg(&program)
        .arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/go/check.go"))
        .env("GO111MODULE", "off")
        .env("GOPATH", "/usr/share/gocode")
        .env("GOPROXY", "off")
        .env("GOFLAGS", "")
        .env("CGO_ENABLED", "0")
        .env("GOCACHE", dir.join("cache"))
        .output()
        .expect("the Debian packages golang-go and golang-golang-x-mod-dev are installed (./dev setup)");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    program
}

fn encoded(hashes: &[[u8; 32]]) -> Vec<String> {
    hashes.iter().map(|hash| STANDARD.encode(hash)).collect()
}

#[tokio::test]
async fn debians_go_packages_accept_notes_tiles_and_proofs() {
    let sealing = sealing().await;
    for count in [5, 300, 1, 394] {
        sealing.append(count).await;
        sealing.seal().await;
    }
    let leaves = sealing.leaves().await;
    let proofs = sealing.proofs();
    let note = proofs.last_checkpoint().await.unwrap().unwrap().note;
    let client = session(&sealing.fixture.database.audit_url()).await;
    // Every row, and the last leaves, which are none; as they are served.
    let mut ids = TileId::edge(700);
    for row in client.query("SELECT level, index, width FROM log.tiles", &[]).await.unwrap() {
        let (level, index, width): (i16, i64, i16) = (row.get(0), row.get(1), row.get(2));
        ids.push(TileId::try_new(level as u8, index as u64, width as u16).unwrap());
    }
    let mut tiles = Vec::new();
    for id in ids {
        let data = proofs.tile(id).await.unwrap().unwrap();
        tiles.push(json!({
            "Path": id.to_string(), "Level": id.level(), "Index": id.index(), "Width": id.width(),
            "Data": STANDARD.encode(data),
        }));
    }
    let sizes = [1_u64, 2, 5, 256, 257, 306, 512, 699, 700];
    let (mut inclusions, mut consistencies) = (Vec::new(), Vec::new());
    for (n, size) in sizes.into_iter().enumerate() {
        for index in [0, size / 2, size - 1] {
            let proof = proofs.inclusion(Position(index), size).await.unwrap();
            inclusions.push(json!({"Size": size, "Index": index, "Proof": encoded(&proof.hashes)}));
        }
        for old in &sizes[..=n] {
            let proof = proofs.consistency(*old, size).await.unwrap();
            consistencies.push(json!({"Old": old, "New": size, "Proof": encoded(&proof.hashes)}));
        }
    }
    let document = json!({
        "Secret": *sealing.key.to_text(), "Public": sealing.key.verifier().to_string(), "Note": note,
        "Origin": sealing.origin, "Leaves": encoded(&leaves), "Tiles": tiles,
        "Inclusions": inclusions, "Consistencies": consistencies,
    });
    let dir = tempfile::tempdir().unwrap();
    let program = compile(dir.path());
    let answer = run(&program, &document).unwrap();

    // Ed25519 is deterministic: with our key they write our very note.
    assert_eq!(answer["Same"], note);
    let other: VerifierKey = answer["Public"].as_str().unwrap().parse().unwrap();
    let both = answer["Other"].as_str().unwrap().as_bytes();
    let head = sealing.last().await;
    for known in [&other, sealing.key.verifier()] {
        assert_eq!(Checkpoint::open(both, &sealing.origin, std::slice::from_ref(known)), Ok(head.clone()));
    }
    let alone = Checkpoint::open(note.as_bytes(), &sealing.origin, &[other]);
    assert_eq!(alone, Err(NoteError::NoKnownKey.into()));

    // And they would say so if something were wrong.
    for (pointer, expected) in [
        ("/Inclusions/20/Proof/0", "inclusion of"),
        ("/Consistencies/17/Proof/0", "consistency of"),
        ("/Tiles/0/Data", "holds other hashes"),
        ("/Leaves/5", "is not theirs"),
    ] {
        let mut wrong = document.clone();
        let place = wrong.pointer_mut(pointer).unwrap();
        let mut bytes = STANDARD.decode(place.as_str().unwrap()).unwrap();
        bytes[7] ^= 1;
        *place = STANDARD.encode(bytes).into();
        let refused = run(&program, &wrong).unwrap_err();
        assert!(refused.contains(expected), "{pointer}: {refused}");
    }
    let mut wrong = document.clone();
    wrong["Note"] = note.replace("\n700\n", "\n699\n").into();
    assert!(run(&program, &wrong).unwrap_err().contains("the note: invalid signature"));
}
