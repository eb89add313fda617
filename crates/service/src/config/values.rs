//! Parsers of single values. Texts of variables and flags and native values of the file are both taken.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use events::spec::Mechanism;

use super::read::Raw;
use super::{AuthMode, LogFormat, Profile};

pub(super) fn text(raw: &Raw) -> Result<String, String> {
    match raw {
        Raw::String(text) if !text.is_empty() => Ok(text.clone()),
        _ => Err("must be a text that is not empty".to_owned()),
    }
}

fn choice<T: Copy>(raw: &Raw, choices: &[(&str, T)]) -> Result<T, String> {
    raw.as_str()
        .and_then(|text| choices.iter().find(|(name, _)| *name == text))
        .map(|(_, value)| *value)
        .ok_or_else(|| {
            let names: Vec<&str> = choices.iter().map(|(name, _)| *name).collect();
            format!("must be one of {}", names.join(", "))
        })
}

pub(super) fn profile(raw: &Raw) -> Result<Profile, String> {
    choice(raw, &[("development", Profile::Development), ("production", Profile::Production)])
}

pub(super) fn auth_mode(raw: &Raw) -> Result<AuthMode, String> {
    choice(raw, &[("dev", AuthMode::Dev), ("token", AuthMode::Token)])
}

pub(super) fn log_format(raw: &Raw) -> Result<LogFormat, String> {
    choice(raw, &[("pretty", LogFormat::Pretty), ("json", LogFormat::Json)])
}

pub(super) fn mechanism(raw: &Raw) -> Result<Mechanism, String> {
    let all = [Mechanism::Docker, Mechanism::Gvisor, Mechanism::Microvm, Mechanism::Fake];
    choice(raw, &all.map(|mechanism| (mechanism.as_str(), mechanism)))
}

pub(super) fn boolean(raw: &Raw) -> Result<bool, String> {
    match raw {
        Raw::Boolean(value) => Ok(*value),
        _ => choice(raw, &[("true", true), ("false", false)]),
    }
}

pub(super) fn socket_address(raw: &Raw) -> Result<SocketAddr, String> {
    text(raw)?.parse().map_err(|_| "must be an address and a port, for example 127.0.0.1:7390".to_owned())
}

pub(super) fn path(raw: &Raw) -> Result<PathBuf, String> {
    text(raw).map(PathBuf::from)
}

pub(super) fn number(raw: &Raw, min: u64, max: u64) -> Result<u64, String> {
    let value = match raw {
        Raw::Integer(value) => u64::try_from(*value).ok(),
        Raw::String(text) => text.parse().ok(),
        _ => None,
    };
    value
        .filter(|value| (min..=max).contains(value))
        .ok_or_else(|| format!("must be a whole number from {min} to {max}"))
}

pub(super) fn count(raw: &Raw, min: u64, max: u64) -> Result<usize, String> {
    let value = number(raw, min, max)?;
    usize::try_from(value).map_err(|_| "is too large for this machine".to_owned())
}

pub(super) fn seconds(raw: &Raw, min: u64, max: u64) -> Result<Duration, String> {
    number(raw, min, max).map(Duration::from_secs)
}

pub(super) fn millis(raw: &Raw, min: u64, max: u64) -> Result<Duration, String> {
    number(raw, min, max).map(Duration::from_millis)
}

/// A TOML array of texts, or one text with commas.
pub(super) fn list(raw: &Raw) -> Result<Vec<String>, String> {
    let fault = || "must be a list of texts".to_owned();
    match raw {
        Raw::String(text) => {
            Ok(text.split(',').map(str::trim).filter(|name| !name.is_empty()).map(str::to_owned).collect())
        }
        Raw::Array(items) => {
            items.iter().map(|item| item.as_str().map(str::to_owned).ok_or_else(fault)).collect()
        }
        _ => Err(fault()),
    }
}
