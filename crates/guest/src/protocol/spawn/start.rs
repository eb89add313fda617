//! What a command starts with.

use super::super::codec::{Put, Take};
use super::super::frame::ProtocolError;
use super::{MAX_ARGS, MAX_ENV, MAX_START_BYTES};

/// Resource limits set on the child before it drops its privileges; hard and soft alike. Core is always 0.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Rlimits {
    /// Open files (count).
    pub nofile: Option<u64>,
    /// File size in bytes.
    pub fsize: Option<u64>,
    /// Processes of the uid (count; only meaningful under gVisor).
    pub nproc: Option<u64>,
}

/// Everything a command starts with.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StartCommand {
    /// 1 to [`MAX_ARGS`] arguments, raw bytes without NUL. The first is an absolute path or a bare name, looked
    /// up on `/usr/local/bin:/usr/bin:/bin` only.
    pub argv: Vec<Vec<u8>>,
    /// Directory relative to `/workspace`, raw bytes; empty is the workspace itself.
    pub cwd: Vec<u8>,
    /// The child's whole environment: name and value, raw bytes without NUL, names without `=`.
    pub env: Vec<(Vec<u8>, Vec<u8>)>,
    /// User id of the command; never 0.
    pub uid: u32,
    /// Group id of the command; never 0.
    pub gid: u32,
    /// Limits of the child.
    pub rlimits: Rlimits,
    /// Written to the child's `oom_score_adj`, -1000 to 1000.
    pub oom_score_adj: i32,
    /// True: stdin is a pipe fed by `StdinData`. False: `/dev/null`.
    pub stdin: bool,
    /// True: may run beside others, to be ended by `Kill`.
    pub background: bool,
}

impl StartCommand {
    /// Length of the start frame's payload in bytes, to be compared with [`MAX_START_BYTES`].
    #[must_use]
    pub fn encoded_bytes(&self) -> usize {
        let mut out = Vec::new();
        self.put(&mut out);
        out.len()
    }

    pub(super) fn put(&self, out: &mut Vec<u8>) {
        out.put_u32(u32::try_from(self.argv.len()).unwrap_or(u32::MAX));
        for arg in &self.argv {
            out.put_bytes(arg);
        }
        out.put_bytes(&self.cwd);
        out.put_u32(u32::try_from(self.env.len()).unwrap_or(u32::MAX));
        for (name, value) in &self.env {
            out.put_bytes(name);
            out.put_bytes(value);
        }
        out.put_u32(self.uid);
        out.put_u32(self.gid);
        out.put_opt_u64(self.rlimits.nofile);
        out.put_opt_u64(self.rlimits.fsize);
        out.put_opt_u64(self.rlimits.nproc);
        out.put_i32(self.oom_score_adj);
        out.put_bool(self.stdin);
        out.put_bool(self.background);
    }

    pub(super) fn take(take: &mut Take<'_>) -> Result<Self, ProtocolError> {
        let args = count(take, "argv", MAX_ARGS)?;
        let argv: Vec<_> = (0..args).map(|_| text(take, "argv", false)).collect::<Result<_, _>>()?;
        if argv.is_empty() {
            return Err(take.malformed("argv"));
        }
        let cwd = take.bytes("cwd", MAX_START_BYTES)?;
        let vars = count(take, "env", MAX_ENV)?;
        let env = (0..vars)
            .map(|_| Ok((text(take, "env name", true)?, text(take, "env value", false)?)))
            .collect::<Result<_, ProtocolError>>()?;
        let (uid, gid) = (take.u32("uid")?, take.u32("gid")?);
        if uid == 0 || gid == 0 || uid == u32::MAX || gid == u32::MAX {
            return Err(take.malformed("uid or gid"));
        }
        let rlimits = Rlimits {
            nofile: take.opt_u64("nofile")?,
            fsize: take.opt_u64("fsize")?,
            nproc: take.opt_u64("nproc")?,
        };
        let oom_score_adj = take.i32("oom_score_adj")?;
        if !(-1000..=1000).contains(&oom_score_adj) {
            return Err(take.malformed("oom_score_adj"));
        }
        let (stdin, background) = (take.bool("stdin")?, take.bool("background")?);
        Ok(Self { argv, cwd, env, uid, gid, rlimits, oom_score_adj, stdin, background })
    }
}

fn count(take: &mut Take<'_>, field: &'static str, max: usize) -> Result<usize, ProtocolError> {
    let count = usize::try_from(take.u32(field)?).unwrap_or(usize::MAX);
    if count > max { Err(take.malformed(field)) } else { Ok(count) }
}

fn text(take: &mut Take<'_>, field: &'static str, is_name: bool) -> Result<Vec<u8>, ProtocolError> {
    let bytes = take.bytes(field, MAX_START_BYTES)?;
    let bad_name = is_name && (bytes.is_empty() || bytes.contains(&b'='));
    if bad_name || bytes.contains(&0) { Err(take.malformed(field)) } else { Ok(bytes) }
}
