//! No outcome is unrecordable: what decide emits fits into the log, whatever a client sent and a runtime reported.

use std::collections::BTreeMap;

use events::Event;
use events::bounds::{
    ARGV_ENV_BYTES_MAX, EVENT_BYTES_MAX, FILES_CHANGED_BYTES_MAX, INTEGER_MAX, VIEW_BYTES_MAX,
    VIEW_ENCODED_BYTES_MAX, cut_text, json_text_bytes,
};
use events::event::command::{
    ChangeKind, CommandFinished, Evidence, FileChange, KillReason, OutputRecord, StdinRecord, TextEncoding,
    Usage,
};
use events::event::workspace::PathText;
use events::ids::{EventId, LogId, Position, RunId, TenantId, Version};
use events::run::{AcceptCommand, AcquireLease, Decision, FileWritten, RunCommand, RunState, decide};
use events::stored::{NewEvent, StreamName, ZERO_LEAF, decode, encode_body, seal};
use proptest::prelude::*;
use uuid::Uuid;

use crate::story::{acquisition, command_request, environment, provision_failed, ready, result, run, s};

/// Characters that cost: escapes of one and five bytes, and two to four bytes of UTF-8.
const COSTLY: [char; 12] =
    ['a', '\0', '\u{1}', '\u{1f}', '"', '\\', '\n', '\u{7f}', 'é', '\u{2028}', '\u{fffd}', '\u{1f600}'];

fn text(chars_max: usize) -> impl Strategy<Value = String> {
    let run = (proptest::sample::select(COSTLY.to_vec()), 0..=chars_max);
    proptest::collection::vec(run, 0..4)
        .prop_map(|runs| runs.into_iter().map(|(c, count)| c.to_string().repeat(count)).collect())
}

/// Output as bytes: text, or text with bytes that are none.
fn view() -> impl Strategy<Value = OutputRecord> {
    let bytes = (text(70_000), proptest::option::of(any::<u8>())).prop_map(|(text, odd)| {
        let mut bytes = text.into_bytes();
        if let Some(odd) = odd {
            bytes.insert(bytes.len() / 2, odd);
            bytes.push(0xff);
        }
        bytes
    });
    let made = (bytes, any::<u64>(), any::<bool>())
        .prop_map(|(bytes, total, cut)| OutputRecord::from_view(&bytes, total, "0".repeat(64), cut));
    let encoding = prop_oneof![Just(TextEncoding::Utf8), Just(TextEncoding::Base64)];
    let forged =
        (text(200_000), encoding, any::<u64>(), text(300)).prop_map(|(text, encoding, total, sha256)| {
            OutputRecord { text, encoding, bytes_total: total, sha256, truncated: false }
        });
    prop_oneof![3 => made, 1 => forged]
}

fn path() -> impl Strategy<Value = PathText> {
    prop_oneof![
        6 => text(3).prop_map(|text| PathText::from_bytes(text.as_bytes())),
        2 => (any::<u8>(), 1..5000_usize).prop_map(|(byte, count)| PathText::from_bytes(&vec![byte; count])),
        1 => (text(5000), proptest::option::of(text(20_000)))
            .prop_map(|(path, path_base64)| PathText { path, path_base64 }),
    ]
}

fn changes() -> impl Strategy<Value = Vec<FileChange>> {
    let change = (path(), any::<Option<u64>>(), proptest::option::of(text(100)), any::<bool>()).prop_map(
        |(path, size_bytes, digest, good)| FileChange {
            path,
            change: ChangeKind::Modified,
            size_bytes,
            sha256: if good { Some("0".repeat(64)) } else { digest },
        },
    );
    (proptest::collection::vec(change, 0..8), 1..800_usize)
        .prop_map(|(some, times)| some.iter().cycle().take(some.len() * times).cloned().collect())
}

fn evidence() -> impl Strategy<Value = Evidence> {
    (any::<[Option<u64>; 12]>(), proptest::collection::vec(proptest::option::of(text(2000)), 4)).prop_map(
        |(n, texts)| Evidence {
            limit_ms: n[0],
            elapsed_ms: n[1],
            limit_bytes: n[2],
            peak_bytes: n[3],
            oom_kills: n[4],
            limit: n[5],
            peak: n[6],
            refused_forks: n[7],
            resource: texts[0].clone(),
            measured: n[8],
            source: texts[1].clone(),
            produced_bytes: n[9],
            by: texts[2].clone(),
            stopped_with: None,
            expires_at: Some(s(9)),
            deadline_ms: n[10],
            start_error: texts[3].clone(),
            stdin_undelivered_bytes: n[11],
        },
    )
}

fn finished() -> impl Strategy<Value = CommandFinished> {
    (
        view(),
        view(),
        changes(),
        evidence(),
        any::<Option<i32>>(),
        any::<bool>(),
        any::<[u64; 3]>(),
        any::<u32>(),
    )
        .prop_map(|(stdout, stderr, files_changed, evidence, exit_code, killed, n, stragglers)| {
            CommandFinished {
                exit_code,
                killed_by: killed.then_some(KillReason::OutputLimit),
                evidence: Some(evidence),
                stdout,
                stderr,
                stragglers,
                files_changed,
                usage: Usage { cpu_ms: Some(n[0]), peak_memory_bytes: Some(n[1]) },
                duration_ms: n[2],
                ..result(1, None, None)
            }
        })
}

