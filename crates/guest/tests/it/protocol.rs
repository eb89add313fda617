//! The protocol as values: every frame survives the wire, however it is cut; everything else is refused.

use guest::protocol::files::{
    Change, ChangeKind, ChangedPath, Entry, EntryKind, FilesErrorCode, Quota, Request, Response, Usage,
};
use guest::protocol::spawn::{
    CounterSource, Counters, ExitStatus, Exited, Output, Rlimits, StartCommand, ToGuest, ToHost,
};
use guest::protocol::{
    Decoder, Frame, HEADER_BYTES, Hello, MAX_DATA_BYTES, MAX_PAYLOAD_BYTES, PROTOCOL_VERSION, ProtocolError,
    encode,
};
use proptest::collection::vec;
use proptest::prelude::*;

fn bytes(max: usize) -> impl Strategy<Value = Vec<u8>> {
    vec(any::<u8>(), 0..=max)
}

fn some_bytes(max: usize) -> impl Strategy<Value = Vec<u8>> {
    vec(any::<u8>(), 1..=max)
}

fn text(max: usize) -> impl Strategy<Value = Vec<u8>> {
    vec(1..=u8::MAX, 0..=max)
}

fn hello() -> impl Strategy<Value = Hello> {
    let sources = prop_oneof![Just(CounterSource::None), Just(CounterSource::V1), Just(CounterSource::V2)];
    ("[a-z0-9.]{0,64}", any::<u32>(), sources, any::<bool>()).prop_map(|(build, pid, counters, openat2)| {
        Hello { protocol_version: PROTOCOL_VERSION, build, pid, counters, openat2 }
    })
}

fn id() -> impl Strategy<Value = u32> {
    1..=u32::MAX
}

fn output() -> impl Strategy<Value = Output> {
    prop_oneof![Just(Output::Stdout), Just(Output::Stderr)]
}

fn start_command() -> impl Strategy<Value = StartCommand> {
    let name = vec(any::<u8>().prop_filter("name", |byte| !matches!(byte, 0 | b'=')), 1..20);
    let rlimits = (any::<Option<u64>>(), any::<Option<u64>>(), any::<Option<u64>>())
        .prop_map(|(nofile, fsize, nproc)| Rlimits { nofile, fsize, nproc });
    (
        (vec(text(40), 1..8), bytes(60), vec((name, text(40)), 0..8)),
        (1..u32::MAX, 1..u32::MAX, rlimits, -1000..=1000_i32, any::<bool>(), any::<bool>()),
    )
        .prop_map(|((argv, cwd, env), (uid, gid, rlimits, oom_score_adj, stdin, background))| {
            StartCommand { argv, cwd, env, uid, gid, rlimits, oom_score_adj, stdin, background }
        })
}

fn to_guest() -> impl Strategy<Value = ToGuest> {
    prop_oneof![
        hello().prop_map(ToGuest::Hello),
        (id(), start_command()).prop_map(|(stream, command)| ToGuest::Start { stream, command }),
        (id(), some_bytes(300)).prop_map(|(stream, bytes)| ToGuest::StdinData { stream, bytes }),
        id().prop_map(|stream| ToGuest::StdinClose { stream }),
        (id(), output(), any::<u32>()).prop_map(|(stream, output, bytes)| ToGuest::Credit {
            stream,
            output,
            bytes
        }),
        id().prop_map(|stream| ToGuest::Kill { stream }),
        any::<u64>().prop_map(|token| ToGuest::Ping { token }),
        Just(ToGuest::ReadNonce),
        Just(ToGuest::Shutdown),
        any::<([u64; 3], [u32; 2])>().prop_map(|([token, bytes_max, inodes_max], [uid, gid])| {
            ToGuest::Measure { token, uid, gid, bytes_max, inodes_max }
        }),
    ]
}

fn exited() -> impl Strategy<Value = Exited> {
    let status = prop_oneof![
        (0..=255_i32).prop_map(ExitStatus::Code),
        (1..=64_i32).prop_map(ExitStatus::Signal),
        Just(ExitStatus::Lost)
    ];
    (status, any::<[u64; 7]>(), any::<u32>(), any::<bool>()).prop_map(
        |(status, numbers, stragglers, clean)| {
            let [
                cpu_ms,
                max_rss_bytes,
                oom_kills,
                refused_forks,
                memory_peak_bytes,
                cgroup_cpu_ms,
                stdin_bytes,
            ] = numbers;
            Exited {
                status,
                cpu_ms,
                max_rss_bytes,
                stragglers,
                oom_kills,
                refused_forks,
                memory_peak_bytes,
                cgroup_cpu_ms,
                stdin_bytes,
                clean,
            }
        },
    )
}

