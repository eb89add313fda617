//! The file interface against a workspace that code arranged: links of every kind, kinds of files, paths that are none, and the
//! root itself. No byte of anything outside is read, written or named.

use std::time::{Duration, Instant};

use events::spec::Mechanism;
use reqwest::Method;
use serde_json::{Value, json};
use tests::api::id;

use super::{Case, REFUSED, Sandbox, assert_all, python};

on_every_mechanism! {
    links_and_kinds_of_files_lead_nowhere,
    what_is_no_path_and_what_happens_to_the_root,
}

/// All four methods on one path: status and code each.
async fn everything(case: &Case, sandbox: &Sandbox, path: &str) -> Vec<(Method, u16, Value)> {
    let mut answers = Vec::new();
    for method in [Method::GET, Method::HEAD, Method::PUT, Method::DELETE] {
        let mut request = case.service.request(method.clone(), &sandbox.files(path));
        if method == Method::PUT {
            request = request.body("planted");
        }
        let response = request.send().await.expect("an answer");
        let status = response.status().as_u16();
        let body = response.text().await.expect("a body");
        answers.push((method, status, serde_json::from_str(&body).unwrap_or(Value::String(body))));
    }
    answers
}

/// W1, W4, W5: every link and kind, as the last component and on the way.
async fn links_and_kinds_of_files_lead_nowhere(mechanism: Mechanism) {
    let case = Case::start(mechanism).await;
    let sandbox = case.sandbox().await;
    let links = [
        ("passwd", "/etc/passwd"),
        ("shadow", "/etc/shadow"),
        ("environ", "/proc/self/environ"),
        ("up", ".."),
        ("upup", "../.."),
        ("root", "/"),
        ("dangling", "nothing/there"),
        ("create", "/tmp/created"),
        ("self", "self"),
        ("two", "three"),
        ("three", "two"),
        ("inside", "real"),
        ("fd0", "/proc/self/fd/0"),
        ("fd9", "/proc/self/fd/9"),
        ("procroot", "/proc/self/root"),
        ("cwd", "/proc/self/cwd"),
        ("initroot", "/proc/1/root"),
        ("devfd", "/dev/fd/3"),
        ("devnull", "/dev/null"),
        ("zero", "/dev/zero"),
        ("nonce", ".leasehold/nonce"),
        ("guest", "/guest"),
        ("workspace", "/workspace"),
        ("long", "aaaaaaaa"),
    ];
    let names: Vec<String> = links.iter().map(|(name, target)| format!("({name:?}, {target:?})")).collect();
    let make = format!(
        "for name, target in [{}]: os.symlink(target, name)\nopen('real', 'w').write('real')\nos.mkdir('dir')\nopen('dir/f', 'w').write('in dir')",
        names.join(", ")
    );
    let made = case.run(&sandbox, &python(&make)).await;
    assert_eq!(made["exit_code"], 0, "{made}");
    let start = Instant::now();
    for (name, _) in links {
        let (status, body) = case.service.get(&sandbox.files(&format!("?path={name}&recursive=true"))).await;
        assert!(status == 409 || status == 404, "list {name}: {status} {body}");
        for path in [format!("/{name}/etc/passwd"), format!("/{name}/real"), format!("/{name}")] {
            for (method, status, body) in everything(&case, &sandbox, &path).await {
                // A link itself may be removed; that is no way through it.
                if method == Method::DELETE && !path[1..].contains('/') {
                    assert!([204, 409].contains(&status), "{method} {path}: {status} {body}");
                    continue;
                }
                let right = status == 409 || status == 404;
                assert!(right, "{method} {path}: {status} {body}");
                assert!(!body.to_string().contains("root:"), "{method} {path}: {body}");
            }
        }
    }
    assert!(start.elapsed() < Duration::from_secs(60), "{:?}", start.elapsed());
    assert_eq!(
        case.sh(&sandbox, "cat real dir/f; ls /tmp").await,
        "realin dir",
        "nothing was written through a link"
    );

    // FIFO, socket, device (refused to code, so there is none), directory: told apart, at once.
    let kinds = "os.mkfifo('fifo')\nwith socket.socket(socket.AF_UNIX) as one: one.bind('socket')\nfound['device'] = attempt(os.mknod, 'device', stat.S_IFCHR | 0o666, os.makedev(1, 3))";
    assert_all(&case.probe(&sandbox, kinds).await, REFUSED, "devices");
    let start = Instant::now();
    for (path, code) in
        [("/fifo", "not_regular_file"), ("/socket", "not_regular_file"), ("/dir", "is_a_directory")]
    {
        for method in [Method::GET, Method::PUT] {
            let request = case.service.request(method.clone(), &sandbox.files(path)).body("planted");
            let (status, refused) = case.service.send(request).await;
            // Sockets and FIFOs of a kernel of its own are not on the volume at all; a file may then be made in their name.
            if mechanism == Mechanism::Gvisor && code == "not_regular_file" && refused["code"] != code {
                assert!([201, 404, 409].contains(&status), "{method} {path}: {status} {refused}");
                continue;
            }
            assert_eq!((status, &refused["code"]), (409, &json!(code)), "{method} {path}: {refused}");
        }
    }
    assert!(start.elapsed() < Duration::from_secs(10), "a FIFO without a writer holds nobody up");
    case.answers(&sandbox).await;
    case.finish().await;
}

