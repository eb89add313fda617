//! Desired against observed on a real engine: orphans go, owners stay, the engine may disappear for a while.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use tests::api::id;
use tests::process::{Options, Service, data_dir, docker, left_in_engine};
use tokio::io::copy_bidirectional;
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::watch;
use tokio::task::JoinSet;

/// Waits until the engine holds exactly the expected number of this log's objects.
async fn wait_for_left(log_id: &str, expected: usize) {
    let start = std::time::Instant::now();
    loop {
        let left = left_in_engine(log_id).await;
        if left.len() == expected {
            return;
        }
        assert!(
            start.elapsed() < tests::process::PATIENCE,
            "waited in vain for {expected} objects: {left:?}"
        );
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_orphan_is_removed_and_recorded_once_and_the_owned_stay() {
    let data = data_dir();
    let options =
        Options { variables: vec![("LEASEHOLD_ORPHAN_GRACE_SECONDS", "1".to_owned())], ..Options::docker() };
    let service = Service::start(data.path(), &options).await;
    let log_id = service.log_id().await;
    let (_, lease) = service.lease_for(300.0).await;
    service.run(&lease, &json!({ "argv": ["true"] })).await;
    wait_for_left(&log_id, 3).await;

    // As a dead service would have left them: our labels, an environment that no event knows, one without a creation time.
    let stray = uuid::Uuid::now_v7();
    let label = format!("leasehold.log={log_id}");
    let environment = format!("leasehold.environment={stray}");
    let name = format!("leasehold-{stray}-workspace");
    docker(&["volume", "create", "--label", &label, "--label", &environment, &name]).await;
    docker(&[
        "create",
        "--name",
        &format!("leasehold-{stray}-sandbox"),
        "--label",
        &label,
        "--label",
        &environment,
        "--label",
        "leasehold.role=sandbox",
        "--network",
        "none",
        "leasehold/execution:dev",
        "/bin/true",
    ])
    .await;
    wait_for_left(&log_id, 3).await;

    let command = service.run(&lease, &json!({ "argv": ["echo", "still here"] })).await;
    assert_eq!(command["stdout"]["text"], "still here\n");
    let timeline = service.replay(&["--json", "timeline"]).await;
    let text = String::from_utf8_lossy(&timeline.stdout).into_owned();
    let deleted: Vec<Value> = text
        .lines()
        .filter_map(|line| serde_json::from_str::<Value>(line).ok())
        .filter(|event| event["type"] == "OrphanDeleted")
        .collect();
    assert_eq!(deleted.len(), 2, "one event for each object, however often the pass ran: {text}");
    service.assert_verified().await;
    service.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn expiry_and_revocation_kill_at_once_and_leave_nothing() {
    let data = data_dir();
    let service = Service::start(data.path(), &Options::docker()).await;
    let log_id = service.log_id().await;
    let (_, expiring) = service.lease_for(300.0).await;
    let (_, revoked) = service.lease_for(300.0).await;
    let sleep = json!({ "argv": ["sleep", "600"], "wait_seconds": 0 });
    let mut commands = Vec::new();
    for lease in [&expiring, &revoked] {
        let (status, command) =
            service.post(&format!("/v1/leases/{}/commands", id(lease, "lease_id")), &sleep).await;
        assert_eq!(status, 202, "{command}");
        commands.push(format!("/v1/commands/{}", id(&command, "command_id")));
    }
    service.wait_for(&commands[1], "the start", |command| command["state"] == "running").await;
    let (status, _) =
        service.post(&format!("/v1/leases/{}/revoke", id(&revoked, "lease_id")), &json!({})).await;
    assert_eq!(status, 200);
    let ended = service.wait_for(&commands[1], "the kill", |command| command["state"] == "finished").await;
    assert_eq!(ended["killed_by"], "CANCELLED", "{ended}");
    // Made shorter after the command was accepted: its own time limit says nothing of this end.
    service.wait_for(&commands[0], "the start", |command| command["state"] == "running").await;
    let renew = format!("/v1/leases/{}/renew", id(&expiring, "lease_id"));
    let (status, shortened) = service.post(&renew, &json!({ "ttl_seconds": 1 })).await;
    assert_eq!(status, 200, "{shortened}");
    let ended = service.wait_for(&commands[0], "the expiry", |command| command["state"] == "finished").await;
    assert_eq!(ended["killed_by"], "EXPIRED", "{ended}");
    assert!(ended["evidence"]["expires_at"].is_string(), "{ended}");
    wait_for_left(&log_id, 0).await;
    service.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_sandbox_that_dies_is_recorded_as_lost_and_never_replaced_in_its_epoch() {
    let data = data_dir();
    let service = Service::start(data.path(), &Options::docker()).await;
    let log_id = service.log_id().await;
    let (run, lease) = service.lease_for(300.0).await;
    let body = json!({ "argv": ["sh", "-c", "echo up; sleep 600"], "wait_seconds": 0 });
    let commands = format!("/v1/leases/{}/commands", id(&lease, "lease_id"));
    let (_, command) = service.post(&commands, &body).await;
    let command_path = format!("/v1/commands/{}", id(&command, "command_id"));
    service.wait_for(&command_path, "the start", |command| command["state"] == "running").await;
    let sandbox =
        docker(&["ps", "--filter", &format!("label=leasehold.log={log_id}"), "--format", "{{.Names}}"]).await;
    let sandbox = sandbox.lines().find(|name| name.ends_with("-sandbox")).expect("a sandbox").to_owned();
    docker(&["rm", "-f", &sandbox]).await;

    let ended = service
        .wait_for(&command_path, "the interruption", |command| command["state"] == "interrupted")
        .await;
    assert_eq!((&ended["cause"], &ended["exit_code"]), (&json!("sandbox_lost"), &Value::Null), "{ended}");
    let (status, lost) = service.post(&commands, &json!({ "argv": ["true"] })).await;
    assert_eq!((status, &lost["code"]), (409, &json!("environment_lost")), "{lost}");
    wait_for_left(&log_id, 0).await;

    // A new epoch gets a new environment.
    let (status, next) = service
        .post(&format!("/v1/runs/{run}/leases"), &json!({ "ttl_seconds": 60, "takeover": true }))
        .await;
    assert_eq!(status, 201, "{next}");
    assert_eq!(service.run(&next, &json!({ "argv": ["echo", "new"] })).await["stdout"]["text"], "new\n");
    service.stop().await;
}

/// A socket in front of the engine's, that can be cut and restored.
pub(crate) struct Cuttable {
    pub(crate) socket: PathBuf,
    open: Arc<watch::Sender<bool>>,
    _accepting: JoinSet<()>,
}

impl Cuttable {
    pub(crate) fn start(folder: &Path) -> Self {
        let socket = folder.join("engine.sock");
        let listener = UnixListener::bind(&socket).expect("the socket can be bound");
        let (open, state) = watch::channel(true);
        let mut accepting = JoinSet::new();
        accepting.spawn(async move {
            let mut connections = JoinSet::new();
            while let Ok((mut client, _)) = listener.accept().await {
                let mut state = state.clone();
                connections.spawn(async move {
                    if !*state.borrow_and_update() {
                        return;
                    }
                    let Ok(mut engine) = UnixStream::connect("/var/run/docker.sock").await else { return };
                    tokio::select! {
                        _ = copy_bidirectional(&mut client, &mut engine) => {}
                        _ = state.wait_for(|open| !open) => {}
                    }
                });
            }
        });
        Self { socket, open: Arc::new(open), _accepting: accepting }
    }

    pub(crate) fn set(&self, open: bool) {
        self.open.send_replace(open);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_engine_may_go_away_and_come_back() {
    let data = data_dir();
    let engine = Cuttable::start(data.path());
    let host = format!("unix://{}", engine.socket.display());
    let options = Options { variables: vec![("LEASEHOLD_ENGINE_HOST", host)], ..Options::docker() };
    let service = Service::start(data.path(), &options).await;
    let (run, lease) = service.lease_for(300.0).await;

    engine.set(false);
    let commands = format!("/v1/leases/{}/commands", id(&lease, "lease_id"));
    let (status, problem) = service.post(&commands, &json!({ "argv": ["true"] })).await;
    assert_eq!((status, &problem["retryable"]), (503, &json!(true)), "{problem}");
    let leaked = problem.to_string();
    assert!(
        !leaked.contains("docker") && !leaked.contains(".sock"),
        "no text of the runtime crosses: {leaked}"
    );
    let (status, health) = service.get("/healthz").await;
    assert_eq!(status, 200, "{health}");

    engine.set(true);
    let command = loop {
        let (status, command) = service.post(&commands, &json!({ "argv": ["echo", "back"] })).await;
        if status == 200 {
            break command;
        }
        assert_eq!((status, &command["retryable"]), (503, &json!(true)), "{command}");
    };
    assert_eq!(command["stdout"]["text"], "back\n", "{command}");
    let events = service.events(run).await;
    assert_eq!(
        events.iter().filter(|event| event["type"] == "CommandAccepted").count(),
        1,
        "no command was made up"
    );
    service.stop().await;
}