/// Stores the event with the largest header there is, and reads it back.
fn stores(event: &Event) -> Result<(), TestCaseError> {
    let any_id = Uuid::max();
    let new = NewEvent {
        event_id: EventId(any_id),
        tenant: TenantId(any_id),
        recorded_at: s(1),
        actor: format!("service:{any_id}"),
        correlation_id: Some(RunId(any_id)),
        causation_id: Some(EventId(any_id)),
        event: event.clone(),
    };
    let body = match encode_body(event) {
        Ok(body) => body,
        Err(error) => return Err(TestCaseError::fail(format!("{}: {error}", event.event_type()))),
    };
    let stream = StreamName::run(TenantId(any_id), RunId(any_id));
    let sealed = seal(LogId(any_id), &stream, Version(INTEGER_MAX), &ZERO_LEAF, &new, &[7; 32], &body);
    let sealed = sealed.map_err(|error| TestCaseError::fail(error.to_string()))?;
    prop_assert!(sealed.header.len() + body.len() <= EVENT_BYTES_MAX);
    let read = decode(Position(0), &sealed.header, Some((&[7; 32], &body)));
    let read = read.map_err(|error| TestCaseError::fail(error.to_string()))?;
    prop_assert_eq!(read.event.as_ref(), Some(event));
    Ok(())
}

