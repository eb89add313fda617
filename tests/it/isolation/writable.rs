//! What can be written besides the workspace: little, all of it in memory, with a limit on bytes and on files, and charged to
//! the sandbox; never the host's disk.

use events::spec::Mechanism;
use serde_json::{Value, json};

use super::{Case, REFUSED, assert_all, python};

on_every_mechanism! {
    what_is_writable_is_named_and_bounded,
    memory_by_other_names_is_charged_to_the_sandbox,
}

const TMP_BYTES: u64 = 256 << 20;
const SHM_BYTES: u64 = 64 << 20;

/// Bytes that the engine says the container wrote into its own root.
async fn root_bytes(case: &Case, sandbox: &super::Sandbox) -> u64 {
    case.inspect(sandbox, "sandbox").await["SizeRw"].as_u64().unwrap_or(0)
}

/// Q7, Q22, E10: the whole file system is tried.
async fn what_is_writable_is_named_and_bounded(mechanism: Mechanism) {
    let case = Case::start(mechanism).await;
    let sandbox = case.sandbox().await;
    let files = if mechanism == Mechanism::Docker { "200000" } else { "2000" };
    let found =
        case.probe_with(&sandbox, include_str!("probes/writable.py"), &json!({ "PROBE_FILES": files })).await;
    assert!(found["tried"].as_u64().is_some_and(|count| count > 500), "{}", found["tried"]);
    let mut created = found["created"].clone();
    // The other kernel ignores that limit; its queues lie in its own memory, which is the sandbox's.
    let queues: &[&str] = if mechanism == Mechanism::Gvisor { &["ok"] } else { &[] };
    // A message queue is a file there; their size is limited to nothing.
    created.as_array_mut().expect("paths").retain(|path| path != "/dev/mqueue");
    assert_eq!(created, json!(["/dev/shm", "/tmp", "/workspace"]), "writable directories");
    assert_eq!(found["files"], json!([]), "writable files");
    assert_all(
        &json!({ "file": found["mqueue"], "queue": found["mq_open"] }),
        &[REFUSED, &["EMFILE"], queues].concat(),
        "message queues",
    );
    for (path, bytes_max) in [("/tmp", TMP_BYTES), ("/dev/shm", SHM_BYTES), ("/run", 1 << 20)] {
        let [bytes, inodes] = pair(&found["limits"][path]);
        assert!(bytes <= bytes_max, "{path}: {bytes} bytes");
        // This release of the other kernel ignores the limit on files; memory is the bound there.
        if mechanism == Mechanism::Docker {
            assert!(inodes <= bytes_max / 4096, "{path}: {inodes} files");
        }
    }
    for (path, bytes_max) in [("/tmp", TMP_BYTES), ("/dev/shm", SHM_BYTES)] {
        let [bytes, _] = pair(&found["swollen"][path]);
        assert_eq!(found["swollen"][path][1], "ENOSPC", "{path}: {found}");
        assert!(bytes <= bytes_max, "{path}: {bytes} bytes");
        if mechanism == Mechanism::Docker {
            let [files, _] = pair(&found["filled"][path]);
            assert_eq!(found["filled"][path][1], "ENOSPC", "{path}: {found}");
            assert!(files <= bytes_max / 4096, "{path}: {files} files");
        }
    }
    assert!(root_bytes(&case, &sandbox).await < 1 << 20, "nothing lands in the container's root");
    case.answers(&sandbox).await;
    case.finish().await;
}

fn pair(value: &Value) -> [u64; 2] {
    [value[0].as_u64().unwrap_or(0), value[1].as_u64().unwrap_or(0)]
}

/// Q6: a memory file, an unnamed file, shared memory, a second opening of each: the limit ends it, or the mount is full.
async fn memory_by_other_names_is_charged_to_the_sandbox(mechanism: Mechanism) {
    let case = Case::start(mechanism).await;
    let sandbox = case.sandbox_with(&json!({ "memory_bytes": 192 << 20 })).await;
    let ways = [
        "fd = os.memfd_create('m')",
        "fd = os.open('/tmp', os.O_TMPFILE | os.O_RDWR)",
        "fd = os.open('/dev/shm', os.O_TMPFILE | os.O_RDWR)",
        "fd = os.open(f'/proc/self/fd/{os.memfd_create(\"m\")}', os.O_RDWR)",
        "import mmap; held = mmap.mmap(-1, 1 << 30); fd = None",
        // System V shared memory: shmget, shmat.
        "libc.shmat.restype = ctypes.c_void_p; at = libc.shmat(libc.shmget(0, 1 << 30, 0o1600), None, 0); fd = None; held = (ctypes.c_char * (1 << 30)).from_address(at)",
    ];
    let fill = include_str!("probes/fill.py");
    for way in ways {
        let ended = case
            .run(
                &sandbox,
                &python(&format!("def open_it():\n    global held\n    {way}\n    return fd\n{fill}")),
            )
            .await;
        if ended["killed_by"].is_null() {
            let text = ended["stdout"]["text"].as_str().expect("text");
            let found: Value = serde_json::from_str(text).unwrap_or_else(|_| panic!("{way}: {ended}"));
            assert!(
                ["ENOSPC", "ENOMEM", "EDQUOT", "ENOTSUP", "EINVAL"]
                    .contains(&found["outcome"].as_str().expect("a word")),
                "{way}: {found}"
            );
        } else {
            assert_eq!(
                (&ended["killed_by"], &ended["exit_code"]),
                (&json!("MEMORY"), &Value::Null),
                "{way}: {ended}"
            );
            assert_eq!(ended["evidence"]["limit_bytes"], 192 << 20, "{way}: {ended}");
        }
        case.answers(&sandbox).await;
    }
    assert!(root_bytes(&case, &sandbox).await < 1 << 20, "nothing lands in the container's root");
    case.finish().await;
}
