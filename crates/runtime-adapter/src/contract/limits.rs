//! Every limit against a program that does nothing but run into it: the right reason with its proof, what was printed
//! before is kept, the environment goes on, nothing is left. And programs that only look as if they had.

use events::event::command::KillReason;
use events::spec::{Limits, Mechanism};

use super::quota::is_disk;
use super::subject::{Call, Subject};
use crate::ports::{EnvironmentHandle, ExecutionResult};

const MIB: u64 = 1 << 20;

/// How far a program that writes at full speed gets beyond the limit before it is stopped (docs/security.md has the
/// measured figures).
const OVERSHOOT_MAX_BYTES: u64 = 512 * MIB;
/// The same for one that makes files or directories.
const OVERSHOOT_MAX_INODES: u64 = 40_000;

async fn environment(subject: &Subject, limit: impl FnOnce(&mut Limits)) -> EnvironmentHandle {
    let mut spec = subject.spec();
    limit(&mut spec.limits);
    subject.adapter.execution.provision(spec).await.expect("provisioned")
}

async fn python(subject: &Subject, handle: &EnvironmentHandle, script: &str) -> ExecutionResult {
    let script = format!("import ctypes, os, sys, time\nprint('up', flush=True)\n{script}");
    let call = Call::argv(&["python3", "-c", &script]).timeout_ms(60_000);
    subject.run(handle, call).await.expect("a result")
}

/// The output so far is kept, and the same environment runs the next command.
async fn goes_on(subject: &Subject, handle: &EnvironmentHandle, result: &ExecutionResult) {
    assert_eq!(result.stdout.head, b"up\n", "{result:?}");
    let next = subject.sh(handle, "cat /proc/[0-9]*/comm | grep -c python3; echo on").await;
    assert_eq!(next.stdout.head, b"0\non\n", "nothing of it runs: {next:?}");
}

/// Makes room and fills it again, within the limit.
async fn can_be_emptied(subject: &Subject, handle: &EnvironmentHandle) {
    let emptied = subject.sh(handle, "chmod -R u+rwx . 2>/dev/null; rm -rf ./*; echo new > new").await;
    assert_eq!((emptied.exit_code, emptied.killed_by), (Some(0), None), "{emptied:?}");
}

/// Sizes and count of everything there, as the port lists it.
async fn listed(subject: &Subject, handle: &EnvironmentHandle) -> (u64, u64) {
    let (mut bytes, mut inodes, mut after) = (0, 0, None);
    loop {
        let page = subject.adapter.workspace.list(handle, None, true, after, 10_000).await.expect("listed");
        bytes += page.entries.iter().map(|entry| entry.size_bytes).sum::<u64>();
        inodes += page.entries.len() as u64;
        after = page.next_after;
        if after.is_none() {
            return (bytes, inodes);
        }
    }
}

/// A loop that never ends is TIMEOUT; a command's threads together get their share of processors and no more.
pub async fn a_spin_loop_is_timeout_and_keeps_to_its_processors(subject: &Subject) {
    let handle = environment(subject, |limits| limits.cpu_millicores = 500).await;
    let script = "echo up; for i in $(seq 64); do (while :; do :; done) & done; wait";
    let result = subject.run(&handle, Call::sh(script).timeout_ms(3_000)).await.expect("a result");
    assert_eq!((result.exit_code, result.killed_by), (None, Some(KillReason::Timeout)));
    let evidence = result.evidence.clone().expect("evidence");
    assert_eq!(evidence.limit_ms, Some(3_000));
    assert!(evidence.elapsed_ms.is_some_and(|elapsed| elapsed >= 3_000), "{evidence:?}");
    // What a killed command used is told as far as it was counted, and never as nothing.
    match result.usage.cpu_ms {
        Some(cpu_ms) => assert!(cpu_ms >= 100, "{:?}", result.usage),
        None => assert_eq!(subject.mechanism, Mechanism::Gvisor, "a cgroup counts to the end"),
    }
    goes_on(subject, &handle, &result).await;
    // One that ends by itself is accounted: 64 spinners for two seconds get one second, and the periods at both ends; less
    // when the machine has other things to do.
    let script = "import os, time\nend = time.monotonic() + 2\nfor _ in range(64):\n    if os.fork() == 0:\n        while time.monotonic() < end: pass\n        os._exit(0)\nfor _ in range(64): os.wait()";
    let spun = subject.run(&handle, Call::argv(&["python3", "-c", script]).timeout_ms(30_000)).await;
    let spun = spun.expect("a result");
    if subject.mechanism == Mechanism::Gvisor {
        // Its kernel takes every runnable thread for a running one; what it takes of the host is looked at there.
        return;
    }
    let cpu_ms = spun.usage.cpu_ms.expect("it ended by itself");
    let share = cpu_ms as f64 / spun.duration_ms as f64;
    assert!((0.05..0.65).contains(&share), "{share}: {cpu_ms} of {} ms", spun.duration_ms);
}

