//! Hostile trees in the workspace: many, deep, hidden, moving, oddly named, back-dated. Each is seen as it is, once, in bounded
//! time, and is gone at the end.

use std::time::{Duration, Instant};

use base64::Engine as _;
use events::spec::Mechanism;
use reqwest::Method;
use serde_json::{Value, json};
use tests::api::id;
use tests::process::PATIENCE;

use super::{Case, Sandbox, python, sh};

/// How long names and contents are raced at least; longer when a busy host has let too few of the races happen.
const ATTACK: Duration = Duration::from_secs(4);

on_every_mechanism! {
    many_deep_and_hidden_trees_are_looked_at_in_bounded_time,
    moving_trees_and_back_dated_files_deceive_nobody,
}

/// The paths of a list of changes or entries, exact, sorted.
fn paths(items: &Value) -> Vec<Vec<u8>> {
    let items = items.as_array().unwrap_or_else(|| panic!("no list: {items}"));
    let exact = |item: &Value| match item["path_base64"].as_str() {
        Some(text) => base64::engine::general_purpose::STANDARD.decode(text).expect("base64"),
        None => item["path"].as_str().expect("a path").as_bytes().to_vec(),
    };
    let mut paths: Vec<_> = items.iter().map(exact).collect();
    paths.sort();
    paths
}

async fn list(case: &Case, sandbox: &Sandbox) -> Value {
    let (status, page) = case.service.get(&sandbox.files("?recursive=true&limit=1000")).await;
    assert_eq!(status, 200, "{page}");
    page
}

/// Q9, Q10, Q13, W9: the look after a command, a listing, and the removal at the end. The bounds are the service's own: a command
/// that is not over in its wait, or a file call that is cut off, has no 200.
async fn many_deep_and_hidden_trees_are_looked_at_in_bounded_time(mechanism: Mechanism) {
    let case = Case::start(mechanism).await;

    // Five kinds of entries, all of them empty.
    let sandbox = case.sandbox().await;
    let many = "os.mkdir('many')\nos.chdir('many')\nfor n in range(6000):\n    open(f'f{n}', 'w').close(); os.mkdir(f'd{n}'); os.symlink('x', f'l{n}'); os.mkfifo(f'p{n}')\n    with socket.socket(socket.AF_UNIX) as one: one.bind(f's{n}')";
    let made = case.run(&sandbox, &python(many)).await;
    assert_eq!((&made["exit_code"], &made["files_changed_truncated"]), (&json!(0), &json!(true)), "{made}");
    let page = list(&case, &sandbox).await;
    assert_eq!(page["items"].as_array().map(Vec::len), Some(1000));
    case.answers(&sandbox).await;

    // 25,000 directories in each other, made step by step, as no path can name them: deeper than most engines may open files.
    let sandbox = case.sandbox().await;
    let deep = "for n in range(25_000):\n    os.mkdir('d'); os.chdir('d')";
    let made = case.run(&sandbox, &python(deep)).await;
    assert_eq!((&made["state"], &made["killed_by"]), (&json!("finished"), &Value::Null), "{made}");
    let (status, page) = case.service.get(&sandbox.files("?limit=10")).await;
    assert_eq!((status, paths(&page["items"])), (200, vec![b"d".to_vec()]), "{page}");
    if mechanism == Mechanism::Docker {
        assert_eq!(made["exit_code"], 0, "{made}");
        case.answers(&sandbox).await;
    } else {
        // This kernel keeps each of them open: the program meets its limit, and the sandbox may have no file left to start
        // another one from. That is its own loss; it is released below like any other.
        assert!([json!(0), json!(1)].contains(&made["exit_code"]), "{made}");
    }

    // Modes that hide from their owner hide from nobody else.
    let sandbox = case.sandbox().await;
    let hidden = "os.makedirs('a/b')\nopen('a/b/f', 'w').write('hidden')\nopen('g', 'w').write('hidden too')\nfor path in ('a/b/f', 'a/b', 'a', 'g'): os.chmod(path, 0)";
    let made = case.run(&sandbox, &python(hidden)).await;
    assert_eq!(paths(&made["files_changed"]), [&b"a/b/f"[..], b"g"], "{made}");
    assert_eq!(paths(&list(&case, &sandbox).await["items"]), [&b"a"[..], b"a/b", b"a/b/f", b"g"]);
    let read = case.service.request(Method::GET, &sandbox.files("/a/b/f")).send().await.expect("an answer");
    assert_eq!(read.text().await.expect("a body"), "hidden");
    let immutable = "import fcntl\nopen('i', 'w').close()\nfd = os.open('i', os.O_RDONLY)\nfound['flag'] = attempt(fcntl.ioctl, fd, 0x40086602, struct.pack('l', 0x10))";
    let flag = case.probe(&sandbox, immutable).await;
    assert_ne!(flag["flag"], "ok", "an immutable file could not be removed");

    // All of it goes, by release, before anything else would remove it.
    let made = case.made.lock().expect("not poisoned").clone();
    for sandbox in made {
        let lease = format!("/v1/leases/{}", id(&sandbox.lease, "lease_id"));
        let (status, released) = case.service.post(&format!("{lease}/release"), &json!({})).await;
        assert_eq!(status, 200, "{released}");
        case.service.wait_for(&lease, "teardown", |lease| lease["environment"]["state"] == "destroyed").await;
    }
    case.finish().await;
}

