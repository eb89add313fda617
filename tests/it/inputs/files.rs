//! Files of a real workspace: what code made of it, seen from outside, and what is put there and read back.

use std::time::{Duration, Instant};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use futures::StreamExt as _;
use reqwest::Method;
use serde_json::{Value, json};
use tests::process::{Options, Service, data_dir};

use super::{bodies, path_of, sh};

async fn call(service: &Service, method: Method, target: &str, body: Vec<u8>) -> (u16, Value) {
    service.send(service.request(method, target).body(body)).await
}

/// The bytes of a file.
async fn bytes_of(service: &Service, target: &str) -> Vec<u8> {
    let response = service.request(Method::GET, target).send().await.expect("an answer");
    assert_eq!(response.status(), 200, "{target}");
    response.bytes().await.expect("bytes").to_vec()
}

#[tokio::test(flavor = "multi_thread")]
async fn files_of_every_size_and_name_round_trip() {
    let data = data_dir();
    let service = Service::start(data.path(), &Options::docker()).await;
    let (run, lease) = service.lease_for(600.0).await;
    let base = format!("{}/files", path_of(&lease));
    for size in [0, 20_000, 200 * 1024, 20_000_000_u32] {
        let content: Vec<u8> = (0..size).map(|n| (n.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
        let target = format!("{base}/sized/{size}");
        for (status, created) in [(201, true), (200, false)] {
            let (answered, written) = call(&service, Method::PUT, &target, content.clone()).await;
            assert_eq!(
                (answered, &written["created"], &written["size_bytes"]),
                (status, &json!(created), &json!(size)),
                "{written}"
            );
            // Durable before it is said: code sees exactly these bytes.
            let seen = service.run(&lease, &json!({ "argv": ["sha256sum", format!("sized/{size}")] })).await;
            let digest = written["sha256"].as_str().expect("a digest");
            assert_eq!(seen["stdout"]["text"], format!("{digest}  sized/{size}\n"), "{seen}");
            assert_eq!(seen["files_changed"], json!([]), "writes of the API are no command's change: {seen}");
        }
        assert!(bytes_of(&service, &target).await == content, "{size}");
    }
    let events = service.events(run).await;
    assert_eq!(bodies(&events, "WorkspaceFileWritten").len(), 8);

    // Names are bytes; a link is named as a link.
    let script = "import os\nfor name in [b'a\\nb', b'\\xff\\xfe', b'-rf', b'per%cent']:\n    open(name, 'w').write('x')\nos.symlink('/etc/passwd', 'link')";
    let made = service.run(&lease, &json!({ "argv": ["python3", "-c", script], "cwd": "sized" })).await;
    assert_eq!(made["exit_code"], 0, "{made}");
    let exact = |entry: &Value| match entry["path_base64"].as_str() {
        Some(text) => STANDARD.decode(text).expect("base64"),
        None => entry["path"].as_str().expect("a path").as_bytes().to_vec(),
    };
    let expected: [&[u8]; 5] =
        [b"sized/-rf", b"sized/a\nb", b"sized/link", b"sized/per%cent", b"sized/\xff\xfe"];
    let changed: Vec<Vec<u8>> = made["files_changed"].as_array().expect("a list").iter().map(exact).collect();
    assert_eq!(changed, expected);
    let (status, page) = service.get(&format!("{base}?path=sized")).await;
    assert_eq!(status, 200, "{page}");
    let items = page["items"].as_array().expect("items");
    let listed: Vec<(Vec<u8>, &str)> =
        items.iter().map(|entry| (exact(entry), entry["kind"].as_str().expect("a kind"))).collect();
    for path in expected {
        let kind = if path == b"sized/link" { "symlink" } else { "file" };
        assert_eq!(listed.iter().filter(|entry| **entry == (path.to_vec(), kind)).count(), 1, "{listed:?}");
    }
    let odd = STANDARD.encode(b"sized/\xff\xfe").replace('+', "%2B").replace('/', "%2F");
    assert_eq!(bytes_of(&service, &format!("{base}/?path_base64={odd}")).await, b"x");
    assert_eq!(bytes_of(&service, &format!("{base}/sized/a%0Ab")).await, b"x");

    // Modified and deleted through a real run.
    let changes = service
        .run(&lease, &json!({ "argv": ["sh", "-c", "echo more >> -rf; rm link"], "cwd": "sized" }))
        .await;
    let told: Vec<(&Value, &Value)> = changes["files_changed"]
        .as_array()
        .expect("a list")
        .iter()
        .map(|change| (&change["path"], &change["change"]))
        .collect();
    assert_eq!(
        told,
        [(&json!("sized/-rf"), &json!("MODIFIED")), (&json!("sized/link"), &json!("DELETED"))],
        "{changes}"
    );
    service.assert_verified().await;
    service.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_but_a_regular_file_is_read_or_written_and_nothing_hangs() {
    let data = data_dir();
    let service = Service::start(data.path(), &Options::docker()).await;
    let (run, lease) = service.lease_for(600.0).await;
    let base = format!("{}/files", path_of(&lease));
    let script = "import os, socket\n\
                  os.mkdir('d'); open('d/inner', 'w').write('x'); open('file', 'w').write('x')\n\
                  os.mkfifo('pipe'); socket.socket(socket.AF_UNIX).bind('socket')\n\
                  os.symlink('/dev/zero', 'zero'); os.symlink('/proc/self/environ', 'environ')\n\
                  os.symlink('/etc', 'etc'); os.symlink('d', 'alias'); os.symlink('nowhere', 'dangling')\n\
                  os.symlink('/proc/1/root', 'root'); os.symlink('../../..', 'up')\n\
                  open('hidden', 'w').write('secret'); os.chmod('hidden', 0)\n\
                  os.mkdir('shut'); open('shut/inner', 'w').write('inside'); os.chmod('shut', 0)";
    let made = service.run(&lease, &json!({ "argv": ["python3", "-c", script] })).await;
    assert_eq!(made["exit_code"], 0, "{made}");

    let start = Instant::now();
    for (path, status, code) in [
        ("pipe", 409, "not_regular_file"),
        ("socket", 409, "not_regular_file"),
        ("zero", 409, "symlink_refused"),
        ("environ", 409, "symlink_refused"),
        ("etc/passwd", 409, "symlink_refused"),
        ("root/etc/passwd", 409, "symlink_refused"),
        ("up/etc/passwd", 409, "symlink_refused"),
        ("alias/inner", 409, "symlink_refused"),
        ("dangling", 409, "symlink_refused"),
        ("d", 409, "is_a_directory"),
        ("file/below", 409, "not_a_directory"),
    ] {
        for method in [Method::GET, Method::PUT] {
            let (found, problem) =
                call(&service, method.clone(), &format!("{base}/{path}"), b"new".to_vec()).await;
            assert_eq!((found, &problem["code"]), (status, &json!(code)), "{method} {path}: {problem}");
        }
    }
    for path in ["missing", "d/missing", "missing/deeper"] {
        let (status, problem) = call(&service, Method::GET, &format!("{base}/{path}"), Vec::new()).await;
        assert_eq!((status, &problem["code"]), (404, &json!("file_not_found")), "{path}: {problem}");
    }
    for (query, code) in
        [("alias", "symlink_refused"), ("file", "not_a_directory"), ("missing", "file_not_found")]
    {
        let (_, problem) = service.get(&format!("{base}?path={query}&recursive=true")).await;
        assert_eq!(problem["code"], code, "{query}: {problem}");
    }
    // What only its mode hides is the tenant's own.
    assert_eq!(bytes_of(&service, &format!("{base}/hidden")).await, b"secret");
    assert_eq!(bytes_of(&service, &format!("{base}/shut/inner")).await, b"inside");
    assert!(start.elapsed() < Duration::from_secs(30), "nothing blocks: {:?}", start.elapsed());

    let (status, page) = service.get(&format!("{base}?recursive=true&limit=1000")).await;
    assert_eq!(status, 200, "{page}");
    let listed: Vec<(&str, &str)> = page["items"]
        .as_array()
        .expect("items")
        .iter()
        .map(|entry| (entry["path"].as_str().expect("a path"), entry["kind"].as_str().expect("a kind")))
        .collect();
    assert_eq!(
        listed,
        [
            ("alias", "symlink"),
            ("d", "directory"),
            ("d/inner", "file"),
            ("dangling", "symlink"),
            ("environ", "symlink"),
            ("etc", "symlink"),
            ("file", "file"),
            ("hidden", "file"),
            ("pipe", "other"),
            ("root", "symlink"),
            ("shut", "directory"),
            ("shut/inner", "file"),
            ("socket", "other"),
            ("up", "symlink"),
            ("zero", "symlink"),
        ],
        "sorted, relative, each once, nothing of ours"
    );
    let unharmed = service.run(&lease, &sh("cat file d/inner")).await;
    assert_eq!(unharmed["stdout"]["text"], "xx", "{unharmed}");
    assert!(
        bodies(&service.events(run).await, "WorkspaceFileWritten").is_empty(),
        "no refused write is on record"
    );
    service.stop().await;
}

/// A reader gets one version of a file, or a body that ends before its length; never a mixture that looks whole.
#[tokio::test(flavor = "multi_thread")]
async fn a_file_that_grows_while_it_is_read_is_not_passed_off_as_whole() {
    let data = data_dir();
    let service = Service::start(data.path(), &Options::docker()).await;
    let (_, lease) = service.lease_for(600.0).await;
    let target = format!("{}/files/large", path_of(&lease));
    // More than every buffer on the way holds.
    let size = 24 << 20;
    let made = service.run(&lease, &json!({ "argv": ["truncate", "-s", size.to_string(), "large"] })).await;
    assert_eq!(made["exit_code"], 0, "{made}");
    let response = service.request(Method::GET, &target).send().await.expect("an answer");
    assert_eq!(response.content_length(), Some(size));
    let mut body = response.bytes_stream();
    let mut read = body.next().await.expect("a piece").expect("bytes").len() as u64;
    let grown = service.run(&lease, &sh("echo more >> large")).await;
    assert_eq!(grown["exit_code"], 0, "{grown}");
    let mut broken = false;
    while let Some(piece) = body.next().await {
        match piece {
            Ok(bytes) => read += bytes.len() as u64,
            Err(_) => broken = true,
        }
    }
    assert!(broken && read < size, "the body broke off: {read} of {size}");
    assert_eq!(
        bytes_of(&service, &target).await.len() as u64,
        size + 5,
        "the next reader gets the new version whole"
    );
    service.stop().await;
}
