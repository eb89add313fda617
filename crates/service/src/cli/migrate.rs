//! `leasehold migrate`: the schema of an external database, and with `--init` the key that signs its heads.

use std::path::Path;

use event_log::MigrateError;

use super::args::Migrate;
use super::exit::{self, Failure, with_causes};

pub(super) async fn migrate(args: Migrate) -> Result<u8, Failure> {
    event_log::migrate(&args.database_url).await.map_err(|error| {
        let words = with_causes(&error);
        match error {
            MigrateError::Url(_) => Failure::usage(words),
            MigrateError::Connect(_) => Failure::unavailable(words),
            MigrateError::Migrate(_) => Failure::failed(words),
        }
    })?;
    exit::tell("the schema is up to date");
    if args.init {
        init(&args.database_url, &args.signing_key_file).await?;
    }
    Ok(0)
}

async fn init(database_url: &str, path: &Path) -> Result<(), Failure> {
    if let Some(folder) = path.parent() {
        std::fs::create_dir_all(folder)
            .map_err(|error| Failure::failed(format!("{}: {error}", folder.display())))?;
    }
    let key = event_log::seal::init_key(database_url, path).await;
    let key = key.map_err(|error| Failure::failed(with_causes(&error)))?;
    exit::tell(&format!("heads are signed with {}; verifiers pin {}", path.display(), key.verifier()));
    Ok(())
}