/// W3, W8, W12: refused by the parser, before anything is looked at; and the same tree whatever code does to its root.
async fn what_is_no_path_and_what_happens_to_the_root(mechanism: Mechanism) {
    let case = Case::start(mechanism).await;
    let sandbox = case.sandbox().await;
    case.sh(&sandbox, "mkdir a; echo in > a/f").await;
    let before = case.service.events(sandbox.run).await.len();
    let long = ["a"; 2049].join("/");
    let component = "b".repeat(256);
    for path in [
        "/../x",
        "/a/../../x",
        "//abs",
        "/",
        "/.",
        "/..",
        "/a//f",
        "/a/./f",
        "/a/",
        "/a%00b",
        "/%2e%2e/x",
        "/a/%2e%2e/%2e%2e/etc/passwd",
        "/%2fetc%2fpasswd",
        "/.leasehold",
        "/.leasehold/nonce",
        "/a/..",
        &format!("/{long}"),
        &format!("/{component}"),
        "?path_base64=Li4veA==",
        "?path_base64=L2V0Yy9wYXNzd2Q=",
        "?path_base64=",
        "?path_base64=YQBi",
        "?path_base64=Li8=",
    ] {
        for method in ["GET", "PUT", "DELETE"] {
            if path.starts_with('?') && method == "GET" {
                continue;
            }
            let headers = if method == "PUT" { "content-length: 0\r\n" } else { "" };
            let (status, refused) = case.service.raw(method, &sandbox.files(path), headers).await;
            assert!([400, 404, 405, 422].contains(&status), "{method} {path:.80}: {status} {refused}");
        }
    }
    // One meaning per path: a backslash and an escaped escape are characters of a name.
    for (path, name) in [("/a%5cb", "a\\b"), ("/%252e%252e", "%2e%2e"), ("/~", "~"), ("/c%20d", "c d")] {
        let put = case.service.request(Method::PUT, &sandbox.files(path)).body("x");
        let (status, written) = case.service.send(put).await;
        assert_eq!((status, &written["path"]), (201, &json!(name)), "{written}");
    }
    assert_eq!(case.service.events(sandbox.run).await.len(), before + 4, "what was refused left no trace");

    // The root cannot be moved, replaced or mounted over by code.
    let root = "for name, what in {'rename': lambda: os.rename('/workspace', '/w'), 'rmdir': lambda: os.rmdir('/workspace'), 'chmod': lambda: os.chmod('/workspace', 0o777), 'chown': lambda: os.chown('/workspace', os.getuid(), -1), 'swap': lambda: os.rename('/workspace', '/tmp/w'), 'private': lambda: os.rename('/workspace/.leasehold', '/workspace/mine'), 'into': lambda: os.listdir('/workspace/.leasehold'), 'drop': lambda: os.rmdir('/workspace/.leasehold')}.items(): found[name] = attempt(what)\nfound['mount'] = call(165, b'x', b'/workspace', b'tmpfs', 0, None)";
    assert_all(&case.probe(&sandbox, root).await, &[REFUSED, &["EBUSY", "EXDEV"]].concat(), "the root");
    let read = case.service.request(Method::GET, &sandbox.files("/a/f")).send().await.expect("an answer");
    assert_eq!(read.text().await.expect("a body"), "in\n");
    let (status, page) = case.service.get(&sandbox.files("?recursive=true")).await;
    let listed: Vec<&str> =
        page["items"].as_array().expect("items").iter().filter_map(|entry| entry["path"].as_str()).collect();
    assert_eq!((status, listed), (200, vec!["%2e%2e", "a", "a/f", "a\\b", "c d", "~"]), "{page}");

    // A lease's files are its own: another lease's id opens nothing of it, a foreign id nothing at all.
    let foreign = format!("/v1/leases/{}/files/a/f", uuid::Uuid::now_v7());
    assert_eq!(case.service.get(&foreign).await.0, 404);
    let theirs = case.neighbour.files("/a/f");
    assert_eq!(case.service.get(&theirs).await.0, 404, "{}", id(&case.neighbour.lease, "lease_id"));
    case.finish().await;
}
