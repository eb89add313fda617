//! Canonical form: one fact has one form, and only that form is read (T-26, T-27, T-31).

use events::Event;
use events::bounds::EVENT_BYTES_MAX;
use events::event::command::{CommandFinished, OutputRecord};
use events::event::environment::EnvironmentProvisioned;
use events::event::lease::{LeaseAcquired, LeaseReleased};
use events::ids::{EnvironmentId, Epoch, EventId, LeaseId, LogId, Position, Version, derived_uuid};
use events::stored::{
    DecodeError, EncodeError, Header, HeaderError, NewEvent, Recorded, StreamName, ZERO_LEAF, decode,
    encode_body, seal,
};

use crate::samples::{self, tenant, time, uuid};

const SALT: [u8; 32] = [0x5a; 32];

fn new_event(event: &Event) -> NewEvent {
    NewEvent {
        event_id: EventId(uuid(40)),
        tenant: tenant(),
        recorded_at: time(0),
        actor: "service:test".to_owned(),
        correlation_id: None,
        causation_id: None,
        event: event.clone(),
    }
}

fn stream() -> StreamName {
    "service/a".parse().expect("a stream name")
}

/// Seals any bytes as the body of an event of the sample's type: what somebody with write access could store.
fn sealed_with(event: &Event, body: &[u8]) -> Vec<u8> {
    seal(LogId(uuid(60)), &stream(), Version(1), &ZERO_LEAF, &new_event(event), &SALT, body)
        .expect("small enough")
        .header
}

fn read_with_body(event: &Event, body: &[u8]) -> Result<Recorded, DecodeError> {
    decode(Position(0), &sealed_with(event, body), Some((&SALT, body)))
}

fn released() -> Event {
    Event::LeaseReleased(LeaseReleased { lease_id: LeaseId(uuid(1)), epoch: Epoch(2) })
}

fn body_text(event: &Event) -> String {
    String::from_utf8(encode_body(event).expect("fits")).expect("JSON")
}

fn lease_acquired() -> LeaseAcquired {
    match &samples::all()[0] {
        Event::LeaseAcquired(acquired) => acquired.clone(),
        other => panic!("the first sample is {other:?}"),
    }
}

