//! Options, exit codes and output of `leasehold-replay`.

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{Args, Parser, Subcommand};
use event_log::proof::note::VerifierKey;
use event_log::verify::Report;
use events::{RunId, TenantId};
use projections::timeline::Escaped;

use crate::bundle::{check, write as export};
use crate::error::ReplayError;
use crate::output::json_line;
use crate::source::Source;
use crate::timeline::Told;
use crate::{diff, state, timeline, verify, watch};

/// Exit codes, as documented in the help.
pub mod exit {
    /// Everything is as it must be.
    pub const VALID: u8 = 0;
    /// Something in the database or the file is not what was recorded.
    pub const TAMPERED: u8 = 2;
    /// Whole in itself, and nothing signed vouches for it.
    pub const UNANCHORED: u8 = 3;
    /// Nothing can be said: the log cannot be read, or nothing of what was asked for is in it.
    pub const UNREADABLE: u8 = 4;
    /// The command line is wrong (sysexits: EX_USAGE; 2 means tampered here).
    pub const USAGE: u8 = 64;
}

const AFTER_HELP: &str = "\
Exit codes: 0 valid, 2 tampered or different, 3 unanchored, 4 unreadable or empty, 64 wrong usage.\n\
The tool never writes to the database: its session is read-only.";

const AFTER_EXPORT: &str = "\
Exit codes: 0 written, 2 written and tampered, 4 unreadable (written all the same where only the meaning of an event \
is not known) or nothing found, 64 wrong usage.";

const EVERYWHERE: &str = "Options of every subcommand";

/// Looks at a Leasehold log without trusting the service.
#[derive(Debug, Parser)]
#[command(name = "leasehold-replay", version, after_help = AFTER_HELP)]
pub struct Cli {
    #[command(flatten)]
    source: SourceArgs,
    /// Data on standard output as JSON.
    #[arg(long, global = true, help_heading = EVERYWHERE)]
    json: bool,
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Args)]
struct SourceArgs {
    /// The database, as the audit role: postgresql://leasehold_audit@db.example.com/leasehold
    #[arg(long, global = true, help_heading = EVERYWHERE, value_name = "URL")]
    #[arg(env = "LEASEHOLD_DATABASE_URL", hide_env_values = true)]
    database_url: Option<String>,
    /// The data directory of an embedded database that is running (`leasehold serve --dev --data DIR`).
    #[arg(long, global = true, help_heading = EVERYWHERE, value_name = "DIR")]
    data: Option<PathBuf>,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Recomputes every leaf, chain and signed root from stored bytes and compares the projections with a fresh fold.
    ///
    /// Says how much was checked, how many events a signed checkpoint covers and how many follow it: those are unanchored, and never
    /// called valid. A log without events is a failure. Signatures of the keys given with --key are believed; without one, of the
    /// keys that the log names for itself, which whoever can rewrite the database can exchange. A log that nobody has ever sealed is
    /// checked by its chain only, and that is said.
    ///
    /// With --bundle the same for the file of an export, without a database; it never takes a key from the file.
    #[command(
        after_help = "Exit codes: 0 valid (a checkpoint covers all but the last 10 s, or nothing was ever sealed; a bundle: all of it), \
                            2 tampered, 3 unanchored, 4 unreadable or empty, 64 wrong usage."
    )]
    Verify {
        /// The file of an export; no database is used.
        #[arg(long, value_name = "FILE")]
        bundle: Option<PathBuf>,
        /// A public key whose signatures are believed (NAME+ID+BASE64). May be given several times, for keys of one log.
        #[arg(long = "key", value_name = "VERIFIERKEY")]
        keys: Vec<VerifierKey>,
        /// A signed head of the log that was kept elsewhere: the log must hold it. May be given several times. With --data the file
        /// `signed_head` in the directory counts too, if it is there.
        #[arg(long = "head", value_name = "FILE", conflicts_with = "bundle")]
        heads: Vec<PathBuf>,
    },
    /// What happened, one line per event; with --json one JSON object per line.
    ///
    /// Reads the log itself, not an index of it. Text of foreign origin is escaped.
    #[command(after_help = "Exit codes: 0 told, 4 unreadable or nothing found, 64 wrong usage.")]
    Timeline(timeline::Selection),
    /// Every view as of one place in the log, by a fresh fold up to there.
    ///
    /// A table of the columns that matter; with --json one object that names the position, then one object per row with all
    /// columns. Whole rows are held in memory: --run keeps that small.
    #[command(after_help = "Exit codes: 0 told, 4 unreadable or nothing found, 64 wrong usage.")]
    StateAt(state::Selection),
    /// The live views against a fresh fold of the log, row by row and column by column, in one snapshot.
    ///
    /// The first 100 rows that differ are told; the others are counted.
    #[command(after_help = "Exit codes: 0 equal, 2 different, 4 unreadable or empty, 64 wrong usage.")]
    Diff,
    /// A run's history as a file of JSON lines that `verify --bundle` checks without the database.
    ///
    /// Holds the bytes of every event, bodies included: what the run's commands said is in it; the newest checkpoint, and each event's
    /// proof of being in it, unless it is not sealed yet, which takes a second. It is checked on the way; a damaged history is written all the same, and its faults are told on standard error.
    #[command(after_help = AFTER_EXPORT)]
    Export {
        /// The run.
        #[arg(long, value_name = "RUN")]
        run: RunId,
        /// Its tenant; needed only when several tenants have a run of that id.
        #[arg(long, value_name = "TENANT")]
        tenant: Option<TenantId>,
        /// Where to; must not exist yet. Without it: standard output.
        #[arg(long, value_name = "FILE")]
        out: Option<PathBuf>,
    },
    /// Events as they are appended, one line each, until Ctrl-C; with --json one JSON object per line.
    ///
    /// Waits out a restart of the database, without losing or repeating an event, and says so on standard error.
    #[command(
        after_help = "Exit codes: 0 ended by a signal or by the reader of its output, 2 the log is not the one that it was, \
                            4 unreadable, 64 wrong usage."
    )]
    Watch(watch::Selection),
}

