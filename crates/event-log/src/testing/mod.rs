//! Databases for tests: one real server for all test processes of a machine account, one fresh migrated database per test.
//!
//! ```text
//!   TMP/leasehold-test-postgres-UID/
//!     start.lock    held while a process starts or stops the server
//!     users.lock    held shared by every process that uses the server
//!     data/         the server's directory
//! ```
//! The first test process starts the server, which outlives it; a small watcher stops and removes it when nobody has used it
//! for a while. Every test copies a template that was migrated once, so a test costs one `CREATE DATABASE`. The server skips
//! fsync: its data are worth nothing after a crash, and after one (or a killed run) the next process begins afresh.

mod server;

use std::ops::Deref;
use std::sync::mpsc;

use tokio_postgres::Client;
use uuid::Uuid;

use crate::urls::DatabaseUrls;
use server::SharedServer;

/// A migrated database of one test, with its own log id. Dropped with the value.
#[derive(Debug)]
pub struct TestDatabase {
    urls: DatabaseUrls,
    name: String,
    _server: SharedServer,
}

/// A fresh database, migrated; about 50 ms once the server runs.
///
/// # Panics
/// When the server cannot be started or refuses: a test cannot go on without it.
pub async fn test_database() -> TestDatabase {
    match create_migrated().await {
        Ok(database) => database,
        #[expect(clippy::panic, reason = "test support: there is nobody to report to")]
        Err(error) => panic!("no test database: {error:#?}"),
    }
}

type Failure = Box<dyn std::error::Error + Send + Sync>;

async fn create_migrated() -> Result<TestDatabase, Failure> {
    let database = create(&server::template_name()).await?;
    // Objects outside the database (containers, say) name their log: two tests must never share one.
    let client = database.administrator().await?;
    client
        .batch_execute(
            "UPDATE log.log_meta SET (log_id, origin) = (SELECT id, 'leasehold/log/' || id FROM gen_random_uuid() AS id)",
        )
        .await?;
    Ok(database)
}

async fn create(template: &str) -> Result<TestDatabase, Failure> {
    let server = SharedServer::join().await?;
    let name = format!("test_{}", Uuid::new_v4().simple());
    let client = server.administrator("postgres").await?;
    client
        .batch_execute(&format!("CREATE DATABASE {name} TEMPLATE {template} OWNER leasehold_owner"))
        .await?;
    let urls = DatabaseUrls::new(server.socket_dir(), &name);
    Ok(TestDatabase { urls, name, _server: server })
}

impl TestDatabase {
    /// Connection strings by role; also reached without this call.
    #[must_use]
    pub const fn urls(&self) -> &DatabaseUrls {
        &self.urls
    }

    /// The server's administrator, for faults that no role may cause.
    #[must_use]
    pub fn administrator_url(&self) -> String {
        self.urls.role(crate::embedded::ADMINISTRATOR)
    }

    /// A session of the administrator on this database.
    ///
    /// # Errors
    /// When the server refuses it.
    pub async fn administrator(&self) -> Result<Client, tokio_postgres::Error> {
        crate::embedded::connect(&self.administrator_url()).await
    }
}

/// A session on `url`, driven until the client is dropped.
///
/// # Errors
/// When the server refuses it.
pub async fn connect(url: &str) -> Result<Client, tokio_postgres::Error> {
    crate::embedded::connect(url).await
}

/// A database of the shared server that is empty: not even migrated. For tests of the migrations themselves.
///
/// # Panics
/// When the server cannot be started or refuses.
pub async fn empty_database() -> TestDatabase {
    match create("template1").await {
        Ok(database) => database,
        #[expect(clippy::panic, reason = "test support: there is nobody to report to")]
        Err(error) => panic!("no test database: {error:#?}"),
    }
}

/// A database that was migrated up to number `version` only, as an older version of the service has left it.
///
/// # Panics
/// When the server cannot be started or refuses, or a migration fails.
pub async fn database_of_version(version: i64) -> TestDatabase {
    let database = empty_database().await;
    match crate::schema::migrate_to(&database.migrate_url(), version).await {
        Ok(()) => database,
        #[expect(clippy::panic, reason = "test support: there is nobody to report to")]
        Err(error) => panic!("no test database of version {version}: {error:#?}"),
    }
}

impl Deref for TestDatabase {
    type Target = DatabaseUrls;

    fn deref(&self) -> &DatabaseUrls {
        &self.urls
    }
}

impl Drop for TestDatabase {
    /// Removes the database on a thread of its own: a drop may happen inside or outside of a runtime.
    fn drop(&mut self) {
        let url = DatabaseUrls::new(self.urls.socket_dir(), "postgres").role(crate::embedded::ADMINISTRATOR);
        let statement = format!("DROP DATABASE IF EXISTS {} WITH (FORCE)", self.name);
        let (done, wait) = mpsc::channel::<()>();
        std::thread::spawn(move || {
            // What cannot be removed goes with the server.
            if let Ok(runtime) = tokio::runtime::Builder::new_current_thread().enable_all().build() {
                let _ = runtime.block_on(async {
                    let client = crate::embedded::connect(&url).await?;
                    client.batch_execute(&statement).await
                });
            }
            drop(done);
        });
        let _ = wait.recv();
    }
}
