//! One sandbox and the next: nothing of the first is found in the second, on any store that both could share.

use std::collections::BTreeSet;

use events::spec::Mechanism;
use serde_json::{Value, json};
use tests::api::id;

use super::{Case, sh};

on_every_mechanism! { nothing_of_one_sandbox_is_found_in_the_next }

/// X4, X5, X7, Q22.
async fn nothing_of_one_sandbox_is_found_in_the_next(mechanism: Mechanism) {
    let case = Case::start(mechanism).await;
    let mark = "mark-of-the-first-tenant";
    let mut users = BTreeSet::new();
    for round in 0..3 {
        let sandbox = case.sandbox().await;
        let found = case.probe(&sandbox, include_str!("probes/residue.py")).await;
        assert_eq!(found["left"], json!([]), "round {round}: files of somebody else: {found}");
        assert_eq!(found["marks"], json!([]), "round {round}: {found}");
        assert_eq!(found["shared memory"], json!([]), "round {round}: {found}");
        assert_eq!(found["others"], json!([]), "round {round}: processes of somebody else: {found}");
        assert_eq!(found["memory"], "zeroed", "round {round}: {found}");
        // AF_ALG, by which a read-only page of a shared layer was once written.
        assert_ne!(found["AF_ALG"], "ok", "{found}");
        users.insert(found["uid"].as_u64().expect("a uid"));

        // The mark is put wherever something can be put.
        let plant = format!(
            "for d in /workspace /tmp /dev/shm; do echo {mark} > $d/{mark}; done; python3 -c \"import ctypes; c = ctypes.CDLL(None); c.shmget(77, 4096, 0o1666)\"; \
             (exec -a {mark} sleep 600) & exit 0"
        );
        let planted = case.run(&sandbox, &sh(&plant)).await;
        assert_eq!(planted["state"], "finished", "{planted}");
        let lease = format!("/v1/leases/{}", id(&sandbox.lease, "lease_id"));
        if round == 0 {
            // The run's next lease: a new epoch has a new environment.
            let (status, _) = case.service.post(&format!("{lease}/release"), &json!({})).await;
            assert_eq!(status, 200);
            case.service
                .wait_for(&lease, "teardown", |lease| lease["environment"]["state"] == "destroyed")
                .await;
            let (status, again) = case
                .service
                .post(&format!("/v1/runs/{}/leases", sandbox.run), &json!({ "ttl_seconds": 300 }))
                .await;
            assert_eq!((status, &again["epoch"]), (201, &json!(2)), "{again}");
            let seen = case
                .service
                .run(&again, &sh("ls -A /workspace /tmp /dev/shm | grep -v leasehold; id -u"))
                .await;
            assert!(!seen["stdout"]["text"].as_str().expect("text").contains(mark), "{seen}");
        }
    }
    if mechanism == Mechanism::Docker {
        assert_eq!(users.len(), 3, "a user is not given out again: {users:?}");
    }

    // What is known to be shared, as docs/security.md says it: the host's numbers under docker, none under a kernel of its own.
    let memory = case.sh(&case.neighbour, "grep MemTotal /proc/meminfo").await;
    let host = std::fs::read_to_string("/proc/meminfo").expect("the host's");
    let same = host.lines().next().map(str::trim) == Some(memory.trim());
    assert_eq!(same, mechanism == Mechanism::Docker, "{memory}");
    let _: Value = case.run(&case.neighbour, &sh("cat /proc/loadavg /proc/stat > /dev/null")).await;
    case.finish().await;
}
