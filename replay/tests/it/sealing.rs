//! A log that is sealed by the service's own sealer, and what a superuser can make of it.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use event_log::EventLog;
use event_log::proof::checkpoint::Checkpoint;
use event_log::proof::note::{Note, SignerKey};
use event_log::seal::{FileHead, SealConfig, Sealer, generate_key, pin_keys};
use event_log::testing::TestDatabase;
use events::stored::{Header, leaf_hash};
use serde_json::Value;
use tempfile::TempDir;

use crate::log::{append_orphans, filled, open, project, replay, tamper, text};

const SOON: Duration = Duration::from_secs(20);
/// Tables that [`Sealed::restore`] puts right again; those that others refer to by position come with them.
const TABLES: [&str; 7] =
    ["events", "event_bodies", "streams", "log_head", "log_meta", "tiles", "checkpoints"];

/// The views remember the leaf where they are.
const CONSUMERS: &str = "UPDATE views.consumers AS c SET leaf_at_position = e.leaf FROM log.events AS e \
                         WHERE e.position = c.position - 1";

pub(crate) struct Sealed {
    pub(crate) database: TestDatabase,
    pub(crate) log: EventLog,
    pub(crate) key: SignerKey,
    pub(crate) directory: TempDir,
}

impl Sealed {
    /// Eleven events of [`filled`], sealed.
    pub(crate) async fn new() -> Self {
        let database = filled().await;
        let log = open(&database.append_url()).await;
        let directory = tempfile::tempdir().unwrap();
        let origin: String = event_log::testing::connect(&database.audit_url())
            .await
            .unwrap()
            .query_one("SELECT origin FROM log.log_meta", &[])
            .await
            .unwrap()
            .get(0);
        let key = generate_key(&directory.path().join("key"), &origin).unwrap();
        pin_keys(&database.migrate_url(), &[key.verifier().clone()]).await.unwrap();
        let sealed = Self { database, log, key, directory };
        sealed.seal().await;
        sealed
    }

    /// The same with 600 events: checkpoints at 11, 311 and 600, two full tiles of leaves.
    pub(crate) async fn large() -> Self {
        let sealed = Self::new().await;
        for count in [300, 289] {
            append_orphans(&sealed.log, count).await;
            sealed.seal().await;
        }
        project(&sealed.log, &sealed.database.project_url()).await;
        sealed
    }

    pub(crate) fn head(&self) -> PathBuf {
        self.directory.path().join("head")
    }

    /// Seals all there is, until the head is kept outside too.
    pub(crate) async fn seal(&self) {
        self.seal_with(self.key.clone(), self.head()).await;
    }

    pub(crate) async fn seal_with(&self, key: SignerKey, head: PathBuf) {
        let size = self.log.head().await.unwrap().get();
        let config = SealConfig::new(self.database.seal_url(), vec![key], Arc::new(FileHead::new(&head)));
        let sealer = Sealer::start(config, self.log.subscribe()).unwrap();
        let mut status = sealer.status();
        // What it answers holds the sender back until it is dropped.
        let sealed =
            tokio::time::timeout(SOON, status.wait_for(|status| status.sealed >= size)).await.is_ok();
        assert!(sealed, "{:?}", sealer.status().borrow());
        until(async || size_of(&head) == Some(size)).await;
        drop(sealer);
        let administrator = self.database.administrator().await.unwrap();
        let sql = "SELECT count(*) FROM pg_stat_activity \
                   WHERE datname = current_database() AND usename = 'leasehold_seal'";
        until(async || administrator.query_one(sql, &[]).await.unwrap().get::<_, i64>(0) == 0).await;
    }

    /// Verifies by the binary; with the sealer's key, if so asked.
    pub(crate) fn verify(&self, arguments: &[&str]) -> (Option<i32>, Value) {
        let url = self.database.audit_url();
        let output = replay(&[&["--json", "--database-url", &url, "verify"], arguments].concat());
        let report = serde_json::from_slice(&output.stdout)
            .unwrap_or_else(|error| panic!("{error}: {}", text(&output.stderr)));
        (output.status.code(), report)
    }

    pub(crate) fn verifier(&self) -> String {
        self.key.verifier().to_string()
    }

