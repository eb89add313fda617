//! Tier 1: the few names that an operator may pass on from the service's own environment.

use std::collections::BTreeMap;
use std::ffi::OsString;

use super::names;

/// Names and values that the operator passes on; checked once, at start-up. The default passes nothing.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tier1Config(BTreeMap<String, String>);

/// Why the service does not start. Never holds a value.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Tier1Fault {
    /// Not one of the reviewed names.
    #[error("{name:?} cannot be passed on: only HTTP_PROXY, HTTPS_PROXY, NO_PROXY, LANG, LANGUAGE, LC_*, TZ")]
    Name {
        /// As configured.
        name: String,
    },
    /// A proxy's URL names a user; it would be visible to code in every sandbox.
    #[error("the proxy in {name} carries credentials, which code in the sandbox could read")]
    ProxyCredentials {
        /// As configured.
        name: String,
    },
    /// The value is not UTF-8 or holds NUL.
    #[error("the value of {name} is not plain UTF-8 text")]
    Value {
        /// As configured.
        name: String,
    },
}

impl Tier1Config {
    /// Takes the listed names from `lookup` (the process environment as read at start-up); a listed name without a value is
    /// left out.
    ///
    /// # Errors
    /// Every fault at once, in the order of the list.
    pub fn try_new(
        names: &[String],
        lookup: impl Fn(&str) -> Option<OsString>,
    ) -> Result<Self, Vec<Tier1Fault>> {
        let mut values = BTreeMap::new();
        let mut faults = Vec::new();
        for name in names {
            match read(name, &lookup) {
                Ok(Some(value)) => {
                    values.insert(name.clone(), value);
                }
                Ok(None) => {}
                Err(fault) => faults.push(fault),
            }
        }
        if faults.is_empty() { Ok(Self(values)) } else { Err(faults) }
    }

    /// Names and values, in order of names.
    pub fn values(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0.iter().map(|(name, value)| (name.as_str(), value.as_str()))
    }
}

fn read(name: &str, lookup: impl Fn(&str) -> Option<OsString>) -> Result<Option<String>, Tier1Fault> {
    if !names::is_tier1(name) || names::is_credential(name) {
        return Err(Tier1Fault::Name { name: name.to_owned() });
    }
    let Some(value) = lookup(name) else {
        return Ok(None);
    };
    let value = match value.into_string() {
        Ok(text) if !text.contains('\0') => text,
        Ok(_) | Err(_) => return Err(Tier1Fault::Value { name: name.to_owned() }),
    };
    if names::is_proxy(name) && names::carries_credentials(&value) {
        return Err(Tier1Fault::ProxyCredentials { name: name.to_owned() });
    }
    Ok(Some(value))
}
