//! Measures P5 and P7: appends of one event per request against pgbench inserting the same bytes into the same tables.
//!
//! `cargo run --release -p event-log --example append_bench [-- SECONDS ROUNDS]` prints one JSON document. Both sides run on one
//! server of our own, alternately, each round on both; the figure is the ratio of the medians. Every run is checked: all our
//! events are in the log without a gap, and no pgbench client failed.

use std::path::Path;
use std::time::{Duration, Instant};

use event_log::embedded::EmbeddedPostgres;
use event_log::{AppendRequest, EventLog, Expected, LogConfig};
use events::event::lease::LeaseRevoked;
use events::stored::{NewEvent, StreamName, encode_body};
use events::{Epoch, Event, EventId, LeaseId, Position, RunId, TenantId, Version};
use serde_json::json;
use tokio::task::JoinSet;
use uuid::Uuid;

type Failure = Box<dyn std::error::Error + Send + Sync>;

/// The text in each body: with it, header and body take about 700 bytes.
const REASON_BYTES: usize = 120;
const TENANT: TenantId = TenantId(Uuid::from_u128(1));

#[tokio::main]
async fn main() -> Result<(), Failure> {
    let mut arguments = std::env::args().skip(1);
    let seconds: u64 = arguments.next().map_or(Ok(4), |text| text.parse())?;
    let rounds: usize = arguments.next().map_or(Ok(5), |text| text.parse())?;
    let dir = tempfile::Builder::new().prefix("leasehold-append-bench-").tempdir()?;
    open_to_the_server(dir.path())?;
    let server = EmbeddedPostgres::start(dir.path()).await?;
    let result = measure(&server, Duration::from_secs(seconds), rounds).await;
    server.stop().await?;
    println!("{}", serde_json::to_string_pretty(&result?)?);
    Ok(())
}

/// The server's account must be able to step into the directory.
fn open_to_the_server(dir: &Path) -> std::io::Result<()> {
    use std::os::unix::fs::PermissionsExt as _;
    std::fs::set_permissions(dir, std::fs::Permissions::from_mode(0o755))
}

async fn measure(
    server: &EmbeddedPostgres,
    time: Duration,
    rounds: usize,
) -> Result<serde_json::Value, Failure> {
    event_log::migrate(&server.migrate_url()).await?;
    let log = EventLog::open(LogConfig::new(server.append_url())).await?;
    let reference = Reference::prepare(server, &log).await?;
    let mut measures = Vec::new();
    for (name, clients, goal) in [("P5", 64, 1.5), ("P7", 1, 0.5)] {
        // A warm-up of each side, not counted.
        ours(&log, clients, time / 4).await?;
        reference.run(clients, time / 4)?;
        let (mut our, mut their) = (Vec::new(), Vec::new());
        for _ in 0..rounds {
            our.push(ours(&log, clients, time).await?);
            their.push(reference.run(clients, time)?);
        }
        let (our, their) = (Figures::of(our), Figures::of(their));
        let ratio = our.median / their.median;
        measures.push(json!({
            "measure": name, "clients": clients, "unit": "events/s", "ours": our.json(), "reference": their.json(),
            "ratio": ratio, "goal": goal, "pass": ratio >= goal,
        }));
    }
    Ok(json!({
        "reference": "pgbench -M prepared, one row into log.events and log.event_bodies",
        "header_bytes": reference.header.len(), "body_bytes": reference.body.len(), "rounds": rounds,
        "seconds_per_round": time.as_secs(), "measures": measures,
    }))
}

struct Figures {
    median: f64,
    min: f64,
    max: f64,
}

impl Figures {
    fn of(mut figures: Vec<f64>) -> Self {
        figures.sort_by(f64::total_cmp);
        let at = |index: usize| figures.get(index).copied().unwrap_or(f64::NAN);
        Self { median: at(figures.len() / 2), min: at(0), max: at(figures.len().saturating_sub(1)) }
    }

    fn json(&self) -> serde_json::Value {
        json!({"median": self.median.round(), "min": self.min.round(), "max": self.max.round()})
    }
}

fn event(log: &EventLog) -> NewEvent {
    NewEvent {
        event_id: EventId(Uuid::now_v7()),
        tenant: TENANT,
        recorded_at: log.clock().now(),
        actor: "service:bench".to_owned(),
        correlation_id: Some(RunId(Uuid::from_u128(2))),
        causation_id: None,
        event: Event::LeaseRevoked(LeaseRevoked {
            lease_id: LeaseId(Uuid::from_u128(3)),
            epoch: Epoch(1),
            reason: Some("r".repeat(REASON_BYTES)),
        }),
    }
}

