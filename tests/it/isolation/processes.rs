//! What a command starts ends with it; what it leaves in its workspace or its variables never reaches the trusted side; the
//! clock that counts is not in its reach.

use events::spec::Mechanism;
use serde_json::{Value, json};
use tests::api::id;

use super::{Case, Sandbox, assert_all, python};

on_every_mechanism! { nothing_a_command_starts_outlives_it, nothing_it_plants_reaches_the_trusted_side }

/// Processes of the command's own user but the one that counts.
const CENSUS: &str = "found['own'] = [pid for pid in processes() if pid not in trusted() and pid != os.getpid()]\n\
                      found['zombies'] = [pid for pid in processes() if fields(pid)['State'].startswith('Z')]";

async fn assert_alone(case: &Case, sandbox: &Sandbox, what: &str) {
    let census = case.probe(sandbox, CENSUS).await;
    assert_eq!(census, json!({ "own": [], "zombies": [] }), "{what}");
}

/// P1, P2, P4, R8, R11, P12: every way to stay behind, ended by an exit, by the time limit, by a kill.
async fn nothing_a_command_starts_outlives_it(mechanism: Mechanism) {
    let case = Case::start(mechanism).await;
    let sandbox = case.sandbox().await;

    // Double fork, session, closed descriptors, ignored signals; one keeps its output open, one writes later.
    let daemons = include_str!("probes/daemons.py");
    let left = case.run(&sandbox, &python(daemons)).await;
    assert_eq!((&left["exit_code"], &left["killed_by"]), (&json!(0), &Value::Null), "{left}");
    assert!(left["stragglers"].as_u64().is_some_and(|count| count >= 5), "{left}");
    assert_alone(&case, &sandbox, "after its own exit").await;

    let mut body = python(&format!("{daemons}\ntime.sleep(600)"));
    body["timeout_seconds"] = json!(1.5);
    let killed = case.run(&sandbox, &body).await;
    assert_eq!(killed["killed_by"], "TIMEOUT", "{killed}");
    assert_alone(&case, &sandbox, "after the time limit").await;

    case.sh(&sandbox, "rm started").await;
    body["background"] = json!(true);
    body["timeout_seconds"] = json!(60.0);
    let command = case.begin(&sandbox, &body).await;
    let path = format!("/v1/commands/{}", id(&command, "command_id"));
    case.sh(&sandbox, "while ! [ -e started ]; do sleep 0.05; done; rm started").await;
    let (status, _) = case.service.post(&format!("{path}/kill"), &json!({})).await;
    assert_eq!(status, 202);
    let killed = case.ended(&command).await;
    assert_eq!(killed["killed_by"], "CANCELLED", "{killed}");
    assert_alone(&case, &sandbox, "after a kill in the background").await;

    // A process that becomes another one all the time: its command ends with the first, and takes the last along.
    let chain = "import os\nwhile True:\n    if os.fork(): os._exit(0)";
    let ended = case.run(&sandbox, &json!({ "argv": ["python3", "-c", chain] })).await;
    assert_eq!(ended["state"], "finished", "{ended}");
    assert_alone(&case, &sandbox, chain).await;

    // Each would go on for ever; a parent in a vfork waits where no signal but SIGKILL is taken.
    let stubborn = [
        "import ctypes; c = ctypes.CDLL(None); c.vfork() == 0 and [c.pause() for _ in iter(int, 1)]",
        "import os, signal; [signal.signal(s, signal.SIG_IGN) for s in (1, 2, 3, 13, 15, 20, 21, 22)]\nwhile True: os.kill(0, signal.SIGTSTP)",
        "import os; os.kill(os.getpid(), 19)",
        "import signal, time; signal.signal(14, lambda *_: None); signal.setitimer(signal.ITIMER_REAL, 1e-4, 1e-4)\nwhile True: time.sleep(1)",
        "import os; os.close(1); os.close(2)\nwhile True: pass",
    ];
    for program in stubborn {
        let body = json!({ "argv": ["python3", "-c", program], "timeout_seconds": 0.8 });
        let killed = case.run(&sandbox, &body).await;
        assert_eq!(
            (&killed["killed_by"], &killed["exit_code"]),
            (&json!("TIMEOUT"), &Value::Null),
            "{program}: {killed}"
        );
        assert!(killed["evidence"]["elapsed_ms"].as_u64().is_some_and(|ms| ms >= 800), "{killed}");
        assert_alone(&case, &sandbox, program).await;
    }

    // Zombies by the hundred, orphaned in two steps: all are reaped, and none counts against the next command.
    let zombies = "for _ in range(200):\n    child = os.fork()\n    if child == 0:\n        if os.fork() == 0: os._exit(0)\n        os._exit(0)\nfound['made'] = 200";
    for _ in 0..3 {
        assert_eq!(case.probe(&sandbox, zombies).await, json!({ "made": 200 }));
        assert_alone(&case, &sandbox, "after 200 zombies").await;
    }
    // Nothing of all that wrote anything later.
    assert_eq!(case.sh(&sandbox, "ls").await, "");
    case.finish().await;
}

