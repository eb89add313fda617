//! Files of the workspace: bytes in, the same bytes out, under any name, and nothing outside.

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use reqwest::Method;
use serde_json::{Value, json};
use tests::api::{answer, id, keys};

use super::harness::Api;

fn files(lease: &Value) -> String {
    format!("/v1/leases/{}/files", id(lease, "lease_id"))
}

async fn put(api: &Api, target: &str, bytes: impl Into<reqwest::Body>) -> (u16, Value) {
    api.send(api.request(Method::PUT, target).body(bytes)).await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_file_round_trips() {
    let api = Api::start().await;
    let (run, lease) = api.lease().await;
    let target = format!("{}/dir/data.bin", files(&lease));
    let bytes: Vec<u8> = (0..=255).cycle().take(200 * 1024).collect();
    let response = api.request(Method::PUT, &target).body(bytes.clone()).send().await.expect("an answer");
    assert_eq!(response.status(), 201);
    let position = response.headers()["leasehold-position"].to_str().expect("ASCII").to_owned();
    let written: Value = response.json().await.expect("JSON");
    assert_eq!(keys(&written), ["created", "path", "path_base64", "position", "sha256", "size_bytes"]);
    assert_eq!(written["position"].to_string(), position);
    assert_eq!(
        (&written["path"], &written["created"], &written["size_bytes"]),
        (&json!("dir/data.bin"), &json!(true), &json!(204_800))
    );
    let (status, again) = put(&api, &target, bytes.clone()).await;
    assert_eq!((status, &again["created"], &again["sha256"]), (200, &json!(false), &written["sha256"]));

    let response = api.request(Method::GET, &target).send().await.expect("an answer");
    assert_eq!(response.status(), 200);
    for (name, value) in [
        ("content-type", "application/octet-stream"),
        ("content-length", "204800"),
        ("content-disposition", "attachment"),
        ("x-content-type-options", "nosniff"),
        ("content-security-policy", "default-src 'none'; sandbox"),
        ("cache-control", "private, no-store"),
    ] {
        assert_eq!(response.headers()[name], value, "{name}");
    }
    assert_eq!(response.bytes().await.expect("bytes"), bytes);
    let head = api.request(Method::HEAD, &target).send().await.expect("an answer");
    assert_eq!(
        (head.status().as_u16(), &head.headers()["content-length"]),
        (200, &"204800".parse().expect("a value"))
    );

    let removed = api.request(Method::DELETE, &target).send().await.expect("an answer");
    assert_eq!(removed.status(), 204);
    assert!(removed.headers().contains_key("leasehold-position"));
    let (status, gone) = api.get(&target).await;
    assert_eq!((status, &gone["code"]), (404, &json!("file_not_found")));
    let kinds: Vec<Value> = api.events(run).await.into_iter().map(|event| event["type"].clone()).collect();
    assert_eq!(
        kinds[3..],
        [json!("WorkspaceFileWritten"), json!("WorkspaceFileWritten"), json!("WorkspaceFileRemoved")],
        "{kinds:?}"
    );
    api.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_empty_file_is_a_file() {
    let api = Api::start().await;
    let (_, lease) = api.lease().await;
    let target = format!("{}/empty", files(&lease));
    let (status, written) = put(&api, &target, "").await;
    assert_eq!((status, &written["size_bytes"]), (201, &json!(0)), "{written}");
    let response = api.request(Method::GET, &target).send().await.expect("an answer");
    assert_eq!((response.status().as_u16(), response.bytes().await.expect("bytes").len()), (200, 0));
    api.stop().await;
}

/// One entry each with its exact name: a newline, characters that targets escape, bytes that are not UTF-8.
#[tokio::test(flavor = "multi_thread")]
async fn names_are_exact() {
    let api = Api::start().await;
    let (_, lease) = api.lease().await;
    let base = files(&lease);
    let names: [&[u8]; 6] =
        [b"a\nb", b"per%cent", b"plus+and space", b"\xff\xfe", "漢字".as_bytes(), b"q?#&;"];
    for name in names {
        let encoded: String = name.iter().map(|byte| format!("%{byte:02X}")).collect();
        let (status, written) = put(&api, &format!("{base}/{encoded}"), name.to_vec()).await;
        assert_eq!(status, 201, "{written}");
    }
    let (status, page) = api.get(&format!("{base}?limit=1000")).await;
    assert_eq!(status, 200);
    let items = page["items"].as_array().expect("items");
    let listed: Vec<Vec<u8>> = items
        .iter()
        .map(|entry| match entry["path_base64"].as_str() {
            Some(exact) => STANDARD.decode(exact).expect("base64"),
            None => entry["path"].as_str().expect("a path").as_bytes().to_vec(),
        })
        .collect();
    let mut sorted = names.map(<[u8]>::to_vec).to_vec();
    sorted.sort();
    assert_eq!(listed, sorted, "sorted by bytes, each once");
    for (entry, name) in items.iter().zip(&sorted) {
        assert_eq!(
            keys(entry),
            ["kind", "mode", "modified_at", "path", "path_base64", "provenance", "size_bytes"]
        );
        assert_eq!(
            (&entry["kind"], &entry["provenance"]),
            (&json!("file"), &json!("tool_written")),
            "{entry}"
        );
        assert_eq!(entry["size_bytes"], name.len(), "{entry}");
    }
    for exact in ["%2F%2F4%3D", "//4=", &URL_SAFE_NO_PAD.encode(b"\xff\xfe")] {
        for target in ["/", "/anything"] {
            let request = api.request(Method::GET, &format!("{base}{target}?path_base64={exact}"));
            let response = request.send().await.expect("an answer");
            assert_eq!(response.bytes().await.expect("bytes"), &b"\xff\xfe"[..], "{exact}");
        }
    }
    api.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn listings_page_and_descend() {
    let api = Api::start().await;
    let (_, lease) = api.lease().await;
    let base = files(&lease);
    for name in ["b", "d/x", "d/e/y", "a"] {
        assert_eq!(put(&api, &format!("{base}/{name}"), "1").await.0, 201);
    }
    api.run(&lease, &json!({"argv": ["sh", "-c", "ln -s a link; echo z > made"]})).await;
    let list = async |query: &str| {
        let mut names = Vec::new();
        let mut cursor = String::new();
        loop {
            let (status, page) = api.get(&format!("{base}?{query}{cursor}")).await;
            assert_eq!(status, 200, "{page}");
            for entry in page["items"].as_array().expect("items") {
                let word = |key: &str| entry[key].as_str().expect("text").to_owned();
                names.push(format!("{} {}", word("kind"), word("path")));
            }
            match page["next_cursor"].as_str() {
                Some(next) => cursor = format!("&cursor={next}"),
                None => return names,
            }
        }
    };
    let top = ["file a", "file b", "directory d", "symlink link", "file made"];
    assert_eq!(list("limit=2").await, top);
    assert_eq!(list("path=d").await, ["directory d/e", "file d/x"]);
    assert_eq!(
        list("recursive=true&limit=3").await,
        [
            "file a",
            "file b",
            "directory d",
            "directory d/e",
            "file d/e/y",
            "file d/x",
            "symlink link",
            "file made"
        ]
    );
    let (_, page) = api.get(&format!("{base}?path=.")).await;
    let made = page["items"].as_array().and_then(|items| items.last()).expect("entries");
    assert_eq!((&made["path"], &made["provenance"]), (&json!("made"), &json!("sandbox_written")));
    api.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn everything_that_is_not_a_file_has_its_own_error() {
    let api = Api::start().await;
    let (_, lease) = api.lease().await;
    let base = files(&lease);
    put(&api, &format!("{base}/file"), "x").await;
    let make = "mkdir -p dir/sub; ln -s file link; ln -s /etc etc; mkfifo pipe";
    let made = api.run(&lease, &json!({"argv": ["sh", "-c", make]})).await;
    assert_eq!(made["exit_code"], 0, "{made}");
    for (method, path, status, code) in [
        (Method::GET, "missing", 404, "file_not_found"),
        (Method::DELETE, "missing", 404, "file_not_found"),
        (Method::GET, "dir/missing/deeper", 404, "file_not_found"),
        (Method::GET, "dir", 409, "is_a_directory"),
        (Method::PUT, "dir", 409, "is_a_directory"),
        (Method::GET, "file/below", 409, "not_a_directory"),
        (Method::PUT, "file/below", 409, "not_a_directory"),
        (Method::GET, "link", 409, "symlink_refused"),
        (Method::PUT, "link", 409, "symlink_refused"),
        (Method::GET, "etc/passwd", 409, "symlink_refused"),
        (Method::PUT, "etc/new", 409, "symlink_refused"),
        (Method::GET, "pipe", 409, "not_regular_file"),
        (Method::GET, ".leasehold/marker", 422, "path_refused"),
        (Method::PUT, ".leasehold/marker", 422, "path_refused"),
    ] {
        let (found, problem) = answer(
            api.request(method.clone(), &format!("{base}/{path}")).body("x").send().await.expect("an answer"),
        )
        .await;
        assert_eq!((found, &problem["code"]), (status, &json!(code)), "{method} {path}: {problem}");
    }
    for (path, status) in [("file", 200), ("dir", 409), ("link", 409), ("pipe", 409), ("missing", 404)] {
        let head = api.request(Method::HEAD, &format!("{base}/{path}")).send().await.expect("an answer");
        assert_eq!(head.status().as_u16(), status, "{path}");
    }
    let (status, problem) = api.get(&format!("{base}?path=file")).await;
    assert_eq!((status, &problem["code"]), (409, &json!("not_a_directory")), "{problem}");
    api.stop().await;
}

/// Targets as no ordinary client would send them, over a plain socket, so that nothing tidies them up on the way.
#[tokio::test(flavor = "multi_thread")]
async fn paths_that_lead_out_are_refused_as_they_came() {
    let api = Api::start().await;
    let (_, lease) = api.lease().await;
    let base = files(&lease);
    put(&api, &format!("{base}/inside"), "x").await;
    let head = api.head().await;
    let long = "n".repeat(256);
    for path in [
        "/../inside",
        "/a/../inside",
        "/%2e%2e/inside",
        "/a%2f..%2finside",
        "//etc/passwd",
        "/%2fetc/passwd",
        "/./inside",
        "/a//b",
        "/dir/",
        "/a%00b",
        "/",
        &format!("/{long}"),
    ] {
        for method in ["GET", "PUT", "DELETE"] {
            let (status, body) = api.raw(method, &format!("{base}{path}"), "").await;
            assert_eq!((status, &body["code"]), (422, &json!("path_refused")), "{method} {path}: {body}");
        }
    }
    let (status, body) = api.raw("GET", &format!("{base}/a%zz"), "").await;
    assert_eq!((status, &body["code"]), (400, &json!("malformed_request")), "{body}");
    // Decoded once: this names a file called "%2e%2e", which is not there.
    let (status, body) = api.raw("GET", &format!("{base}/%252e%252e"), "").await;
    assert_eq!((status, &body["code"]), (404, &json!("file_not_found")), "{body}");
    assert_eq!(api.head().await, head, "nothing was recorded");
    api.stop().await;
}

/// Half a file is never kept: the upload ends before its length.
#[tokio::test(flavor = "multi_thread")]
async fn an_upload_that_breaks_off_leaves_the_old_file() {
    let api = Api::start().await;
    let (run, lease) = api.lease().await;
    let target = format!("{}/file", files(&lease));
    put(&api, &target, "old").await;
    let before = api.events(run).await.len();
    api.raw_and_leave("PUT", &target, "content-length: 1000\r\n", b"only this").await;
    let (status, written) = put(&api, &format!("{}/other", files(&lease)), "x").await;
    assert_eq!(status, 201, "{written}");
    let response = api.request(Method::GET, &target).send().await.expect("an answer");
    assert_eq!(response.bytes().await.expect("bytes"), "old");
    assert_eq!(api.events(run).await.len(), before + 1, "only the other file was recorded");
    api.stop().await;
}

/// A large upload that is refused at its head still gets its answer, not a torn connection.
#[tokio::test(flavor = "multi_thread")]
async fn a_refused_upload_is_answered() {
    let api = Api::start().await;
    let (_, lease) = api.lease().await;
    api.post_empty(&format!("/v1/leases/{}/release", id(&lease, "lease_id"))).await;
    let bytes = "x".repeat(8 * 1024 * 1024);
    for n in 0..20 {
        let (status, problem) = put(&api, &format!("{}/file", files(&lease)), bytes.clone()).await;
        assert_eq!((status, &problem["code"]), (409, &json!("lease_lost")), "{n}: {problem}");
    }
    api.stop().await;
}