/// An allocator is MEMORY, by itself or in a child, whatever the parent makes of it.
pub async fn allocators_are_memory(subject: &Subject) {
    let handle = environment(subject, |limits| limits.memory_bytes = 128 * MIB).await;
    for script in [
        "x = bytearray(1 << 30)",
        "child = os.fork()\nif child == 0: x = bytearray(1 << 30)\nos.waitpid(child, 0)\nsys.exit(0)",
        "x = []\nwhile True: x.append(bytearray(1 << 20))",
    ] {
        let result = python(subject, &handle, script).await;
        assert_eq!((result.exit_code, result.killed_by), (None, Some(KillReason::Memory)), "{script}");
        let evidence = result.evidence.clone().expect("evidence");
        assert_eq!(evidence.limit_bytes, Some(128 * MIB));
        assert!(evidence.oom_kills.is_some_and(|kills| kills >= 1), "{evidence:?}");
        goes_on(subject, &handle, &result).await;
    }
}

/// A fork bomb is PIDS: every process of it goes on trying. (A shell's own bomb waits between its tries, and may be none.)
pub async fn a_fork_bomb_is_pids(subject: &Subject) {
    let handle = environment(subject, |limits| limits.pids_max = 64).await;
    let script = "while True:\n    try: os.fork()\n    except OSError: pass";
    let result = python(subject, &handle, script).await;
    assert_eq!((result.exit_code, result.killed_by), (None, Some(KillReason::Pids)), "{result:?}");
    let evidence = result.evidence.clone().expect("evidence");
    assert_eq!(evidence.limit, Some(64));
    goes_on(subject, &handle, &result).await;
}

/// The tightest one there is, at the limit that a lease has by default: whoever counts gets hardly a turn.
pub async fn a_fork_bomb_that_leaves_nobody_a_turn_is_pids(subject: &Subject) {
    let handle = environment(subject, |limits| {
        (limits.pids_max, limits.memory_bytes) = (512, 2 << 30);
    })
    .await;
    subject.write(&handle, "program", &fork_loop()).await.expect("written");
    let script = "cp program bomb && chmod +x bomb && echo up && exec ./bomb";
    let result = subject.run(&handle, Call::sh(script).timeout_ms(30_000)).await.expect("a result");
    assert_eq!((result.exit_code, result.killed_by), (None, Some(KillReason::Pids)), "{result:?}");
    assert_eq!(result.evidence.as_ref().and_then(|evidence| evidence.limit), Some(512));
    assert_eq!(result.stdout.head, b"up\n");
    assert_eq!(subject.sh(&handle, "echo on").await.stdout.head, b"on\n");
}

/// A program of three instructions, `loop: fork()`, as an ELF file for x86-64; elsewhere a script that does the same.
fn fork_loop() -> Vec<u8> {
    if !cfg!(target_arch = "x86_64") {
        return b"#!/usr/bin/python3\nimport os\nwhile True:\n    try: os.fork()\n    except OSError: pass\n"
            .to_vec();
    }
    const BASE: u64 = 0x40_0000;
    const HEADERS_BYTES: u64 = 64 + 56;
    // mov eax, 57; syscall; jmp to the beginning
    let code = [0xb8, 57, 0, 0, 0, 0x0f, 0x05, 0xeb, 0xf7];
    let size = HEADERS_BYTES + code.len() as u64;
    let mut elf = b"\x7fELF\x02\x01\x01".to_vec();
    elf.resize(16, 0);
    // An executable file for this machine, version 1.
    elf.extend([2, 0, 62, 0, 1, 0, 0, 0]);
    for word in [BASE + HEADERS_BYTES, 64, 0] {
        elf.extend(word.to_le_bytes());
    }
    // No flags; sizes: file header, program header; one of them; no sections.
    elf.extend([0, 0, 0, 0, 64, 0, 56, 0, 1, 0, 0, 0, 0, 0, 0, 0]);
    // Loaded whole, readable and executable.
    elf.extend([1, 0, 0, 0, 5, 0, 0, 0]);
    for word in [0, BASE, BASE, size, size, 0x1000] {
        elf.extend(word.to_le_bytes());
    }
    elf.extend(code);
    elf
}