fn to_host() -> impl Strategy<Value = ToHost> {
    prop_oneof![
        hello().prop_map(ToHost::Hello),
        id().prop_map(|stream| ToHost::Started { stream }),
        (id(), any::<i32>(), any::<i32>(), "\\PC{0,200}").prop_map(|(stream, exit_code, errno, message)| {
            ToHost::StartFailed { stream, exit_code, errno, message }
        }),
        (id(), output(), some_bytes(300)).prop_map(|(stream, output, bytes)| ToHost::Data {
            stream,
            output,
            bytes
        }),
        (id(), output(), any::<u64>()).prop_map(|(stream, output, total_bytes)| ToHost::OutputClosed {
            stream,
            output,
            total_bytes
        }),
        (id(), any::<u32>()).prop_map(|(stream, bytes)| ToHost::StdinCredit { stream, bytes }),
        (id(), any::<u64>())
            .prop_map(|(stream, delivered_bytes)| ToHost::StdinBroken { stream, delivered_bytes }),
        (id(), exited()).prop_map(|(stream, exited)| ToHost::Exited { stream, exited }),
        any::<[u64; 4]>().prop_map(|[oom_kills, refused_forks, memory_peak_bytes, cpu_us]| {
            ToHost::Counters(Counters { oom_kills, refused_forks, memory_peak_bytes, cpu_us })
        }),
        any::<u64>().prop_map(|token| ToHost::Pong { token }),
        proptest::option::of(bytes(64)).prop_map(ToHost::Nonce),
        any::<([u64; 5], [bool; 2])>().prop_map(
            |([token, deleted_bytes, deleted_inodes, kept_bytes, kept_inodes], [complete, readable])| {
                ToHost::Measured {
                    token,
                    deleted_bytes,
                    deleted_inodes,
                    kept_bytes,
                    kept_inodes,
                    complete,
                    readable,
                }
            }
        ),
    ]
}

fn request() -> impl Strategy<Value = Request> {
    let nonce = || some_bytes(64);
    prop_oneof![
        hello().prop_map(Request::Hello),
        (id(), any::<u32>(), any::<u32>(), quota(), nonce())
            .prop_map(|(id, uid, gid, quota, nonce)| Request::Init { id, uid, gid, quota, nonce }),
        (id(), any::<u32>(), any::<u32>(), quota(), nonce())
            .prop_map(|(id, uid, gid, quota, nonce)| Request::Adopt { id, uid, gid, quota, nonce }),
        (id(), quota()).prop_map(|(id, stop)| Request::Measure { id, stop }),
        id().prop_map(|id| Request::Room { id }),
        (id(), any::<u32>(), any::<u32>()).prop_map(|(id, max_changes, max_path_bytes)| Request::Diff {
            id,
            max_changes,
            max_path_bytes
        }),
        (id(), bytes(100), any::<u64>(), any::<u64>(), any::<bool>()).prop_map(
            |(id, path, offset, max_bytes, allow_partial)| Request::Read {
                id,
                path,
                offset,
                max_bytes,
                allow_partial
            }
        ),
        (id(), bytes(100), any::<u64>(), any::<bool>()).prop_map(|(id, path, max_bytes, create_only)| {
            Request::Write { id, path, max_bytes, create_only }
        }),
        (id(), some_bytes(300)).prop_map(|(id, bytes)| Request::WriteData { id, bytes }),
        id().prop_map(|id| Request::WriteEnd { id }),
        (id(), bytes(100), any::<bool>(), any::<u32>(), bytes(100)).prop_map(
            |(id, path, recursive, limit, cursor)| Request::List { id, path, recursive, limit, cursor }
        ),
        (id(), bytes(100)).prop_map(|(id, path)| Request::Stat { id, path }),
        (id(), bytes(100), any::<bool>()).prop_map(|(id, path, recursive)| Request::Remove {
            id,
            path,
            recursive
        }),
        (id(), any::<u32>()).prop_map(|(id, bytes)| Request::Credit { id, bytes }),
        id().prop_map(|id| Request::Cancel { id }),
        any::<u64>().prop_map(|token| Request::Ping { token }),
    ]
}