/// Events per second of `clients` callers, each waiting for one append on its own stream before the next.
async fn ours(log: &EventLog, clients: usize, time: Duration) -> Result<f64, Failure> {
    let before = log.head().await?;
    let began = Instant::now();
    let mut callers: JoinSet<Result<u64, Failure>> = JoinSet::new();
    for _ in 0..clients {
        let log = log.clone();
        callers.spawn(async move {
            let stream = StreamName::run(TENANT, RunId(Uuid::now_v7()));
            let (mut expected, mut count) = (Expected::None, 0);
            while began.elapsed() < time {
                let events = vec![event(&log)];
                let request =
                    AppendRequest { stream: stream.clone(), expected, guards: Vec::new(), key: None, events };
                expected = Expected::Exact(log.append(request).await?.tip);
                count += 1;
            }
            Ok(count)
        });
    }
    let mut total = 0;
    while let Some(count) = callers.join_next().await {
        total += count??;
    }
    let rate = total as f64 / began.elapsed().as_secs_f64();
    let mut next = before;
    while let Some(last) = log.read_all(next, 4096).await?.last() {
        next = last.position.next();
    }
    if next != Position(before.get() + total) {
        return Err(format!("{total} appends from {before}, but the log ends at {next}").into());
    }
    Ok(rate)
}

/// pgbench on a second database with the same schema.
struct Reference {
    dir: tempfile::TempDir,
    socket_dir: String,
    header: String,
    body: String,
}

impl Reference {
    async fn prepare(server: &EmbeddedPostgres, log: &EventLog) -> Result<Self, Failure> {
        let socket_dir = server.urls().socket_dir().display().to_string();
        psql(&socket_dir, "postgres", "CREATE DATABASE reference OWNER leasehold_owner")?;
        event_log::migrate(&server.migrate_url().replace("/leasehold?", "/reference?")).await?;
        psql(&socket_dir, "reference", "CREATE SEQUENCE positions MINVALUE 0")?;
        // The bytes of one of our own events.
        let new = event(log);
        let stream = StreamName::run(TENANT, RunId(Uuid::now_v7()));
        let body = encode_body(&new.event)?;
        let version = Version(1000);
        let sealed = events::stored::seal(log.log_id(), &stream, version, &[7; 32], &new, &[7; 32], &body)?;
        let dir = tempfile::tempdir()?;
        std::fs::write(
            dir.path().join("insert.sql"),
            "WITH event AS (\n\
             INSERT INTO log.events (position, stream_id, version, type_id, event_id, tenant, recorded_at, leaf, header)\n\
             SELECT p, :client_id, p, 5, gen_random_uuid(), '00000000-0000-0000-0000-000000000001', clock_timestamp(), :leaf, :header\n\
             FROM nextval('positions') AS p RETURNING position)\n\
             INSERT INTO log.event_bodies (position, salt, body) SELECT position, :leaf, :body FROM event;\n",
        )?;
        let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec());
        Ok(Self { dir, socket_dir, header: text(&sealed.header)?, body: text(&body)? })
    }

    /// Transactions per second.
    fn run(&self, clients: usize, time: Duration) -> Result<f64, Failure> {
        let bytea = |bytes: &str| format!("\\x{}", hex::encode(bytes));
        let output = command("pgbench")?
            .args(["-n", "-M", "prepared", "-h", &self.socket_dir, "-U", "leasehold_administrator"])
            .args(["-c", &clients.to_string(), "-j", "2", "-T", &time.as_secs().max(1).to_string()])
            .args([
                "-D",
                &format!("header={}", bytea(&self.header)),
                "-D",
                &format!("body={}", bytea(&self.body)),
            ])
            .args(["-D", &format!("leaf={}", bytea(&"l".repeat(32))), "-f"])
            .arg(self.dir.path().join("insert.sql"))
            .arg("reference")
            .output()?;
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        if !output.status.success() || !text.contains("number of failed transactions: 0 ") {
            return Err(format!("pgbench failed: {text}{}", String::from_utf8_lossy(&output.stderr)).into());
        }
        let line = text.lines().find_map(|line| line.strip_prefix("tps = ")).ok_or("pgbench says no rate")?;
        Ok(line.split_whitespace().next().ok_or("pgbench says no rate")?.parse()?)
    }
}

fn psql(socket_dir: &str, database: &str, sql: &str) -> Result<(), Failure> {
    let output = command("psql")?
        .args([
            "-v",
            "ON_ERROR_STOP=1",
            "-h",
            socket_dir,
            "-U",
            "leasehold_administrator",
            "-c",
            sql,
            database,
        ])
        .output()?;
    if output.status.success() {
        Ok(())
    } else {
        Err(String::from_utf8_lossy(&output.stderr).into_owned().into())
    }
}

/// A program of the newest installed server, else of PATH.
#[expect(clippy::disallowed_methods, reason = "the reference of a benchmark is another program")]
fn command(name: &str) -> Result<std::process::Command, Failure> {
    let mut installed: Vec<_> = std::fs::read_dir("/usr/lib/postgresql")
        .into_iter()
        .flatten()
        .filter_map(|entry| Some(entry.ok()?.path().join("bin").join(name)))
        .filter(|path| path.is_file())
        .collect();
    installed.sort();
    Ok(std::process::Command::new(installed.pop().unwrap_or_else(|| name.into())))
}
