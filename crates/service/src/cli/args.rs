//! Arguments.

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand};
use uuid::Uuid;

/// The codes of [`super::exit`] that every command shares.
const EXIT_CODES: &str = "\
Exit codes:
  0   done
  1   refused or failed; the message says why
  2   wrong usage or configuration
  69  the service, the engine or the database does not answer; trying again may help
`leasehold run` has codes of its own: `leasehold run --help`.";

const SERVE_EXAMPLES: &str = "\
Examples:
  leasehold serve --dev                                      # prints the address and the token to use
  leasehold serve --dev --json --listen 127.0.0.1:0 --data /var/tmp/leasehold

SIGTERM or Ctrl-C ends it: running commands end as SERVICE_SHUTDOWN, and with --dev their sandboxes go.";

const RUN_EXAMPLES: &str = "\
Examples:
  leasehold run -- python3 -c 'print(1 + 1)'
  leasehold run -- sh -c 'seq 3 | wc -l'                     # a pipe inside the sandbox needs a shell
  echo 'a b c' | leasehold run -i -- wc -w                   # without -i the command reads nothing
  leasehold run --timeout 2 -- sleep 60                      # exits with 124
  lease=$(leasehold lease acquire --json | jq -r .lease_id)  # several commands in one workspace:
  leasehold run --lease \"$lease\" -- ls -l

Exit codes: the command's own, and
  2    wrong usage or configuration
  124  the command was killed by its time limit
  125  the command has no result, for a reason that is not its own
  126, 127  the program could not be started; the message says why
  137  the command was killed for another reason; the message names it
  130, 143  ended by Ctrl-C or SIGTERM; the command was killed
  141  nobody reads the output any more; the command was killed
The time limit is at most what the operator allows (300 s unless set otherwise): a longer --timeout is lowered to it.";

const LEASE_EXAMPLES: &str = "\
Examples:
  leasehold lease acquire --ttl 3600 --holder build-7
  lease=$(leasehold lease acquire --json | jq -r .lease_id)
  leasehold lease renew \"$lease\" --ttl 600
  leasehold lease release \"$lease\"                         # its sandbox and workspace go
  leasehold lease list --state live";

const EVENTS_EXAMPLES: &str = "\
Examples:
  leasehold lease list                                       # shows the runs
  leasehold events --run RUN_ID
  leasehold events --run RUN_ID --json | jq -r .type";

/// Leases on sandboxes for code that nobody vouches for.
#[derive(Debug, Parser)]
#[command(name = "leasehold", version, max_term_width = 110, after_help = EXIT_CODES)]
pub(super) struct Cli {
    #[command(subcommand)]
    pub(super) command: Command,
}

#[derive(Debug, Subcommand)]
pub(super) enum Command {
    /// Run the service.
    #[command(after_help = SERVE_EXAMPLES)]
    Serve(Serve),
    /// Run one command in a sandbox and exit with its code.
    #[command(after_help = RUN_EXAMPLES)]
    Run(Run),
    /// Work with leases: the right to run commands in one sandbox, for a time.
    #[command(after_help = LEASE_EXAMPLES)]
    Lease(Lease),
    /// Show the events of a run.
    #[command(after_help = EVENTS_EXAMPLES)]
    Events(Events),
    /// Look at the log's signing.
    Log(Log),
    /// Bring a database to this version's schema.
    Migrate(Migrate),
    /// Check what this machine has and lacks.
    Doctor(Doctor),
}