impl SourceArgs {
    /// A directory that was named counts more than a URL from the environment.
    fn source(self) -> Result<Source, ReplayError> {
        match (self.data, self.database_url) {
            (Some(data_dir), _) => Ok(Source::DataDir(data_dir)),
            (None, Some(url)) => Ok(Source::Url(url)),
            (None, None) => Err(ReplayError::NoSource),
        }
    }
}

/// Parses the command line of this process and does what it says.
#[must_use]
pub fn main() -> ExitCode {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => {
            // Help goes to stdout and is no error; there is nothing left to tell when printing fails.
            let _ = error.print();
            return ExitCode::from(if error.use_stderr() { exit::USAGE } else { exit::VALID });
        }
    };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let done = runtime.map_err(ReplayError::Output).and_then(|runtime| {
        let done = runtime.block_on(run(cli));
        // A write to a reader that does not read must not hold the end back.
        runtime.shutdown_background();
        done
    });
    ExitCode::from(done.unwrap_or_else(|error| failed(&error)))
}

fn failed(error: &ReplayError) -> u8 {
    match error {
        // A reader that has seen enough (`| head`) is no fault of the log.
        ReplayError::Output(error) if error.kind() == io::ErrorKind::BrokenPipe => return exit::VALID,
        _ => complain(&error.with_causes()),
    }
    match error {
        ReplayError::NoSource | ReplayError::AmbiguousRun { .. } | ReplayError::Keys { .. } => exit::USAGE,
        ReplayError::Exchanged { .. } => exit::TAMPERED,
        _ => exit::UNREADABLE,
    }
}

/// One line on standard error. Causes quote what the database says, so they are escaped.
fn complain(words: &str) {
    let _ = writeln!(io::stderr(), "leasehold-replay: {}", Escaped(words));
}

