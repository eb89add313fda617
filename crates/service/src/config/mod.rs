//! Configuration: `leasehold.toml`, `LEASEHOLD_…` variables and flags, parsed once from a given [`Sources`] before anything is
//! opened. A later source wins; unknown keys are faults; all faults are reported together.

mod limits;
mod read;
mod settings;
mod values;

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use events::spec::Mechanism;
use policy::Tier1Config;
use runtime_adapter::container::Backing;

pub use limits::LimitsConfig;
pub use read::{Fault, Faults, Origin, Sources};
pub use settings::{SETTINGS, Setting};

/// What the installation is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Profile {
    /// One machine, one person: the shared kernel is allowed.
    Development,
    /// Hostile code of strangers: only a mechanism with a kernel of its own, only real tokens.
    Production,
}

/// How callers prove who they are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AuthMode {
    /// One token, made at start and printed; loopback only.
    Dev,
    /// Tokens kept in the log.
    Token,
}

/// How log lines look.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogFormat {
    /// For people.
    Pretty,
    /// One JSON object per line.
    Json,
}

/// Connection strings of a PostgreSQL that somebody else runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DatabaseConfig {
    /// Of the role `leasehold_append`.
    pub append_url: String,
    /// Of the role `leasehold_project`.
    pub project_url: String,
    /// Of the role `leasehold_seal`.
    pub seal_url: String,
    /// Of the role `leasehold_audit`, shown in the start-up line.
    pub audit_url: String,
}

/// Everything that can be set, checked.
#[derive(Clone, Debug)]
pub struct Config {
    /// What the installation is for.
    pub profile: Profile,
    /// How callers prove who they are.
    pub auth_mode: AuthMode,
    /// How environments are isolated.
    pub mechanism: Mechanism,
    /// Where the interface listens.
    pub listen: SocketAddr,
    /// Where the embedded database, the node's id and locks live.
    pub data_dir: PathBuf,
    /// The database; `None` means the embedded one in `data_dir`.
    pub database: Option<DatabaseConfig>,
    /// Files of the keys that sign the log's heads; none: `signing.key` in `data_dir`.
    pub signing_key_files: Vec<PathBuf>,
    /// Where the newest signed head is kept outside of the database; `None`: `signed_head` in `data_dir`.
    pub head_file: Option<PathBuf>,
    /// Local reference of the execution image.
    pub image: String,
    /// Local reference of the files image.
    pub files_image: String,
    /// What holds workspaces.
    pub backing: Backing,
    /// The engine's address, when it is not the default one.
    pub engine_host: Option<String>,
    /// The engine's name for gVisor.
    pub gvisor_runtime: String,
    /// gVisor may be registered with the host's network stack.
    pub gvisor_allow_host_network: bool,
    /// Releases of the engine and of runc below the floor of production are used none the less.
    pub allow_old_engine: bool,
    /// Room on the engine's disk in bytes below which nothing new begins.
    pub disk_reserve_bytes: u64,
    /// Longest time to make an environment.
    pub provision_budget: Duration,
    /// Longest life of an environment, and so of a lease.
    pub environment_cap: Duration,
    /// Commands that may wait in one environment.
    pub queue_waiting_max: usize,
    /// Hard ceiling of one command's output in bytes.
    pub output_bytes_max: u64,
    /// Entries in one command's `files_changed`.
    pub files_changed_max: u64,
    /// Longest wait for running commands when a lease is released.
    pub release_drain: Duration,
    /// Longest wait for running commands when the service stops; after it they are killed.
    pub shutdown_drain: Duration,
    /// How often the reconciler runs without being woken.
    pub reconcile_interval: Duration,
    /// How old an object without an owner must be before it is removed.
    pub orphan_grace: Duration,
    /// Variables of the service that commands see, with their values.
    pub pass_environment: Tier1Config,
    /// The six limits.
    pub limits: LimitsConfig,
    /// How log lines look.
    pub log_format: LogFormat,
    /// Which log lines are written (the syntax of `tracing_subscriber::EnvFilter`).
    pub log_filter: String,
    /// Where a debug build dies on purpose.
    pub crash_point: Option<String>,
}