fn usage() -> impl Strategy<Value = Usage> {
    any::<[u64; 4]>().prop_map(|[allocated_bytes, apparent_bytes, inodes, largest_bytes]| Usage {
        allocated_bytes,
        apparent_bytes,
        inodes,
        largest_bytes,
    })
}

fn quota() -> impl Strategy<Value = Quota> {
    any::<[u64; 2]>().prop_map(|[bytes_max, inodes_max]| Quota { bytes_max, inodes_max })
}

fn kind() -> impl Strategy<Value = EntryKind> {
    prop_oneof![
        Just(EntryKind::File),
        Just(EntryKind::Directory),
        Just(EntryKind::Symlink),
        Just(EntryKind::Other)
    ]
}

fn entry() -> impl Strategy<Value = Entry> {
    (bytes(100), kind(), any::<u64>(), any::<i64>(), any::<u32>())
        .prop_map(|(path, kind, size_bytes, mtime_us, mode)| Entry { path, kind, size_bytes, mtime_us, mode })
}

fn change() -> impl Strategy<Value = Change> {
    let path = prop_oneof![
        bytes(100).prop_map(ChangedPath::Path),
        any::<([u8; 32], u64)>().prop_map(|(sha256, path_bytes)| ChangedPath::Digest { sha256, path_bytes })
    ];
    let change =
        prop_oneof![Just(ChangeKind::Created), Just(ChangeKind::Modified), Just(ChangeKind::Deleted)];
    (path, change, kind(), any::<u64>(), any::<Option<[u8; 32]>>()).prop_map(
        |(path, change, kind, size_bytes, sha256)| Change { path, change, kind, size_bytes, sha256 },
    )
}

fn response() -> impl Strategy<Value = Response> {
    let code = prop_oneof![Just(FilesErrorCode::NotFound), Just(FilesErrorCode::Io)];
    prop_oneof![
        hello().prop_map(Response::Hello),
        (id(), code, any::<i32>()).prop_map(|(id, code, errno)| Response::Error { id, code, errno }),
        (id(), usage()).prop_map(|(id, usage)| Response::Ready { id, usage }),
        (id(), change()).prop_map(|(id, change)| Response::Change { id, change }),
        (id(), usage(), any::<u64>(), any::<bool>()).prop_map(|(id, usage, total_changes, truncated)| {
            Response::DiffEnd { id, usage, total_changes, truncated }
        }),
        (id(), any::<u64>(), any::<i64>(), any::<u32>()).prop_map(|(id, size_bytes, mtime_us, mode)| {
            Response::ReadMeta { id, size_bytes, mtime_us, mode }
        }),
        (id(), some_bytes(300)).prop_map(|(id, bytes)| Response::ReadData { id, bytes }),
        (id(), any::<u64>(), any::<[u8; 32]>(), any::<bool>()).prop_map(
            |(id, sent_bytes, sha256, end_of_file)| Response::ReadEnd { id, sent_bytes, sha256, end_of_file }
        ),
        (id(), any::<u64>(), any::<[u8; 32]>(), any::<bool>(), usage()).prop_map(
            |(id, size_bytes, sha256, created, usage)| Response::Written {
                id,
                size_bytes,
                sha256,
                created,
                usage
            }
        ),
        (id(), any::<u64>()).prop_map(|(id, free_bytes)| Response::Room { id, free_bytes }),
        (id(), usage(), any::<bool>()).prop_map(|(id, usage, complete)| Response::Measured {
            id,
            usage,
            complete
        }),
        (id(), entry()).prop_map(|(id, entry)| Response::Entry { id, entry }),
        (id(), proptest::option::of(bytes(100)))
            .prop_map(|(id, next_cursor)| Response::ListEnd { id, next_cursor }),
        (id(), entry()).prop_map(|(id, entry)| Response::Stated { id, entry }),
        (id(), any::<u64>(), usage()).prop_map(|(id, entries, usage)| Response::Removed {
            id,
            entries,
            usage
        }),
        (id(), any::<u32>()).prop_map(|(id, bytes)| Response::Credit { id, bytes }),
        any::<u64>().prop_map(|token| Response::Pong { token }),
    ]
}

