//! The schema: numbered plain SQL files in `migrations/`, compiled in.

use sqlx::migrate::Migrator;
use sqlx::postgres::PgConnectOptions;
use sqlx::{ConnectOptions as _, Connection as _};

/// Roles belong to a server and are made by its administrator.
pub(crate) const ROLES_SQL: &str = include_str!("../../../migrations/roles.sql");

static MIGRATOR: Migrator = sqlx::migrate!("../../migrations");

/// The schema could not be brought up to date.
#[derive(Debug, thiserror::Error)]
pub enum MigrateError {
    /// The connection string is malformed.
    #[error("the address of the database cannot be read")]
    Url(#[source] sqlx::Error),
    /// No session.
    #[error("could not connect to the database as the migrating role")]
    Connect(#[source] sqlx::Error),
    /// A migration failed, or the database holds migrations that this version does not know.
    #[error("a migration failed")]
    Migrate(#[from] sqlx::migrate::MigrateError),
}

/// Applies every migration that the database lacks, as the role in `url` (`leasehold_migrate`). Two starters may call it at
/// once: a lock lets one work and the other find it done.
///
/// # Errors
/// When the database cannot be reached, the roles are missing, or a migration fails (it is then undone whole).
pub async fn migrate(url: &str) -> Result<(), MigrateError> {
    apply(url, None).await
}

/// Applies the migrations up to number `version` only: the schema as an older version of the service has left it.
#[cfg(any(test, feature = "test-support"))]
pub(crate) async fn migrate_to(url: &str, version: i64) -> Result<(), MigrateError> {
    apply(url, Some(version)).await
}

async fn apply(url: &str, version: Option<i64>) -> Result<(), MigrateError> {
    let options: PgConnectOptions = url.parse().map_err(MigrateError::Url)?;
    let mut connection = options.connect().await.map_err(MigrateError::Connect)?;
    match version {
        Some(version) => MIGRATOR.run_to(version, &mut connection).await?,
        None => MIGRATOR.run(&mut connection).await?,
    }
    // Closing politely is only that: the work is committed.
    let _ = connection.close().await;
    Ok(())
}

/// Names the schema of this version: changes whenever a migration does.
#[cfg(any(test, feature = "test-support"))]
pub(crate) fn fingerprint() -> String {
    use sha2::{Digest as _, Sha256};
    let mut hasher = Sha256::new();
    for migration in MIGRATOR.iter() {
        hasher.update(&migration.checksum);
    }
    hasher.update(ROLES_SQL);
    hex::encode(&hasher.finalize()[..8])
}
