//! Merging of sources and collection of faults.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fmt;

use super::settings::{CLIENT_VARIABLES, SETTINGS};

/// Prefix of variables.
const PREFIX: &str = "LEASEHOLD_";

/// Everything that is read, as values: nothing here touches the process.
#[derive(Clone, Debug, Default)]
pub struct Sources {
    /// Text of `leasehold.toml`.
    pub file: Option<String>,
    /// Text of `limits.toml`.
    pub limits_file: Option<String>,
    /// `LEASEHOLD_…` variables.
    pub variables: BTreeMap<String, String>,
    /// Flags by the key they set.
    pub flags: BTreeMap<&'static str, String>,
    /// The process's own variables that `pass_environment` may name.
    pub passable: BTreeMap<String, OsString>,
}

/// Where a value came from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    /// The built-in default.
    Default,
    /// `leasehold.toml`.
    File,
    /// `limits.toml`.
    LimitsFile,
    /// A variable.
    Variable,
    /// A flag.
    Flag,
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Default => "default",
            Self::File => "leasehold.toml",
            Self::LimitsFile => "limits.toml",
            Self::Variable => "variable",
            Self::Flag => "flag",
        })
    }
}

/// One thing that is wrong. Never holds a value, which may be a secret.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    /// The key.
    pub key: String,
    /// Where it was set.
    pub origin: Origin,
    /// What is wrong.
    pub detail: String,
}

/// Everything that is wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Faults(pub Vec<Fault>);

impl fmt::Display for Faults {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the configuration has {} fault(s):", self.0.len())?;
        for fault in &self.0 {
            write!(f, "\n  {} ({}): {}", fault.key, fault.origin, fault.detail)?;
        }
        Ok(())
    }
}

impl std::error::Error for Faults {}

/// A value before it is parsed.
pub(super) type Raw = toml::Value;

/// Hands out values by key and collects what is wrong.
pub(super) struct Reader<'a> {
    values: BTreeMap<&'static str, (Raw, Origin)>,
    limits_file: Option<&'a str>,
    faults: Vec<Fault>,
}

impl<'a> Reader<'a> {
    pub(super) fn new(sources: &'a Sources) -> Self {
        let mut reader =
            Self { values: BTreeMap::new(), limits_file: sources.limits_file.as_deref(), faults: Vec::new() };
        for setting in SETTINGS {
            if let Some(default) = setting.default {
                reader.values.insert(setting.key, (Raw::String(default.to_owned()), Origin::Default));
            }
        }
        if let Some(text) = &sources.file {
            match text.parse::<toml::Table>() {
                Ok(table) => {
                    for (key, value) in table {
                        reader.put(&key, value, Origin::File);
                    }
                }
                Err(error) => reader.push("leasehold.toml", Origin::File, error.message()),
            }
        }
        for (name, value) in &sources.variables {
            if !CLIENT_VARIABLES.contains(&name.as_str())
                && let Some(key) = name.strip_prefix(PREFIX)
            {
                reader.put(&key.to_lowercase(), Raw::String(value.clone()), Origin::Variable);
            }
        }
        for (key, value) in &sources.flags {
            reader.put(key, Raw::String(value.clone()), Origin::Flag);
        }
        reader
    }

    fn put(&mut self, key: &str, value: Raw, origin: Origin) {
        match SETTINGS.iter().find(|setting| setting.key == key) {
            Some(setting) => {
                self.values.insert(setting.key, (value, origin));
            }
            None => self.push(key, origin, "there is no such setting"),
        }
    }

    /// The value of a setting with a default. A fault yields the default, so that reading goes on.
    pub(super) fn take<T>(&mut self, key: &'static str, parse: impl Fn(&Raw) -> Result<T, String>) -> T
    where
        T: Fallback,
    {
        self.take_optional(key, parse).unwrap_or_else(T::fallback)
    }

    /// The value of a setting that may be unset.
    pub(super) fn take_optional<T>(
        &mut self,
        key: &'static str,
        parse: impl Fn(&Raw) -> Result<T, String>,
    ) -> Option<T> {
        let (raw, origin) = self.values.get(key)?;
        match parse(raw) {
            Ok(value) => Some(value),
            Err(detail) => {
                let origin = *origin;
                self.push(key, origin, &detail);
                None
            }
        }
    }

    /// A fault of a setting.
    pub(super) fn fault(&mut self, key: &'static str, detail: &str) {
        let origin = self.values.get(key).map_or(Origin::Default, |(_, origin)| *origin);
        self.push(key, origin, detail);
    }

    pub(super) fn push(&mut self, key: &str, origin: Origin, detail: &str) {
        self.faults.push(Fault { key: key.to_owned(), origin, detail: detail.to_owned() });
    }

    pub(super) fn limits_file(&self) -> Option<&'a str> {
        self.limits_file
    }

    pub(super) fn finish<T>(self, value: T) -> Result<T, Faults> {
        if self.faults.is_empty() { Ok(value) } else { Err(Faults(self.faults)) }
    }
}

/// What stands in for a value with a fault; it is never used, because the fault ends the start.
pub(super) trait Fallback {
    fn fallback() -> Self;
}

macro_rules! fallbacks {
    ($($type:ty => $value:expr),+ $(,)?) => {
        $(impl Fallback for $type {
            fn fallback() -> Self {
                $value
            }
        })+
    };
}

fallbacks! {
    super::Profile => Self::Development,
    super::AuthMode => Self::Dev,
    super::LogFormat => Self::Pretty,
    events::spec::Mechanism => Self::Docker,
    runtime_adapter::container::Backing => Self::Volume,
    std::net::SocketAddr => Self::from(([127, 0, 0, 1], 0)),
    std::path::PathBuf => Self::new(),
    std::time::Duration => Self::ZERO,
    String => Self::new(),
    Vec<String> => Self::new(),
    u64 => 0,
    usize => 0,
}
