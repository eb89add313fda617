//! `leasehold serve`: from nothing to a listening service, and back to nothing.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::io::{IsTerminal as _, Write as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use event_log::EventLog;
use event_log::embedded::EmbeddedPostgres;
use event_log::proof::note::SignerKey;
use event_log::seal::load_key;
use events::NodeId;
use events::spec::{ImageDigest, Mechanism};
use runtime_adapter::container::{ContainerAdapter, ContainerConfig};
use runtime_adapter::crash::CrashPoints;
use runtime_adapter::fake::FakeAdapter;
use runtime_adapter::ports::PortError;
use serde_json::json;
use tokio::net::TcpListener;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tracing_subscriber::EnvFilter;
use uuid::Uuid;

use super::args::Serve;
use super::exit::{Failure, with_causes};
use crate::composition::{ComposeError, Database, Foundation, Runtime, Service};
use crate::config::{Config, LogFormat, Sources};
use crate::environments::Ports;
use crate::http;
use crate::sealing::SealingConfig;
use crate::supervise::Supervisor;
use crate::tokens::{self, Tokens};

/// Longest wait for open connections when everything else has ended.
const CONNECTIONS_MAX: Duration = Duration::from_secs(5);
/// What the fake's images are called.
const FAKE_IMAGE: &str = "sha256:fa4efa4efa4efa4efa4efa4efa4efa4efa4efa4efa4efa4efa4efa4efa4efa4e";

/// Everything that a running service consists of, the last to go first.
struct Started {
    service: Service,
    listener: TcpListener,
    ready: serde_json::Value,
    postgres: Option<EmbeddedPostgres>,
}

pub(super) async fn serve(args: Serve, environment: BTreeMap<String, OsString>) -> Result<u8, Failure> {
    let config = config(&args, &environment)?;
    start_logging(&config)?;
    let mut signals = Signals::listen()?;
    // A signal during the start drops what is there so far, the embedded database included.
    let Started { service, listener, ready, postgres } = tokio::select! {
        started = start(&config, args.dev) => started?,
        () = signals.received() => return Ok(0),
    };
    let (close, closed) = tokio::sync::oneshot::channel::<()>();
    let router = http::router(Arc::clone(&service.app));
    // Apart from the service's own tasks, which end before the last connections do.
    let server = Supervisor::default().spawn("http server", async move {
        let shutdown = async move {
            // The sender is used or dropped: both mean the end.
            let _ = closed.await;
        };
        axum::serve(listener, router).with_graceful_shutdown(shutdown).await
    });
    print_ready(args.json, &ready)?;

    signals.received().await;
    tracing::info!("stopping");
    service.app.refuse_new_work();
    // No new connection from here on; the open ones are answered while the service drains.
    let _ = close.send(());
    service.stop(config.shutdown_drain, args.dev).await;
    drop(tokio::time::timeout(CONNECTIONS_MAX, server).await);
    if let Some(postgres) = postgres {
        postgres.stop().await.map_err(|error| Failure::failed(error.to_string()))?;
    }
    Ok(0)
}

async fn start(config: &Config, dev: bool) -> Result<Started, Failure> {
    // Taken first: a port in use ends the start before anything exists.
    let listener = TcpListener::bind(config.listen).await.map_err(|error| {
        Failure::failed(format!(
            "cannot listen on {}: {error}; --listen takes another address, port 0 a free one",
            config.listen
        ))
    })?;
    let address = listener.local_addr().map_err(|error| Failure::failed(error.to_string()))?;
    let data_dir = data_dir(&config.data_dir)?;
    let (postgres, database, audit_url) = database(config, dev, &data_dir).await?;
    let node_id = node_id(&data_dir)?;
    let foundation = Foundation::lay(database, node_id).await.map_err(compose_failure)?;
    let runtime = runtime(config, &foundation, &data_dir).await?;
    let image_digest = (runtime.mechanism != Mechanism::Fake).then(|| runtime.image_digest.to_string());
    let token = tokens::generate();
    let service = Service::start(foundation, runtime, config, Tokens::development(&token))
        .await
        .map_err(compose_failure)?;
    let ready = json!({
        "url": format!("http://{address}"),
        "token": token,
        "console_url": null,
        "data_dir": data_dir.display().to_string(),
        "mechanism": config.mechanism.as_str(),
        "image_digest": image_digest,
        "database_url": audit_url,
    });
    Ok(Started { service, listener, ready, postgres })
}

/// What tells a service to end.
struct Signals {
    terminate: Signal,
    interrupt: Signal,
}

impl Signals {
    fn listen() -> Result<Self, Failure> {
        let listen = |kind| signal(kind).map_err(|error| Failure::failed(error.to_string()));
        Ok(Self { terminate: listen(SignalKind::terminate())?, interrupt: listen(SignalKind::interrupt())? })
    }

    async fn received(&mut self) {
        tokio::select! {
            _ = self.terminate.recv() => {}
            _ = self.interrupt.recv() => {}
        }
    }
}