impl Config {
    /// Reads and checks everything.
    ///
    /// # Errors
    /// Every fault of every source.
    pub fn load(sources: &Sources) -> Result<Self, Faults> {
        let mut read = read::Reader::new(sources);
        let profile = read.take("profile", values::profile);
        let host_network = read.take_optional("gvisor_allow_host_network", values::boolean);
        let old_engine = read.take_optional("allow_old_engine", values::boolean);
        let config = Self {
            profile,
            auth_mode: read.take("auth_mode", values::auth_mode),
            mechanism: read.take("mechanism", values::mechanism),
            listen: read.take("listen", values::socket_address),
            data_dir: read.take("data_dir", values::path),
            database: database(&mut read),
            signing_key_files: read
                .take("signing_key_files", values::list)
                .into_iter()
                .map(PathBuf::from)
                .collect(),
            head_file: read.take_optional("head_file", values::path),
            image: read.take("image", values::text),
            files_image: read.take("files_image", values::text),
            backing: read.take("backing", values::backing),
            engine_host: read.take_optional("engine_host", values::text),
            gvisor_runtime: read.take("gvisor_runtime", values::text),
            gvisor_allow_host_network: host_network.unwrap_or(profile == Profile::Development),
            allow_old_engine: old_engine.unwrap_or(profile == Profile::Development),
            disk_reserve_bytes: read.take("disk_reserve_bytes", |raw| values::number(raw, 0, 1 << 50)),
            provision_budget: read.take("provision_budget_seconds", |raw| values::seconds(raw, 1, 60)),
            environment_cap: read.take("environment_cap_seconds", |raw| values::seconds(raw, 5, 86_400)),
            queue_waiting_max: read.take("queue_waiting_max", |raw| values::count(raw, 1, 1_024)),
            output_bytes_max: read.take("output_bytes_max", |raw| values::number(raw, 1_024, 1 << 30)),
            files_changed_max: read.take("files_changed_max", |raw| values::number(raw, 1, 10_000)),
            release_drain: read.take("release_drain_seconds", |raw| values::seconds(raw, 0, 1_800)),
            shutdown_drain: read.take("shutdown_drain_seconds", |raw| values::seconds(raw, 0, 1_800)),
            reconcile_interval: read.take("reconcile_interval_ms", |raw| values::millis(raw, 50, 60_000)),
            orphan_grace: read.take("orphan_grace_seconds", |raw| values::seconds(raw, 0, 86_400)),
            pass_environment: pass_environment(&mut read, sources),
            limits: limits::read(&mut read),
            log_format: read.take("log_format", values::log_format),
            log_filter: read.take("log_filter", values::text),
            crash_point: read.take_optional("crash_point", values::text),
        };
        check(&config, &mut read);
        let limits = LimitsConfig { backing: config.backing, ..config.limits };
        read.finish(Self { limits, ..config })
    }
}

fn database(read: &mut read::Reader<'_>) -> Option<DatabaseConfig> {
    let keys = ["database_append_url", "database_project_url", "database_seal_url", "database_audit_url"];
    let urls = keys.map(|key| (key, read.take_optional(key, values::text)));
    match urls {
        [(_, Some(append_url)), (_, Some(project_url)), (_, Some(seal_url)), (_, Some(audit_url))] => {
            Some(DatabaseConfig { append_url, project_url, seal_url, audit_url })
        }
        [(_, None), (_, None), (_, None), (_, None)] => None,
        some => {
            for (key, _) in some.iter().filter(|(_, url)| url.is_none()) {
                read.fault(key, "is missing: the four database URLs are set together or not at all");
            }
            None
        }
    }
}

fn pass_environment(read: &mut read::Reader<'_>, sources: &Sources) -> Tier1Config {
    let names = read.take("pass_environment", values::list);
    let lookup = |name: &str| sources.passable.get(name).cloned();
    match Tier1Config::try_new(&names, lookup) {
        Ok(config) => config,
        Err(faults) => {
            for fault in faults {
                read.fault("pass_environment", &fault.to_string());
            }
            Tier1Config::default()
        }
    }
}