/// Encodes all, decodes them from pieces of the given sizes, and compares.
fn survives<F: Frame + PartialEq + std::fmt::Debug>(
    frames: &[F],
    cuts: &[usize],
) -> Result<(), TestCaseError> {
    let mut wire = Vec::new();
    for frame in frames {
        encode(frame, &mut wire);
    }
    let mut decoder = Decoder::<F>::new();
    let mut decoded = Vec::new();
    let mut rest = wire.as_slice();
    for cut in cuts.iter().cycle() {
        if rest.is_empty() {
            break;
        }
        let (piece, later) = rest.split_at((*cut).min(rest.len()));
        decoder.feed(piece);
        while let Some(frame) = decoder.next_frame().unwrap() {
            decoded.push(frame);
        }
        rest = later;
    }
    prop_assert_eq!(decoder.finish(), Ok(()));
    prop_assert_eq!(decoded.as_slice(), frames);
    Ok(())
}

/// Feeds anything: an error or frames, never a panic; an error stays.
fn withstands<F: Frame + PartialEq + std::fmt::Debug>(wire: &[u8]) -> Result<(), TestCaseError> {
    let mut decoder = Decoder::<F>::new();
    decoder.feed(wire);
    loop {
        match decoder.next_frame() {
            Ok(Some(_)) => {}
            Ok(None) => return Ok(()),
            Err(error) => {
                decoder.feed(b"more");
                prop_assert_eq!(decoder.next_frame(), Err(error));
                return Ok(());
            }
        }
    }
}

fn cuts() -> impl Strategy<Value = Vec<usize>> {
    vec(1..100_usize, 1..10)
}

proptest! {
    #[test]
    fn to_guest_survives(frames in vec(to_guest(), 1..8), cuts in cuts()) { survives(&frames, &cuts)?; }
    #[test]
    fn to_host_survives(frames in vec(to_host(), 1..8), cuts in cuts()) { survives(&frames, &cuts)?; }
    #[test]
    fn request_survives(frames in vec(request(), 1..8), cuts in cuts()) { survives(&frames, &cuts)?; }
    #[test]
    fn response_survives(frames in vec(response(), 1..8), cuts in cuts()) { survives(&frames, &cuts)?; }

    #[test]
    fn anything_is_withstood(kind in 0..20_u8, stream in 0..3_u32, payload in bytes(200), extra in bytes(40)) {
        let mut wire = u32::try_from(payload.len()).unwrap().to_le_bytes().to_vec();
        wire.push(kind);
        wire.extend_from_slice(&stream.to_le_bytes());
        wire.extend_from_slice(&payload);
        wire.extend_from_slice(&extra);
        withstands::<ToGuest>(&wire)?;
        withstands::<ToHost>(&wire)?;
        withstands::<Request>(&wire)?;
        withstands::<Response>(&wire)?;
    }

    #[test]
    fn a_damaged_frame_never_panics(frame in to_guest(), at in any::<prop::sample::Index>(), to in any::<u8>()) {
        let mut wire = Vec::new();
        encode(&frame, &mut wire);
        let at = at.index(wire.len());
        wire[at] = to;
        withstands::<ToGuest>(&wire)?;
    }

    #[test]
    fn the_start_length_is_exact(command in start_command()) {
        let mut wire = Vec::new();
        let length = command.encoded_bytes();
        encode(&ToGuest::Start { stream: 1, command }, &mut wire);
        prop_assert_eq!(wire.len(), HEADER_BYTES + length);
    }

    #[test]
    fn an_entry_costs_what_it_weighs(entry in entry()) {
        let cost = entry.credit_bytes() as usize;
        let mut wire = Vec::new();
        encode(&Response::Entry { id: 1, entry }, &mut wire);
        prop_assert_eq!(wire.len(), HEADER_BYTES + cost);
    }
}

fn header(length: u32, kind: u8, stream: u32) -> Vec<u8> {
    [length.to_le_bytes().as_slice(), &[kind], &stream.to_le_bytes()].concat()
}

fn first_error<F: Frame + std::fmt::Debug>(wire: &[u8]) -> ProtocolError {
    let mut decoder = Decoder::<F>::new();
    decoder.feed(wire);
    decoder.next_frame().unwrap_err()
}

