//! The database goes away under a working service, and comes back.

use std::time::Duration;

use event_log::embedded::EmbeddedPostgres;
use serde_json::json;
use tests::api::id;
use tests::process::{Options, Service, data_dir, docker, leasehold};

use super::{begin, bodies, path_of, sh};

/// Everything resumes without a restart of the service: the log, the views, tails, the command that ran meanwhile.
#[tokio::test(flavor = "multi_thread")]
async fn a_restart_of_the_database_needs_no_restart_of_the_service() {
    let (data, server_data) = (data_dir(), data_dir());
    let server = EmbeddedPostgres::start(server_data.path()).await.expect("a server");
    let unmigrated =
        leasehold(&["migrate"], &[("LEASEHOLD_DATABASE_MIGRATE_URL", "postgresql:///nowhere?host=/nowhere")]);
    assert_ne!(unmigrated.await.status.code(), Some(0));
    for _ in 0..2 {
        let key = data.path().join("signing.key");
        let arguments = ["migrate", "--database-url", &server.migrate_url(), "--init", "--signing-key-file"];
        let arguments = [&arguments[..], &[key.to_str().expect("text")]].concat();
        let migrated = leasehold(&arguments, &[]).await;
        assert!(migrated.status.success(), "{migrated:?}");
    }
    let urls = [server.append_url(), server.project_url(), server.seal_url(), server.audit_url()];
    let options = Options { database: Some(urls.clone()), ..Options::docker() };
    let service = Service::start(data.path(), &options).await;
    let (run, lease) = service.lease_for(600.0).await;
    service.run(&lease, &sh("echo kept > file")).await;
    let log_id = service.log_id().await;
    let across = begin(&service, &lease, sh("echo begun; sleep 6; echo done")).await;
    let across_path = format!("/v1/commands/{}", id(&across, "command_id"));
    service.wait_for(&across_path, "the start", |command| command["state"] == "running").await;

    server.stop().await.expect("stopped");
    let stale = async |ready: bool| {
        let start = std::time::Instant::now();
        loop {
            let (status, report) = service.get("/readyz").await;
            assert_eq!(report["ready"], json!(status == 200), "{report}");
            if report["ready"] == ready {
                return report;
            }
            assert!(start.elapsed() < tests::process::PATIENCE, "{report}");
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    };
    let report = stale(false).await;
    let check = |name: &str| {
        let checks = report["checks"].as_array().expect("checks");
        checks
            .iter()
            .find(|check| check["name"] == name)
            .unwrap_or_else(|| panic!("{name}: {report}"))
            .clone()
    };
    assert_eq!(check("projections")["ok"], false, "{report}");
    assert_eq!(check("runtime")["ok"], true, "{report}");
    let (status, health) = service.get("/healthz").await;
    assert_eq!(status, 200, "the process lives: {health}");
    for (path, body) in [
        (format!("/v1/runs/{}/leases", uuid::Uuid::now_v7()), json!({ "ttl_seconds": 60 })),
        (format!("{}/renew", path_of(&lease)), json!({ "ttl_seconds": 600 })),
    ] {
        let (status, problem) = service.post(&path, &body).await;
        assert_eq!(
            (status, &problem["code"], &problem["retryable"]),
            (503, &json!("unavailable"), &json!(true)),
            "{path}: {problem}"
        );
        let text = problem.to_string().to_lowercase();
        assert!(!text.contains("postgres") && !text.contains("socket") && !text.contains("sql"), "{problem}");
    }
    // The command ends while nobody can record it.
    let label = format!("label=leasehold.log={log_id}");
    let sandboxes =
        docker(&["ps", "--filter", &label, "--filter", "name=-sandbox", "--format", "{{.Names}}"]).await;
    let start = std::time::Instant::now();
    while docker(&["top", sandboxes.trim()]).await.contains("echo begun") {
        assert!(start.elapsed() < tests::process::PATIENCE, "the command goes on");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }

    let server = EmbeddedPostgres::start(server_data.path()).await.expect("the server again");
    assert_eq!(server.append_url(), urls[0], "the same address");
    let ended = service.wait_for(&across_path, "the outcome", |command| command["state"] == "finished").await;
    assert_eq!(
        (&ended["exit_code"], &ended["stdout"]["text"]),
        (&json!(0), &json!("begun\ndone\n")),
        "nothing is lost: {ended}"
    );
    stale(true).await;
    assert_eq!(service.run(&lease, &sh("cat file")).await["stdout"]["text"], "kept\n");
    let events = service.events(run).await;
    assert_eq!(bodies(&events, "CommandFinished").len(), 3, "one outcome each");

    let (status, _) = service.post(&format!("{}/release", path_of(&lease)), &json!({})).await;
    assert_eq!(status, 200);
    service
        .wait_for(&path_of(&lease), "teardown", |lease| lease["environment"]["state"] == "destroyed")
        .await;
    service.assert_verified().await;
    service.stop().await;
    server.stop().await.expect("stopped");
}
