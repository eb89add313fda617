//! Sealing on real PostgreSQL: growth, restarts, losses, damage, proofs, and what Debian's Go packages say to it.

mod damage;
mod go;
mod growth;
mod heads;
mod interruptions;
mod proofs;
mod upgrade;

use std::path::PathBuf;
use std::sync::Arc;

use event_log::proof::Hash;
use event_log::proof::checkpoint::Checkpoint;
use event_log::proof::note::SignerKey;
use event_log::proof::tiles::Edge;
use event_log::seal::{
    FileHead, HeadStore, Proofs, SealConfig, SealFault, SealState, SealStatus, Sealer, generate_key, pin_keys,
};
use event_log::{AppendRequest, EventLog, Expected};
use tokio::sync::watch;

use crate::support::{Fixture, SOON, event, fixture, request, run_stream, session, until};

/// A log with a pinned key, and a place for the head outside.
struct Sealing {
    fixture: Fixture,
    origin: String,
    key: SignerKey,
    dir: tempfile::TempDir,
}

async fn sealing() -> Sealing {
    sealing_of(fixture().await).await
}

async fn sealing_of(fixture: Fixture) -> Sealing {
    let dir = tempfile::tempdir().unwrap();
    let client = session(&fixture.database.audit_url()).await;
    let origin: String = client.query_one("SELECT origin FROM log.log_meta", &[]).await.unwrap().get(0);
    let key = generate_key(&dir.path().join("key"), &origin).unwrap();
    pin_keys(&fixture.database.migrate_url(), &[key.verifier().clone()]).await.unwrap();
    Sealing { fixture, origin, key, dir }
}

/// Appends `count` events to a few streams.
async fn append(log: &EventLog, count: usize) {
    let mut left = count;
    while left > 0 {
        let part = left.min(100);
        let stream = run_stream((left % 5) as u128);
        let events = (0..part).map(|n| event(log, &format!("{n}"))).collect();
        log.append(AppendRequest { events, ..request(log, &stream, Expected::Any) }).await.unwrap();
        left -= part;
    }
}

impl Sealing {
    async fn append(&self, count: usize) {
        append(&self.fixture.log, count).await;
    }

    fn head_file(&self) -> PathBuf {
        self.dir.path().join("head")
    }

    fn config(&self) -> SealConfig {
        self.config_with(Arc::new(FileHead::new(&self.head_file())))
    }

    fn config_with(&self, head: Arc<dyn HeadStore>) -> SealConfig {
        SealConfig::new(self.fixture.database.seal_url(), vec![self.key.clone()], head)
    }

    fn start(&self) -> Sealer {
        self.start_with(self.config())
    }

    fn start_with(&self, config: SealConfig) -> Sealer {
        Sealer::start(config, self.fixture.log.subscribe()).unwrap()
    }

    /// Seals all there is, and stops when the head is kept outside too.
    async fn seal(&self) -> Checkpoint {
        let size = self.fixture.log.head().await.unwrap().get();
        let sealer = self.start();
        sealed(&sealer, size).await;
        self.kept(size).await;
        drop(sealer);
        self.unlocked().await;
        self.last().await
    }

    /// Waits until the head outside is of `size` events.
    async fn kept(&self, size: u64) {
        until(async || self.outside().is_some_and(|head| head.size == size)).await;
    }

    /// The head outside, verified.
    fn outside(&self) -> Option<Checkpoint> {
        let note = std::fs::read(self.head_file()).ok()?;
        Some(Checkpoint::open(&note, &self.origin, &[self.key.verifier().clone()]).unwrap())
    }

    /// Waits until no sealer has a session.
    async fn unlocked(&self) {
        let admin = self.fixture.database.administrator().await.unwrap();
        let sql = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND usename = 'leasehold_seal'";
        until(async || admin.query_one(sql, &[]).await.unwrap().get::<_, i64>(0) == 0).await;
    }

    fn proofs(&self) -> Proofs {
        Proofs::open(&self.fixture.database.audit_url(), 2).unwrap()
    }

    /// The last head of the database, verified.
    async fn last(&self) -> Checkpoint {
        let stored = self.proofs().last_checkpoint().await.unwrap().unwrap();
        let head =
            Checkpoint::open(stored.note.as_bytes(), &self.origin, &[self.key.verifier().clone()]).unwrap();
        assert_eq!(head.size, stored.size);
        head
    }

    /// How many heads are signed.
    async fn heads(&self) -> i64 {
        let client = session(&self.fixture.database.audit_url()).await;
        client.query_one("SELECT count(*) FROM log.checkpoints", &[]).await.unwrap().get(0)
    }

    /// Every leaf, by the rows.
    async fn leaves(&self) -> Vec<Hash> {
        let client = session(&self.fixture.database.audit_url()).await;
        let rows = client.query("SELECT leaf FROM log.events ORDER BY position", &[]).await.unwrap();
        rows.iter().map(|row| row.get::<_, &[u8]>(0).try_into().unwrap()).collect()
    }

    /// Does what only someone who bypasses every guard can do.
    async fn damage(&self, sql: &str) {
        let admin = self.fixture.database.administrator().await.unwrap();
        for table in ["events_p0", "event_bodies_p0", "events", "event_bodies", "tiles", "checkpoints"] {
            admin.batch_execute(&format!("ALTER TABLE log.{table} DISABLE TRIGGER ALL")).await.unwrap();
        }
        for statement in sql.split(';') {
            let changed = admin.execute(statement, &[]).await.unwrap();
            assert!(changed > 0, "{statement} changed nothing");
        }
    }
}

/// The root of all leaves, grown one by one.
fn root_of(leaves: &[Hash]) -> Hash {
    let mut edge = Edge::default();
    leaves.iter().for_each(|leaf| edge.push(*leaf));
    edge.root()
}

/// Waits until the sealer says something.
async fn says(sealer: &Sealer, holds: impl FnMut(&SealStatus) -> bool) -> SealStatus {
    let mut status = sealer.status();
    let waited = tokio::time::timeout(SOON, status.wait_for(holds)).await;
    waited.unwrap_or_else(|_| panic!("it says {:?}", *sealer.status().borrow())).unwrap().clone()
}

/// Waits until this many events are sealed, and no fault is met.
async fn sealed(sealer: &Sealer, size: u64) {
    let faulted = |status: &SealStatus| matches!(status.state, SealState::Faulted(_));
    let status = says(sealer, |status| status.sealed >= size || faulted(status)).await;
    assert!(!faulted(&status), "{status:?}");
}

/// Waits for the sealer to stop; the status has no sender then.
async fn fault(sealer: &Sealer) -> SealFault {
    let status = says(sealer, |status| matches!(status.state, SealState::Faulted(_))).await;
    let SealState::Faulted(fault) = status.state else { unreachable!() };
    let mut ended: watch::Receiver<SealStatus> = sealer.status();
    ended.borrow_and_update();
    assert!(tokio::time::timeout(SOON, ended.changed()).await.unwrap().is_err());
    fault
}