#[test]
fn limits_are_checked_from_the_header_alone() {
    let max = MAX_DATA_BYTES;
    let len = u32::try_from(max).unwrap();
    let oversize = |len: u32, kind, max| ProtocolError::Oversize { kind, len: len as usize, max };
    assert_eq!(first_error::<ToGuest>(&header(len + 1, 3, 1)), oversize(len + 1, 3, max));
    assert_eq!(first_error::<ToHost>(&header(len + 2, 4, 1)), oversize(len + 2, 4, max + 1));
    let max = MAX_PAYLOAD_BYTES;
    assert_eq!(first_error::<Request>(&header(u32::MAX, 9, 1)), oversize(u32::MAX, 9, max));
    assert_eq!(first_error::<Response>(&header(u32::MAX, 9, 1)), oversize(u32::MAX, 9, max));
    for kind in [0, 11, 255] {
        assert_eq!(first_error::<ToGuest>(&header(0, kind, 1)), ProtocolError::UnknownKind { kind });
    }
    for kind in [0, 13, 255] {
        assert_eq!(first_error::<ToHost>(&header(0, kind, 1)), ProtocolError::UnknownKind { kind });
    }
}

#[test]
fn stream_zero_is_the_connections_alone() {
    let malformed = |kind| ProtocolError::Malformed { kind, field: "stream" };
    assert_eq!(first_error::<ToGuest>(&header(0, 6, 0)), malformed(6));
    assert_eq!(first_error::<ToGuest>(&header(0, 8, 5)), malformed(8));
    assert_eq!(first_error::<ToGuest>(&header(0, 10, 5)), malformed(10));
    assert_eq!(first_error::<Request>(&header(0, 10, 0)), malformed(10));
}

#[test]
fn a_start_without_argv_or_as_root_is_refused() {
    let good = StartCommand {
        argv: vec![b"true".to_vec()],
        cwd: Vec::new(),
        env: Vec::new(),
        uid: 1,
        gid: 1,
        rlimits: Rlimits::default(),
        oom_score_adj: 0,
        stdin: false,
        background: false,
    };
    let field_of = |command: StartCommand| {
        let mut wire = Vec::new();
        encode(&ToGuest::Start { stream: 1, command }, &mut wire);
        match first_error::<ToGuest>(&wire) {
            ProtocolError::Malformed { field, .. } => field,
            error => panic!("{error:?}"),
        }
    };
    assert_eq!(field_of(StartCommand { argv: Vec::new(), ..good.clone() }), "argv");
    assert_eq!(field_of(StartCommand { argv: vec![b"a\0b".to_vec()], ..good.clone() }), "argv");
    assert_eq!(field_of(StartCommand { argv: vec![Vec::new(); 1025], ..good.clone() }), "argv");
    assert_eq!(field_of(StartCommand { uid: 0, ..good.clone() }), "uid or gid");
    assert_eq!(field_of(StartCommand { gid: 0, ..good.clone() }), "uid or gid");
    assert_eq!(field_of(StartCommand { oom_score_adj: 1001, ..good.clone() }), "oom_score_adj");
    for name in [b"".as_slice(), b"A=B", b"A\0"] {
        let env = vec![(name.to_vec(), Vec::new())];
        assert_eq!(field_of(StartCommand { env, ..good.clone() }), "env name");
    }
}

#[test]
fn another_version_is_readable_as_such() {
    let mut wire = header(7, 1, 0);
    wire.extend_from_slice(&(PROTOCOL_VERSION + 1).to_le_bytes());
    wire.extend_from_slice(b"other");
    let mut decoder = Decoder::<ToHost>::new();
    decoder.feed(&wire);
    let Ok(Some(ToHost::Hello(hello))) = decoder.next_frame() else { panic!("not a hello") };
    assert!(!hello.is_compatible());
}

#[test]
fn input_that_ends_inside_a_frame_is_said() {
    let mut wire = Vec::new();
    encode(&ToHost::Pong { token: 5 }, &mut wire);
    for length in 1..wire.len() {
        let mut decoder = Decoder::<ToHost>::new();
        decoder.feed(&wire[..length]);
        assert_eq!(decoder.next_frame(), Ok(None));
        assert_eq!(decoder.finish(), Err(ProtocolError::Truncated));
    }
}