fn decided(state: &RunState, command: &RunCommand) -> Result<Vec<Event>, TestCaseError> {
    match decide(state, command, s(1)) {
        Ok(Decision::Append(events)) => Ok(events),
        other => Err(TestCaseError::fail(format!("not recordable: {other:?}"))),
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    #[test]
    fn any_outcome_is_recordable(reported in finished()) {
        let state = ready().does(run(1, 1)).state;
        let reported_changes = reported.files_changed.len();
        for event in decided(&state, &RunCommand::RecordFinished(Box::new(reported.clone())))? {
            stores(&event)?;
            if let Event::CommandFinished(kept) = &event {
                for view in [&kept.stdout, &kept.stderr] {
                    prop_assert!(json_text_bytes(&view.text) <= VIEW_ENCODED_BYTES_MAX);
                    prop_assert!(view.view_bytes().is_ok_and(|bytes| bytes.len() <= VIEW_BYTES_MAX));
                }
                let list = serde_json::to_string(&kept.files_changed).expect("plain values");
                prop_assert!(list.len() <= FILES_CHANGED_BYTES_MAX);
                let left_out = kept.files_changed.len() < reported_changes;
                prop_assert_eq!(kept.files_changed_truncated, left_out, "a list that was cut says so");
            }
        }
    }

    /// A view within the bound is kept byte for byte, in whichever encoding.
    #[test]
    fn a_view_is_not_changed_by_its_encoding(text in text(20_000), odd in proptest::option::of(0x80..=0xff_u8)) {
        let mut bytes = text.into_bytes();
        bytes.extend(odd);
        let record = OutputRecord::from_view(&bytes, bytes.len() as u64, "0".repeat(64), false);
        prop_assert!(json_text_bytes(&record.text) <= VIEW_ENCODED_BYTES_MAX);
        prop_assert_eq!(record.bounded(), record.clone());
        let kept = record.view_bytes().expect("made by us");
        prop_assert_eq!(record.truncated, kept.len() < bytes.len());
        prop_assert!(bytes.starts_with(&kept));
        prop_assert!(kept.len() + 4 > bytes.len().min(VIEW_BYTES_MAX));
    }

    #[test]
    fn any_accepted_command_fits(
        arguments in proptest::collection::vec(text(12_000), 1..4),
        env in proptest::collection::btree_map("[A-Z]{1,9}", text(12_000), 0..4),
        inline in proptest::option::of(0..100_000_usize),
        cwd in text(2000),
        bytes in any::<u64>(),
    ) {
        let mut argv = vec!["true".to_owned()];
        argv.extend(arguments);
        let request = AcceptCommand {
            argv,
            env,
            cwd,
            stdin: inline.map(|count| StdinRecord {
                bytes: count as u64,
                sha256: "0".repeat(64),
                inline_base64: Some("A".repeat(count)),
            }),
            output_bytes_max: bytes,
            timeout_ms: bytes,
            ..command_request(1, 1)
        };
        if let Ok(Decision::Append(events)) = decide(&ready().state, &RunCommand::AcceptCommand(request), s(1)) {
            for event in &events {
                stores(event)?;
            }
        }
    }

    #[test]
    fn any_accepted_lease_fits(
        holder in text(200),
        tools in proptest::collection::vec(text(200), 0..70),
        labels in proptest::collection::btree_map(text(90), text(90), 0..40),
        ttl_ms in prop_oneof![1_000..600_000_u64, any::<u64>()],
    ) {
        let request = AcquireLease { holder: Some(holder), tools, labels, ttl_ms, ..acquisition(1, 60) };
        if let Ok(Decision::Append(events)) = decide(&RunState::default(), &RunCommand::AcquireLease(request), s(1)) {
            for event in &events {
                stores(event)?;
            }
        }
    }

    #[test]
    fn any_file_and_any_reason_is_recordable(path in path(), size_bytes in any::<u64>(), code in text(4000)) {
        let written = FileWritten {
            environment_id: environment(1), path, size_bytes, sha256: "0".repeat(64), created: true,
        };
        let state = ready().state;
        for event in decided(&state, &RunCommand::RecordFileWritten(written))? {
            stores(&event)?;
        }
        let environment_id = environment(1);
        for command in [
            RunCommand::RecordSuspected { environment_id, reason_code: code.clone() },
            RunCommand::RecordTeardownFailed { environment_id, reason_code: code },
        ] {
            for event in decided(&state, &command)? {
                stores(&event)?;
            }
        }
    }

    #[test]
    fn the_size_of_a_json_string_is_known_beforehand(text in text(40)) {
        let written = serde_json_canonicalizer::to_vec(&text).expect("any text");
        prop_assert_eq!(json_text_bytes(&text), written.len());
        for bytes_max in 0..text.len() + 2 {
            let cut = cut_text(&text, bytes_max);
            prop_assert!(cut.len() <= bytes_max && text.starts_with(cut));
            prop_assert!(cut.len() + 4 > bytes_max.min(text.len()));
        }
    }
}

/// The largest things that are accepted, each at its bound, so that the properties above do not hold for lack of size.
#[test]
fn the_largest_command_is_accepted_and_fits() {
    // Every byte of argv an escape of six: as many as the encoded bound takes.
    let escapes = (ARGV_ENV_BYTES_MAX - 100) / 6;
    let request = AcceptCommand {
        argv: vec!["true".to_owned(), "\u{1}".repeat(escapes)],
        env: BTreeMap::new(),
        cwd: ["\u{1}".repeat(255).as_str(); 16].join("/"),
        stdin: Some(StdinRecord {
            bytes: 67_000,
            sha256: "0".repeat(64),
            inline_base64: Some("A".repeat(88 * 1024 - 2)),
        }),
        ..command_request(1, 1)
    };
    let events = decided(&ready().state, &RunCommand::AcceptCommand(request)).expect("accepted");
    let body = encode_body(&events[0]).expect("fits");
    assert!(body.len() > 240_000 && body.len() < EVENT_BYTES_MAX, "{}", body.len());
    stores(&events[0]).expect("fits");
}

#[test]
fn the_largest_outcome_fits() {
    let view = OutputRecord::from_view(&vec![0; VIEW_BYTES_MAX], u64::MAX, "0".repeat(64), true);
    assert_eq!(view.encoding, TextEncoding::Base64, "escapes would be larger");
    let change = FileChange {
        path: PathText::from_bytes(&vec![1; 4096]),
        change: ChangeKind::Created,
        size_bytes: Some(u64::MAX),
        sha256: Some("0".repeat(64)),
    };
    let reported = CommandFinished {
        stdout: view.clone(),
        stderr: view,
        files_changed: vec![change; 10_000],
        ..result(1, Some(i32::MIN), None)
    };
    let state = ready().does(run(1, 1)).state;
    let events = decided(&state, &RunCommand::RecordFinished(Box::new(reported))).expect("recordable");
    let Event::CommandFinished(kept) = &events[0] else { panic!("{events:?}") };
    assert!(kept.files_changed_truncated && kept.files_changed.len() == 5, "{}", kept.files_changed.len());
    let body = encode_body(&events[0]).expect("fits");
    assert!(body.len() > 280_000 && body.len() < EVENT_BYTES_MAX, "{}", body.len());
}

#[test]
fn numbers_and_texts_of_facts_are_bounded_not_refused() {
    let state = ready().does(run(1, 1)).state;
    let reported = CommandFinished {
        evidence: Some(Evidence {
            limit_bytes: Some(u64::MAX),
            start_error: Some("é".repeat(500)),
            ..Evidence::default()
        }),
        duration_ms: u64::MAX,
        stdout: OutputRecord { sha256: "not a digest".to_owned(), ..result(1, None, None).stdout },
        ..result(1, Some(0), None)
    };
    let events = decided(&state, &RunCommand::RecordFinished(Box::new(reported))).expect("recordable");
    let Event::CommandFinished(kept) = &events[0] else { panic!("{events:?}") };
    let evidence = kept.evidence.as_ref().expect("kept");
    assert_eq!((kept.duration_ms, evidence.limit_bytes), (INTEGER_MAX, Some(INTEGER_MAX)));
    assert_eq!(evidence.start_error.as_deref(), Some("é".repeat(128).as_str()));
    assert_eq!(kept.stdout.sha256, "");
    let failed = ready();
    assert!(decide(&failed.state, &provision_failed(2), s(1)).is_err(), "an unknown environment is no fact");
}