fn config(args: &Serve, environment: &BTreeMap<String, OsString>) -> Result<Config, Failure> {
    let mut sources = sources(environment, args.config.as_deref(), args.limits.as_deref())?;
    let flags = [("listen", &args.listen), ("data_dir", &args.data), ("mechanism", &args.mechanism)];
    for (key, value) in flags {
        if let Some(value) = value {
            sources.flags.insert(key, value.clone());
        }
    }
    let config = Config::load(&sources).map_err(|faults| Failure::usage(faults.to_string()))?;
    match (&config.database, args.dev) {
        (None, false) => Err(Failure::usage(
            "no database: use --dev for the embedded one, or set LEASEHOLD_DATABASE_APPEND_URL, \
             LEASEHOLD_DATABASE_PROJECT_URL, LEASEHOLD_DATABASE_SEAL_URL and LEASEHOLD_DATABASE_AUDIT_URL",
        )),
        (Some(_), true) => Err(Failure::usage("--dev uses the embedded database: unset the database URLs")),
        _ => Ok(config),
    }
}

/// Files and variables as the configuration reads them.
pub(super) fn sources(
    environment: &BTreeMap<String, OsString>,
    config: Option<&Path>,
    limits: Option<&Path>,
) -> Result<Sources, Failure> {
    let variables = environment
        .iter()
        .filter(|(name, _)| name.starts_with("LEASEHOLD_"))
        .map(|(name, value)| match value.to_str() {
            Some(value) => Ok((name.clone(), value.to_owned())),
            None => Err(Failure::usage(format!("{name} is not UTF-8"))),
        })
        .collect::<Result<_, _>>()?;
    Ok(Sources {
        file: read_file(config, "leasehold.toml")?,
        limits_file: read_file(limits, "limits.toml")?,
        variables,
        flags: BTreeMap::new(),
        passable: environment.clone(),
    })
}

/// A named file must be there; the default one may be absent.
fn read_file(named: Option<&Path>, default: &str) -> Result<Option<String>, Failure> {
    let path = named.unwrap_or_else(|| Path::new(default));
    match std::fs::read_to_string(path) {
        Ok(text) => Ok(Some(text)),
        Err(error) if named.is_none() && error.kind() == std::io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(Failure::usage(format!("{}: {error}", path.display()))),
    }
}

fn start_logging(config: &Config) -> Result<(), Failure> {
    let filter = EnvFilter::try_new(&config.log_filter)
        .map_err(|error| Failure::usage(format!("log_filter: {error}")))?;
    let lines = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        .with_ansi(std::io::stderr().is_terminal());
    let started = match config.log_format {
        LogFormat::Pretty => lines.try_init(),
        LogFormat::Json => lines.json().try_init(),
    };
    started.map_err(|error| Failure::failed(error.to_string()))
}

fn data_dir(path: &Path) -> Result<PathBuf, Failure> {
    let failure = |error: std::io::Error| Failure::failed(format!("{}: {error}", path.display()));
    std::fs::create_dir_all(path).map_err(failure)?;
    path.canonicalize().map_err(failure)
}

async fn database(
    config: &Config,
    dev: bool,
    data_dir: &Path,
) -> Result<(Option<EmbeddedPostgres>, Database, String), Failure> {
    if let (false, Some(urls)) = (dev, &config.database) {
        let keys = key_files(config, data_dir).iter().map(|path| load_key(path)).collect::<Result<_, _>>();
        let keys = keys.map_err(|error| {
            Failure::usage(format!("{}; `leasehold migrate --init` makes one", with_causes(&error)))
        })?;
        let database = Database {
            append_url: urls.append_url.clone(),
            project_url: urls.project_url.clone(),
            sealing: sealing(config, data_dir, urls.seal_url.clone(), keys),
        };
        return Ok((None, database, urls.audit_url.clone()));
    }
    let postgres =
        EmbeddedPostgres::start(data_dir).await.map_err(|error| Failure::failed(error.to_string()))?;
    event_log::migrate(&postgres.migrate_url())
        .await
        .map_err(|error| Failure::failed(format!("the embedded database cannot be migrated: {error}")))?;
    let mut keys = Vec::new();
    for path in key_files(config, data_dir) {
        let key = event_log::seal::init_key(&postgres.migrate_url(), &path).await;
        keys.push(key.map_err(|error| Failure::failed(with_causes(&error)))?);
    }
    let database = Database {
        append_url: postgres.append_url(),
        project_url: postgres.project_url(),
        sealing: sealing(config, data_dir, postgres.seal_url(), keys),
    };
    let audit_url = postgres.audit_url();
    Ok((Some(postgres), database, audit_url))
}

/// The files of the keys that sign: those that are set, else one beside the node's identity.
fn key_files(config: &Config, data_dir: &Path) -> Vec<PathBuf> {
    match config.signing_key_files.as_slice() {
        [] => vec![data_dir.join("signing.key")],
        files => files.to_vec(),
    }
}

