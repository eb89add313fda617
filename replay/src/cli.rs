//! Options, exit codes and output of `leasehold-replay`.

use std::io::{self, Write};
use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, Parser, Subcommand};
use events::RunId;

use crate::error::ReplayError;
use crate::source::Source;
use crate::verify::Verdict;
use crate::{timeline, verify};

/// Exit codes, as documented in the help.
pub mod exit {
    /// Everything is as it must be.
    pub const VALID: u8 = 0;
    /// Something in the database is not what was recorded.
    pub const TAMPERED: u8 = 2;
    /// Nothing can be said: the log cannot be read, or nothing of what was asked for is in it.
    pub const UNREADABLE: u8 = 4;
    /// The command line is wrong (sysexits: EX_USAGE; 2 means tampered here).
    pub const USAGE: u8 = 64;
}

const AFTER_HELP: &str = "Exit codes: 0 valid, 2 tampered, 4 unreadable or empty, 64 wrong usage.\n\
                          The tool never writes: its session is read-only.";

/// Looks at a Leasehold log without trusting the service.
#[derive(Debug, Parser)]
#[command(name = "leasehold-replay", version, after_help = AFTER_HELP)]
pub struct Cli {
    #[command(flatten)]
    source: SourceArgs,
    /// Data on standard output as JSON.
    #[arg(long, global = true)]
    json: bool,
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Args)]
struct SourceArgs {
    /// The database, as the audit role: postgresql://leasehold_audit@db.example.com/leasehold
    #[arg(long, global = true, value_name = "URL", env = "LEASEHOLD_DATABASE_URL", hide_env_values = true)]
    database_url: Option<String>,
    /// The data directory of an embedded database that is running (`leasehold serve --dev --data DIR`).
    #[arg(long, global = true, value_name = "DIR")]
    data: Option<PathBuf>,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Recomputes every leaf and chain from stored bytes and compares the projections with a fresh fold.
    Verify,
    /// What happened, one line per event; with --json one JSON object per line.
    Timeline {
        /// Only this run; without it the whole log.
        #[arg(long, value_name = "RUN")]
        run: Option<RunId>,
    },
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
    let done = runtime.map_err(ReplayError::Output).and_then(|runtime| runtime.block_on(run(cli)));
    let code = done.unwrap_or_else(|error| {
        // A reader that has seen enough (`| head`) is no fault of the log.
        if matches!(&error, ReplayError::Output(error) if error.kind() == io::ErrorKind::BrokenPipe) {
            return exit::VALID;
        }
        let _ = writeln!(io::stderr(), "leasehold-replay: {}", error.with_causes());
        if matches!(error, ReplayError::NoSource) { exit::USAGE } else { exit::UNREADABLE }
    });
    ExitCode::from(code)
}

async fn run(cli: Cli) -> Result<u8, ReplayError> {
    let source = cli.source.source()?;
    let mut out = io::BufWriter::new(io::stdout().lock());
    match cli.command {
        Command::Verify => {
            let report = verify::verify(&source).await?;
            if cli.json {
                serde_json::to_writer(&mut out, &report.to_json())?;
                writeln!(out)?;
            } else {
                write!(out, "{report}")?;
            }
            out.flush()?;
            Ok(match report.verdict {
                Verdict::Valid => exit::VALID,
                Verdict::Tampered => exit::TAMPERED,
                Verdict::Unreadable | Verdict::Empty => exit::UNREADABLE,
            })
        }
        Command::Timeline { run } => {
            timeline::write(&source, run, cli.json, &mut out).await?;
            out.flush()?;
            Ok(exit::VALID)
        }
    }
}