/// A flood of output is OUTPUT_LIMIT.
pub async fn an_output_flood_is_output_limit(subject: &Subject) {
    let handle = subject.environment().await;
    let call = Call::sh("yes").output_bytes_max(2 * MIB);
    let result = subject.run(&handle, call).await.expect("a result");
    assert_eq!((result.exit_code, result.killed_by), (None, Some(KillReason::OutputLimit)));
    let evidence = result.evidence.clone().expect("evidence");
    assert!(evidence.limit_bytes == Some(2 * MIB) && evidence.produced_bytes >= Some(2 * MIB));
    assert!(result.stdout.head.starts_with(b"y\ny\n"));
    assert_eq!(subject.sh(&handle, "echo on").await.stdout.head, b"on\n");
}

/// Full speed into many files: stopped within the stated bound.
pub async fn a_disk_filler_is_stopped_within_the_bound(subject: &Subject) {
    let handle = environment(subject, |limits| limits.workspace_bytes = 64 * MIB).await;
    let script = "block = b'x' * (4 << 20)\nfor child in range(2):\n    if os.fork() == 0: break\nn = 0\nwhile True:\n    with open(f'{os.getpid()}-{n}', 'wb', buffering=0) as file:\n        for _ in range(4): file.write(block)\n    n += 1";
    let result = python(subject, &handle, script).await;
    is_disk(&result, "bytes", 64 * MIB);
    let (peak, _) = listed(subject, &handle).await;
    assert!(peak > 64 * MIB && peak <= 64 * MIB + OVERSHOOT_MAX_BYTES, "{peak} bytes");
    println!("disk filler: {} MiB over a limit of 64 MiB after {} ms", (peak >> 20) - 64, result.duration_ms);
    goes_on(subject, &handle, &result).await;
    can_be_emptied(subject, &handle).await;
}

/// A program that takes the refusal of its write for its own affair has filled the workspace all the same.
pub async fn a_program_that_ignores_the_full_disk_is_disk(subject: &Subject) {
    let handle = environment(subject, |limits| limits.workspace_bytes = 8 * MIB).await;
    for script in [
        "import signal\nsignal.signal(signal.SIGXFSZ, signal.SIG_IGN)\nf = open('f', 'wb', buffering=0)\ntry:\n    while True: f.write(b'x' * 65536)\nexcept OSError: sys.exit(0)",
        "f = open('f', 'wb', buffering=0)\nwhile f.write(b'x' * 65536): pass",
    ] {
        let result = python(subject, &handle, script).await;
        is_disk(&result, "bytes", 8 * MIB);
        goes_on(subject, &handle, &result).await;
        can_be_emptied(subject, &handle).await;
    }
}

/// Files, directories, and names hidden below a locked directory all count, and are stopped within the stated bound.
pub async fn fillers_of_every_kind_are_disk(subject: &Subject) {
    let handle = environment(subject, |limits| limits.inodes_max = 1_000).await;
    for script in [
        "n = 0\nwhile True:\n    os.close(os.open(str(n), os.O_CREAT | os.O_WRONLY)); n += 1",
        "n = 0\nwhile True:\n    os.mkdir(str(n)); n += 1",
        "while True:\n    os.mkdir('d'); os.chdir('d')",
        "n = 0\nwhile True:\n    os.symlink('x', str(n)); n += 1",
        "n = 0\nos.mkdir('locked'); d = os.open('locked', os.O_RDONLY); os.chmod('locked', 0o300)\nwhile True:\n    os.close(os.open(f'locked/{n}', os.O_CREAT, 0)); n += 1\n    if n == 900: os.mkdir('locked/deep', 0o300)\n    if n > 900: os.mkdir(f'locked/deep/{n}', 0)",
    ] {
        let result = python(subject, &handle, script).await;
        is_disk(&result, "inodes", 1_000);
        let (_, peak) = listed(subject, &handle).await;
        println!("inode filler: {peak} of 1000 after {} ms", result.duration_ms);
        assert!(peak <= 1_000 + OVERSHOOT_MAX_INODES, "{peak} inodes: {script}");
        goes_on(subject, &handle, &result).await;
        can_be_emptied(subject, &handle).await;
    }
}