async fn run(cli: Cli) -> Result<u8, ReplayError> {
    let json = cli.json;
    match cli.command {
        Command::Verify { bundle, keys, heads } => {
            of_one_log(&keys)?;
            let Some(file) = bundle else {
                let report = verify::verify(&cli.source.source()?, keys, &heads).await?;
                tell(json, &report.to_json(), &report)?;
                return Ok(report.verdict.exit_code());
            };
            verify_bundle(&file, &keys, json)
        }
        Command::Timeline(selection) => {
            let mut out = stdout();
            let told = timeline::write(&cli.source.source()?, selection, json, &mut out).await;
            out.flush()?;
            if told? == Told::SeveralTenants {
                complain("several tenants have a run of that id: --tenant tells them apart");
            }
            Ok(exit::VALID)
        }
        Command::StateAt(selection) => {
            let mut out = stdout();
            state::write(&cli.source.source()?, selection, json, &mut out).await?;
            out.flush()?;
            Ok(exit::VALID)
        }
        Command::Diff => {
            let report = diff::diff(&cli.source.source()?).await?;
            tell(json, &report.to_json(), &report)?;
            Ok(match report.verdict {
                diff::Verdict::Equal => exit::VALID,
                diff::Verdict::Different => exit::TAMPERED,
                diff::Verdict::Empty => exit::UNREADABLE,
            })
        }
        Command::Export { run, tenant, out } => {
            let source = cli.source.source()?;
            let written = match out {
                Some(path) => export_to(&source, run, tenant, &path).await?,
                None => {
                    let mut out = stdout();
                    let written = export::write(&source, run, tenant, &mut out).await?;
                    out.flush()?;
                    written
                }
            };
            Ok(exported(&written))
        }
        Command::Watch(selection) => {
            watch::watch(&cli.source.source()?, selection, json).await?;
            Ok(exit::VALID)
        }
    }
}

/// A key is named after the log whose heads it signs.
fn of_one_log(keys: &[VerifierKey]) -> Result<(), ReplayError> {
    let mut names = keys.iter().map(|key| key.id().name.clone());
    let Some(first) = names.next() else { return Ok(()) };
    match names.find(|name| *name != first) {
        Some(other) => Err(ReplayError::Keys { first, other }),
        None => Ok(()),
    }
}

fn stdout() -> BufWriter<io::StdoutLock<'static>> {
    BufWriter::new(io::stdout().lock())
}

/// A report: as JSON on one line, or in words.
fn tell(json: bool, value: &serde_json::Value, words: &impl std::fmt::Display) -> Result<(), ReplayError> {
    let mut out = stdout();
    if json {
        json_line(&mut out, value)?;
    } else {
        write!(out, "{words}")?;
    }
    Ok(out.flush()?)
}

fn verify_bundle(file: &Path, keys: &[VerifierKey], json: bool) -> Result<u8, ReplayError> {
    let report = check::check(file, keys)?;
    tell(json, &report.to_json(), &report)?;
    Ok(report.verdict.exit_code())
}

/// Into a file of its own, which stays only when it is complete.
async fn export_to(
    source: &Source,
    run: RunId,
    tenant: Option<TenantId>,
    path: &Path,
) -> Result<export::Written, ReplayError> {
    let file = |source| ReplayError::File { path: path.to_owned(), source };
    // What commands were given and what they said is in it: nobody else's business.
    let created = File::options().write(true).create_new(true).mode(0o600).open(path);
    let mut out = BufWriter::new(created.map_err(file)?);
    let written = match export::write(source, run, tenant, &mut out).await {
        Ok(written) => out.flush().and_then(|()| out.get_ref().sync_all()).map(|()| written).map_err(file),
        Err(ReplayError::Output(error)) => Err(file(error)),
        Err(error) => Err(error),
    };
    if written.is_err() {
        // The fault that made it incomplete is the one to tell.
        let _ = std::fs::remove_file(path);
    }
    written
}

/// What was written, on standard error: standard output may be the file.
fn exported(written: &export::Written) -> u8 {
    let Report { events, faults_found, faults, .. } = &written.report;
    let mut words = io::stderr().lock();
    let proven = match written.proven {
        Some((proven, size)) => format!(", {proven} of them proven in checkpoint {size}"),
        None => String::new(),
    };
    let _ = writeln!(words, "wrote {events} events of {}{proven}", written.tip.stream);
    for fault in &written.anchor_faults {
        let _ = writeln!(words, "  FAULT: {}", Escaped(fault));
    }
    for fault in faults {
        let _ = writeln!(words, "  FAULT: {}", Escaped(&fault.to_string()));
    }
    let sealed = written.anchor_faults.is_empty();
    let (code, verdict) = match *faults_found {
        0 if sealed => return exit::VALID,
        _ if sealed && written.report.is_unchanged() => {
            (exit::UNREADABLE, "UNREADABLE: this version does not know every event")
        }
        _ => (exit::TAMPERED, "TAMPERED: the log is not what was recorded"),
    };
    let _ = writeln!(words, "{verdict}; the file holds what is stored");
    code
}