#[derive(Debug, Args)]
pub(super) struct Serve {
    /// Embedded PostgreSQL, a printed token, and nothing left behind at the end.
    #[arg(long)]
    pub(super) dev: bool,
    /// Print the start-up line as JSON.
    #[arg(long)]
    pub(super) json: bool,
    /// Address and port; port 0 takes a free one.
    #[arg(long, value_name = "ADDRESS")]
    pub(super) listen: Option<String>,
    /// Folder of the embedded database and of the node's identity.
    #[arg(long, value_name = "DIR")]
    pub(super) data: Option<String>,
    /// How environments are isolated: docker, gvisor or fake.
    #[arg(long)]
    pub(super) mechanism: Option<String>,
    /// Configuration file; default leasehold.toml where it exists.
    #[arg(long, value_name = "FILE", env = "LEASEHOLD_CONFIG")]
    pub(super) config: Option<PathBuf>,
    /// Limits file; default limits.toml where it exists.
    #[arg(long, value_name = "FILE", env = "LEASEHOLD_LIMITS")]
    pub(super) limits: Option<PathBuf>,
}

#[derive(Clone, Debug, Args)]
pub(super) struct Server {
    /// Where the service listens.
    #[arg(long, env = "LEASEHOLD_URL", default_value = "http://127.0.0.1:7390", global = true)]
    pub(super) url: String,
    /// The bearer token; better in the environment, where other users do not see it.
    #[arg(long, env = "LEASEHOLD_TOKEN", hide_env_values = true, global = true)]
    pub(super) token: Option<String>,
}

#[derive(Debug, Args)]
pub(super) struct Run {
    #[command(flatten)]
    pub(super) server: Server,
    /// Use this lease and leave it; otherwise one is acquired and released.
    #[arg(long, value_name = "LEASE_ID")]
    pub(super) lease: Option<Uuid>,
    /// The run to acquire a lease on; a new one by default.
    #[arg(long, value_name = "RUN_ID", conflicts_with = "lease")]
    pub(super) run: Option<Uuid>,
    /// Life of the acquired lease in seconds.
    #[arg(long, default_value_t = 600.0, value_name = "SECONDS", conflicts_with = "lease")]
    pub(super) ttl: f64,
    /// Time limit of the command in seconds; that of the lease by default, which is 300 s unless the operator set another.
    #[arg(long, value_name = "SECONDS")]
    pub(super) timeout: Option<f64>,
    /// Working directory relative to /workspace.
    #[arg(long, value_name = "DIR")]
    pub(super) cwd: Option<String>,
    /// A variable for the command; may be repeated.
    #[arg(long, value_name = "NAME=VALUE")]
    pub(super) env: Vec<String>,
    /// Pass this program's standard input to the command.
    #[arg(short = 'i', long)]
    pub(super) stdin: bool,
    /// Program and arguments.
    #[arg(required = true, value_name = "PROGRAM", trailing_var_arg = true)]
    pub(super) argv: Vec<String>,
}

#[derive(Debug, Args)]
pub(super) struct Lease {
    #[command(flatten)]
    pub(super) server: Server,
    /// Print what the service answers as JSON.
    #[arg(long, global = true)]
    pub(super) json: bool,
    #[command(subcommand)]
    pub(super) action: LeaseAction,
}

#[derive(Debug, Subcommand)]
pub(super) enum LeaseAction {
    /// Take a lease on a run.
    Acquire {
        /// The run; a new one by default.
        #[arg(long, value_name = "RUN_ID")]
        run: Option<Uuid>,
        /// Life in seconds.
        #[arg(long, default_value_t = 600.0, value_name = "SECONDS")]
        ttl: f64,
        /// Who holds it: words for people, shown in lists.
        #[arg(long, value_name = "TEXT")]
        holder: Option<String>,
        /// End a live lease of the run instead of being refused.
        #[arg(long)]
        takeover: bool,
    },
    /// Show one lease.
    Show {
        /// The lease.
        #[arg(value_name = "LEASE_ID")]
        lease: Uuid,
    },
    /// Let a lease live for some time from now.
    Renew {
        /// The lease.
        #[arg(value_name = "LEASE_ID")]
        lease: Uuid,
        /// Life from now in seconds.
        #[arg(long, default_value_t = 600.0, value_name = "SECONDS")]
        ttl: f64,
    },
    /// Give a lease back.
    Release {
        /// The lease.
        #[arg(value_name = "LEASE_ID")]
        lease: Uuid,
    },
    /// End a lease as an operator.
    Revoke {
        /// The lease.
        #[arg(value_name = "LEASE_ID")]
        lease: Uuid,
        /// Why; recorded.
        #[arg(long, value_name = "TEXT")]
        reason: Option<String>,
    },
    /// List leases, newest first.
    List {
        /// Only of this run.
        #[arg(long, value_name = "RUN_ID")]
        run: Option<Uuid>,
        /// Only in this state.
        #[arg(long, value_parser = ["live", "released", "expired", "revoked", "fenced"])]
        state: Option<String>,
    },
}