/// What is deleted and still open counts while it is open, and is gone with the process.
pub async fn deleted_open_files_are_disk(subject: &Subject) {
    let handle = environment(subject, |limits| limits.workspace_bytes = 32 * MIB).await;
    let scripts = [
        "fds = []\nwhile True:\n    fd = os.open('f', os.O_CREAT | os.O_WRONLY); os.unlink('f'); os.write(fd, b'x' * (1 << 20)); fds.append(fd)",
        "f = os.open('f', os.O_CREAT | os.O_WRONLY); os.unlink('f')\nif os.fork(): time.sleep(60)\ng = os.open(f'/proc/self/fd/{f}', os.O_WRONLY)\nos.write(g, b'x' * (30 << 20)); h = os.open('h', os.O_CREAT | os.O_WRONLY); os.write(h, b'x' * (10 << 20)); time.sleep(60)",
        // gVisor makes no files without a name.
        "fds = []\nwhile True:\n    fd = os.open('.', os.O_TMPFILE | os.O_WRONLY); os.write(fd, b'x' * (1 << 20)); fds.append(fd)",
    ];
    let possible = if subject.mechanism == Mechanism::Gvisor { &scripts[..2] } else { &scripts[..] };
    for script in possible {
        let result = python(subject, &handle, script).await;
        is_disk(&result, "bytes", 32 * MIB);
        goes_on(subject, &handle, &result).await;
        can_be_emptied(subject, &handle).await;
    }
}

/// A file that loses its name, and the next one that has one, never are there together: only one of them counts.
pub async fn what_loses_its_name_counts_once(subject: &Subject) {
    let handle = environment(subject, |limits| limits.workspace_bytes = 32 * MIB).await;
    // As long under a name as without one, and never more than 20 MiB.
    let churn = "block, turns, end = bytes(1 << 20), 0, time.monotonic() + 6\nwhile time.monotonic() < end:\n    f = os.open('f', os.O_CREAT | os.O_RDWR)\n    for _ in range(20): os.write(f, block)\n    os.unlink('f')\n    for at in range(20): os.pwrite(f, block, at << 20)\n    os.close(f); turns += 1\nassert turns > 10, turns";
    let result = python(subject, &handle, churn).await;
    assert_eq!((result.exit_code, result.killed_by), (Some(0), None), "{result:?}");
    let both = "f = os.open('f', os.O_CREAT | os.O_RDWR); os.unlink('f')\nfor fd in f, os.open('g', os.O_CREAT | os.O_RDWR):\n    for _ in range(20): os.write(fd, bytes(1 << 20))\ntime.sleep(60)";
    is_disk(&python(subject, &handle, both).await, "bytes", 32 * MIB);
}

/// Paths that are too long for the kernel to say are no violation, and hide nothing.
pub async fn a_tree_deeper_than_a_path_is_long_can_be_worked_in(subject: &Subject) {
    let handle = environment(subject, |limits| limits.workspace_bytes = 64 * MIB).await;
    let descend = "for n in range(3_000):\n    os.mkdir('d'); os.chdir('d')\nheld = os.open('.', os.O_RDONLY)\nf = os.open('f', os.O_CREAT | os.O_WRONLY)\n";
    let quiet = python(subject, &handle, &format!("{descend}os.write(f, b'x'); time.sleep(1)")).await;
    assert_eq!((quiet.exit_code, quiet.killed_by), (Some(0), None), "{quiet:?}");
    can_be_emptied(subject, &handle).await;
    let hidden = format!("{descend}os.unlink('f'); os.write(f, b'x' * (65 << 20)); time.sleep(60)");
    is_disk(&python(subject, &handle, &hidden).await, "bytes", 64 * MIB);
    can_be_emptied(subject, &handle).await;
}

/// What cannot be looked at is never taken for nothing.
pub async fn hiding_what_is_open_is_disk(subject: &Subject) {
    let handle = environment(subject, |limits| limits.workspace_bytes = 32 * MIB).await;
    let hide = |mebibytes: u32| {
        format!(
            "fds = [os.open('f', os.O_CREAT | os.O_WRONLY), os.open('g', os.O_CREAT | os.O_WRONLY)]\n\
             for name in 'fg': os.unlink(name)\n\
             ctypes.CDLL(None).prctl(4, 0, 0, 0, 0)\n\
             for fd in fds: os.write(fd, b'x' * ({mebibytes} << 20))\n\
             time.sleep(60)"
        )
    };
    if subject.mechanism == Mechanism::Gvisor {
        // Its kernel shows the descriptors none the less.
        let result = python(subject, &handle, &hide(20)).await;
        is_disk(&result, "bytes", 32 * MIB);
        goes_on(subject, &handle, &result).await;
        return;
    }
    let result = python(subject, &handle, &hide(15)).await;
    assert_eq!((result.exit_code, result.killed_by), (None, Some(KillReason::Disk)), "{result:?}");
    let evidence = result.evidence.clone().expect("evidence");
    assert_eq!((evidence.source.as_deref(), evidence.measured), (Some("cannot_measure"), None));
    goes_on(subject, &handle, &result).await;
}

