//! Releases of the engine and of runc with faults that let a container out: not for production.
//!
//! The floor is Engine 25.0.5 (names of internal networks asked abroad, CVE-2024-29018) and runc 1.2.8 or 1.3.3 (mounts that are
//! raced into `/proc`, CVE-2025-31133, CVE-2025-52565, CVE-2025-52881). A distribution that mends an older release itself is
//! what the setting `allow_old_engine` is for. Also under gVisor: the files container runs under runc.

use serde::Deserialize;

use super::cli::{Cli, words};
use super::cli_error::CliError;
use crate::ports::PortError;

const ENGINE_MIN: Release = (25, 0, 5);
const RUNC_MIN_1_2: Release = (1, 2, 8);
const RUNC_MIN_1_3: Release = (1, 3, 3);

/// Major, minor, patch.
type Release = (u32, u32, u32);

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Server {
    version: String,
    #[serde(default)]
    components: Vec<Component>,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Component {
    name: String,
    version: String,
}

/// Refuses releases below the floor.
///
/// # Errors
/// `Rejected` (`engine_too_old`, `runc_too_old`; also for versions that cannot be read), or that the engine does not answer.
pub(super) async fn check(cli: &Cli) -> Result<(), PortError> {
    let text =
        cli.text(words(["version", "--format", "{{json .Server}}"])).await.map_err(CliError::to_port)?;
    let server: Server = serde_json::from_str(&text).map_err(|_| CliError::Other.to_port())?;
    match fault(&server) {
        None => Ok(()),
        Some(code) => Err(PortError::Rejected { code }),
    }
}

fn fault(server: &Server) -> Option<&'static str> {
    if release(&server.version).is_none_or(|engine| engine < ENGINE_MIN) {
        return Some("engine_too_old");
    }
    let runc = server.components.iter().find(|component| component.name == "runc");
    let is_patched = |runc: Release| runc >= RUNC_MIN_1_3 || (RUNC_MIN_1_2..(1, 3, 0)).contains(&runc);
    if runc.and_then(|runc| release(&runc.version)).is_some_and(is_patched) {
        None
    } else {
        Some("runc_too_old")
    }
}

/// The leading numbers of a version; whatever a distribution adds behind them does not count, and a release candidate
/// counts as its release.
fn release(version: &str) -> Option<Release> {
    let mut numbers = version.trim_start_matches('v').split(|c: char| !c.is_ascii_digit()).map(str::parse);
    let mut next = || numbers.next()?.ok();
    Some((next()?, next()?, next().unwrap_or(0)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(engine: &str, runc: Option<&str>) -> Option<&'static str> {
        let component = |version: &str| Component { name: "runc".to_owned(), version: version.to_owned() };
        fault(&Server { version: engine.to_owned(), components: runc.map(component).into_iter().collect() })
    }

    #[test]
    fn the_floor_is_where_the_faults_were_mended() {
        for (engine, runc, code) in [
            ("20.10.24+dfsg1", Some("1.3.3"), Some("engine_too_old")),
            ("25.0.4", Some("1.3.3"), Some("engine_too_old")),
            ("25.0.5", Some("1.3.3"), None),
            ("28.2.2", Some("1.1.5+ds1"), Some("runc_too_old")),
            ("28.2.2", Some("1.2.7"), Some("runc_too_old")),
            ("28.2.2", Some("1.2.8"), None),
            ("28.2.2", Some("1.3.0"), Some("runc_too_old")),
            ("28.2.2", Some("1.3.3-0ubuntu1"), None),
            ("29.1.0", Some("v1.4.0-rc.1"), None),
            ("29", Some("1.4.0"), Some("engine_too_old")),
            ("", Some("1.4.0"), Some("engine_too_old")),
            ("29.1.0", None, Some("runc_too_old")),
        ] {
            assert_eq!(found(engine, runc), code, "{engine} {runc:?}");
        }
    }
}
