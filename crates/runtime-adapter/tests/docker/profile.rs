//! The containers as the engine has them.

use std::time::{Duration, Instant};

use events::event::command::{Evidence, KillReason};
use events::spec::Mechanism;
use runtime_adapter::contract::{Call, RecordingSink, Subject, check};
use runtime_adapter::ports::CancelRequest;
use serde_json::Value;

use super::engine::{docker, files, sandbox, set};
use super::subject;

/// Longest wait for the processors; reaching it is a failure.
const PATIENCE: Duration = Duration::from_secs(50);

async fn inspected(name: &str) -> Value {
    let text = docker(&["inspect", name]).await;
    let value: Value = serde_json::from_str(&text).expect("json");
    value[0].clone()
}

fn common(container: &Value) {
    let host = &container["HostConfig"];
    assert_eq!(host["Privileged"], false);
    assert_eq!(host["ReadonlyRootfs"], true);
    assert_eq!(host["NetworkMode"], "none");
    assert_eq!(host["IpcMode"], "private");
    assert_eq!(host["CapDrop"], serde_json::json!(["ALL"]));
    assert_eq!(host["LogConfig"]["Type"], "none");
    assert_eq!(host["RestartPolicy"]["Name"], "no");
    assert_eq!(host["Memory"], host["MemorySwap"]);
    assert!(host["Memory"].as_i64().is_some_and(|bytes| bytes > 0));
    assert!(host["PidsLimit"].as_i64().is_some_and(|count| count > 0));
    assert!(host["CpuQuota"].as_i64().is_some_and(|quota| quota > 0));
    assert!(host["Binds"].is_null() && host["Devices"].as_array().is_none_or(Vec::is_empty));
    let security = host["SecurityOpt"].as_array().expect("options");
    assert!(security.iter().any(|option| option == "no-new-privileges"));
    assert!(security.iter().any(|option| option.as_str().is_some_and(|text| text.starts_with("seccomp={"))));
    assert_eq!(container["Config"]["Tty"], false);
    assert_eq!(container["Config"]["User"], "0:0");
    let mounts = container["Mounts"].as_array().expect("mounts");
    assert!(mounts.iter().all(|mount| mount["Type"] != "bind"), "{mounts:?}");
    let labels = container["Config"]["Labels"].as_object().expect("labels");
    let ours: Vec<_> = labels.keys().filter(|name| name.starts_with("leasehold.")).collect();
    assert_eq!(
        ours,
        [
            "leasehold.created",
            "leasehold.environment",
            "leasehold.hard_deadline",
            "leasehold.log",
            "leasehold.log_epoch",
            "leasehold.node",
            "leasehold.profile",
            "leasehold.protocol",
            "leasehold.role",
        ]
    );
}

fn capabilities(container: &Value) -> Vec<String> {
    let added = container["HostConfig"]["CapAdd"].as_array().expect("capabilities");
    let mut names: Vec<_> = added
        .iter()
        .filter_map(Value::as_str)
        .map(|name| name.trim_start_matches("CAP_").to_owned())
        .collect();
    names.sort();
    names
}

fn ulimits(container: &Value) -> Vec<(String, i64)> {
    let limits = container["HostConfig"]["Ulimits"].as_array().expect("ulimits");
    let pair = |limit: &Value| {
        assert_eq!(limit["Hard"], limit["Soft"]);
        (limit["Name"].as_str().unwrap_or_default().to_owned(), limit["Hard"].as_i64().unwrap_or(-1))
    };
    limits.iter().map(pair).collect()
}

