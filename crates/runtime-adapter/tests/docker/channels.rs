//! Which process carries a channel: the client that starts a container at first (not a gVisor sandbox), an exec of the engine's
//! from then on.

use std::path::Path;
use std::time::{Duration, Instant};

use events::event::command::InterruptCause;
use events::ids::EnvironmentId;
use events::spec::Mechanism;
use runtime_adapter::contract::{Call, Subject, check};
use runtime_adapter::ports::PortError;
use rustix::process::{Pid, Signal, kill_process};

use super::engine::{docker, files, sandbox};
use super::faults::{interrupted, lost};
use super::{subject, subject_with};

/// Longest wait for what happens beside the test; reaching it is a failure.
const PATIENCE: Duration = Duration::from_secs(20);

/// Processes of this machine that run `verb` of the engine's client for an environment.
fn clients(verb: &str, id: EnvironmentId) -> Vec<Pid> {
    let id = id.to_string();
    let is_client = |directory: &Path| {
        let line = std::fs::read(directory.join("cmdline")).unwrap_or_default();
        let words: Vec<_> = line.split(|byte| *byte == 0).map(String::from_utf8_lossy).collect();
        words[0].ends_with("docker")
            && words.iter().any(|word| word == verb)
            && words.iter().any(|word| word.contains(&id))
    };
    let entries = std::fs::read_dir("/proc").expect("processes").flatten();
    entries
        .filter(|entry| is_client(&entry.path()))
        .filter_map(|entry| Pid::from_raw(entry.file_name().to_str()?.parse().ok()?))
        .collect()
}

/// The clients that carry a new environment's two channels: `(run, exec)`.
fn first_clients(on: Mechanism) -> (usize, usize) {
    if on == Mechanism::Gvisor { (1, 1) } else { (2, 0) }
}

pub(crate) fn all_clients(id: EnvironmentId) -> Vec<Pid> {
    ["run", "exec"].iter().flat_map(|verb| clients(verb, id)).collect()
}