    /// Does what only a superuser can; each statement changes something.
    pub(crate) async fn damage(&self, statements: &str) {
        for statement in statements.split(';') {
            tamper(&self.database, statement).await;
        }
    }

    /// Keeps what is stored, for [`Sealed::restore`].
    pub(crate) async fn keep(&self) {
        let administrator = self.database.administrator().await.unwrap();
        for table in TABLES {
            let copy = format!("CREATE TABLE {table}_kept AS TABLE log.{table}");
            administrator.batch_execute(&copy).await.unwrap();
        }
    }

    /// Puts right again what was damaged, the views' place included.
    pub(crate) async fn restore(&self) {
        let administrator = self.database.administrator().await.unwrap();
        for table in TABLES {
            let restore = format!("DELETE FROM log.{table}; INSERT INTO log.{table} TABLE {table}_kept");
            administrator.batch_execute(&restore).await.unwrap();
        }
        let end = "UPDATE views.consumers SET position = next_position FROM log.log_head";
        administrator.batch_execute(&format!("{end}; {CONSUMERS}")).await.unwrap();
    }

    /// Makes the events of the service's stream anew from `position` on, in every way consistent but for what is signed.
    pub(crate) async fn rewrite(&self, position: i64, change: impl Fn(&mut Header)) {
        self.damage("UPDATE log.log_head SET next_position = next_position").await;
        let administrator = self.database.administrator().await.unwrap();
        let sql = "SELECT e.position, e.header, e.stream_id FROM log.events AS e \
                   JOIN log.streams AS s ON s.id = e.stream_id AND s.category = 'service' \
                   WHERE e.position >= $1 ORDER BY e.position";
        let mut previous: Option<[u8; 32]> = None;
        for row in administrator.query(sql, &[&position]).await.unwrap() {
            let mut header = Header::from_canonical(row.get(1)).unwrap();
            if let Some(previous) = previous {
                header.prev_leaf = hex::encode(previous);
            }
            change(&mut header);
            let bytes = header.to_canonical().unwrap();
            let leaf = leaf_hash(&bytes);
            previous = Some(leaf);
            let (place, stream): (i64, i64) = (row.get(0), row.get(2));
            let sql = "UPDATE log.events SET header = $2, leaf = $3, \
                       recorded_at = 'epoch'::timestamptz + $4::bigint * interval '1 us' WHERE position = $1";
            let micros = header.recorded_at.unix_micros();
            administrator.execute(sql, &[&place, &bytes, &leaf.as_slice(), &micros]).await.unwrap();
            let sql = "UPDATE log.streams SET tip = $2 WHERE id = $1";
            administrator.execute(sql, &[&stream, &leaf.as_slice()]).await.unwrap();
        }
        assert!(previous.is_some(), "nothing was rewritten");
        administrator.batch_execute(CONSUMERS).await.unwrap();
    }
}

/// Statements that cut the log before `end`, consistent in themselves and for the views.
pub(crate) fn cut(end: u64) -> String {
    format!(
        "DELETE FROM log.events WHERE position >= {end}; DELETE FROM log.event_bodies WHERE position >= {end}; \
         UPDATE log.log_head SET next_position = {end}; \
         UPDATE log.streams AS s SET version = e.version, tip = e.leaf FROM log.events AS e \
         WHERE e.position = {end} - 1 AND e.stream_id = s.id; \
         UPDATE views.consumers SET position = {end}; {CONSUMERS}"
    )
}

/// Statements that remove what is sealed beyond `size`.
pub(crate) fn unseal(size: u64) -> String {
    format!(
        "DELETE FROM log.checkpoints WHERE size > {size}; \
         DELETE FROM log.tiles WHERE (index * 256 + width) << (8 * level) > {size}"
    )
}

fn size_of(head: &std::path::Path) -> Option<u64> {
    let note = Note::parse(&std::fs::read(head).ok()?).ok()?;
    Some(Checkpoint::parse(note.unverified_text()).unwrap().size)
}

async fn until(condition: impl AsyncFn() -> bool) {
    let begun = Instant::now();
    while !condition().await {
        assert!(begun.elapsed() < SOON, "it does not come");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}
