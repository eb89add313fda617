//! Environment variables of a command: built from nothing, never filtered out of another environment.
//!
//! ```text
//! tier 0  never         credential names and secret-like names, whoever asks
//! tier 1  the operator  exactly HTTP_PROXY, HTTPS_PROXY, NO_PROXY (both cases), LANG, LANGUAGE, LC_*, TZ
//! tier 2  ours          HOME, PWD, PATH, TMPDIR, LANG
//! request the client    any other name; of tier 2 it may replace LANG and TMPDIR only
//! ```
//! Loader and interpreter variables (`LD_PRELOAD`, `PYTHONSTARTUP`, …) are not refused: they act inside the sandbox, on code
//! that the client chose anyway, and the trusted guest is static and started with an empty environment.

mod names;
mod tier1;

use std::collections::BTreeMap;

pub use tier1::{Tier1Config, Tier1Fault};

use crate::cwd::{WORKSPACE_ROOT, WorkspaceCwd};

/// Where bare program names are looked up.
pub const SANDBOX_PATH: &str = "/usr/local/bin:/usr/bin:/bin";

/// Names of tier 2 that a request may not replace, and the prefix of names that later versions set.
const FIXED: [&str; 3] = ["HOME", "PWD", "PATH"];
const OWN_PREFIX: &str = "LEASEHOLD_";

/// Why a request's variable is refused. Never holds a value.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum EnvRefusal {
    /// The name is not `[A-Za-z_][A-Za-z0-9_]*`.
    #[error("a variable name must match [A-Za-z_][A-Za-z0-9_]*")]
    Name {
        /// As requested, cut to 64 characters.
        name: String,
    },
    /// Tier 0: the name says that its value is a credential.
    #[error("{name} names a credential; credentials do not belong in a sandbox")]
    Credential {
        /// As requested, cut to 64 characters.
        name: String,
    },
    /// Tier 2 sets it.
    #[error("{name} is set by the service and cannot be replaced")]
    Fixed {
        /// As requested.
        name: String,
    },
    /// A value cannot hold NUL.
    #[error("the value of {name} has a NUL character")]
    Nul {
        /// As requested, cut to 64 characters.
        name: String,
    },
    /// A proxy's URL names a user.
    #[error("the proxy in {name} carries credentials")]
    ProxyCredentials {
        /// As requested.
        name: String,
    },
}

impl EnvRefusal {
    /// The refused name, cut to 64 characters.
    #[must_use]
    pub fn name(&self) -> &str {
        match self {
            Self::Name { name }
            | Self::Credential { name }
            | Self::Fixed { name }
            | Self::Nul { name }
            | Self::ProxyCredentials { name } => name,
        }
    }
}

/// The whole environment of one command: tier 2, then the operator's values, then the request's. Values are taken byte for
/// byte; nothing is expanded.
///
/// # Errors
/// The first variable of the request, in order of names, that is refused.
pub fn build_environment(
    tier1: &Tier1Config,
    request: &BTreeMap<String, String>,
    cwd: &WorkspaceCwd,
) -> Result<BTreeMap<String, String>, EnvRefusal> {
    let mut environment = BTreeMap::from([
        ("HOME".to_owned(), WORKSPACE_ROOT.to_owned()),
        ("LANG".to_owned(), "C.UTF-8".to_owned()),
        ("PATH".to_owned(), SANDBOX_PATH.to_owned()),
        ("PWD".to_owned(), cwd.absolute()),
        ("TMPDIR".to_owned(), "/tmp".to_owned()),
    ]);
    environment.extend(tier1.values().map(|(name, value)| (name.to_owned(), value.to_owned())));
    for (name, value) in request {
        check_request(name, value)?;
        environment.insert(name.clone(), value.clone());
    }
    Ok(environment)
}

/// Checks one variable of a request.
///
/// # Errors
/// Why it is refused.
pub fn check_request(name: &str, value: &str) -> Result<(), EnvRefusal> {
    let shown = || name.chars().take(64).collect::<String>();
    if !names::is_well_formed(name) {
        return Err(EnvRefusal::Name { name: shown() });
    }
    if FIXED.contains(&name) || name.starts_with(OWN_PREFIX) {
        return Err(EnvRefusal::Fixed { name: shown() });
    }
    if names::is_credential(name) {
        return Err(EnvRefusal::Credential { name: shown() });
    }
    if value.contains('\0') {
        return Err(EnvRefusal::Nul { name: shown() });
    }
    if names::is_proxy(name) && names::carries_credentials(value) {
        return Err(EnvRefusal::ProxyCredentials { name: shown() });
    }
    Ok(())
}
