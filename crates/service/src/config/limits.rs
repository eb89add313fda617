//! `limits.toml`: the operator's limits of one environment, each with a default and a ceiling (decision D10).

use events::spec::Limits;
use runtime_adapter::container::Backing;

use super::read::{Origin, Reader};
use super::values;
use crate::api::{LimitsRequest, ServiceError};

/// Defaults and ceilings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LimitsConfig {
    /// What a lease gets that asks for nothing.
    pub defaults: Limits,
    /// The most that a lease may ask for.
    pub ceilings: Limits,
    /// What holds workspaces: in memory they must leave room to programs.
    pub backing: Backing,
}

const GIB: u64 = 1 << 30;

const DEFAULTS: Limits = Limits {
    cpu_millicores: 2_000,
    memory_bytes: 2 * GIB,
    pids_max: 512,
    workspace_bytes: 4 * GIB,
    inodes_max: 100_000,
    wall_clock_seconds: 300,
};

const CEILINGS: Limits = Limits {
    cpu_millicores: 64_000,
    memory_bytes: 64 * GIB,
    pids_max: 4_096,
    workspace_bytes: 256 * GIB,
    inodes_max: 1_000_000,
    wall_clock_seconds: 1_800,
};

/// Less than this is no use to any program and is refused.
const FLOORS: Limits = Limits {
    cpu_millicores: 10,
    memory_bytes: 32 << 20,
    pids_max: 4,
    workspace_bytes: 1 << 20,
    inodes_max: 16,
    wall_clock_seconds: 1,
};

type Field = (&'static str, fn(&mut Limits) -> &mut u64);

const FIELDS: [Field; 6] = [
    ("cpu_millicores", |limits| &mut limits.cpu_millicores),
    ("memory_bytes", |limits| &mut limits.memory_bytes),
    ("pids_max", |limits| &mut limits.pids_max),
    ("workspace_bytes", |limits| &mut limits.workspace_bytes),
    ("inodes_max", |limits| &mut limits.inodes_max),
    ("wall_clock_seconds", |limits| &mut limits.wall_clock_seconds),
];

impl Default for LimitsConfig {
    fn default() -> Self {
        Self { defaults: DEFAULTS, ceilings: CEILINGS, backing: Backing::Volume }
    }
}

impl LimitsConfig {
    /// Fills in what a request leaves open. A value above its ceiling is refused, never lowered silently.
    ///
    /// # Errors
    /// The first limit that is out of range.
    pub fn resolve(&self, request: &LimitsRequest) -> Result<Limits, ServiceError> {
        let asked = [
            request.cpu_millicores,
            request.memory_bytes,
            request.pids_max,
            request.workspace_bytes,
            request.inodes_max,
            request.wall_clock_seconds,
        ];
        let (mut limits, mut floors, mut ceilings) = (self.defaults, FLOORS, self.ceilings);
        for ((name, field), value) in FIELDS.into_iter().zip(asked) {
            let (floor, ceiling) = (*field(&mut floors), *field(&mut ceilings));
            let Some(value) = value else { continue };
            if !(floor..=ceiling).contains(&value) {
                return Err(ServiceError::Invalid {
                    pointer: format!("/limits/{name}"),
                    detail: format!("must be from {floor} to {ceiling}"),
                });
            }
            *field(&mut limits) = value;
        }
        if !self.backing.allows(&limits) {
            let reserve = Backing::TMPFS_MEMORY_RESERVE_BYTES;
            return Err(ServiceError::Invalid {
                pointer: "/limits/workspace_bytes".to_owned(),
                detail: format!("must leave {reserve} bytes of memory_bytes: workspaces are held in memory"),
            });
        }
        Ok(limits)
    }
}

pub(super) fn read(reader: &mut Reader<'_>) -> LimitsConfig {
    let mut config = LimitsConfig::default();
    let Some(text) = reader.limits_file() else { return config };
    let table = match text.parse::<toml::Table>() {
        Ok(table) => table,
        Err(error) => {
            reader.push("limits.toml", Origin::LimitsFile, error.message());
            return config;
        }
    };
    let (mut floors, mut ceilings) = (FLOORS, CEILINGS);
    for (name, value) in table {
        let key = format!("limits.{name}");
        let Some((_, field)) = FIELDS.into_iter().find(|(known, _)| *known == name) else {
            reader.push(&key, Origin::LimitsFile, "there is no such limit");
            continue;
        };
        let Some(entries) = value.as_table() else {
            reader.push(&key, Origin::LimitsFile, "must be a table with default and ceiling");
            continue;
        };
        for (entry, raw) in entries {
            let target = match entry.as_str() {
                "default" => field(&mut config.defaults),
                "ceiling" => field(&mut config.ceilings),
                _ => {
                    reader.push(&key, Origin::LimitsFile, "has only default and ceiling");
                    continue;
                }
            };
            match values::number(raw, *field(&mut floors), *field(&mut ceilings)) {
                Ok(value) => *target = value,
                Err(detail) => reader.push(&key, Origin::LimitsFile, &detail),
            }
        }
        if *field(&mut config.defaults) > *field(&mut config.ceilings) {
            reader.push(&key, Origin::LimitsFile, "the default is above the ceiling");
        }
    }
    config
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_fill_in_defaults_and_never_pass_a_ceiling() {
        let config = LimitsConfig::default();
        assert_eq!(config.resolve(&LimitsRequest::default()).unwrap(), DEFAULTS);
        let some = LimitsRequest { pids_max: Some(4_096), ..LimitsRequest::default() };
        assert_eq!(config.resolve(&some).unwrap().pids_max, 4_096);
        for (request, pointer) in [
            (LimitsRequest { pids_max: Some(4_097), ..LimitsRequest::default() }, "/limits/pids_max"),
            (LimitsRequest { memory_bytes: Some(0), ..LimitsRequest::default() }, "/limits/memory_bytes"),
        ] {
            let refused = config.resolve(&request).unwrap_err();
            assert!(matches!(refused, ServiceError::Invalid { pointer: at, .. } if at == pointer));
        }
    }
}