pub(crate) async fn both_containers_have_exactly_the_rights_they_need(on: Mechanism) {
    check(subject(on).await, async |subject: &Subject| {
        let handle = subject.environment().await;
        let limits = runtime_adapter::contract::limits();

        let box_ = inspected(&sandbox(handle.environment_id)).await;
        common(&box_);
        assert_eq!(capabilities(&box_), ["KILL", "SETGID", "SETPCAP", "SETUID"]);
        assert_eq!(box_["HostConfig"]["Memory"].as_u64(), Some(limits.memory_bytes));
        let on_the_host = if on == Mechanism::Gvisor { 1024 + 32 * limits.pids_max } else { limits.pids_max };
        assert_eq!(box_["HostConfig"]["PidsLimit"].as_u64(), Some(on_the_host));
        assert_eq!(box_["HostConfig"]["CpuQuota"].as_u64(), Some(200_000));
        for limit in [("core", 0), ("msgqueue", 0), ("nofile", 8192)] {
            assert!(ulimits(&box_).contains(&(limit.0.to_owned(), limit.1)), "{limit:?}");
        }
        assert_eq!(box_["HostConfig"]["Dns"], serde_json::json!(["127.0.0.1"]));
        assert_eq!(box_["Config"]["Hostname"], "sandbox");
        let tmpfs = box_["HostConfig"]["Tmpfs"].as_object().expect("tmpfs");
        assert_eq!(tmpfs.keys().collect::<Vec<_>>(), ["/dev/shm", "/run", "/tmp"]);

        let files = inspected(&files(handle.environment_id)).await;
        common(&files);
        let runtime = |container: &Value| container["HostConfig"]["Runtime"].as_str().map(str::to_owned);
        assert_eq!(runtime(&box_).as_deref() == Some("runsc"), on == Mechanism::Gvisor);
        assert_ne!(runtime(&files).as_deref(), Some("runsc"));
        assert_eq!(capabilities(&files), ["CHOWN", "DAC_OVERRIDE", "FOWNER"]);
        assert_eq!(files["Config"]["Labels"]["leasehold.role"], "files");
    })
    .await;
}

pub(crate) async fn a_foreign_container_with_a_similar_name_is_left_alone(on: Mechanism) {
    check(subject(on).await, async |subject: &Subject| {
        let handle = subject.environment().await;
        let name = format!("leasehold-{}-foreign", handle.environment_id);
        docker(&["create", "--name", &name, "--network", "none", subject.image.as_str(), "true"]).await;
        subject.adapter.execution.destroy(handle.environment_id).await.expect("destroyed");
        let left = docker(&["ps", "--all", "--format", "{{.Names}}"]).await;
        docker(&["rm", &name]).await;
        assert!(set(&left).contains(name.as_str()));
        assert!(!set(&left).contains(sandbox(handle.environment_id).as_str()));
    })
    .await;
}

/// However many threads spin, and whatever the kernel inside accounts: the host gives them their share and no more.
pub(crate) async fn the_host_sees_the_processors_limit(on: Mechanism) {
    check(subject(on).await, async |subject: &Subject| {
        let mut spec = subject.spec();
        spec.limits.cpu_millicores = 500;
        let handle = subject.adapter.execution.provision(spec).await.expect("provisioned");
        let sink = std::sync::Arc::new(RecordingSink::default());
        let spinners = "echo up; for i in $(seq 8); do (while :; do :; done) & done; wait";
        let call = Call::sh(spinners).timeout_ms(60_000).sink(&sink);
        let cancel = call.cancel_handle();
        let name = sandbox(handle.environment_id);
        let look = async {
            sink.shows("up").await;
            let id = docker(&["inspect", "--format", "{{.Id}}", &name]).await;
            let (begun, before) = (Instant::now(), processor_time(&id));
            // Until they have had a second of it, however long that takes on this machine.
            while processor_time(&id) - before < Duration::from_secs(1) && begun.elapsed() < PATIENCE {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
            let share = (processor_time(&id) - before).as_secs_f64() / begun.elapsed().as_secs_f64();
            cancel.cancel(CancelRequest { reason: KillReason::Cancelled, evidence: Evidence::default() });
            share
        };
        let (result, share) = tokio::join!(subject.run(&handle, call), look);
        assert!(result.is_err(), "cancelled: {result:?}");
        assert!((0.01..0.65).contains(&share), "{share} of one processor, of which it may have a half");
    })
    .await;
}

/// What the host's kernel has given to a container so far, under either version of cgroups and either of the engine's drivers.
///
/// # Panics
/// When no such group is found.
fn processor_time(id: &str) -> Duration {
    let number = |text: &str| text.trim().parse().expect("a number");
    let groups = [format!("docker/{id}"), format!("system.slice/docker-{id}.scope")];
    let found = groups.iter().find_map(|group| {
        let usage = ["cpuacct", "cpu,cpuacct"].iter().find_map(|controller| {
            std::fs::read_to_string(format!("/sys/fs/cgroup/{controller}/{group}/cpuacct.usage")).ok()
        });
        let stat = || std::fs::read_to_string(format!("/sys/fs/cgroup/{group}/cpu.stat")).ok();
        let of_stat =
            |stat: String| stat.lines().find_map(|line| line.strip_prefix("usage_usec")).map(number);
        usage
            .map(|usage| Duration::from_nanos(number(&usage)))
            .or_else(|| stat().and_then(of_stat).map(Duration::from_micros))
    });
    found.expect("its control group is below /sys/fs/cgroup")
}