pub(crate) async fn eventually(what: &str, mut holds: impl AsyncFnMut() -> bool) {
    let begun = Instant::now();
    while !holds().await {
        assert!(begun.elapsed() < PATIENCE, "{what}: never");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// Execs of the engine's that are in a container now.
async fn execs(name: &str) -> usize {
    let list = docker(&["inspect", "--format", "{{json .ExecIDs}}", name]).await;
    serde_json::from_str::<Option<Vec<String>>>(&list).expect("a list").unwrap_or_default().len()
}

async fn started_at(name: &str) -> String {
    docker(&["inspect", "--format", "{{.State.Running}} {{.State.StartedAt}}", name]).await
}

/// The trusted processes of a sandbox, as one more process in it sees them.
async fn trusted(name: &str) -> Vec<String> {
    let script = "for p in /proc/[0-9]*; do tr '\\0' ' ' < $p/cmdline 2> /dev/null; echo; done";
    let lines = docker(&["exec", name, "sh", "-c", script]).await;
    let mut trusted: Vec<_> = lines
        .lines()
        .filter_map(|line| Some(line.trim().strip_prefix("/leasehold/guest ")?.to_owned()))
        .collect();
    trusted.dedup();
    trusted
}

pub(crate) async fn the_first_channel_is_the_containers_own(on: Mechanism) {
    check(subject(on).await, async |subject: &Subject| {
        let handle = subject.environment().await;
        let id = handle.environment_id;
        assert_eq!(subject.sh(&handle, "echo on | tee f").await.stdout.head, b"on\n");
        assert_eq!(subject.read(&handle, "f").await.expect("read"), b"on\n");
        let expected = first_clients(on);
        assert_eq!((execs(&sandbox(id)).await, execs(&files(id)).await), (expected.1, 0));
        assert_eq!((clients("run", id).len(), clients("exec", id).len()), expected);

        // A kill starts the container again, without a client: its next channel is an exec.
        let killed = subject.run(&handle, Call::sh("sleep 60").timeout_ms(100)).await.expect("a result");
        assert!(killed.killed_by.is_some());
        assert_eq!(subject.sh(&handle, "cat f").await.stdout.head, b"on\n");
        assert_eq!((execs(&sandbox(id)).await, execs(&files(id)).await), (1, 0));
        assert_eq!((clients("run", id).len(), clients("exec", id).len()), (1, 1));

        subject.adapter.execution.destroy(id).await.expect("destroyed");
        eventually("their clients' end", async || all_clients(id).is_empty()).await;
    })
    .await;
}

/// The container and its init outlive the client; whatever it carried ends.
pub(crate) async fn a_lost_client_ends_the_channel_and_not_the_container(on: Mechanism) {
    check(subject(on).await, async |subject: &Subject| {
        let handle = subject.environment().await;
        let id = handle.environment_id;
        assert_eq!(subject.sh(&handle, "echo kept > f").await.exit_code, Some(0));
        let (sandbox, files) = (sandbox(id), files(id));
        let before = (started_at(&sandbox).await, started_at(&files).await);
        for client in all_clients(id) {
            kill_process(client, Signal::KILL).expect("it runs");
        }
        eventually("the end of spawn", async || trusted(&sandbox).await == ["init sandbox"]).await;
        eventually("the end of files", async || !docker(&["top", &files]).await.contains("/guest files"))
            .await;
        assert_eq!((started_at(&sandbox).await, started_at(&files).await), before);

        // Both are opened again, by exec.
        assert_eq!(subject.read(&handle, "f").await.expect("read"), b"kept\n");
        assert_eq!(started_at(&files).await, before.1, "what it holds in memory is kept");
        assert_eq!(execs(&files).await, 1);
        let next = subject.run(&handle, Call::sh("cat f")).await;
        assert_eq!(next.expect("a result").stdout.head, b"kept\n");
        assert_eq!(execs(&sandbox).await, 1);
    })
    .await;
}

pub(crate) async fn a_client_lost_under_a_command_is_told(on: Mechanism) {
    check(subject(on).await, async |subject: &Subject| {
        let handle = subject.environment().await;
        let id = handle.environment_id;
        let accident = async || {
            let all = all_clients(id);
            let name = sandbox(id);
            let of_sandbox = |pid: &&Pid| {
                let line = std::fs::read(format!("/proc/{}/cmdline", pid.as_raw_nonzero()));
                line.is_ok_and(|line| line.split(|byte| *byte == 0).any(|word| word == name.as_bytes()))
            };
            let client = all.iter().find(of_sandbox).expect("its client");
            kill_process(*client, Signal::KILL).expect("it runs");
        };
        let ended = interrupted(subject, &handle, accident).await;
        assert_eq!(ended, Err(lost(InterruptCause::SupervisorLost).into()));
        let left = "cat file; cat /proc/[0-9]*/cmdline | tr '\\0' ' ' | grep -c 'sleep [6]0'";
        assert_eq!(subject.sh(&handle, left).await.stdout.head, b"kept\n0\n");
    })
    .await;
}

/// By whoever started it: without a client there is nobody to say hello.
pub(crate) async fn a_container_started_without_a_client_starts_no_spawn(on: Mechanism) {
    check(subject(on).await, async |subject: &Subject| {
        let handle = subject.environment().await;
        let name = sandbox(handle.environment_id);
        docker(&["kill", &name]).await;
        eventually("its client's end", async || all_clients(handle.environment_id).len() == 1).await;
        docker(&["start", &name]).await;
        assert_eq!(trusted(&name).await, ["init sandbox"]);
        assert_eq!(execs(&name).await, 0);
        // A command makes it a new one of its own, and works.
        assert_eq!(subject.sh(&handle, "echo on").await.stdout.head, b"on\n");
        assert_eq!(trusted(&name).await.first().map(String::as_str), Some("init sandbox"));
    })
    .await;
}

pub(crate) async fn a_provision_that_fails_leaves_no_client(on: Mechanism) {
    check(subject(on).await, async |subject: &Subject| {
        let mut spec = subject.spec();
        // Below what the engine takes.
        spec.limits.memory_bytes = 1 << 20;
        let id = spec.environment_id;
        let refused = subject.adapter.execution.provision(spec).await;
        let code = "engine_error";
        assert_eq!(refused, Err(PortError::Unavailable { code, effect_possible: true }));
        eventually("its clients' end", async || all_clients(id).is_empty()).await;
    })
    .await;
}

pub(crate) async fn a_provision_over_its_budget_leaves_nothing(on: Mechanism) {
    let configure = |config: &mut runtime_adapter::container::ContainerConfig| {
        config.provision_budget = Duration::from_millis(60);
    };
    check(subject_with(on, configure).await, async |subject: &Subject| {
        let spec = subject.spec();
        let id = spec.environment_id;
        let late = subject.adapter.execution.provision(spec).await;
        let code = "provision_timeout";
        assert_eq!(late, Err(PortError::Unavailable { code, effect_possible: true }));
        eventually("its clients' end", async || all_clients(id).is_empty()).await;
        // What the engine was still at when its client was killed appears later, as something of this environment's.
        eventually("nothing of it", async || {
            subject.adapter.execution.destroy(id).await.expect("destroyed");
            subject.adapter.inventory.list().await.expect("listed").is_empty()
        })
        .await;
    })
    .await;
}
