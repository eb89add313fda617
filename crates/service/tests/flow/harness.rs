//! One database, one engine in memory, and services that come and go on them.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use event_log::EventLog;
use event_log::seal::init_key;
use event_log::testing::{TestDatabase, test_database};
use events::event::EventType;
use events::spec::Mechanism;
use events::stored::Recorded;
use events::{LeaseId, NodeId, RunId, TenantId};
use projections::{CommandRow, Lease};
use runtime_adapter::fake::FakeAdapter;
use service::App;
use service::api::{
    AcquireRequest, CommandRequest, Idempotency, LimitsRequest, PageRequest, Principal, RequestCtx, Scope,
    ServiceError,
};
use service::composition::{Database, Foundation, Runtime, Service};
use service::config::{Config, Sources};
use service::environments::Ports;
use service::sealing::SealingConfig;
use service::tokens::Tokens;
use tempfile::TempDir;
use uuid::Uuid;

/// Longest wait for any condition.
pub(crate) const PATIENCE: Duration = Duration::from_secs(20);
const IMAGE: &str = "sha256:fa4efa4efa4efa4efa4efa4efa4efa4efa4efa4efa4efa4efa4efa4efa4efa4e";

/// A database and an engine that outlive services.
pub(crate) struct World {
    database: TestDatabase,
    /// Where key and head are.
    data: TempDir,
    /// The engine; the same one for every service.
    pub(crate) fake: FakeAdapter,
    node_id: NodeId,
    settings: BTreeMap<String, String>,
    _clock: EventLog,
}

impl World {
    pub(crate) async fn new() -> Self {
        Self::with(&[]).await
    }

    /// With settings other than the defaults.
    pub(crate) async fn with(settings: &[(&str, &str)]) -> Self {
        let database = test_database().await;
        let log = EventLog::open(event_log::LogConfig::new(database.append_url())).await.unwrap();
        let clock = {
            let log = log.clone();
            Arc::new(move || log.clock().now())
        };
        let mut all = BTreeMap::from([
            ("LEASEHOLD_MECHANISM".to_owned(), "fake".to_owned()),
            ("LEASEHOLD_RECONCILE_INTERVAL_MS".to_owned(), "100".to_owned()),
        ]);
        all.extend(settings.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())));
        Self {
            database,
            data: tempfile::tempdir().unwrap(),
            fake: FakeAdapter::new(clock, IMAGE.parse().unwrap()),
            node_id: NodeId(Uuid::now_v7()),
            settings: all,
            _clock: log,
        }
    }

    /// A session that may do anything to the database.
    pub(crate) async fn administrator(&self) -> tokio_postgres::Client {
        self.database.administrator().await.unwrap()
    }

    /// A service process on this world.
    pub(crate) async fn start(&self) -> Running {
        let config =
            Config::load(&Sources { variables: self.settings.clone(), ..Sources::default() }).unwrap();
        let key = init_key(&self.database.migrate_url(), &self.data.path().join("signing.key")).await;
        let database = Database {
            append_url: self.database.append_url(),
            project_url: self.database.project_url(),
            sealing: SealingConfig {
                database_url: self.database.seal_url(),
                keys: vec![key.unwrap()],
                head_file: self.data.path().join("signed_head"),
            },
        };
        let foundation = Foundation::lay(database, self.node_id).await.unwrap();
        let runtime = Runtime {
            ports: Ports {
                execution: Arc::new(self.fake.clone()),
                workspace: Arc::new(self.fake.clone()),
                inventory: Arc::new(self.fake.clone()),
            },
            mechanism: Mechanism::Fake,
            image_digest: IMAGE.parse().unwrap(),
        };
        let service =
            Service::start(foundation, runtime, &config, Tokens::development("lh_test")).await.unwrap();
        Running { service }
    }
}

/// One service.
pub(crate) struct Running {
    service: Service,
}

/// The tenant of these tests.
pub(crate) fn tenant() -> TenantId {
    TenantId(Uuid::from_u128(1))
}

pub(crate) fn ctx() -> RequestCtx {
    RequestCtx {
        principal: Principal {
            tenant: tenant(),
            actor: "token:test".to_owned(),
            scopes: BTreeSet::from([Scope::Run, Scope::Files, Scope::Audit, Scope::Operator]),
        },
        idempotency: None,
        min_position: None,
    }
}