#[test]
fn keys_are_sorted_by_utf16_and_nothing_is_between_tokens() {
    assert_eq!(body_text(&released()), format!(r#"{{"epoch":2,"lease_id":"{}"}}"#, uuid(1)));
    let acquired = body_text(&samples::all()[0]);
    assert!(
        acquired.contains("{\"team\":\"data\",\"\u{1f600}\":\"emoji\",\"\u{fb33}\":\"hebrew\"}"),
        "{acquired}"
    );
}

#[test]
fn another_form_of_the_same_body_is_refused() {
    let id = uuid(1);
    let other_forms = [
        format!(r#"{{"lease_id":"{id}","epoch":2}}"#),
        format!(r#"{{"epoch":2, "lease_id":"{id}"}}"#),
        format!(r#"{{"epoch":2,"lease_id":"{id}"}} "#),
        format!(r#"{{"epoch":2.0,"lease_id":"{id}"}}"#),
        format!(r#"{{"epoch":2e0,"lease_id":"{id}"}}"#),
        format!(r#"{{"epoch":-0.0,"lease_id":"{id}"}}"#),
        format!(r#"{{"epoch":1e-7,"lease_id":"{id}"}}"#),
        format!(r#"{{"epoch":9007199254740993,"lease_id":"{id}"}}"#),
        format!(r#"{{"epoch":18446744073709551616,"lease_id":"{id}"}}"#),
        format!(r#"{{"epoch":{},"lease_id":"{id}"}}"#, "1".repeat(308)),
        format!(r#"{{"epoch":"2","lease_id":"{id}"}}"#),
        format!(r#"{{"epoch":2,"epoch":2,"lease_id":"{id}"}}"#),
        format!(r#"{{"epoch":2,"lease_id":"{}"}}"#, id.to_string().to_uppercase()),
        format!(r#"{{"epoch":2,"lease_id":"\u0030{}"}}"#, &id.to_string()[1..]),
        format!(r#"{{"epoch":2,"extra":null,"lease_id":"{id}"}}"#),
        r#"{"epoch":2}"#.to_owned(),
        "null".to_owned(),
        String::new(),
    ];
    assert!(read_with_body(&released(), body_text(&released()).as_bytes()).is_ok());
    for form in other_forms {
        let refusal = read_with_body(&released(), form.as_bytes()).expect_err(&form);
        assert!(matches!(refusal, DecodeError::Body { .. }), "{form}: {refusal:?}");
    }
}

#[test]
fn repeated_and_unknown_keys_are_refused_in_maps_and_flattened_paths_too() {
    let acquired = body_text(&samples::all()[0]);
    let repeated_label = acquired.replace(r#""team":"data""#, r#""team":"data","team":"data""#);
    assert_ne!(repeated_label, acquired);
    assert!(read_with_body(&samples::all()[0], repeated_label.as_bytes()).is_err());
    let removed = samples::all().into_iter().find(|event| matches!(event, Event::WorkspaceFileRemoved(_)));
    let removed = removed.expect("a sample");
    let body = body_text(&removed);
    for extra in [r#","path":"x"}"#, r#","z":1}"#] {
        let changed = format!("{}{extra}", body.strip_suffix('}').expect("an object"));
        assert!(read_with_body(&removed, changed.as_bytes()).is_err(), "{changed}");
    }
}

#[test]
fn numbers_that_json_does_not_carry_exactly_are_not_written() {
    let with = |duration_ms| {
        Event::EnvironmentProvisioned(EnvironmentProvisioned {
            environment_id: EnvironmentId(uuid(3)),
            duration_ms,
        })
    };
    let largest = (1_u64 << 53) - 1;
    let event = with(largest);
    let body = encode_body(&event).expect("exact");
    assert_eq!(read_with_body(&event, &body).expect("canonical").event, Some(event));
    for inexact in [largest + 1, largest + 2, u64::MAX] {
        assert!(matches!(encode_body(&with(inexact)), Err(EncodeError::Json(_))), "{inexact}");
    }
}

#[test]
fn any_text_survives_nul_included() {
    for text in [
        "\0",
        "a\0b\0",
        "\u{0}\u{1}\u{1f}\u{7f}\u{80}\u{2028}\u{feff}\u{fffd}\u{10ffff}",
        "\\u0000",
        "\"\\/",
        "",
    ] {
        let Some(Event::CommandFinished(sample)) =
            samples::all().into_iter().find(|event| matches!(event, Event::CommandFinished(_)))
        else {
            panic!("no sample");
        };
        let event = Event::CommandFinished(CommandFinished {
            stdout: OutputRecord { text: text.to_owned(), ..sample.stdout.clone() },
            ..sample
        });
        let body = encode_body(&event).expect("any text");
        assert_eq!(read_with_body(&event, &body).expect("read back").event, Some(event), "{text:?}");
        let acquired = LeaseAcquired {
            holder: Some(text.to_owned()),
            labels: [(format!("key{text}"), text.to_owned())].into(),
            ..lease_acquired()
        };
        let event = Event::LeaseAcquired(acquired);
        let body = encode_body(&event).expect("any text");
        assert_eq!(read_with_body(&event, &body).expect("read back").event, Some(event), "{text:?}");
    }
}

#[test]
fn what_is_no_text_is_refused() {
    let event = Event::LeaseAcquired(LeaseAcquired { holder: Some("HOLDER".to_owned()), ..lease_acquired() });
    let body = encode_body(&event).expect("fits");
    let at = body.windows(6).position(|window| window == b"HOLDER").expect("written");
    for broken in [br"\ud800".as_slice(), br"\udc00", b"\xff\xfe", b"\xed\xa0\x80", b"\0", b"\n"] {
        let changed = [&body[..at], broken, &body[at + 6..]].concat();
        assert!(matches!(read_with_body(&event, &changed), Err(DecodeError::Body { .. })), "{broken:?}");
    }
}

#[test]
fn shifting_a_boundary_between_fields_changes_the_hashes() {
    let leaf_and_body = |tools: &[&str], holder: &str| {
        let event = Event::LeaseAcquired(LeaseAcquired {
            tools: tools.iter().map(|tool| (*tool).to_owned()).collect(),
            holder: Some(holder.to_owned()),
            ..lease_acquired()
        });
        let body = encode_body(&event).expect("fits");
        let header = sealed_with(&event, &body);
        (events::stored::leaf_hash(&header), body)
    };
    let table = [
        leaf_and_body(&["ab", "c"], "h"),
        leaf_and_body(&["a", "bc"], "h"),
        leaf_and_body(&["abc"], "h"),
        leaf_and_body(&["abc", ""], "h"),
        leaf_and_body(&["ab"], "ch"),
    ];
    for (index, one) in table.iter().enumerate() {
        for other in &table[index + 1..] {
            assert_ne!(one.0, other.0);
            assert_ne!(one.1, other.1);
        }
    }
    assert_ne!(derived_uuid(&[b"ab", b"c"]), derived_uuid(&[b"a", b"bc"]));
    assert_ne!(derived_uuid(&[b"ab"]), derived_uuid(&[b"ab", b""]));
    assert_eq!(derived_uuid(&[b"ab", b"c"]).get_version_num(), 8);
}

#[test]
fn a_header_is_written_as_a_canonicaliser_writes_it() {
    let written = Header::from_canonical(&sealed_with(&released(), b"{}")).expect("a header");
    let actors = [
        "",
        "service:test",
        "NUL \0, controls \u{1}\u{8}\t\n\u{b}\u{c}\r\u{1f}\u{7f}\u{9f}",
        "quotes \" \\ / and \\u0041",
        "separators \u{2028}\u{2029}, \u{fffd}, \u{e000}, astral \u{1f600}\u{10ffff}",
    ];
    for actor in actors {
        for (causation_id, version) in [(None, 1), (Some(EventId(uuid(9))), (1 << 53) - 1)] {
            let header = Header {
                actor: actor.to_owned(),
                causation_id,
                correlation_id: None,
                version: Version(version),
                ..written.clone()
            };
            let bytes = header.to_canonical().expect("a header");
            assert_eq!(bytes, serde_json_canonicalizer::to_vec(&header).expect("JSON"));
            assert_eq!(Header::from_canonical(&bytes).expect("canonical"), header);
        }
    }
    // A double cannot tell this number from its neighbour.
    let beyond = Header { version: Version((1 << 53) + 1), ..written };
    assert!(matches!(beyond.to_canonical(), Err(HeaderError::NotCanonical)));
    let bytes = serde_json::to_vec(&beyond).expect("JSON");
    assert!(matches!(Header::from_canonical(&bytes), Err(HeaderError::NotCanonical)));
}

#[test]
fn a_header_in_another_form_or_with_another_field_is_refused() {
    let header = String::from_utf8(sealed_with(&released(), b"{}")).expect("JSON");
    assert!(Header::from_canonical(header.as_bytes()).is_ok());
    let not_canonical = [
        format!("{header} "),
        header.replace("\"schema\":1", "\"schema\": 1"),
        header.replace(".123457Z", ".123457+00:00"),
        header.replace(".123457Z", ".1234570Z"),
        header.replace("service:test", r"service:t\u0065st"),
    ];
    for form in not_canonical {
        assert_ne!(form, header);
        let refusal = Header::from_canonical(form.as_bytes()).expect_err(&form);
        assert!(matches!(refusal, HeaderError::NotCanonical), "{form}: {refusal:?}");
    }
    let not_a_header = [
        header.replace("\"schema\":1", "\"schema\":1.0"),
        header.replace("{\"actor\"", "{\"aaa\":1,\"actor\""),
        header.replace("\"schema\":1", "\"schema\":1,\"schema\":1"),
        header.replace("\"v\":1", "\"v\":-1"),
        header.replace("service/a", "service/A"),
        header.replace("service/a", "service"),
        header[1..].to_owned(),
    ];
    for form in not_a_header {
        assert_ne!(form, header);
        let refusal = Header::from_canonical(form.as_bytes()).expect_err(&form);
        assert!(matches!(refusal, HeaderError::Json(_)), "{form}: {refusal:?}");
    }
}

#[test]
fn unknown_types_schemas_and_foreign_bodies_are_told_apart() {
    let body = encode_body(&released()).expect("fits");
    let header = String::from_utf8(sealed_with(&released(), &body)).expect("JSON");
    let read = |header: &str, body: &[u8]| decode(Position(0), header.as_bytes(), Some((&SALT, body)));
    let renamed = header.replace("LeaseReleased", "LeaseMislaid");
    assert!(
        matches!(read(&renamed, &body), Err(DecodeError::UnknownType { name }) if name == "LeaseMislaid")
    );
    let reserved = header.replace("LeaseReleased", "BridgeCallHeld");
    assert!(
        matches!(read(&reserved, &body), Err(DecodeError::UnknownType { name }) if name == "BridgeCallHeld")
    );
    let newer = header.replace("\"schema\":1", "\"schema\":2");
    assert!(matches!(read(&newer, &body), Err(DecodeError::UnknownSchema { schema: 2, .. })));
    let mut other = body.clone();
    other[9] ^= 1;
    assert!(matches!(read(&header, &other), Err(DecodeError::Commitment)));
    let other_salt = [0x5b; 32];
    let refusal = decode(Position(0), header.as_bytes(), Some((&other_salt, &body)));
    assert!(matches!(refusal, Err(DecodeError::Commitment)));
}

#[test]
fn an_event_over_the_bound_is_not_written() {
    let event = |holder_bytes| {
        Event::LeaseAcquired(LeaseAcquired { holder: Some("x".repeat(holder_bytes)), ..lease_acquired() })
    };
    assert!(matches!(encode_body(&event(EVENT_BYTES_MAX)), Err(EncodeError::TooLarge { .. })));
    // Header and body together count.
    let others = encode_body(&event(0)).expect("fits").len();
    let body = encode_body(&event(EVENT_BYTES_MAX - others)).expect("the body alone fits exactly");
    assert_eq!(body.len(), EVENT_BYTES_MAX);
    let new = new_event(&event(0));
    let refusal = seal(LogId(uuid(60)), &stream(), Version(1), &ZERO_LEAF, &new, &SALT, &body);
    assert!(matches!(refusal, Err(EncodeError::TooLarge { bytes }) if bytes > EVENT_BYTES_MAX));
}

#[test]
fn stream_names_hold_plain_characters_only() {
    for good in ["run/a/b", "service/0190a3c4-5e6f-7a8b-9c0d-1e2f3a4b5c00", "egress/-"] {
        assert_eq!(good.parse::<StreamName>().expect(good).to_string(), good);
    }
    for bad in [
        "",
        "run",
        "run/",
        "/a",
        "Run/a",
        "run/A",
        "run/a b",
        "run/ä",
        "run/a\0",
        &format!("run/{}", "a".repeat(200)),
    ] {
        assert!(bad.parse::<StreamName>().is_err(), "{bad:?}");
    }
}
