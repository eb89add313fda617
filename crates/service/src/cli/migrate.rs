//! `leasehold migrate`: the schema of an external database.

use super::args::Migrate;
use super::exit::Failure;

pub(super) async fn migrate(args: Migrate) -> Result<u8, Failure> {
    event_log::migrate(&args.database_url).await.map_err(|error| Failure::failed(error.to_string()))?;
    tell();
    Ok(0)
}

#[expect(clippy::print_stderr, reason = "words for people go there")]
fn tell() {
    eprintln!("leasehold: the schema is up to date");
}
