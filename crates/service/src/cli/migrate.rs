//! `leasehold migrate`: the schema of an external database.

use super::args::Migrate;
use super::exit::Failure;

pub(super) async fn migrate(args: Migrate) -> Result<u8, Failure> {
    event_log::migrate(&args.database_url).await.map_err(|error| Failure::failed(error.to_string()))?;
    Ok(0)
}