pub(crate) fn keyed(key: &str, digest: u8) -> RequestCtx {
    RequestCtx { idempotency: Some(Idempotency { key: key.to_owned(), digest: [digest; 32] }), ..ctx() }
}

pub(crate) fn acquire(ttl_ms: u64) -> AcquireRequest {
    AcquireRequest {
        ttl_ms,
        holder: None,
        limits: LimitsRequest::default(),
        network: false,
        tools: Vec::new(),
        takeover: false,
        labels: BTreeMap::new(),
    }
}

pub(crate) fn shell(script: &str) -> CommandRequest {
    CommandRequest { argv: ["sh", "-c", script].map(str::to_owned).to_vec(), ..CommandRequest::default() }
}

impl Running {
    pub(crate) fn app(&self) -> &Arc<App> {
        &self.service.app
    }

    /// A lease on a fresh run.
    pub(crate) async fn lease(&self, ttl_ms: u64) -> (RunId, LeaseId) {
        let run_id = RunId(Uuid::now_v7());
        let lease = self.app().acquire_lease(&ctx(), run_id, acquire(ttl_ms)).await.unwrap();
        (run_id, lease.lease.lease_id)
    }

    /// A command that is waited for.
    pub(crate) async fn run(&self, lease_id: LeaseId, script: &str) -> CommandRow {
        let command = self.app().execute(&ctx(), lease_id, shell(script), PATIENCE).await.unwrap();
        assert!(command.state.is_ended(), "{command:?}");
        command
    }

    /// A command that is not waited for.
    pub(crate) async fn begin(&self, lease_id: LeaseId, script: &str) -> CommandRow {
        self.app().execute(&ctx(), lease_id, shell(script), Duration::ZERO).await.unwrap()
    }

    /// Waits until the lease is as wanted.
    pub(crate) async fn lease_until(&self, lease_id: LeaseId, wanted: impl Fn(&Lease) -> bool) -> Lease {
        let mut folded = self.app().parts().reads.runner().positions();
        let end = tokio::time::Instant::now() + PATIENCE;
        loop {
            folded.mark_unchanged();
            let lease = self.app().get_lease(&ctx(), lease_id).await.unwrap();
            if wanted(&lease) {
                return lease;
            }
            tokio::time::timeout_at(end, folded.changed())
                .await
                .unwrap_or_else(|_| panic!("in vain: {lease:?}"))
                .unwrap();
        }
    }

    /// Waits until the command is as wanted.
    pub(crate) async fn command_until(
        &self,
        command_id: events::CommandId,
        wanted: impl Fn(&CommandRow) -> bool,
    ) -> CommandRow {
        let mut folded = self.app().parts().reads.runner().positions();
        let end = tokio::time::Instant::now() + PATIENCE;
        loop {
            folded.mark_unchanged();
            let command = self.app().get_command(&ctx(), command_id).await.unwrap();
            if wanted(&command) {
                return command;
            }
            tokio::time::timeout_at(end, folded.changed())
                .await
                .unwrap_or_else(|_| panic!("in vain: {command:?}"))
                .unwrap();
        }
    }

    /// Everything that happened to a run.
    pub(crate) async fn events(&self, run_id: RunId) -> Vec<Recorded> {
        self.app().parts().reads.see_all().await.unwrap();
        let page = PageRequest { cursor: None, limit: 1_000 };
        self.app().run_events(&ctx(), run_id, None, page).await.unwrap().items
    }

    /// The types of it.
    pub(crate) async fn types(&self, run_id: RunId) -> Vec<EventType> {
        let events = self.events(run_id).await;
        events.iter().map(|recorded| EventType::from_name(&recorded.header.kind).unwrap()).collect()
    }

    /// Ends as on SIGTERM in development.
    pub(crate) async fn stop(self) {
        self.service.stop(Duration::from_secs(5), true).await;
    }

    /// Ends as on SIGTERM beside an engine that stays.
    pub(crate) async fn stop_and_leave(self, drain: Duration) {
        self.service.stop(drain, false).await;
    }
}

/// What refused.
pub(crate) fn refusal<T: std::fmt::Debug>(answer: Result<T, ServiceError>) -> ServiceError {
    answer.expect_err("it should have been refused")
}