/// Room that is taken without writing counts too: sparse files by their size, reserved blocks by a refusal.
pub async fn room_taken_without_writing_counts(subject: &Subject) {
    let handle = environment(subject, |limits| limits.workspace_bytes = 32 * MIB).await;
    let sparse = python(subject, &handle, "for n in range(3): open(f'f{n}', 'wb').truncate(20 << 20)").await;
    is_disk(&sparse, "bytes", 32 * MIB);
    can_be_emptied(subject, &handle).await;
    // FALLOC_FL_KEEP_SIZE: no limit on the size of files stops that.
    let reserve = "libc = ctypes.CDLL(None, use_errno=True)\nfd = os.open('f', os.O_CREAT | os.O_WRONLY)\nr = libc.fallocate(fd, 1, ctypes.c_long(0), ctypes.c_long(1 << 34))\nassert (r, ctypes.get_errno()) == (-1, 95), (r, ctypes.get_errno())\nos.posix_fallocate(fd, 0, 1 << 20)\nassert os.fstat(fd).st_size == 1 << 20";
    let reserved = python(subject, &handle, reserve).await;
    assert_eq!((reserved.exit_code, reserved.killed_by), (Some(0), None), "{reserved:?}");
}

/// Within its limits a command may rewrite, replace and grow what is there.
pub async fn a_nearly_full_workspace_can_be_worked_in(subject: &Subject) {
    let handle = environment(subject, |limits| limits.workspace_bytes = 32 * MIB).await;
    let made = subject.sh(&handle, "head -c 25M /dev/zero > base").await;
    assert_eq!((made.exit_code, made.killed_by), (Some(0), None));
    let script = "f = os.open('base', os.O_RDWR)\nos.pwrite(f, b'y' * 4096, 20 << 20)\nos.pwrite(f, b'z' * (1 << 20), 25 << 20)\nos.close(f)\nos.unlink('base')\nopen('new', 'wb').write(b'n' * (26 << 20))";
    let result = python(subject, &handle, script).await;
    assert_eq!((result.exit_code, result.killed_by), (Some(0), None), "{result:?}");
}

/// A program's own end stays what it is, however much it looks like a limit.
pub async fn what_only_looks_like_a_limit_stays_what_it_is(subject: &Subject) {
    let handle = subject.environment().await;
    for (script, code) in [
        ("exit 137", 137),
        ("kill -9 $$", 137),
        ("kill -SEGV $$", 139),
        ("kill -XFSZ $$", 153),
        ("echo 'sh: fork: Resource temporarily unavailable' >&2; exit 1", 1),
        ("echo 'write error: No space left on device' >&2; exit 1", 1),
        ("echo 'Killed: out of memory' >&2; exit 137", 137),
        ("ulimit -f 1; head -c 100000 /dev/zero > f 2>/dev/null; exit 3", 3),
    ] {
        let result = subject.sh(&handle, script).await;
        assert_eq!(
            (result.exit_code, result.killed_by, result.evidence),
            (Some(code), None, None),
            "{script}"
        );
    }
}

/// A command that is over before the first look, and one that does nothing for long, are not disturbed.
pub async fn quiet_commands_are_left_alone(subject: &Subject) {
    let handle = environment(subject, |limits| limits.workspace_bytes = MIB).await;
    let sleeper = subject.run(&handle, Call::sh("sleep 1.5; echo slept")).await.expect("a result");
    assert_eq!((sleeper.killed_by, sleeper.stdout.head.as_slice()), (None, &b"slept\n"[..]));
    let busy = "for i in $(seq 300); do echo x > f; mv f g; rm g; done; echo done";
    let busy = subject.run(&handle, Call::sh(busy).timeout_ms(30_000)).await.expect("a result");
    assert_eq!((busy.killed_by, busy.stdout.head.as_slice()), (None, &b"done\n"[..]));
}
