//! The service in process: the real router on a random loopback port, the real log and projections on a database of the test's
//! own, the fake runtime, which can be told to fail.

use std::ops::Deref;
use std::sync::Arc;
use std::time::{Duration, Instant};

use event_log::proof::note::VerifierKey;
use event_log::seal::{Proofs, init_key};
use event_log::testing::{TestDatabase, test_database};
use event_log::{EventLog, LogConfig};
use events::event::command::InterruptCause;
use events::spec::{ImageDigest, Mechanism};
use events::{NodeId, Position};
use reqwest::Method;
use runtime_adapter::fake::FakeAdapter;
use serde_json::Value;
use service::composition::{Database, Foundation, Runtime, Service};
use service::config::{Config, Sources};
use service::environments::Ports;
use service::sealing::SealingConfig;
use service::supervise::Outcome;
use service::tokens::{Tokens, generate};
use tempfile::TempDir;
use tests::api::{Client, answer};
use tests::process::PATIENCE;
use tokio::net::TcpListener;
use tokio::sync::oneshot;
use uuid::Uuid;

/// Longest drain of a test's service: what still runs then is killed.
const DRAIN: Duration = Duration::from_millis(100);

/// A running service and its client.
pub(super) struct Api {
    client: Client,
    /// Its runtime.
    pub fake: FakeAdapter,
    log: EventLog,
    service: Service,
    close: oneshot::Sender<()>,
    listener: Outcome<std::io::Result<()>>,
    database: TestDatabase,
    /// Where key and head are.
    _data: TempDir,
}

impl Deref for Api {
    type Target = Client;

    fn deref(&self) -> &Client {
        &self.client
    }
}

impl Api {
    /// Composes and listens.
    pub(super) async fn start() -> Self {
        let database = test_database().await;
        let data = tempfile::tempdir().expect("a directory");
        let key = init_key(&database.migrate_url(), &data.path().join("signing.key")).await;
        let urls = Database {
            append_url: database.append_url(),
            project_url: database.project_url(),
            sealing: SealingConfig {
                database_url: database.seal_url(),
                keys: vec![key.expect("a key")],
                head_file: data.path().join("signed_head"),
            },
        };
        let foundation = Foundation::lay(urls, NodeId(Uuid::now_v7())).await.expect("the log opens");
        let log = EventLog::open(LogConfig::new(database.append_url())).await.expect("the log opens");
        let clock = foundation.log.clock().clone();
        let image: ImageDigest = format!("sha256:{}", "ab".repeat(32)).parse().expect("a digest");
        let fake = FakeAdapter::new(Arc::new(move || clock.now()), image.clone());
        let runtime = Runtime {
            ports: Ports {
                execution: Arc::new(fake.clone()),
                workspace: Arc::new(fake.clone()),
                inventory: Arc::new(fake.clone()),
            },
            mechanism: Mechanism::Fake,
            image_digest: image,
        };
        let config = Config::load(&Sources::default()).expect("the defaults are valid");
        let token = generate();
        let service = Service::start(foundation, runtime, &config, Tokens::development(&token))
            .await
            .expect("the service starts");
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = listener.local_addr().expect("an address").to_string();
        let (close, closed) = oneshot::channel::<()>();
        let router = service::http::router(Arc::clone(&service.app));
        let server = axum::serve(listener, router).with_graceful_shutdown(async move { drop(closed.await) });
        let listener = service.app.supervisor().spawn("listener", async move { server.await });
        Self {
            client: Client::new(address, token),
            fake,
            log,
            service,
            close,
            listener,
            database,
            _data: data,
        }
    }

    /// The log's next position: equal before and after means that nothing was recorded.
    pub(super) async fn head(&self) -> Position {
        self.log.head().await.expect("the log answers")
    }

    /// GET of what the log holds now: the answer of a write does not wait for the views, a read does when it is asked to.
    pub(super) async fn get(&self, path: &str) -> (u16, Value) {
        let last = self.head().await.get() - 1;
        let request = self.request(Method::GET, path).header("Leasehold-Min-Position", last);
        answer(request.send().await.expect("an answer")).await
    }

    /// GET of what takes a signed head, once there is one.
    pub(super) async fn until_sealed(&self, path: &str) -> Value {
        let begun = Instant::now();
        loop {
            let (status, answer) = self.get(path).await;
            if status == 200 {
                return answer;
            }
            assert!(status == 503 && begun.elapsed() < PATIENCE, "{status} {answer}");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    /// Every event of a run, in order, up to what the log holds now.
    pub(super) async fn events(&self, run: Uuid) -> Vec<Value> {
        let (status, page) = self.get(&format!("/v1/runs/{run}/events?limit=1000")).await;
        assert_eq!((status, &page["next_cursor"]), (200, &Value::Null), "{page}");
        page["items"].as_array().expect("items").clone()
    }

    /// The sandbox of an environment dies.
    pub(super) fn lose(&self, environment_id: &str) {
        let environment_id = environment_id.parse().expect("a UUID");
        self.fake.lose(environment_id, InterruptCause::SandboxLost);
    }

    /// Keeps the views from following the log until the session is dropped.
    pub(super) async fn hold_views(&self) -> tokio_postgres::Client {
        let session = self.administrator().await;
        session.batch_execute("BEGIN; LOCK TABLE views.consumers IN EXCLUSIVE MODE").await.expect("a lock");
        session
    }

    /// The log's origin and the key that its heads are verified with.
    pub(super) async fn verifier(&self) -> (String, VerifierKey) {
        let proofs = Proofs::open(&self.database.audit_url(), 1).expect("an address");
        let pinned = proofs.pinned().await.expect("the keys");
        (pinned.origin, pinned.verifier_keys[0].parse().expect("a key"))
    }

    /// A session that may do anything to the database.
    pub(super) async fn administrator(&self) -> tokio_postgres::Client {
        self.database.administrator().await.expect("the administrator connects")
    }

    /// What a stop begins with.
    pub(super) fn refuse_new_work(&self) {
        self.service.app.refuse_new_work();
    }

    /// Stops as the process does: commands are killed, environments removed, connections drained.
    pub(super) async fn stop(self) {
        drop(self.close);
        self.service.stop(DRAIN, true).await;
        self.listener.await.expect("it ended with the other tasks").expect("the listener ends well");
    }
}
