//! What goes into a command and what comes out of it.

use std::time::Instant;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};
use tests::api::{SseEvent, id};
use tests::process::{Options, Service, data_dir};

use super::{begin, bodies, commands_of, output_of, sh};

/// The bytes of one stream of an output; asserts that each comes once and that nothing is missing.
fn joined(events: &[SseEvent], name: &str) -> Vec<u8> {
    let mut bytes = Vec::new();
    for event in events.iter().filter(|event| event.name == name) {
        assert_eq!(event.data["offset"], json!(bytes.len()), "each byte once: {event:?}");
        match event.data["text"].as_str() {
            Some(text) => bytes.extend_from_slice(text.as_bytes()),
            None => {
                bytes.extend(STANDARD.decode(event.data["base64"].as_str().expect("bytes")).expect("base64"));
            }
        }
    }
    assert!(events.iter().all(|event| event.name != "gap"), "nothing was left out");
    bytes
}

fn assert_exit(command: &Value, code: i32) {
    assert_eq!(
        (&command["state"], &command["exit_code"], &command["killed_by"]),
        (&json!("finished"), &json!(code), &Value::Null),
        "{command}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn any_output_comes_back_byte_for_byte() {
    let data = data_dir();
    let service = Service::start(data.path(), &Options::docker()).await;
    let (_, lease) = service.lease_for(600.0).await;

    // One byte that is no text: the command succeeds, the bytes are exact, the view for people replaces it.
    let command = service.run(&lease, &sh(r"printf 'text \377 more'")).await;
    assert_exit(&command, 0);
    let stdout = &command["stdout"];
    assert_eq!(
        (&stdout["encoding"], &stdout["text"], &stdout["text_lossy"], &stdout["truncated"]),
        (
            &json!("base64"),
            &json!(STANDARD.encode(b"text \xff more")),
            &json!("text \u{fffd} more"),
            &json!(false)
        )
    );
    assert_eq!(joined(&output_of(&service, &command).await, "stdout"), b"text \xff more");

    // NUL and control characters are text like any other.
    let command = service.run(&lease, &sh(r"printf 'a\000b\033[31m\r\n'")).await;
    assert_eq!(command["stdout"]["text"], "a\0b\u{1b}[31m\r\n", "{command}");
    let events = service.get(&format!("/v1/commands/{}", id(&command, "command_id"))).await.1;
    assert_eq!(events["stdout"], command["stdout"], "the record holds the same");

    // Characters of three and four bytes across every boundary there is.
    let text = "日本語🦀".repeat(20_000);
    let command = service.run(&lease, &json!({ "argv": ["cat"], "stdin": text })).await;
    assert_exit(&command, 0);
    let stdout = &command["stdout"];
    assert_eq!(
        (&stdout["encoding"], &stdout["bytes_total"], &stdout["truncated"]),
        (&json!("utf-8"), &json!(text.len()), &json!(true))
    );
    assert_eq!(joined(&output_of(&service, &command).await, "stdout"), text.as_bytes());
    assert_eq!(service.run(&lease, &sh("echo next")).await["stdout"]["text"], "next\n");

    // One line of 2 MiB, followed while it is written and read again afterwards.
    let line = "import sys; sys.stdout.write('x' * 2097152)";
    let command = begin(&service, &lease, json!({ "argv": ["python3", "-c", line] })).await;
    for _ in 0..2 {
        let events = output_of(&service, &command).await;
        let bytes = joined(&events, "stdout");
        assert!(bytes.len() == 2 << 20 && bytes.iter().all(|byte| *byte == b'x'), "{} bytes", bytes.len());
        assert_exit(&events.last().expect("an end").data, 0);
    }

    // Much output and then the line that matters: head and tail are kept, and nobody is killed for it.
    let script = "i=0; while [ $i -lt 200000 ]; do echo line $i; i=$((i+1)); done; echo FAILED: 1; exit 1";
    let command = service.run(&lease, &sh(script)).await;
    assert_exit(&command, 1);
    let text = command["stdout"]["text"].as_str().expect("text");
    assert!(text.starts_with("line 0\n") && text.ends_with("line 199999\nFAILED: 1\n"));
    assert!(text.contains("bytes elided") && command["stdout"]["truncated"] == true);

    // A command that is over at once loses neither its only chunk nor its end.
    for round in 0..10 {
        let command = begin(&service, &lease, sh(&format!("echo {round}"))).await;
        let events = output_of(&service, &command).await;
        assert_eq!(joined(&events, "stdout"), format!("{round}\n").into_bytes());
        assert_exit(&events.last().expect("an end").data, 0);
    }
    service.assert_verified().await;
    service.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn output_over_the_declared_bound_is_cut_killed_and_proven() {
    let data = data_dir();
    let service = Service::start(data.path(), &Options::docker()).await;
    let (_, lease) = service.lease_for(600.0).await;
    let declared = |script: &str| {
        let mut body = sh(script);
        body["output_bytes"] = json!(1_000);
        body
    };
    // Four times the declared size is the ceiling, of both streams together.
    let command = service.run(&lease, &declared("head -c 2000 /dev/zero; head -c 1900 /dev/zero >&2")).await;
    assert_exit(&command, 0);
    let script = "head -c 3000 /dev/zero; head -c 3000 /dev/zero >&2; sleep 60";
    let command = service.run(&lease, &declared(script)).await;
    assert_eq!(
        (&command["killed_by"], &command["exit_code"], &command["timed_out"]),
        (&json!("OUTPUT_LIMIT"), &Value::Null, &json!(false)),
        "{command}"
    );
    let evidence = &command["evidence"];
    assert_eq!((&evidence["limit_bytes"], &evidence["limit_ms"]), (&json!(4_000), &Value::Null), "{command}");
    assert!(evidence["produced_bytes"].as_u64().is_some_and(|bytes| bytes > 4_000), "{command}");
    assert!(
        command["stdout"]["truncated"] == true || command["stderr"]["truncated"] == true,
        "what was cut says so: {command}"
    );
    let streamed = output_of(&service, &command).await;
    let kept = joined(&streamed, "stdout").len() + joined(&streamed, "stderr").len();
    assert_eq!(kept, 4_000, "cut to the bound");
    assert_eq!(service.run(&lease, &sh("echo on")).await["stdout"]["text"], "on\n");
    service.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn any_input_arrives_byte_for_byte() {
    let data = data_dir();
    let service = Service::start(data.path(), &Options::docker()).await;
    let (run, lease) = service.lease_for(600.0).await;

    // Nothing given is the end of input at once.
    let start = Instant::now();
    for argv in [json!(["cat"]), json!(["grep", "x"])] {
        let command = service.run(&lease, &json!({ "argv": argv })).await;
        assert_eq!((&command["killed_by"], &command["stdout"]["bytes_total"]), (&Value::Null, &json!(0)));
    }
    assert!(start.elapsed().as_secs() < 20, "nobody waited for input");

    // 8 MiB through `cat` within five seconds, and 4 MiB to a program that reads none of it.
    let bytes: Vec<u8> = (0..8_u32 << 20).map(|n| (n.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
    let input = STANDARD.encode(&bytes);
    let body = json!({ "argv": ["sha256sum"], "stdin_base64": input, "timeout_seconds": 5 });
    let summed = service.run(&lease, &body).await;
    let body = json!({ "argv": ["cat"], "stdin_base64": input, "timeout_seconds": 5 });
    let echoed = service.run(&lease, &body).await;
    assert_exit(&echoed, 0);
    assert_eq!(echoed["stdout"]["bytes_total"], 8 << 20);
    let digest = echoed["stdout"]["sha256"].as_str().expect("a digest");
    assert_eq!(summed["stdout"]["text"], format!("{digest}  -\n"), "{summed}");
    let unread = json!({ "argv": ["true"], "stdin_base64": STANDARD.encode(&bytes[..4 << 20]) });
    let unread = service.run(&lease, &unread).await;
    assert_exit(&unread, 0);
    let undelivered = unread["evidence"]["stdin_undelivered_bytes"].as_u64().expect("said");
    assert!((3 << 20..=4 << 20).contains(&undelivered), "{unread}");

    // Arguments, variables and names are data.
    let value = "  a=b\n$HOME `id` \"'\t ";
    let odd = json!({ "argv": ["sh", "-c", "printf %s \"$ODD\""], "env": { "ODD": value } });
    assert_eq!(service.run(&lease, &odd).await["stdout"]["text"], value);
    let lines = service.run(&lease, &json!({ "argv": ["printf", "%s|", "two\nlines", "", "$(id)"] })).await;
    assert_eq!(lines["stdout"]["text"], "two\nlines||$(id)|");
    let assignment = service.run(&lease, &json!({ "argv": ["A=B", "echo", "hi"] })).await;
    assert_exit(&assignment, 127);
    assert_eq!(assignment["stdout"]["bytes_total"], 0, "{assignment}");

    // Input of the command and of its event: what was undelivered is on record.
    let events = service.events(run).await;
    let finished = bodies(&events, "CommandFinished");
    assert!(
        finished.iter().any(|body| body["evidence"]["stdin_undelivered_bytes"] == undelivered),
        "on record"
    );
    service.assert_verified().await;
    service.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn programs_end_and_fail_to_start_as_themselves() {
    let data = data_dir();
    let service = Service::start(data.path(), &Options::docker()).await;
    let (run, lease) = service.lease_for(600.0).await;
    service.run(&lease, &sh("mkdir in; ln -s /etc out; echo plain > plain; echo x > file")).await;

    for (script, code) in [
        ("exit 137", 137),
        ("kill -9 $$", 137),
        ("kill -SEGV $$", 139),
        ("exec false", 1),
        ("exec sh -c 'exit 42'", 42),
        ("echo 'never closed", 2),
        ("no-such-program-of-the-shell", 127),
    ] {
        let command = service.run(&lease, &sh(script)).await;
        assert_exit(&command, code);
        assert_eq!(command["evidence"], Value::Null, "{script}: {command}");
    }
    let open = service.run(&lease, &sh("cat <<'END'\nnever ended")).await;
    assert_eq!(open["killed_by"], Value::Null, "no dead wait: {open}");
    assert!(open["duration_ms"].as_u64().is_some_and(|ms| ms < 5_000), "{open}");
    service.run(&lease, &sh("cat > heredoc <<'END'\none $two\nEND\n")).await;
    assert_eq!(service.run(&lease, &sh("cat heredoc")).await["stdout"]["text"], "one $two\n");

    // What could not start is told apart from what ran, beside its output.
    for (body, code) in [
        (json!({ "argv": ["no-such-program"] }), 127),
        (json!({ "argv": ["/no/such/program"] }), 127),
        (json!({ "argv": ["/workspace/plain"] }), 126),
        (json!({ "argv": ["pwd"], "cwd": "missing" }), 126),
        (json!({ "argv": ["pwd"], "cwd": "out" }), 126),
        (json!({ "argv": ["pwd"], "cwd": "file" }), 126),
    ] {
        let command = service.run(&lease, &body).await;
        assert_exit(&command, code);
        assert!(command["evidence"]["start_error"].is_string(), "{body}: {command}");
        assert_eq!(
            (&command["stdout"]["bytes_total"], &command["stderr"]["bytes_total"]),
            (&json!(0), &json!(0)),
            "{body}: {command}"
        );
    }
    assert_eq!(
        service.run(&lease, &json!({ "argv": ["pwd"], "cwd": "in" })).await["stdout"]["text"],
        "/workspace/in\n"
    );

    // One argument of 130 KiB is refused with a reason; a large one that fits is carried.
    let (status, large) =
        service.post(&commands_of(&lease), &json!({ "argv": ["echo", "x".repeat(130 * 1024)] })).await;
    assert_eq!((status, &large["code"]), (413, &json!("payload_too_large")), "{large}");
    let most = service.run(&lease, &json!({ "argv": ["echo", "x".repeat(60 * 1024)] })).await;
    assert_eq!(most["stdout"]["bytes_total"], 60 * 1024 + 1, "{most}");

    // A process that is left behind does not hold the answer up, is gone, and is counted on record.
    let start = Instant::now();
    let left = service.run(&lease, &sh("sleep 600 & echo done")).await;
    assert_exit(&left, 0);
    assert!(start.elapsed().as_secs() < 15, "{left}");
    assert_eq!((&left["stragglers"], &left["stdout"]["text"]), (&json!(1), &json!("done\n")), "{left}");
    let seen =
        service.run(&lease, &sh("cat /proc/[0-9]*/cmdline | tr '\\0' ' ' | grep -c 'sleep [6]00'")).await;
    assert_eq!(seen["stdout"]["text"], "0\n", "{seen}");
    let events = service.events(run).await;
    let counted = bodies(&events, "CommandFinished").into_iter().filter(|body| body["stragglers"] == 1);
    assert_eq!(counted.count(), 1, "on record");
    service.assert_verified().await;
    service.stop().await;
}
