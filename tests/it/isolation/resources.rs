//! Exhaustion: whatever one sandbox uses up is its own, the reason is named, the neighbour and the service go on.

use events::spec::Mechanism;
use reqwest::Method;
use serde_json::{Value, json};
use tests::api::id;

use super::{Case, assert_all, python, sh};

on_every_mechanism! {
    memory_in_any_form_is_bounded,
    processors_are_shared_and_never_taken,
    output_and_downloads_cost_the_service_no_memory,
}

/// R2, R3: each ends as MEMORY, or as a failure that the program sees itself.
async fn memory_in_any_form_is_bounded(mechanism: Mechanism) {
    let case = Case::start(mechanism).await;
    let sandbox = case.sandbox_with(&json!({ "memory_bytes": 192 << 20, "pids_max": 128 })).await;
    let page_tables = "import mmap\nheld = [mmap.mmap(-1, 1 << 36, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | 0x4000) for _ in range(8)]\nfor one in held:\n    for at in range(0, 1 << 36, 1 << 21): one[at]";
    let rows = [
        ("one allocation", "held = bytearray(1 << 30)"),
        (
            "children",
            "for _ in range(60):\n    if os.fork() == 0:\n        held = bytearray(16 << 20); time.sleep(600); os._exit(0)\nos.wait()",
        ),
        (
            "pipe buffers",
            "held = []\nwhile len(held) < 4000:\n    pair = os.pipe2(os.O_NONBLOCK); held.append(pair)\n    try:\n        while True: os.write(pair[1], bytes(65536))\n    except BlockingIOError: pass",
        ),
        (
            "socket buffers",
            "held = []\nwhile len(held) < 4000:\n    pair = socket.socketpair(); held.append(pair)\n    pair[0].setblocking(False)\n    try:\n        while True: pair[0].send(bytes(65536))\n    except BlockingIOError: pass",
        ),
        ("page tables", page_tables),
        ("a block of 4 GiB", "os.execvp('dd', ['dd', 'if=/dev/zero', 'of=/dev/null', 'bs=4G', 'count=1'])"),
    ];
    for (what, program) in rows {
        let mut body = python(program);
        body["timeout_seconds"] = json!(120.0);
        body["wait_seconds"] = json!(180.0);
        let ended = case.run(&sandbox, &body).await;
        match ended["killed_by"].as_str() {
            Some("MEMORY") => {
                assert_eq!(
                    (&ended["exit_code"], &ended["evidence"]["limit_bytes"]),
                    (&Value::Null, &json!(192 << 20)),
                    "{what}: {ended}"
                );
            }
            // Refused by the kernel before the limit: descriptors, address space, one large block.
            None => assert_ne!(ended["exit_code"], Value::Null, "{what}: {ended}"),
            other => panic!("{what}: {other:?}: {ended}"),
        }
        case.answers(&sandbox).await;
        assert_eq!(case.sh(&case.neighbour, "cat mine").await, "mine\n", "{what}");
    }
    let first = case.run(&sandbox, &python("held = bytearray(1 << 30)")).await;
    assert_eq!(first["killed_by"], "MEMORY", "{first}");
    case.finish().await;
}

/// R4: half a processor for 64 threads that want all; priorities only fall; the neighbour is served meanwhile.
async fn processors_are_shared_and_never_taken(mechanism: Mechanism) {
    let case = Case::start(mechanism).await;
    let sandbox = case.sandbox_with(&json!({ "cpu_millicores": 500 })).await;
    let priorities = "found.update(fifo=attempt(os.sched_setscheduler, 0, os.SCHED_FIFO, os.sched_param(50)), rr=attempt(os.sched_setscheduler, 0, os.SCHED_RR, os.sched_param(1)), nice=attempt(os.setpriority, os.PRIO_PROCESS, 0, -20), io=call(251, 1, 0, (1 << 13)), deadline=call(314, 0, ctypes.byref((ctypes.c_uint64 * 6)(48 | 6 << 32, 0, 0, 10**6, 10**7, 10**7)), 0))";
    if mechanism == Mechanism::Docker {
        assert_all(&case.probe(&sandbox, priorities).await, &["EPERM", "EACCES"], "priorities");
    }
    let mut spin = python("for _ in range(63):\n    if os.fork() == 0: break\nwhile True: pass");
    spin["timeout_seconds"] = json!(6.0);
    let command = case.begin(&sandbox, &spin).await;
    let path = format!("/v1/commands/{}", id(&command, "command_id"));
    // Counts only what was over before the spinning was.
    let mut served = 0;
    let ended = loop {
        assert_eq!(case.sh(&case.neighbour, "cat mine").await, "mine\n");
        let (_, command) = case.service.get(&path).await;
        if command["state"] == "finished" {
            break command;
        }
        served += 1;
    };
    assert!(served > 0, "the neighbour was served only when it was over");
    assert_eq!(ended["killed_by"], "TIMEOUT", "{ended}");
    // What killed processes used is known to the cgroup alone; where there is none, it may be unknown.
    match ended["usage"]["cpu_ms"].as_f64() {
        Some(cpu_ms) => {
            assert!(cpu_ms < 0.5 * 6_000.0 * 1.5, "{cpu_ms} ms of processor time in 6 s at half a processor");
        }
        None => assert_eq!(mechanism, Mechanism::Gvisor, "{ended}"),
    }
    case.finish().await;
}