#[derive(Debug, Args)]
pub(super) struct Events {
    #[command(flatten)]
    pub(super) server: Server,
    /// The run.
    #[arg(long, value_name = "RUN_ID")]
    pub(super) run: Uuid,
    /// Whole events, one JSON object per line.
    #[arg(long)]
    pub(super) json: bool,
}

#[derive(Debug, Args)]
pub(super) struct Migrate {
    /// PostgreSQL as role leasehold_migrate.
    #[arg(long, env = "LEASEHOLD_DATABASE_MIGRATE_URL", hide_env_values = true, value_name = "URL")]
    pub(super) database_url: String,
    /// Make the key that signs the log's heads where there is none, and pin it.
    #[arg(long)]
    pub(super) init: bool,
    /// File of that key, which only the service's account may read.
    #[arg(long, value_name = "FILE", default_value = ".leasehold/data/signing.key", requires = "init")]
    pub(super) signing_key_file: PathBuf,
}

#[derive(Debug, Args)]
pub(super) struct Log {
    #[command(subcommand)]
    pub(super) part: LogPart,
}

#[derive(Debug, Subcommand)]
pub(super) enum LogPart {
    /// The keys whose signatures on heads of the log count.
    Key {
        #[command(subcommand)]
        action: KeyAction,
    },
}

#[derive(Debug, Subcommand)]
pub(super) enum KeyAction {
    /// Show the public keys, one per line, as verifiers pin them (C2SP signed-note).
    Show {
        /// PostgreSQL as any role that reads the log, for example leasehold_audit.
        #[arg(long, env = "LEASEHOLD_DATABASE_AUDIT_URL", hide_env_values = true, value_name = "URL")]
        database_url: String,
        /// Print the log's origin as well, as JSON.
        #[arg(long)]
        json: bool,
    },
}

#[derive(Debug, Args)]
pub(super) struct Doctor {
    /// Print the findings as JSON.
    #[arg(long)]
    pub(super) json: bool,
    /// Configuration file; default leasehold.toml where it exists.
    #[arg(long, value_name = "FILE", env = "LEASEHOLD_CONFIG")]
    pub(super) config: Option<PathBuf>,
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    use super::*;

    #[test]
    fn the_grammar_is_sound_and_a_command_keeps_its_own_flags() {
        Cli::command().debug_assert();
        let cli =
            Cli::try_parse_from(["leasehold", "run", "--token", "t", "--", "ls", "-l", "--json"]).unwrap();
        let Command::Run(run) = cli.command else { panic!() };
        assert_eq!(run.argv, ["ls", "-l", "--json"]);
        let bare = Cli::try_parse_from(["leasehold", "run", "--token", "t", "ls", "--lease"]).unwrap();
        assert!(matches!(bare.command, Command::Run(run) if run.argv == ["ls", "--lease"]));
        assert!(Cli::try_parse_from(["leasehold", "run", "--token", "t"]).is_err());
        // A misspelt option of ours is nobody's program.
        for words in [["--time", "2", "--", "sleep"], ["--ttl=20", "--nosuch", "--", "true"]] {
            let words = ["leasehold", "run", "--token", "t"].into_iter().chain(words);
            assert!(Cli::try_parse_from(words).is_err());
        }
        let dashed = Cli::try_parse_from(["leasehold", "run", "--token", "t", "--", "-x", "y"]).unwrap();
        assert!(matches!(dashed.command, Command::Run(run) if run.argv == ["-x", "y"]));
    }
}
