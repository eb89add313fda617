//! Cycles of provision, kill and destroy, and a census of everything they could leave on the host.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use serde_json::json;

use crate::api::id;
use crate::process::{PATIENCE, Service, left_in_engine};

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
}

/// Runs cycles one after the other, each another way to use and to end an environment, and proves after the last that the
/// engine, the host's mounts and processes, and the service's own descriptors are what they were before the first.
///
/// # Panics
/// When something is left, or a cycle does not do what it should.
pub async fn run(service: &Service, cycles: u32) -> Report {
    let log_id = service.log_id().await;
    let held = left_in_engine(&log_id).await;
    // The first one opens what is kept: connections, prepared statements.
    cycle(service, 0).await;
    settled(service, &log_id, &held).await;
    let descriptors = descriptors(service);
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
    let now = self::descriptors(service);
    assert!(now <= descriptors + 8, "{now} descriptors of the service, {descriptors} before");
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

/// Lease, file, command, then by turns: a time limit, a kill, a flood of memory; released or revoked.
async fn cycle(service: &Service, number: u32) -> Made {
    let (run, lease) = service.lease_for(300.0).await;
    let path = format!("/v1/leases/{}", id(&lease, "lease_id"));
    let first = service.run(&lease, &json!({ "argv": ["sh", "-c", "echo x > x; id -u"] })).await;
    let uid = first["stdout"]["text"].as_str().and_then(|text| text.trim().parse().ok());
    let uid = uid.unwrap_or_else(|| panic!("no user: {first}"));
    match number % 3 {
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
    let events = service.events(run).await;
    let made = events.iter().find(|event| event["type"] == "EnvironmentProvisioned").expect("provisioned");
    Made { environment_id: id(&made["body"], "environment_id"), uid }
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