fn sealing(config: &Config, data_dir: &Path, database_url: String, keys: Vec<SignerKey>) -> SealingConfig {
    let head_file = config.head_file.clone().unwrap_or_else(|| data_dir.join("signed_head"));
    SealingConfig { database_url, keys, head_file }
}

/// The node's id: made once, then read; it names the owner of what exists in the runtime.
fn node_id(data_dir: &Path) -> Result<NodeId, Failure> {
    let path = data_dir.join("node_id");
    let failure = |detail: String| Failure::failed(format!("{}: {detail}", path.display()));
    match std::fs::read_to_string(&path) {
        Ok(text) => text.trim().parse().map_err(|_| failure("is not a node id".to_owned())),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            let node_id = NodeId(Uuid::now_v7());
            // A crash in the middle must not leave half an id behind.
            let unfinished = data_dir.join("node_id.new");
            std::fs::write(&unfinished, format!("{node_id}\n"))
                .and_then(|()| std::fs::File::open(&unfinished)?.sync_all())
                .and_then(|()| std::fs::rename(&unfinished, &path))
                .map_err(|error| failure(error.to_string()))?;
            Ok(node_id)
        }
        Err(error) => Err(failure(error.to_string())),
    }
}

async fn runtime(config: &Config, foundation: &Foundation, data_dir: &Path) -> Result<Runtime, Failure> {
    let log: EventLog = foundation.log.clone();
    let clock: runtime_adapter::Clock = Arc::new(move || log.clock().now());
    match config.mechanism {
        Mechanism::Fake => {
            let image_digest: ImageDigest =
                FAKE_IMAGE.parse().map_err(|_| Failure::failed("the fake has no image"))?;
            let fake = FakeAdapter::new(clock, image_digest.clone());
            Ok(Runtime { ports: ports(fake), mechanism: Mechanism::Fake, image_digest })
        }
        mechanism => {
            let (log_id, log_epoch) = (foundation.log.log_id(), foundation.log.log_epoch());
            let mut settings = ContainerConfig::new(log_id, log_epoch, foundation.node_id);
            settings.docker_host.clone_from(&config.engine_host);
            settings.execution_image.clone_from(&config.image);
            settings.files_image.clone_from(&config.files_image);
            settings.mechanism = mechanism;
            settings.backing = config.backing;
            settings.gvisor_runtime.clone_from(&config.gvisor_runtime);
            settings.gvisor_allow_host_network = config.gvisor_allow_host_network;
            settings.allow_old_engine = config.allow_old_engine;
            settings.disk_reserve_bytes = config.disk_reserve_bytes;
            settings.provision_budget = config.provision_budget;
            settings.state_dir = Some(data_dir.to_path_buf());
            settings.crash_points = CrashPoints::armed(config.crash_point.as_deref());
            let adapter = ContainerAdapter::start(settings, clock).await.map_err(|error| match error {
                PortError::Unavailable { .. } => {
                    Failure::unavailable(format!("{error}; `leasehold doctor` says what is missing"))
                }
                _ => Failure::failed(format!("{error}; `leasehold doctor` says what is missing")),
            })?;
            if let Some(gvisor) = adapter.gvisor() {
                let (arguments, kernel) = (gvisor.arguments.join(" "), &gvisor.kernel_release);
                tracing::info!(runtime = %gvisor.path, %arguments, %kernel, "gVisor is verified");
            }
            let image_digest = adapter.execution_image().clone();
            Ok(Runtime { ports: ports(adapter), mechanism, image_digest })
        }
    }
}

fn ports<A>(adapter: A) -> Ports
where
    A: runtime_adapter::ports::ExecutionEnvironment
        + runtime_adapter::ports::Workspace
        + runtime_adapter::ports::Inventory
        + Clone
        + 'static,
{
    Ports {
        execution: Arc::new(adapter.clone()),
        workspace: Arc::new(adapter.clone()),
        inventory: Arc::new(adapter),
    }
}

/// One line, at once: whoever started us waits for it.
fn print_ready(json: bool, ready: &serde_json::Value) -> Result<(), Failure> {
    let mut out = std::io::stdout().lock();
    let text = |key: &str| ready[key].as_str().unwrap_or("-").to_owned();
    let written = if json {
        writeln!(out, "{ready}")
    } else {
        writeln!(
            out,
            "leasehold is ready\n  url        {}\n  token      {}\n  mechanism  {}\n  data       {}\n\n\
             export LEASEHOLD_URL={} LEASEHOLD_TOKEN={}\nleasehold run -- echo hello",
            text("url"),
            text("token"),
            text("mechanism"),
            text("data_dir"),
            text("url"),
            text("token"),
        )
    };
    written.and_then(|()| out.flush()).map_err(|error| Failure::failed(error.to_string()))
}

fn compose_failure(error: ComposeError) -> Failure {
    match error {
        ComposeError::Log(_) => Failure::unavailable(error.to_string()),
        error => Failure::failed(error.to_string()),
    }
}
