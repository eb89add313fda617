//! Cycles of provision, kill and destroy, and a census of everything they could leave on the host.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use serde_json::json;

use crate::api::id;
use crate::process::{PATIENCE, Service, docker, left_in_engine};

/// What may be open at one time and not at another: a leak of one descriptor per cycle shows in few cycles.
const DESCRIPTORS_TOLERANCE: usize = 2;

/// Ways to use an environment in a cycle.
const KINDS: u32 = 3;

/// What the cycles took.
#[derive(Clone, Copy, Debug)]
pub struct Report {
    /// How many.
    pub cycles: u32,
    /// All of them together.
    pub elapsed: Duration,
}

/// One environment as the host can find it.
struct Made {
    environment_id: String,
    uid: u32,
    /// The engine's ids of its containers.
    containers: Vec<String>,
}

/// Runs cycles one after the other, each another way to use and to end an environment, and proves after the last that the
/// engine, the host's mounts and processes, and the service's own descriptors are what they were before the first.
///
/// # Panics
/// When something is left, or a cycle does not do what it should.
pub async fn run(service: &Service, cycles: u32) -> Report {
    let log_id = service.log_id().await;
    let held = left_in_engine(&log_id).await;
    // The first one of each kind opens what is kept: connections, prepared statements.
    for kind in 0..KINDS {
        cycle(service, kind).await;
    }
    settled(service, &log_id, &held).await;
    let before = fewest_descriptors(service).await;
    let start = Instant::now();
    let mut made = Vec::new();
    for number in 0..cycles {
        made.push(cycle(service, number).await);
    }
    let elapsed = start.elapsed();
    settled(service, &log_id, &held).await;
    let mounts = std::fs::read_to_string("/proc/self/mountinfo").expect("mounts");
    let users = users();
    for one in &made {
        assert!(!mounts.contains(&one.environment_id), "a mount of {} is left", one.environment_id);
        // Under a kernel of its own the user is nobody's on the host, and common to all.
        assert!(one.uid < 65_536 || !users.contains(&one.uid), "a process of user {} is left", one.uid);
    }
    no_process_names(&made).await;
    let start = Instant::now();
    loop {
        let now = descriptors(service);
        if now <= before + DESCRIPTORS_TOLERANCE {
            break;
        }
        assert!(start.elapsed() < PATIENCE, "{now} descriptors of the service, {before} before");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    Report { cycles, elapsed }
}

/// Waits until the engine holds what it held before.
async fn settled(service: &Service, log_id: &str, held: &[String]) {
    let start = Instant::now();
    loop {
        let left = left_in_engine(log_id).await;
        if left == held {
            return;
        }
        assert!(
            start.elapsed() < PATIENCE,
            "left behind: {left:?}, before: {held:?}, by process {}",
            service.pid()
        );
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
}

/// Lease, file, command, then by turns: a time limit, a kill, nothing more; released or revoked.
async fn cycle(service: &Service, number: u32) -> Made {
    let (run, lease) = service.lease_for(300.0).await;
    let path = format!("/v1/leases/{}", id(&lease, "lease_id"));
    let first = service.run(&lease, &json!({ "argv": ["sh", "-c", "echo x > x; id -u"] })).await;
    let uid = first["stdout"]["text"].as_str().and_then(|text| text.trim().parse().ok());
    let uid = uid.unwrap_or_else(|| panic!("no user: {first}"));
    let events = service.events(run).await;
    let provisioned = events.iter().find(|event| event["type"] == "EnvironmentProvisioned");
    let provisioned = provisioned.unwrap_or_else(|| panic!("the log does not name it: {events:?}"));
    let environment_id = id(&provisioned["body"], "environment_id");
    let containers = containers(&environment_id).await;
    match number % KINDS {
        0 => {
            let body =
                json!({ "argv": ["sh", "-c", "setsid sleep 600 & sleep 600"], "timeout_seconds": 0.3 });
            let killed = service.run(&lease, &body).await;
            assert_eq!(killed["killed_by"], "TIMEOUT", "{killed}");
            assert_eq!(service.run(&lease, &json!({ "argv": ["cat", "x"] })).await["stdout"]["text"], "x\n");
        }
        1 => {
            let body = json!({ "argv": ["sleep", "600"], "background": true, "wait_seconds": 0 });
            let (status, command) = service.post(&format!("{path}/commands"), &body).await;
            assert_eq!(status, 202, "{command}");
            let (status, _) =
                service.post(&format!("/v1/commands/{}/kill", id(&command, "command_id")), &json!({})).await;
            assert_eq!(status, 202);
        }
        _ => {}
    }
    let (end, body) = if number.is_multiple_of(2) {
        ("release", json!({}))
    } else {
        ("revoke", json!({ "reason": "the end" }))
    };
    let (status, ended) = service.post(&format!("{path}/{end}"), &body).await;
    assert_eq!(status, 200, "{end}: {ended}");
    service.wait_for(&path, "teardown", |lease| lease["environment"]["state"] == "destroyed").await;
    Made { environment_id, uid, containers }
}

/// The ids of an environment's containers, each of which a process of this host names while it runs.
async fn containers(environment_id: &str) -> Vec<String> {
    let names = ["sandbox", "files"].map(|role| format!("leasehold-{environment_id}-{role}"));
    let ids = docker(&["inspect", "--type", "container", "--format", "{{.Id}}", &names[0], &names[1]]).await;
    let ids: Vec<String> = ids.lines().map(str::to_owned).collect();
    assert_eq!(ids.len(), 2, "{ids:?}");
    let lines = command_lines();
    for id in &ids {
        assert!(lines.iter().any(|line| line.contains(id)), "no process names {id}: nothing could be found");
    }
    ids
}

/// Waits until no process of this host names a container: its shim and, under gVisor, its kernel and its doors to files.
async fn no_process_names(made: &[Made]) {
    let start = Instant::now();
    loop {
        let lines = command_lines();
        let is_named =
            |line: &&String| made.iter().flat_map(|one| &one.containers).any(|id| line.contains(id));
        let left: Vec<&String> = lines.iter().filter(is_named).collect();
        if left.is_empty() {
            return;
        }
        assert!(start.elapsed() < PATIENCE, "processes of containers are left: {left:?}");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

/// The arguments of every process of this host, each ended by NUL.
fn command_lines() -> Vec<String> {
    let processes = std::fs::read_dir("/proc").expect("processes").flatten();
    let lines = processes.filter_map(|entry| std::fs::read(entry.path().join("cmdline")).ok());
    lines.map(|line| String::from_utf8_lossy(&line).into_owned()).collect()
}

/// The fewest descriptors in two seconds: what it holds at rest, without what a look of its own opens for a moment.
async fn fewest_descriptors(service: &Service) -> usize {
    let mut fewest = descriptors(service);
    for _ in 0..100 {
        tokio::time::sleep(Duration::from_millis(20)).await;
        fewest = fewest.min(descriptors(service));
    }
    fewest
}

/// Descriptors that the service has open.
fn descriptors(service: &Service) -> usize {
    std::fs::read_dir(format!("/proc/{}/fd", service.pid())).expect("its descriptors").count()
}

/// Every user of a process on this host.
fn users() -> BTreeSet<u32> {
    let mut users = BTreeSet::new();
    for entry in std::fs::read_dir("/proc").expect("processes").flatten() {
        let status = std::fs::read_to_string(entry.path().join("status")).unwrap_or_default();
        let line = status.lines().find_map(|line| line.strip_prefix("Uid:"));
        users.extend(line.and_then(|line| line.split_whitespace().next()?.parse::<u32>().ok()));
    }
    users
}