/// The most memory that the service has held, in bytes.
fn peak_bytes(case: &Case) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{}/status", case.service.pid())).expect("it runs");
    let line = status.lines().find(|line| line.starts_with("VmHWM:")).expect("VmHWM");
    line.split_whitespace().nth(1).expect("a number").parse::<u64>().expect("kB") * 1024
}

/// R7, R12, R14.
async fn output_and_downloads_cost_the_service_no_memory(mechanism: Mechanism) {
    let mut options = super::options(mechanism);
    options.variables = vec![("LEASEHOLD_OUTPUT_BYTES_MAX", (8 << 20).to_string())];
    let case = Case::start_with(&options, mechanism).await;
    let sandbox = case.sandbox().await;
    case.answers(&sandbox).await;
    let before = peak_bytes(&case);

    for script in ["yes", "yes >&2", "yes | tr -d '\\n'", "yes & yes >&2", "cat /dev/zero"] {
        let mut body = sh(script);
        body["timeout_seconds"] = json!(30.0);
        let flood = case.run(&sandbox, &body).await;
        assert_eq!(
            (&flood["killed_by"], &flood["exit_code"]),
            (&json!("OUTPUT_LIMIT"), &Value::Null),
            "{script}: {flood}"
        );
        let cut = |stream: &str| flood[stream]["truncated"] == json!(true);
        assert!(cut("stdout") || cut("stderr"), "{script}: {flood}");
        let produced = flood["evidence"]["produced_bytes"].as_u64().expect("a count");
        let limit = flood["evidence"]["limit_bytes"].as_u64().expect("a limit");
        assert!(produced >= limit && produced < limit + (8 << 20), "{script}: {produced} of {limit}");
        case.answers(&sandbox).await;
    }

    // A bomb unpacked into one line of 64 MiB, a table of a million columns, a sparse giant: streamed or refused.
    let bomb = "import zlib\npacker = zlib.compressobj(9)\npacked = b''.join(packer.compress(b'a' * (1 << 20)) for _ in range(64)) + packer.flush()\nunpacker = zlib.decompressobj()\nwith open('bomb', 'wb') as out:\n    while packed:\n        out.write(unpacker.decompress(packed, 1 << 20)); packed = unpacker.unconsumed_tail\nwith open('table', 'w') as out: out.write(','.join(str(n) for n in range(10**6)))\nos.truncate(os.open('giant', os.O_CREAT | os.O_RDWR), 256 << 20)";
    let made = case.run(&sandbox, &python(bomb)).await;
    assert_eq!(made["exit_code"], 0, "{made}");
    for (name, whole) in [("/bomb", 64 << 20), ("/table", 6_888_889), ("/giant", 256 << 20)] {
        let mut response =
            case.service.request(Method::GET, &sandbox.files(name)).send().await.expect("an answer");
        let mut got = 0_u64;
        if response.status() == 200 {
            while let Some(piece) = response.chunk().await.unwrap_or_default() {
                got += piece.len() as u64;
            }
            assert_eq!(got, whole, "{name}");
        } else {
            assert_eq!(response.status(), 413, "{name}");
        }
    }

    // A pipe that nobody empties blocks its writer, and nobody else.
    let mut stuck = sh("mkfifo p; sleep 60 < p & exec cat /dev/zero > p");
    stuck["timeout_seconds"] = json!(1.5);
    let stuck = case.run(&sandbox, &stuck).await;
    assert_eq!(
        (&stuck["killed_by"], &stuck["stdout"]["bytes_total"]),
        (&json!("TIMEOUT"), &json!(0)),
        "{stuck}"
    );
    case.answers(&sandbox).await;

    let grown = peak_bytes(&case).saturating_sub(before);
    assert!(grown < 96 << 20, "the service's memory grew by {grown} bytes");
    case.finish().await;
}