/// P10: variables, start-up files and look-alikes of programs.
async fn nothing_it_plants_reaches_the_trusted_side(mechanism: Mechanism) {
    let case = Case::start(mechanism).await;
    let sandbox = case.sandbox().await;
    let plant = "for name in sh bash python3 cat env guest docker id; do printf '#!/bin/sh\\necho planted\\n' > $name; chmod 755 $name; done\n\
                 for name in .bashrc .profile .bash_profile .bash_env .pythonrc sitecustomize.py usercustomize.py; do echo 'print(\"planted\")' > $name; done\n\
                 mkdir -p .ssh .config/git; printf '[core]\\n\\tpager = echo planted\\n' > .gitconfig; echo '* planted' > .ssh/config";
    case.sh(&sandbox, plant).await;
    let variables = json!({
        "LD_PRELOAD": "/workspace/evil.so", "LD_LIBRARY_PATH": "/workspace", "LD_AUDIT": "/workspace/evil.so",
        "BASH_ENV": "/workspace/.bash_env", "ENV": "/workspace/.profile", "PYTHONSTARTUP": "/workspace/.pythonrc",
        "PYTHONPATH": "/workspace", "GIT_SSH_COMMAND": "echo planted", "GIT_CONFIG_GLOBAL": "/workspace/.gitconfig",
        "GCONV_PATH": "/workspace", "GLIBC_TUNABLES": "glibc.malloc.check=3", "IFS": "/", "SHELLOPTS": "xtrace",
    });
    let first = case.run(&sandbox, &json!({ "argv": ["sh", "-c", "true"], "env": variables })).await;
    assert_eq!(first["killed_by"], Value::Null, "{first}");

    // The next command: its own variables, the image's programs, whatever its working directory is full of.
    let clean = case.run(&sandbox, &json!({ "argv": ["env"] })).await;
    let mut names: Vec<&str> = clean["stdout"]["text"]
        .as_str()
        .expect("text")
        .lines()
        .filter_map(|line| Some(line.split_once('=')?.0))
        .collect();
    names.sort_unstable();
    assert_eq!(names, ["HOME", "LANG", "PATH", "PWD", "TMPDIR"], "{clean}");
    assert_eq!(case.sh(&sandbox, "echo image; command -v cat").await, "image\n/usr/bin/cat\n");
    let isolated = case.run(&sandbox, &json!({ "argv": ["python3", "-I", "-c", "print('image')"] })).await;
    assert_eq!(isolated["stdout"]["text"], "image\n", "{isolated}");

    // Trusted processes start anew after a kill, beside all of it.
    let killed = case
        .run(&sandbox, &json!({ "argv": ["sleep", "60"], "timeout_seconds": 0.3, "env": variables }))
        .await;
    assert_eq!(killed["killed_by"], "TIMEOUT", "{killed}");
    let found = case
        .probe(
            &sandbox,
            "found.update({line: fields(pid)['Uid'].split()[0] for pid, line in trusted().items()})",
        )
        .await;
    assert_eq!(found, json!({ "/leasehold/guest init sandbox": "0", "/leasehold/guest spawn": "0" }));

    // The host's clocks are out of reach, and the limit is counted by them.
    let clocks = "found.update(settimeofday=call(164, ctypes.byref((ctypes.c_long * 2)(1, 0)), None), clock_settime=call(227, 0, ctypes.byref((ctypes.c_long * 2)(1, 0))), stime=attempt(time.clock_settime, time.CLOCK_REALTIME, 1.0), adjtime=call(305, 0, ctypes.byref((ctypes.c_uint64 * 32)(1))))";
    assert_all(&case.probe(&sandbox, clocks).await, &["EPERM", "ENOSYS"], "clocks set");
    case.answers(&sandbox).await;
    case.finish().await;
}
