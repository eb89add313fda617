//! The inventory of settings: name, default, one line each. Nothing is read that is not listed here.

/// One setting.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Setting {
    /// Key in `leasehold.toml`; the variable is `LEASEHOLD_` and the key in capitals.
    pub key: &'static str,
    /// What it is when nobody sets it; `None` leaves it unset.
    pub default: Option<&'static str>,
    /// One line.
    pub about: &'static str,
}

const fn setting(key: &'static str, default: &'static str, about: &'static str) -> Setting {
    Setting { key, default: Some(default), about }
}

const fn unset(key: &'static str, about: &'static str) -> Setting {
    Setting { key, default: None, about }
}

/// Every setting, in the order of the documentation.
pub const SETTINGS: &[Setting] = &[
    setting("profile", "development", "what the installation is for: development or production"),
    setting(
        "auth_mode",
        "dev",
        "how callers prove who they are: dev (one printed token, loopback only) or token",
    ),
    setting("mechanism", "docker", "how environments are isolated: docker, gvisor, microvm or fake"),
    setting("listen", "127.0.0.1:7390", "address and port of the interface"),
    setting("data_dir", ".leasehold/data", "folder of the embedded database and the node's identity"),
    unset("database_append_url", "PostgreSQL as role leasehold_append; unset uses the embedded server"),
    unset("database_project_url", "PostgreSQL as role leasehold_project"),
    unset("database_seal_url", "PostgreSQL as role leasehold_seal"),
    unset("database_audit_url", "PostgreSQL as role leasehold_audit"),
    setting(
        "signing_key_files",
        "",
        "files of the keys that sign the log's heads, two during a rotation; empty means signing.key in data_dir",
    ),
    unset(
        "head_file",
        "where the newest signed head is kept outside the database; unset means signed_head in data_dir",
    ),
    setting("image", "leasehold/execution:dev", "local reference of the execution image"),
    setting("files_image", "leasehold/files:dev", "local reference of the files image"),
    setting(
        "backing",
        "volume",
        "what holds a workspace: volume (on disk, limits watched) or tmpfs (in memory, limits exact)",
    ),
    unset("engine_host", "address of the container engine, as its command line takes it"),
    setting("gvisor_runtime", "runsc", "the engine's name for the runtime of mechanism gvisor"),
    unset(
        "gvisor_allow_host_network",
        "whether gvisor may be registered with --network=host; true in development, false in production",
    ),
    unset(
        "allow_old_engine",
        "whether an engine below 25.0.5 or a runc below 1.2.8 or 1.3.3 is used; true in development, false in production",
    ),
    setting(
        "disk_reserve_bytes",
        "1073741824",
        "room on the engine's disk below which nothing new begins, 0 for none",
    ),
    setting("provision_budget_seconds", "30", "longest time to make an environment, at most 60"),
    setting("environment_cap_seconds", "3600", "longest life of an environment and of a lease"),
    setting("queue_waiting_max", "64", "foreground commands that may wait in one environment"),
    setting("output_bytes_max", "67108864", "hard ceiling of one command's output in bytes"),
    setting("files_changed_max", "1000", "entries in one command's files_changed, at most 10000"),
    setting("release_drain_seconds", "30", "longest wait for running commands when a lease is released"),
    setting("shutdown_drain_seconds", "5", "longest wait for running commands when the service stops"),
    setting("reconcile_interval_ms", "1000", "how often the reconciler runs without being woken"),
    setting("orphan_grace_seconds", "60", "age from which an object without an owner is removed"),
    setting(
        "pass_environment",
        "",
        "variables that commands see: HTTP_PROXY, HTTPS_PROXY, NO_PROXY, LANG, LANGUAGE, LC_*, TZ",
    ),
    setting("log_format", "pretty", "log lines on standard error: pretty or json"),
    setting("log_filter", "info,sqlx::postgres::notice=warn", "which log lines are written"),
    unset("crash_point", "where a debug build dies on purpose"),
];

/// Variables with our prefix that belong to other commands or to the command line itself.
pub(super) const CLIENT_VARIABLES: &[&str] = &[
    "LEASEHOLD_DATABASE_MIGRATE_URL",
    "LEASEHOLD_URL",
    "LEASEHOLD_TOKEN",
    "LEASEHOLD_CONFIG",
    "LEASEHOLD_LIMITS",
];
