//! Who asks, and for what.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::str::FromStr;

use bytes::Bytes;
use events::{Position, TenantId};

/// What a token may do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Scope {
    /// Leases, commands, output, closing.
    Run,
    /// Workspace files.
    Files,
    /// A run's events.
    Audit,
    /// Revocation and everything else that overrules a holder.
    Operator,
}

/// A known caller: what a bearer token stands for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Principal {
    /// Whose objects it sees; every other tenant's are as if missing.
    pub tenant: TenantId,
    /// How events name it: `token:{id}`.
    pub actor: String,
    /// What it may do.
    pub scopes: BTreeSet<Scope>,
}

/// A client's idempotency key together with what it stands for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Idempotency {
    /// The key, as sent (1 to 255 visible ASCII characters).
    pub key: String,
    /// SHA-256 over method, path and canonical JSON body: another request under the same key is refused.
    pub digest: [u8; 32],
}

/// Everything about a request but its own content.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RequestCtx {
    /// Who asks.
    pub principal: Principal,
    /// The key of a request that may be repeated.
    pub idempotency: Option<Idempotency>,
    /// Reads wait until the projections have folded everything before this position.
    pub min_position: Option<Position>,
}

/// Take a lease.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AcquireRequest {
    /// Life from now in ms: 1,000 to the environment cap.
    pub ttl_ms: u64,
    /// Who holds it, in the client's words.
    pub holder: Option<String>,
    /// Limits other than the operator's defaults; each at most the operator's ceiling.
    pub limits: LimitsRequest,
    /// Whether egress is asked for.
    pub network: bool,
    /// Tools that code under the lease may call.
    pub tools: Vec<String>,
    /// End a live lease of the run instead of being refused.
    pub takeover: bool,
    /// The client's own labels.
    pub labels: BTreeMap<String, String>,
}

/// The six limits, each optional.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[expect(missing_docs, reason = "see events::spec::Limits, field by field")]
pub struct LimitsRequest {
    pub cpu_millicores: Option<u64>,
    pub memory_bytes: Option<u64>,
    pub pids_max: Option<u64>,
    pub workspace_bytes: Option<u64>,
    pub inodes_max: Option<u64>,
    pub wall_clock_seconds: Option<u64>,
}

/// Execute a command.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CommandRequest {
    /// Program and arguments; `argv[0]` absolute or a bare name.
    pub argv: Vec<String>,
    /// Relative to `/workspace`; `None` is the workspace itself.
    pub cwd: Option<String>,
    /// Variables on top of the built ones.
    pub env: BTreeMap<String, String>,
    /// Standard input; `None` is end of file at once, which is not the same as empty bytes in the record.
    pub stdin: Option<Bytes>,
    /// Time limit in ms; lowered to the caps that apply, never refused for being above them.
    pub timeout_ms: Option<u64>,
    /// Expected output in bytes; four times as much is the hard ceiling (default 64 MiB).
    pub output_bytes: Option<u64>,
    /// Beside the foreground command, without waiting for it.
    pub background: bool,
}

/// A part of a list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PageRequest {
    /// `next_cursor` of the page before; opaque to clients.
    pub cursor: Option<String>,
    /// Entries wanted, 1 to 1,000.
    pub limit: usize,
}

/// Which files.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListFiles {
    /// The directory, raw bytes relative to the workspace; `None` or empty is the workspace itself.
    pub path: Option<Vec<u8>>,
    /// Below it as well.
    pub recursive: bool,
    /// Continue after this path.
    pub after: Option<Vec<u8>>,
    /// Entries wanted, 1 to 1,000.
    pub limit: usize,
}

/// How many bytes of each stream a reader has, written `<stdout>.<stderr>`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OutputCursor {
    /// Bytes of standard output.
    pub stdout: u64,
    /// Bytes of standard error.
    pub stderr: u64,
}

/// The text is not `<stdout>.<stderr>`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a cursor is two byte counts joined by a dot")]
pub struct InvalidCursor;

impl fmt::Display for OutputCursor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.stdout, self.stderr)
    }
}

impl FromStr for OutputCursor {
    type Err = InvalidCursor;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let (stdout, stderr) = text.split_once('.').ok_or(InvalidCursor)?;
        let count = |part: &str| {
            if part.is_empty() || !part.bytes().all(|b| b.is_ascii_digit()) {
                return Err(InvalidCursor);
            }
            part.parse::<u64>().map_err(|_| InvalidCursor)
        };
        Ok(Self { stdout: count(stdout)?, stderr: count(stderr)? })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cursors_round_trip_and_refuse_everything_else() {
        let cursor: OutputCursor = "12.0".parse().unwrap();
        assert_eq!(cursor, OutputCursor { stdout: 12, stderr: 0 });
        assert_eq!(cursor.to_string(), "12.0");
        for bad in ["", "1", "1.", ".1", "1.2.3", "+1.2", "-1.2", "a.b", "99999999999999999999.0"] {
            assert_eq!(bad.parse::<OutputCursor>(), Err(InvalidCursor), "{bad}");
        }
    }
}