/// What the settings must be together (decision D2, D11).
fn check(config: &Config, read: &mut read::Reader<'_>) {
    let mechanism = config.mechanism;
    match mechanism {
        Mechanism::Docker | Mechanism::Fake if config.profile == Profile::Production => {
            let why =
                format!("{mechanism} is for development: profile = production needs a kernel of its own");
            read.fault("mechanism", &why);
        }
        Mechanism::Docker if config.auth_mode == AuthMode::Token => {
            let why = "docker shares the kernel: auth_mode = token refuses it; set mechanism = gvisor or auth_mode = dev";
            read.fault("mechanism", why);
        }
        Mechanism::Microvm => {
            read.fault("mechanism", "microvm is not configured in this version");
        }
        Mechanism::Docker | Mechanism::Gvisor | Mechanism::Fake => {}
    }
    match config.auth_mode {
        AuthMode::Token => read.fault("auth_mode", "token is not configured in this version"),
        AuthMode::Dev if config.profile == Profile::Production => {
            read.fault("auth_mode", "dev prints its token: profile = production refuses it");
        }
        AuthMode::Dev if !config.listen.ip().is_loopback() => {
            read.fault("listen", "auth_mode = dev listens on loopback only");
        }
        AuthMode::Dev => {}
    }
    if !config.backing.allows(&config.limits.defaults) {
        let why = "tmpfs needs a default of memory_bytes that is 256 MiB above that of workspace_bytes";
        read.fault("backing", why);
    }
    if config.crash_point.is_some() && !cfg!(debug_assertions) {
        read.fault("crash_point", "exists in debug builds only");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn variables(pairs: &[(&str, &str)]) -> Sources {
        Sources {
            variables: pairs.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect(),
            ..Sources::default()
        }
    }

    fn faults(sources: &Sources) -> Vec<String> {
        Config::load(sources).map(|_| ()).unwrap_err().0.iter().map(|fault| fault.key.clone()).collect()
    }

    #[test]
    fn defaults_are_a_development_service_on_loopback() {
        let config = Config::load(&Sources::default()).unwrap();
        assert_eq!((config.profile, config.mechanism), (Profile::Development, Mechanism::Docker));
        assert!(config.listen.ip().is_loopback());
        assert_eq!(config.orphan_grace, Duration::from_secs(60));
        assert_eq!(config.limits.defaults.cpu_millicores, 2_000);
        assert_eq!(config.limits.ceilings.wall_clock_seconds, 1_800);
        assert!(config.database.is_none());
    }

    #[test]
    fn later_sources_win() {
        let mut sources = variables(&[("LEASEHOLD_ORPHAN_GRACE_SECONDS", "5"), ("LEASEHOLD_IMAGE", "b")]);
        sources.file = Some("image = \"a\"\nqueue_waiting_max = 3\norphan_grace_seconds = 9\n".to_owned());
        sources.flags.insert("image", "c".to_owned());
        let config = Config::load(&sources).unwrap();
        assert_eq!(config.image, "c");
        assert_eq!(config.orphan_grace, Duration::from_secs(5));
        assert_eq!(config.queue_waiting_max, 3);
    }

    #[test]
    fn all_faults_come_together_and_name_their_keys() {
        let mut sources = variables(&[
            ("LEASEHOLD_QUEUE_WAITING_MAX", "many"),
            ("LEASEHOLD_NO_SUCH_THING", "1"),
            ("LEASEHOLD_LISTEN", "0.0.0.0:1"),
            ("LEASEHOLD_DATABASE_APPEND_URL", "postgresql:///x"),
            ("LEASEHOLD_PASS_ENVIRONMENT", "AWS_SECRET_ACCESS_KEY"),
            ("LEASEHOLD_URL", "is the client's own"),
        ]);
        sources.file = Some("colour = \"red\"\nprovision_budget_seconds = 61\n".to_owned());
        let mut keys = faults(&sources);
        keys.sort();
        assert_eq!(
            keys,
            [
                "colour",
                "database_audit_url",
                "database_project_url",
                "database_seal_url",
                "listen",
                "no_such_thing",
                "pass_environment",
                "provision_budget_seconds",
                "queue_waiting_max",
            ]
        );
    }

    /// Every mechanism under every profile and way of proving oneself. `auth_mode = token` is itself a fault in this version.
    #[test]
    fn profiles_and_tokens_decide_over_mechanisms() {
        let (ok, auth, mechanism): (&[&str], &[&str], &[&str]) = (&[], &["auth_mode"], &["mechanism"]);
        let both: &[&str] = &["mechanism", "auth_mode"];
        for (profile, auth_mode, expected) in [
            ("development", "dev", [ok, ok, mechanism, ok]),
            ("development", "token", [both, auth, both, auth]),
            ("production", "dev", [both, auth, both, both]),
            ("production", "token", [both, auth, both, both]),
        ] {
            for (value, keys) in ["docker", "gvisor", "microvm", "fake"].into_iter().zip(expected) {
                let found = Config::load(&variables(&[
                    ("LEASEHOLD_PROFILE", profile),
                    ("LEASEHOLD_AUTH_MODE", auth_mode),
                    ("LEASEHOLD_MECHANISM", value),
                ]));
                let found: Vec<String> = match found {
                    Ok(config) => {
                        assert_eq!(config.mechanism.as_str(), value);
                        Vec::new()
                    }
                    Err(faults) => faults.0.into_iter().map(|fault| fault.key).collect(),
                };
                assert_eq!(found, keys, "{profile}, {auth_mode}, {value}");
            }
        }
        // A staging system with real tokens is told both ways out.
        let staging = variables(&[("LEASEHOLD_AUTH_MODE", "token"), ("LEASEHOLD_MECHANISM", "docker")]);
        let told = Config::load(&staging).map(drop).unwrap_err().to_string();
        assert!(told.contains("mechanism") && told.contains("auth_mode = token"), "{told}");
        let microvm = variables(&[("LEASEHOLD_MECHANISM", "microvm")]);
        assert!(Config::load(&microvm).map(drop).unwrap_err().to_string().contains("not configured"));
    }

    #[test]
    fn the_host_network_and_old_engines_are_for_development_unless_named() {
        let allowed =
            |pairs: &[(&str, &str)]| Config::load(&variables(pairs)).unwrap().gvisor_allow_host_network;
        assert!(allowed(&[]));
        assert!(Config::load(&variables(&[])).unwrap().allow_old_engine);
        let never = variables(&[("LEASEHOLD_ALLOW_OLD_ENGINE", "false")]);
        assert!(!Config::load(&never).unwrap().allow_old_engine);
        assert!(!allowed(&[("LEASEHOLD_GVISOR_ALLOW_HOST_NETWORK", "false")]));
        let sources =
            Sources { file: Some("gvisor_allow_host_network = false\n".to_owned()), ..Sources::default() };
        assert!(!Config::load(&sources).unwrap().gvisor_allow_host_network);
        assert_eq!(
            faults(&variables(&[("LEASEHOLD_GVISOR_ALLOW_HOST_NETWORK", "perhaps")])),
            ["gvisor_allow_host_network"]
        );
    }

    #[test]
    fn a_workspace_in_memory_needs_limits_that_fit() {
        let mut sources = variables(&[("LEASEHOLD_BACKING", "tmpfs")]);
        assert_eq!(faults(&sources), ["backing"], "the defaults are made for a disk");
        sources.limits_file = Some("[workspace_bytes]\ndefault = 1073741824\n".to_owned());
        let config = Config::load(&sources).unwrap();
        assert_eq!((config.backing, config.limits.backing), (Backing::Tmpfs, Backing::Tmpfs));
        let asks = |workspace_bytes, memory_bytes| crate::api::LimitsRequest {
            workspace_bytes: Some(workspace_bytes),
            memory_bytes: Some(memory_bytes),
            ..crate::api::LimitsRequest::default()
        };
        assert!(config.limits.resolve(&asks(1 << 30, (1 << 30) + (256 << 20))).is_ok());
        assert!(config.limits.resolve(&asks(1 << 30, (1 << 30) + (256 << 20) - 1)).is_err());
        assert_eq!(faults(&variables(&[("LEASEHOLD_BACKING", "disk")])), ["backing"]);
    }

    #[test]
    fn limits_have_a_default_and_a_ceiling_each() {
        let mut sources =
            Sources { limits_file: Some("[pids_max]\ndefault = 10\n".to_owned()), ..Sources::default() };
        assert_eq!(Config::load(&sources).unwrap().limits.defaults.pids_max, 10);
        sources.limits_file =
            Some("[pids_max]\ndefault = 10\nceiling = 9\n[colour]\ndefault = 1\n".to_owned());
        assert_eq!(faults(&sources), ["limits.colour", "limits.pids_max"]);
        sources.limits_file = Some("[pids_max]\nceiling = 5000\n".to_owned());
        assert_eq!(faults(&sources), ["limits.pids_max"]);
    }

    #[test]
    fn every_setting_is_read_and_every_default_is_valid() {
        let mut sources = Sources::default();
        for setting in SETTINGS {
            if let Some(default) = setting.default {
                let name = format!("LEASEHOLD_{}", setting.key.to_uppercase());
                sources.variables.insert(name, default.to_owned());
            }
        }
        Config::load(&sources).unwrap();
    }
}