/// Q11, Q14, Q15, Q17, Q23, W7: while code works against whoever looks.
async fn moving_trees_and_back_dated_files_deceive_nobody(mechanism: Mechanism) {
    let case = Case::start(mechanism).await;
    let sandbox = case.sandbox().await;

    // Names: each once, exact, everywhere.
    let names: Vec<Vec<u8>> = [
        &b"new\nline"[..],
        b"\xff\xfe",
        b"\x1b[31mred",
        b"-rf",
        b" ",
        b"   ",
        "\u{202e}txt.exe".as_bytes(),
        b"*",
        b"$(id)",
        b"'\"`",
        b"%2e%2e",
        b"a\\b",
    ]
    .iter()
    .map(|name| name.to_vec())
    .chain([vec![b'n'; 255]])
    .collect();
    let encoded: Vec<String> =
        names.iter().map(|name| base64::engine::general_purpose::STANDARD.encode(name)).collect();
    let make = format!(
        "import base64\nfor name in {encoded:?}: os.close(os.open(base64.b64decode(name), os.O_CREAT | os.O_WRONLY))"
    );
    let made = case.run(&sandbox, &python(&make)).await;
    let mut sorted = names.clone();
    sorted.sort();
    assert_eq!(paths(&made["files_changed"]), sorted, "{made}");
    assert_eq!(paths(&list(&case, &sandbox).await["items"]), sorted);
    let events = case.service.events(sandbox.run).await;
    let finished = events.iter().rfind(|event| event["type"] == "CommandFinished").expect("its end");
    assert_eq!(paths(&finished["body"]["files_changed"]), sorted, "{finished}");
    case.sh(&sandbox, "find . -mindepth 1 -maxdepth 1 ! -name .leasehold -delete").await;

    // A time that is put back hides no change, nor does a clone or a link.
    case.sh(&sandbox, "printf one > f; ln f twin; cp --reflink=auto f copy").await;
    let back = "before = os.stat('f')\nwith open('f', 'r+') as file: file.write('two')\nos.utime('f', ns=(before.st_atime_ns, before.st_mtime_ns))\nfound['same'] = os.stat('f').st_mtime_ns == before.st_mtime_ns";
    let changed = case.run(&sandbox, &python(back)).await;
    assert_eq!(changed["stdout"]["text"], "{\"same\": true}\n", "{changed}");
    assert_eq!(paths(&changed["files_changed"]), [&b"f"[..], b"twin"], "{changed}");
    assert!(
        changed["files_changed"]
            .as_array()
            .expect("a list")
            .iter()
            .all(|change| change["change"] == "MODIFIED"),
        "{changed}"
    );

    // Directories and links that change places, files that grow, shrink and are replaced, while they are listed and read.
    let mut mover = python(include_str!("probes/mover.py"));
    mover["background"] = json!(true);
    mover["timeout_seconds"] = json!(120.0);
    let mover = case.begin(&sandbox, &mover).await;
    case.sh(&sandbox, "while ! [ -e moving ]; do sleep 0.05; done").await;
    let own = [
        "f", "twin", "copy", "moving", "tree", "away", "mark", "deep", "changing", "spare", "swing",
        "replaced", "next", "enough",
    ];
    let (mut listed, mut whole, mut refused) = (0, 0, 0);
    let start = Instant::now();
    while start.elapsed() < ATTACK || listed <= 5 || whole <= 5 || refused <= 5 {
        assert!(start.elapsed() < PATIENCE, "only {listed} listings, {whole} files, {refused} refusals");
        let (status, page) = case.service.get(&sandbox.files("?recursive=true&limit=1000")).await;
        assert!(status == 200 || status == 409, "{status} {page}");
        if status == 200 {
            listed += 1;
            for path in paths(&page["items"]) {
                let path = String::from_utf8(path).expect("ours are text");
                assert!(path.split('/').all(|part| own.contains(&part)), "from outside: {path}");
            }
        }
        for name in ["/changing", "/replaced", "/swing/passwd", "/swing/mark", "/tree/deep/mark"] {
            // A file that changes within its first piece ends the connection before the head is out.
            let Ok(answer) = case.service.request(Method::GET, &sandbox.files(name)).send().await else {
                refused += 1;
                continue;
            };
            assert!([200, 404, 409].contains(&answer.status().as_u16()), "{name}: {}", answer.status());
            if answer.status() != 200 {
                refused += 1;
            } else if let Ok(bytes) = answer.bytes().await {
                whole += 1;
                assert!(bytes.iter().all(|byte| b"\x000ab\n".contains(byte)), "{name}: bytes from outside");
                if name == "/replaced" {
                    assert!(bytes.windows(2).all(|two| two[0] == two[1]), "two versions in one answer");
                }
            }
        }
    }
    case.run(&sandbox, &sh("touch enough")).await;
    let mover = case.ended(&mover).await;
    assert_eq!(mover["exit_code"], 0, "{mover}");
    case.answers(&sandbox).await;
    case.finish().await;
}
