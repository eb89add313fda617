//! One golden file per stored event: what this version writes, and what every later version must still read.
//!
//! `UPDATE_GOLDEN=1 cargo test -p events golden` writes the files. A changed file is a changed log format: never commit one
//! for an event that has landed; raise its schema instead.

use std::collections::BTreeSet;
use std::path::PathBuf;

use events::Event;
use events::ids::{EventId, LogId, Position, RunId, Version};
use events::stored::{Header, NewEvent, StreamName, body_commitment, decode, encode_body, seal};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use crate::samples::{self, tenant, time, uuid};

/// A stored event as a file: header and body as the text that was hashed.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Golden {
    header: String,
    body: String,
    salt: String,
    leaf: String,
}

fn folder() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/golden")
}

/// Seals the sample of that index as the next event of a stream.
fn golden(index: usize, event: &Event) -> Golden {
    let salt: [u8; 32] = Sha256::digest(event.event_type().name()).into();
    let body = encode_body(event).expect("the sample fits");
    let run_id = RunId(uuid(30));
    let new = NewEvent {
        event_id: EventId(uuid(40)),
        tenant: tenant(),
        recorded_at: time(i64::try_from(index).expect("few samples")),
        actor: format!("token:{}", uuid(50)),
        correlation_id: Some(run_id),
        causation_id: (index > 0).then(|| EventId(uuid(41))),
        event: event.clone(),
    };
    let version = Version(index as u64 + 1);
    let previous = [u8::try_from(index).expect("few samples"); 32];
    let stream = StreamName::run(tenant(), run_id);
    let sealed =
        seal(LogId(uuid(60)), &stream, version, &previous, &new, &salt, &body).expect("the sample fits");
    Golden {
        header: String::from_utf8(sealed.header).expect("JSON"),
        body: String::from_utf8(body).expect("JSON"),
        salt: hex::encode(salt),
        leaf: hex::encode(sealed.leaf),
    }
}

#[test]
fn every_event_is_written_as_its_golden_file_says() {
    let update = std::env::var_os("UPDATE_GOLDEN").is_some();
    for (index, event) in samples::all().iter().enumerate() {
        let path = folder().join(format!("{}.json", event.event_type()));
        let written = golden(index, event);
        if update {
            let text = serde_json::to_string_pretty(&written).expect("plain strings") + "\n";
            std::fs::write(&path, text).expect("the golden folder is writable");
        }
        let text =
            std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        let stored: Golden = serde_json::from_str(&text).expect("a golden file");
        assert_eq!(written, stored, "{} is no longer written as it was", event.event_type());
    }
}

#[test]
fn every_golden_file_is_read_and_written_back_byte_for_byte() {
    for (event, kind) in samples::all().iter().zip(Event::TYPES) {
        let path = folder().join(format!("{kind}.json"));
        let text =
            std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        let stored: Golden = serde_json::from_str(&text).expect("a golden file");
        let salt: [u8; 32] = hex::decode(&stored.salt).expect("hex").try_into().expect("32 bytes");
        let recorded = decode(Position(7), stored.header.as_bytes(), Some((&salt, stored.body.as_bytes())))
            .unwrap_or_else(|error| panic!("{kind}: {error}"));
        assert_eq!(recorded.event.as_ref(), Some(event), "{kind} means something else");
        assert_eq!(recorded.position, Position(7));
        assert_eq!(recorded.header.to_canonical().expect("a header"), stored.header.as_bytes());
        assert_eq!(encode_body(event).expect("fits"), stored.body.as_bytes());
        // The hashes, from their definitions (RFC 6962 leaf; salted commitment) and without the crate's own functions.
        let leaf = Sha256::new().chain_update([0]).chain_update(&stored.header).finalize();
        assert_eq!((hex::encode(leaf), hex::encode(recorded.leaf)), (stored.leaf.clone(), stored.leaf));
        let commitment = Sha256::new().chain_update(salt).chain_update(&stored.body).finalize();
        assert_eq!(recorded.header.body_commit, hex::encode(commitment));
        assert_eq!(body_commitment(&salt, stored.body.as_bytes()), <[u8; 32]>::from(commitment));
    }
}

#[test]
fn every_type_with_a_payload_has_one_golden_file_and_no_other_file_is_there() {
    let expected: BTreeSet<String> = Event::TYPES.iter().map(|kind| format!("{kind}.json")).collect();
    let found: BTreeSet<String> = std::fs::read_dir(folder())
        .expect("the golden folder")
        .map(|entry| entry.expect("an entry").file_name().into_string().expect("UTF-8"))
        .collect();
    assert_eq!(found, expected);
    let sampled: Vec<_> = samples::all().iter().map(Event::event_type).collect();
    assert_eq!(sampled, Event::TYPES);
}

#[test]
fn without_its_body_an_event_is_read_by_its_header_alone() {
    let written = golden(0, &samples::all()[0]);
    let recorded = decode(Position(0), written.header.as_bytes(), None).expect("the body may be erased");
    assert_eq!(recorded.event, None);
    assert_eq!(hex::encode(recorded.leaf), written.leaf);
    assert_eq!(Header::from_canonical(written.header.as_bytes()).expect("canonical"), recorded.header);
}
