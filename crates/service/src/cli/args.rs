//! Arguments.

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand};
use uuid::Uuid;

/// Leases on sandboxes for code that nobody vouches for.
#[derive(Debug, Parser)]
#[command(name = "leasehold", version, max_term_width = 100)]
pub(super) struct Cli {
    #[command(subcommand)]
    pub(super) command: Command,
}

#[derive(Debug, Subcommand)]
pub(super) enum Command {
    /// Run the service.
    Serve(Serve),
    /// Run one command in a sandbox and exit with its code.
    Run(Run),
    /// Work with leases.
    Lease(Lease),
    /// Show the events of a run.
    Events(Events),
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
    /// How environments are isolated: docker or fake.
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
    #[arg(long, env = "LEASEHOLD_URL", default_value = "http://127.0.0.1:7390")]
    pub(super) url: String,
    /// The bearer token.
    #[arg(long, env = "LEASEHOLD_TOKEN", hide_env_values = true)]
    pub(super) token: String,
}

#[derive(Debug, Args)]
pub(super) struct Run {
    #[command(flatten)]
    pub(super) server: Server,
    /// Use this lease and leave it; otherwise one is acquired and released.
    #[arg(long)]
    pub(super) lease: Option<Uuid>,
    /// The run to acquire a lease on; a new one by default.
    #[arg(long, conflicts_with = "lease")]
    pub(super) run: Option<Uuid>,
    /// Life of the acquired lease in seconds.
    #[arg(long, default_value_t = 600.0, value_name = "SECONDS", conflicts_with = "lease")]
    pub(super) ttl: f64,
    /// Time limit of the command in seconds.
    #[arg(long, value_name = "SECONDS")]
    pub(super) timeout: Option<f64>,
    /// Working directory relative to /workspace.
    #[arg(long)]
    pub(super) cwd: Option<String>,
    /// A variable for the command; may be repeated.
    #[arg(long, value_name = "NAME=VALUE")]
    pub(super) env: Vec<String>,
    /// Pass this program's standard input to the command.
    #[arg(short = 'i', long)]
    pub(super) stdin: bool,
    /// Program and arguments.
    #[arg(required = true, trailing_var_arg = true, allow_hyphen_values = true)]
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
        #[arg(long)]
        run: Option<Uuid>,
        /// Life in seconds.
        #[arg(long, default_value_t = 600.0, value_name = "SECONDS")]
        ttl: f64,
        /// Who holds it.
        #[arg(long)]
        holder: Option<String>,
        /// End a live lease of the run instead of being refused.
        #[arg(long)]
        takeover: bool,
    },
    /// Show one lease.
    Show {
        /// The lease.
        lease: Uuid,
    },
    /// Let a lease live for some time from now.
    Renew {
        /// The lease.
        lease: Uuid,
        /// Life from now in seconds.
        #[arg(long, default_value_t = 600.0, value_name = "SECONDS")]
        ttl: f64,
    },
    /// Give a lease back.
    Release {
        /// The lease.
        lease: Uuid,
    },
    /// End a lease as an operator.
    Revoke {
        /// The lease.
        lease: Uuid,
        /// Why.
        #[arg(long)]
        reason: Option<String>,
    },
    /// List leases, newest first.
    List {
        /// Only of this run.
        #[arg(long)]
        run: Option<Uuid>,
        /// Only in this state: live, released, expired, revoked or fenced.
        #[arg(long)]
        state: Option<String>,
    },
}

#[derive(Debug, Args)]
pub(super) struct Events {
    #[command(flatten)]
    pub(super) server: Server,
    /// The run.
    #[arg(long)]
    pub(super) run: Uuid,
    /// One JSON object per line.
    #[arg(long)]
    pub(super) json: bool,
}

#[derive(Debug, Args)]
pub(super) struct Migrate {
    /// PostgreSQL as role leasehold_migrate.
    #[arg(long, env = "LEASEHOLD_DATABASE_MIGRATE_URL", hide_env_values = true, value_name = "URL")]
    pub(super) database_url: String,
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
    }
}
